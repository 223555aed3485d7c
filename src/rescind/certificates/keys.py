"""Ed25519 keys in files: the private one encrypted and readable by its owner only, the public one as PEM."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.signer import CryptoSigner, Key, SSlibKey

from rescind.certificates.errors import UnusableKey
from rescind.history.places import open_private

_SHORTEST_PASSPHRASE = 12


def new_key(path: str | os.PathLike[str], passphrase: str) -> Path:
    """Make a key: the private half, encrypted, at ``path`` with mode 600, the public half beside it as ``.pub``.

    A file that is there is not overwritten. Gives the public half's path.
    """
    if len(passphrase) < _SHORTEST_PASSPHRASE:
        raise UnusableKey(f"a passphrase of fewer than {_SHORTEST_PASSPHRASE} characters protects nothing")
    private, target = Ed25519PrivateKey.generate(), Path(path)
    encrypted = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passphrase.encode()),
    )
    try:
        with open(target, "xb", opener=open_private) as file:
            file.write(encrypted)
    except FileExistsError as error:
        raise UnusableKey(f"{target} is there already: keys are not overwritten, choose another name") from error
    public = target.with_name(target.name + ".pub")
    public.write_bytes(
        private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return public


def signer(path: str | os.PathLike[str], passphrase: str) -> CryptoSigner:
    """Load a private key for signing; one that others can read is refused."""
    source = Path(path)
    if source.read_bytes()[:200].lstrip().startswith(b"-----BEGIN PUBLIC KEY"):
        raise UnusableKey(
            f"{source} is the public key: sign with the private one, {str(source).removesuffix('.pub')}"
        )
    mode = stat.S_IMODE(source.stat().st_mode)
    if mode & 0o077:
        raise UnusableKey(f"{source} is open to other users (mode {mode:o}): run chmod 600 on it, or make a new key")
    try:
        private = serialization.load_pem_private_key(source.read_bytes(), passphrase.encode())
    except (ValueError, TypeError) as error:
        # Nothing of the key or of the passphrase is in the message.
        raise UnusableKey(f"{source} holds no private key that this passphrase opens") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise UnusableKey(f"{source} holds a key of another kind: certificates are signed with Ed25519")
    return CryptoSigner(private)


def public_key(path: str | os.PathLike[str]) -> Key:
    """Load a public key for verification."""
    source = Path(path)
    try:
        public = serialization.load_pem_public_key(source.read_bytes())
    except ValueError as error:
        raise UnusableKey(f"{source} holds no public key: give the file that ends in .pub") from error
    if not isinstance(public, Ed25519PublicKey):
        raise UnusableKey(f"{source} holds a key of another kind: certificates are signed with Ed25519")
    return SSlibKey.from_crypto(public)
