"""Ed25519 keys in files: the private one encrypted and readable by its owner only, the public one as PEM."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.signer import CryptoSigner, Key, SSlibKey

from rescind.certificates.curve import is_sound
from rescind.certificates.errors import UnusableKeyError
from rescind.certificates.sealing import encrypt_key
from rescind.private_files import open_private, read_bounded, warn_if_packed

_SHORTEST_PASSPHRASE = 12
_LONGEST = 16 * 1024


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
            with open(half, "xb", opener=open_private if half == target else None) as file:
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
