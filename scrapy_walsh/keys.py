"""Reads the operator's Ed25519 key from its file, and names it by its thumbprint (RFC 7638).

A crawl signs requests with the key (:mod:`scrapy_walsh.policy.signing`); ``attest`` signs
documents. :mod:`scrapy_walsh.proof.keys` makes, publishes and looks up keys.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from joserfc.jwk import OKPKey

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.files import open_to_others

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

#: The largest document, key or key set, in octets.
LIMIT: Final = 1024 * 1024
#: The name of Ed25519 in a JWS (RFC 8037 section 3.1).
ALGORITHM: Final = "EdDSA"


class KeyUnusable(WalshError):
    """A key, or a directory of keys, must not be used. The message says what to do."""


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the Ed25519 key in the PEM file *path*.

    Raises OSError. Raises KeyUnusable if other users may read the key, if it is encrypted, or if
    it is no Ed25519 key.
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
    except (TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: it has a password
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"{path} holds no Ed25519 key in PEM without a password: see --keygen")
    return key


def jwk_of(key: Ed25519PublicKey) -> dict[str, Any]:
    """Return the JWK of *key* for signatures (RFC 8037 section 2)."""
    jwk = OKPKey.import_key(key, {"use": "sig", "alg": ALGORITHM})
    jwk.ensure_kid()
    return dict(jwk.as_dict())
