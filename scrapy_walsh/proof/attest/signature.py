"""The signature of an attestation: Ed25519 (RFC 8032) over its canonical JSON (RFC 8785).

The signed text is the document without its member ``signature``. That member has ``alg`` (EdDSA),
``kid`` (the key's thumbprint) and ``value`` (the signature's 64 octets in base64url).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import rfc8785
from cryptography.exceptions import InvalidSignature

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.keys import ALGORITHM, jwk_of
from scrapy_walsh.proof.keys import decode, encode, public_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
    )

MEMBER: Final = "signature"
_MEMBERS: Final = {"alg", "kid", "value"}


def canonical(value: Any) -> bytes:
    """The canonical JSON of *value* (RFC 8785).

    Raises DocumentInvalid for what has none: integers from 2^53 on, NaN, nesting too deep to read.
    """
    try:
        return rfc8785.dumps(value)
    except RecursionError:
        raise DocumentInvalid("it is nested too deeply") from None
    except ValueError as error:
        raise DocumentInvalid(f"it has no canonical JSON (RFC 8785): {error}") from None


def sign(document: Mapping[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """*document* with its signature by *key*. DocumentInvalid if it has no canonical JSON."""
    kid = jwk_of(key.public_key())["kid"]
    value = encode(key.sign(_signed_octets(document)))
    return {**document, MEMBER: {"alg": ALGORITHM, "kid": kid, "value": value}}


def verify(document: Mapping[str, Any], keys: Sequence[dict[str, Any]]) -> str:
    """The id of the key, of *keys*, that signed *document*. Raises DocumentInvalid if none did."""
    signature = document.get(MEMBER)
    if signature is None:
        raise DocumentInvalid("it is not signed")
    if not isinstance(signature, dict) or signature.keys() != _MEMBERS:
        raise DocumentInvalid(f"its signature must have the members {', '.join(sorted(_MEMBERS))}")
    if signature["alg"] != ALGORITHM:
        raise DocumentInvalid(f"its alg is {ascii(signature['alg'])[:100]}, not {ALGORITHM}")
    kid = str(signature["kid"])
    key = public_key(keys, signature["kid"])
    octets = _signed_octets(document)
    try:
        key.verify(decode(signature["value"], 64), octets)
    except (ValueError, InvalidSignature):
        reason = f"its signature is not by key {kid}, or the document was altered"
        raise DocumentInvalid(reason) from None
    return kid


def _signed_octets(document: Mapping[str, Any]) -> bytes:
    return canonical({name: value for name, value in document.items() if name != MEMBER})
