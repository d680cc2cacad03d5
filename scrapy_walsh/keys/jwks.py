"""Public keys as JWK and JWKS (RFC 7517, RFC 8037), each named by its thumbprint (RFC 7638).

joserfc reads and writes the keys. What it does not refuse is refused here: a private key in a
published set, two keys of one name, and points by which anybody can sign.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from joserfc.util import urlsafe_b64decode, urlsafe_b64encode

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.strict_json import json_object

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Octets that a document or a key set may have.
LIMIT: Final = 1024 * 1024
#: The name of Ed25519 in a JWS (RFC 8037 section 3.1).
ALGORITHM: Final = "EdDSA"

#: Values of a key's member ``alg`` that fit: none, the same, the name of RFC 9864, or of RFC 9421.
_KEY_ALGORITHMS: Final = (None, ALGORITHM, "Ed25519", "ed25519")
#: The prime of Curve25519's field, and the y coordinates of the eight points whose order divides 8:
#: 1, -1, 0, and the two of order 8. RFC 7748 section 7 says why such points are refused.
_P: Final = 2**255 - 19
_EIGHTH: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_LOW_ORDER: Final = frozenset({0, 1, _P - 1, _EIGHTH, _P - _EIGHTH})
#: What joserfc raises for a member of another type, and for octets that are no key.
_NO_KEY: Final = (JoseError, ValueError, TypeError, AttributeError)


def encode(data: bytes) -> str:
    """*data* as base64url without padding (RFC 7515 section 2)."""
    return urlsafe_b64encode(data).decode("ascii")


def decode(text: object, length: int) -> bytes:
    """The *length* octets that *text* is the base64url of, without padding.

    Raises ValueError for another length, and where :func:`encode` would write them differently.
    """
    octets = text.encode("ascii", "replace") if isinstance(text, str) else b""
    try:
        data = urlsafe_b64decode(octets)
    except Base64Error:
        data = b""
    if len(data) != length or urlsafe_b64encode(data) != octets:
        raise ValueError(f"not {length} octets of base64url")
    return data


def jwk_of(key: Ed25519PublicKey) -> dict[str, Any]:
    """The JWK of *key* (RFC 8037 section 2), for signatures."""
    jwk = OKPKey.import_key(key, {"use": "sig", "alg": ALGORITHM})
    jwk.ensure_kid()
    return dict(jwk.as_dict())


def keys_of(body: bytes) -> list[dict[str, Any]]:
    """The keys of the JWKS *body*. Raises DocumentInvalid if it is not one or has a private key."""
    keys = parse(body).get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise DocumentInvalid("not a JWKS: it has no list of keys")
    for key in keys:
        if "d" in key:
            raise DocumentInvalid("it holds a private key ('d'): publish another key instead")
    return keys


def directory_of(keys: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of *keys* that a directory for signed requests may list, as it lists them.

    Ed25519 keys named by their thumbprint, without ``alg``: the draft (section 5.5.1) allows the
    names of RFC 9421 only, and ``EdDSA`` is none of them.
    """
    return [
        {name: value for name, value in key.items() if name != "alg"}
        for key in keys
        if "kid" in key and key["kid"] == _own_name(key)
    ]


def named_by_thumbprint(keys: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """*keys* of somebody's directory, each with its thumbprint as ``kid``.

    Where one has none, it is added. One with another ``kid`` is left out, as section 5.5 of the
    draft wants it.
    """
    named = [(key, _own_name(key)) for key in keys]
    return [{**key, "kid": kid} for key, kid in named if kid and key.get("kid", kid) == kid]


def _own_name(key: dict[str, Any]) -> str | None:
    """The thumbprint of *key*; None where it is not an Ed25519 key."""
    try:
        return OKPKey.import_key(key).thumbprint() if key.get("crv") == "Ed25519" else None
    except _NO_KEY:
        return None


def public_key(keys: Sequence[dict[str, Any]], kid: object) -> Ed25519PublicKey:
    """The Ed25519 key among *keys* whose ``kid`` is *kid*.

    Raises DocumentInvalid if there is no such key, more than one, or one that is not for signatures
    or can be forged.
    """
    named = [key for key in keys if key.get("kid") == kid]
    if not isinstance(kid, str) or not named:
        raise DocumentInvalid(f"key {_shown(kid)} is not in the JWKS")
    if len(named) > 1:
        raise DocumentInvalid(f"the JWKS has more than one key {_shown(kid)}")
    key = named[0]
    if (key.get("kty"), key.get("crv")) != ("OKP", "Ed25519"):
        raise DocumentInvalid(f"key {_shown(kid)} is not an Ed25519 key")
    if key.get("use", "sig") != "sig" or key.get("alg") not in _KEY_ALGORITHMS:
        raise DocumentInvalid(f"key {_shown(kid)} is not for {ALGORITHM} signatures")
    try:
        octets = decode(key.get("x"), 32)
        _require_point(octets)
        return Ed25519PublicKey.from_public_bytes(octets)
    except ValueError as error:
        raise DocumentInvalid(f"key {_shown(kid)}: x is {error}") from None


def _require_point(octets: bytes) -> None:
    """Raise ValueError if *octets* are not the canonical encoding of a point, or its order is low.

    RFC 8032 section 5.1.3 decodes only the canonical encoding; the library that verifies does not
    check that. With a key of low order anybody can make, without a private key, a signature that is
    valid for many documents or for all.
    """
    sign, y = octets[31] >> 7, int.from_bytes(octets, "little") & (2**255 - 1)
    if y >= _P or (sign and y in (1, _P - 1)):
        raise ValueError("not the canonical encoding of a point")
    if y in _LOW_ORDER:
        raise ValueError("a point of low order: anybody can sign with it")


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in *body*, strictly read (``policy/strict_json.py``).

    Raises DocumentInvalid for what is none, and for more than LIMIT octets.
    """
    if len(body) > LIMIT:
        raise DocumentInvalid(f"it is longer than {LIMIT} octets")
    found: dict[str, Any] = json_object(body)
    return found


def _shown(value: object) -> str:
    return ascii(value)[:100]
