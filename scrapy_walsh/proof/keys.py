"""The operator's keys: made, rotated and published in files; and read from a published set.

A directory has ``key.pem`` (the key to sign with), ``KID.pem`` (each earlier key), ``jwks.json``
(the public keys of all), and ``http-message-signatures-directory``: the same as the key directory
of signed requests (:mod:`scrapy_walsh.policy.signing`). A rotation lists a new key in both, copies
the old key to ``KID.pem``, and then puts the new one in ``key.pem``. In this order both always list
``key.pem``, and no key that has signed is lost, whenever the process is killed. If a run was killed
meanwhile, its list may have a key without a private key.

Public keys are JWK and JWKS (RFC 7517, RFC 8037), each named by its thumbprint (RFC 7638). joserfc
reads and writes them. This module refuses more than the library does: a private key in a published
set, two keys of the same name, and points that let any client sign.
"""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from joserfc.util import urlsafe_b64decode, urlsafe_b64encode

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.files import open_to_others
from scrapy_walsh.keys import (
    ALGORITHM,
    LIMIT,
    KeyUnusable,
    jwk_of,
    load_private_key,
)
from scrapy_walsh.policy.signing import DIRECTORY_PATH
from scrapy_walsh.policy.strict_json import json_object
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.state.files import exclusive

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEY: Final = "key.pem"
JWKS: Final = "jwks.json"
DIRECTORY: Final = DIRECTORY_PATH.rpartition("/")[2]


class KeyFiles(NamedTuple):
    """What :func:`make_keys` made: the new key's id and file, and the key sets."""

    kid: str
    key: Path
    jwks: Path
    directory: Path


def make_keys(directory: Path) -> KeyFiles:
    """Make a key in *directory*; if there is one, replace it and keep it as ``KID.pem``.

    Raises OSError and KeyUnusable.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if open_to_others(directory.stat(), 0o022):
        raise KeyUnusable(f"{directory} can be written by others: chmod 700 {directory}")
    with exclusive(directory):
        former = None
        if (directory / KEY).exists():
            former = load_private_key(directory / KEY)
        published = _read_keys(directory / JWKS)
        new = Ed25519PrivateKey.generate()
        _publish(directory, published, [new, former] if former else [new])
        if former is not None:
            private_file = directory / f"{jwk_of(former.public_key())['kid']}.pem"
            replace_file(private_file, (directory / KEY).read_bytes(), 0o600)
        pem = new.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        replace_file(directory / KEY, pem, 0o600)
    kid = jwk_of(new.public_key())["kid"]
    return KeyFiles(kid, directory / KEY, directory / JWKS, directory / DIRECTORY)


def _read_keys(path: Path) -> list[dict[str, Any]]:
    """The keys published so far in *path*; none if there is no such file."""
    try:
        with path.open("rb") as file:
            return keys_of(file.read(LIMIT + 1))
    except FileNotFoundError:
        return []
    except DocumentInvalid as error:
        raise KeyUnusable(f"{path} cannot be added to: {error}") from None


def _publish(
    directory: Path, entries_before: list[dict[str, Any]], keys: list[Ed25519PrivateKey]
) -> None:
    """Write the key sets: *keys*, the newest first, then the *entries_before* them."""
    entries = {jwk["kid"]: jwk for jwk in (jwk_of(key.public_key()) for key in keys)}
    every = [
        *entries.values(),
        *(key for key in entries_before if key.get("kid") not in entries),
    ]
    for name, members in ((JWKS, every), (DIRECTORY, directory_of(every))):
        text = json.dumps({"keys": members}, indent=2)
        replace_file(directory / name, text.encode("ascii") + b"\n", 0o644)


# -- key sets -----------------------------------------------------------------------------------

#: Values of a key's member ``alg`` that fit: none, the same, the name of RFC 9864, or of RFC 9421.
_KEY_ALGORITHMS: Final = (None, ALGORITHM, "Ed25519", "ed25519")
#: The prime of Curve25519's field, and the y coordinates of the eight points with an order that
#: divides 8: 1, -1, 0, and the two of order 8. With such a key any client can make, without a
#: private key, a signature that is valid for many documents or for all (RFC 7748 section 7).
_P: Final = 2**255 - 19
_EIGHTH: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_LOW_ORDER: Final = frozenset({0, 1, _P - 1, _EIGHTH, _P - _EIGHTH})
#: The errors of joserfc for a member of another type, and for octets that are no key.
_NO_KEY: Final = (JoseError, ValueError, TypeError, AttributeError)


def encode(data: bytes) -> str:
    """*data* as base64url without padding (RFC 7515 section 2)."""
    return urlsafe_b64encode(data).decode("ascii")


def decode(text: object, length: int) -> bytes:
    """The *length* octets that *text* is the base64url of, without padding.

    Raises ValueError for another length, and if :func:`encode` would write them differently.
    """
    octets = text.encode("ascii", "replace") if isinstance(text, str) else b""
    try:
        data = urlsafe_b64decode(octets)
    except Base64Error:
        data = b""
    if len(data) != length or urlsafe_b64encode(data) != octets:
        raise ValueError(f"not {length} octets of base64url")
    return data


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
    """*keys* of a foreign directory, each with its thumbprint as ``kid``.

    If one has none, it is added. One with another ``kid`` is left out, as section 5.5 of the draft
    wants it.
    """
    names = [(key, _own_name(key)) for key in keys]
    return [{**key, "kid": kid} for key, kid in names if kid and key.get("kid", kid) == kid]


def _own_name(key: dict[str, Any]) -> str | None:
    """The thumbprint of *key*; None if it is not an Ed25519 key."""
    try:
        if key.get("crv") == "Ed25519":
            return OKPKey.import_key(key).thumbprint()
        return None
    except _NO_KEY:
        return None


def public_key(keys: Sequence[dict[str, Any]], kid: object) -> Ed25519PublicKey:
    """The Ed25519 key among *keys* with the ``kid`` *kid*.

    Raises DocumentInvalid if there is no such key, if there are several, and if it is not for
    signatures or can be forged.
    """
    candidates = [key for key in keys if key.get("kid") == kid]
    label = f"key {ascii(kid)[:100]}"
    if not isinstance(kid, str) or not candidates:
        raise DocumentInvalid(f"{label} is not in the JWKS")
    if len(candidates) > 1:
        raise DocumentInvalid(f"the JWKS has more than one {label}")
    key = candidates[0]
    kind = key.get("kty"), key.get("crv"), key.get("use", "sig")
    if kind != ("OKP", "Ed25519", "sig") or key.get("alg") not in _KEY_ALGORITHMS:
        raise DocumentInvalid(f"{label} is not an Ed25519 key for {ALGORITHM} signatures")
    try:
        octets = decode(key.get("x"), 32)
        if int.from_bytes(octets, "little") % 2**255 % _P in _LOW_ORDER:
            raise ValueError("a point of low order: anybody can sign with it")
        return Ed25519PublicKey.from_public_bytes(octets)
    except ValueError as error:
        raise DocumentInvalid(f"{label}: x is {error}") from None


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in *body*, strictly read (``policy/strict_json.py``).

    Raises DocumentInvalid for what is none, and for more than LIMIT octets.
    """
    if len(body) > LIMIT:
        raise DocumentInvalid(f"it is longer than {LIMIT} octets")
    document: dict[str, Any] = json_object(body)
    return document
