"""The operator's keys: made, rotated, and read only where nobody else can read them.

A directory holds ``key.pem`` (the key to sign with), ``KID.pem`` (each earlier one) and
``jwks.json`` (all their public halves). A killed rotation is finished by the next one: at no
moment is there a ``key.pem`` that ``jwks.json`` does not list, or a key lost.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from scrapy_walsh.exceptions import DocumentInvalid, WalshError
from scrapy_walsh.proof.attest.jwks import LIMIT, jwk_of, keys_of
from scrapy_walsh.proof.files import open_to_others, replace_file, sync_directory
from scrapy_walsh.state.files import exclusive

if TYPE_CHECKING:
    from pathlib import Path

KEY: Final = "key.pem"
NEXT: Final = "key.pem.next"
JWKS: Final = "jwks.json"


class KeyUnusable(WalshError):
    """A key, or a directory of keys, that is not to be used: the message says what to do."""


class KeyFiles(NamedTuple):
    """What a rotation left: the key's name, its file, the set, and where the key before is."""

    kid: str
    key: Path
    jwks: Path
    former: Path | None


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """The key in the PEM file *path*.

    Raises: OSError; KeyUnusable for one that others can read, or that is not Ed25519, or is
    encrypted.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise KeyUnusable(f"{path} is not a file")
        if open_to_others(status, 0o077):
            raise KeyUnusable(f"{path} can be used by others than its owner: chmod 600 {path}")
        body = file.read(LIMIT)
    try:
        key = load_pem_private_key(body, password=None)
    except TypeError:
        raise KeyUnusable(f"{path} is encrypted: give the key without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable(f"{path} holds no private key in PEM: see --keygen") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"{path} is not an Ed25519 key: see --keygen")
    return key


def make_keys(directory: Path) -> KeyFiles:
    """Make a key in *directory*, or put a new one in the place of the one there.

    Raises: OSError, KeyUnusable.
    """
    _prepare(directory)
    with exclusive(directory):
        former = load_private_key(directory / KEY) if (directory / KEY).exists() else None
        listed = _listed(directory / JWKS)
        new = _next_key(directory / NEXT)
        kid = jwk_of(new.public_key())["kid"]
        _publish(directory / JWKS, listed, [new, former] if former else [new])
        kept = _keep(directory, former) if former else None
        (directory / NEXT).replace(directory / KEY)
        sync_directory(directory)
    return KeyFiles(kid, directory / KEY, directory / JWKS, kept)


def _prepare(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if open_to_others(directory.stat(), 0o022):
        raise KeyUnusable(f"{directory} can be written by others: chmod 700 {directory}")


def _listed(path: Path) -> list[dict[str, Any]]:
    """The keys published so far; none before the first."""
    try:
        with path.open("rb") as file:
            return keys_of(file.read(LIMIT + 1))
    except FileNotFoundError:
        return []
    except DocumentInvalid as error:
        raise KeyUnusable(f"{path} cannot be added to: {error}") from None


def _next_key(path: Path) -> Ed25519PrivateKey:
    """The key that a killed rotation had made, or a new one, safe on the disk."""
    if not path.exists():
        pem = Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        replace_file(path, pem, 0o600)
    return load_private_key(path)


def _publish(path: Path, listed: list[dict[str, Any]], keys: list[Ed25519PrivateKey]) -> None:
    """Write the set of *keys*, newest first, and of those *listed* before."""
    ours = {jwk["kid"]: jwk for jwk in (jwk_of(key.public_key()) for key in keys)}
    others = [key for key in listed if key.get("kid") not in ours]
    text = json.dumps({"keys": [*ours.values(), *others]}, indent=2)
    replace_file(path, text.encode("ascii") + b"\n", 0o644)


def _keep(directory: Path, key: Ed25519PrivateKey) -> Path:
    """The file, under the key's own name, that outlives its being replaced."""
    path = directory / f"{jwk_of(key.public_key())['kid']}.pem"
    replace_file(path, (directory / KEY).read_bytes(), 0o600)
    return path
