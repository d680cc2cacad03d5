"""The operator's key (Ed25519), as a crawl needs it: read from its file, and named (RFC 7638).

A crawl signs its requests with it (:mod:`scrapy_walsh.policy.signing`), and ``attest`` documents.
How keys are made, published and looked up is in :mod:`scrapy_walsh.proof.keys`.
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

#: Octets that a document, a key or a key set may have.
LIMIT: Final = 1024 * 1024
#: The name of Ed25519 in a JWS (RFC 8037 section 3.1).
ALGORITHM: Final = "EdDSA"


class KeyUnusable(WalshError):
    """A key, or a directory of keys, must not be used as it is; the message says what to do."""


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
    except (TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: it has a password
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"{path} holds no Ed25519 key in PEM without a password: see --keygen")
    return key


def jwk_of(key: Ed25519PublicKey) -> dict[str, Any]:
    """The JWK of *key* (RFC 8037 section 2), for signatures."""
    jwk = OKPKey.import_key(key, {"use": "sig", "alg": ALGORITHM})
    jwk.ensure_kid()
    return dict(jwk.as_dict())
