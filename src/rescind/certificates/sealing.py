"""A private key under a passphrase, slowly: PKCS #8 with scrypt, which OpenSSL and ``cryptography`` read as it is."""

from __future__ import annotations

import base64
import secrets
from textwrap import wrap

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.padding import PKCS7

# 16 MB and about half a second a guess. OpenSSL reads no key that needs more than 32 MB, so time comes from p.
_N, _R, _P = 2**14, 8, 8
_KEY_BYTES = 32
_SALT_BYTES = 16
_LABEL = "ENCRYPTED PRIVATE KEY"

_SEQUENCE, _INTEGER, _OCTETS, _OBJECT = 0x30, 0x02, 0x04, 0x06
_PBES2 = bytes.fromhex("2a864886f70d01050d")
_SCRYPT = bytes.fromhex("2b06010401da47040b")
_AES_256_CBC = bytes.fromhex("60864801650304012a")


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
