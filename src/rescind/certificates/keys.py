"""Ed25519 keys in files: the private one encrypted and readable by its owner only, the public one as PEM."""

from __future__ import annotations

import base64
import os
import secrets
import stat
from pathlib import Path
from textwrap import wrap

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.padding import PKCS7
from securesystemslib.signer import CryptoSigner, Key, SSlibKey

from rescind.certificates.errors import UnusableKeyError
from rescind.private_files import name_when_full, open_private, read_bounded, warn_if_packed

_SHORTEST_PASSPHRASE = 12
_LONGEST = 16 * 1024

# 16 MB and about half a second a guess. OpenSSL reads no key that needs more than 32 MB, so time comes from p.
_N, _R, _P = 2**14, 8, 8
_KEY_BYTES = 32
_SALT_BYTES = 16
_LABEL = "ENCRYPTED PRIVATE KEY"

_SEQUENCE, _INTEGER, _OCTETS, _OBJECT = 0x30, 0x02, 0x04, 0x06
_PBES2 = bytes.fromhex("2a864886f70d01050d")
_SCRYPT = bytes.fromhex("2b06010401da47040b")
_AES_256_CBC = bytes.fromhex("60864801650304012a")

_FIELD = 2**255 - 19
# The curve is -x^2 + y^2 = 1 + d x^2 y^2.
_D = -121665 * pow(121666, -1, _FIELD) % _FIELD
# The points of small order come back to the neutral point after three doublings; nobody has to know a key to sign
# for one of these.
_COFACTOR_DOUBLINGS = 3


def create_key(path: str | os.PathLike[str], passphrase: str) -> Path:
    """Make a key, and return the path of its public half.

    The private half is at ``path``, encrypted under scrypt and with mode 600, the public half beside it as ``.pub``.
    A file that is there, of either name, is not overwritten.
    """
    if len(passphrase) < _SHORTEST_PASSPHRASE:
        raise UnusableKeyError(f"a passphrase of fewer than {_SHORTEST_PASSPHRASE} characters protects nothing")
    private, target = Ed25519PrivateKey.generate(), Path(path)
    public = target.with_name(target.name + ".pub")
    encoding, form = serialization.Encoding, serialization.PublicFormat.SubjectPublicKeyInfo
    plain = private.private_bytes(encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    halves = {public: private.public_key().public_bytes(encoding.PEM, form), target: encrypt_key(plain, passphrase)}
    made: list[Path] = []
    try:
        for half, content in halves.items():
            opener = open_private if half == target else None
            with name_when_full(half), open(half, "xb", opener=opener) as file:
                made.append(half)
                file.write(content)
    except OSError as error:
        # Half a key is none.
        for half in made:
            half.unlink()
        if not isinstance(error, FileExistsError):
            raise
        taken = f"{error.filename} is there already: keys are not overwritten, choose another name"
        raise UnusableKeyError(taken) from error
    warn_if_packed(target)
    return public


def load_signer(path: str | os.PathLike[str], passphrase: str) -> CryptoSigner:
    """Load a private key for signing; one that others can read is refused."""
    source = Path(path)
    content = read_key(source)
    if is_public(content):
        raise UnusableKeyError(
            f"{source} is the public key: sign with the private one, {str(source).removesuffix('.pub')}"
        )
    mode = stat.S_IMODE(source.stat().st_mode)
    if mode & 0o077:
        raise UnusableKeyError(
            f"{source} is open to other users (mode {mode:o}): run chmod 600 on it, or make a new key"
        )
    try:
        private = serialization.load_pem_private_key(content, passphrase.encode())
    except (ValueError, TypeError) as error:
        # Nothing of the key or of the passphrase is in the message.
        raise UnusableKeyError(f"{source} holds no private key that this passphrase opens") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise UnusableKeyError(f"{source} holds a key of another kind: certificates are signed with Ed25519")
    return CryptoSigner(private)


def load_public_key(path: str | os.PathLike[str]) -> Key:
    """Load a public key for verification."""
    source = Path(path)
    try:
        public = serialization.load_pem_public_key(read_key(source))
    except ValueError as error:
        raise UnusableKeyError(f"{source} holds no public key: give the file that ends in .pub") from error
    if not isinstance(public, Ed25519PublicKey):
        raise UnusableKeyError(f"{source} holds a key of another kind: certificates are signed with Ed25519")
    if not is_sound(public.public_bytes_raw()):
        raise UnusableKeyError(
            f"{source} holds a public key that belongs to no private one: anybody could sign for it. Ask for another"
        )
    return SSlibKey.from_crypto(public)


def read_key(path: Path) -> bytes:
    """Return what is in a key's file; one that is too long for a key is refused unread."""
    content = read_bounded(path, _LONGEST)
    if len(content) > _LONGEST:
        raise UnusableKeyError(f"{path} has more than {_LONGEST} bytes: it is no key")
    return content


def is_public(content: bytes) -> bool:
    """Return whether a file's content is a public key."""
    return content[:200].lstrip().startswith(b"-----BEGIN PUBLIC KEY")


# Which 32 bytes are a public key


def is_sound(public: bytes) -> bool:
    """Return whether the bytes are a point of the curve, in its one spelling, and none of the eight of small order.

    RFC 8032, section 5.1.3.
    """
    # The highest bit is the sign of x, and both signs are points.
    y = int.from_bytes(public, "little") % 2**255
    if len(public) != 32 or y >= _FIELD:
        return False
    squared = (y * y - 1) * pow(_D * y * y + 1, -1, _FIELD) % _FIELD
    # No root, or x = 0, where the order is 1 or 2.
    if pow(squared, (_FIELD - 1) // 2, _FIELD) != 1:
        return False
    # For the order the squares are enough: x^2 and y of the double follow from x^2 and y.
    for _ in range(_COFACTOR_DOUBLINGS):
        product = _D * squared * y * y % _FIELD
        y, squared = (
            (y * y + squared) * pow(1 - product, -1, _FIELD) % _FIELD,
            4 * squared * y * y * pow(1 + product, -2, _FIELD) % _FIELD,
        )
    return (squared, y) != (0, 1)


# A private key under a passphrase


def encrypt_key(private: bytes, passphrase: str) -> bytes:
    """Return a private key's PKCS #8 bytes encrypted, as PEM.

    RFC 7914, section 7: PBES2 with scrypt; RFC 8018, section 6.2.
    """
    salt, vector = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(16)
    key = Scrypt(salt, _KEY_BYTES, _N, _R, _P).derive(passphrase.encode())
    padder, cipher = PKCS7(128).padder(), Cipher(algorithms.AES256(key), modes.CBC(vector)).encryptor()
    hidden = cipher.update(padder.update(private) + padder.finalize()) + cipher.finalize()
    # With a zero in front where the first bit would be taken for a sign.
    cost = [_item(_INTEGER, parameter.to_bytes(parameter.bit_length() // 8 + 1, "big")) for parameter in (_N, _R, _P)]
    kdf = _sequence(_item(_OBJECT, _SCRYPT), _sequence(_item(_OCTETS, salt), *cost))
    aes = _sequence(_item(_OBJECT, _AES_256_CBC), _item(_OCTETS, vector))
    whole = _sequence(_sequence(_item(_OBJECT, _PBES2), _sequence(kdf, aes)), _item(_OCTETS, hidden))
    lines = wrap(base64.b64encode(whole).decode(), 64)
    return "\n".join([f"-----BEGIN {_LABEL}-----", *lines, f"-----END {_LABEL}-----", ""]).encode()


def is_slow(pem: bytes) -> bool:
    """Return whether every guess of an encrypted key's passphrase takes scrypt with as much memory as here."""
    body = b"".join(line for line in pem.splitlines() if line and not line.startswith(b"-"))
    try:
        (whole,) = _items(base64.b64decode(body, validate=True))
        algorithm, _ = _items(whole)
        _, parameters = _items(algorithm)
        derivation, _ = _items(parameters)
        name, cost = _items(derivation)
        _, n, r, *_ = _items(cost)
    except ValueError:
        return False
    return name == _SCRYPT and int.from_bytes(n, "big") * int.from_bytes(r, "big") >= _N * _R


def _items(content: bytes) -> list[bytes]:
    """Return the contents of DER's items that follow one another."""
    items = []
    while content:
        (_, length), start = content[:2], 2
        if length >= 0x80:
            start += length - 0x80
            length = int.from_bytes(content[2:start], "big")
        items.append(content[start : start + length])
        content = content[start + length :]
    return items


def _sequence(*parts: bytes) -> bytes:
    return _item(_SEQUENCE, b"".join(parts))


def _item(tag: int, content: bytes) -> bytes:
    """Return an item in DER: tag, length, content."""
    length = len(content)
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, length] if length < 0x80 else [tag, 0x80 | len(size), *size]) + content
