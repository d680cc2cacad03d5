"""The operator's keys in files: made, rotated, and used only if nobody else can read them.

A directory has ``key.pem`` (the key to sign with), ``KID.pem`` (each earlier key), ``jwks.json``
(the public keys of all), and ``http-message-signatures-directory``: the same as the key directory
of signed requests (:mod:`scrapy_walsh.policy.signing`). A rotation writes a new key as
``key.pem.next``, lists it in both, copies the old key to ``KID.pem``, and then renames the new one
to ``key.pem``. In this order both always list ``key.pem``, and no key is lost, whenever the process
is killed. The next rotation then goes on with the ``key.pem.next`` that it finds.
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
from scrapy_walsh.files import open_to_others, replace_file, sync_directory
from scrapy_walsh.keys.jwks import LIMIT, directory_of, jwk_of, keys_of
from scrapy_walsh.policy.signing import DIRECTORY_PATH
from scrapy_walsh.state.files import exclusive

if TYPE_CHECKING:
    from pathlib import Path

KEY: Final = "key.pem"
NEXT: Final = "key.pem.next"
JWKS: Final = "jwks.json"
DIRECTORY: Final = DIRECTORY_PATH.rpartition("/")[2]


class KeyUnusable(WalshError):
    """A key, or a directory of keys, must not be used as it is; the message says what to do."""


class KeyFiles(NamedTuple):
    """What :func:`make_keys` made: the new key's id and file, the key sets, the old key's file."""

    kid: str
    key: Path
    jwks: Path
    directory: Path
    former: Path | None


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 key in the PEM file *path*.

    Raises OSError, and KeyUnusable for a key that others can use, that is encrypted, or that is
    not an Ed25519 key.
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
    """Make a key in *directory*; where there is one, replace it and keep it as ``KID.pem``.

    Raises OSError and KeyUnusable.
    """
    _prepare(directory)
    with exclusive(directory):
        former = load_private_key(directory / KEY) if (directory / KEY).exists() else None
        listed = _listed(directory / JWKS)
        new = _next_key(directory / NEXT)
        kid = jwk_of(new.public_key())["kid"]
        _publish(directory, listed, [new, former] if former else [new])
        kept = _keep(directory, former) if former else None
        (directory / NEXT).replace(directory / KEY)
        sync_directory(directory)
    return KeyFiles(kid, directory / KEY, directory / JWKS, directory / DIRECTORY, kept)


def _prepare(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if open_to_others(directory.stat(), 0o022):
        raise KeyUnusable(f"{directory} can be written by others: chmod 700 {directory}")


def _listed(path: Path) -> list[dict[str, Any]]:
    """The keys published so far in *path*; none if there is no such file."""
    try:
        with path.open("rb") as file:
            return keys_of(file.read(LIMIT + 1))
    except FileNotFoundError:
        return []
    except DocumentInvalid as error:
        raise KeyUnusable(f"{path} cannot be added to: {error}") from None


def _next_key(path: Path) -> Ed25519PrivateKey:
    """The key that a rotation which was killed had made, or a new one, written to the disk."""
    if not path.exists():
        pem = Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        replace_file(path, pem, 0o600)
    return load_private_key(path)


def _publish(directory: Path, listed: list[dict[str, Any]], keys: list[Ed25519PrivateKey]) -> None:
    """Write the key sets: *keys*, the newest first, then those that were *listed* before."""
    ours = {jwk["kid"]: jwk for jwk in (jwk_of(key.public_key()) for key in keys)}
    every = [*ours.values(), *(key for key in listed if key.get("kid") not in ours)]
    for name, members in ((JWKS, every), (DIRECTORY, directory_of(every))):
        text = json.dumps({"keys": members}, indent=2)
        replace_file(directory / name, text.encode("ascii") + b"\n", 0o644)


def _keep(directory: Path, key: Ed25519PrivateKey) -> Path:
    """Copy *key* to a file named after its id, before it is replaced; the file's path."""
    path = directory / f"{jwk_of(key.public_key())['kid']}.pem"
    replace_file(path, (directory / KEY).read_bytes(), 0o600)
    return path
