"""Verifies signed requests from what a server saw of them: Web Bot Auth on RFC 9421 (D25).

Whose they are is decided by a key directory that is given, not by the URL in the request: a request
may name any. Structured fields are read, and the signature is verified, by the package
``http-message-signatures`` (the extra ``sign``). Pure: values in, judgements out.
"""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy import signing
from scrapy_walsh.proof.keys import keys_of, named_by_thumbprint, public_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Octets of a field that are read.
_LONGEST: Final = 8192
#: The least that a signature has to cover (section 5.2 of the draft), by name.
_LEAST: Final = ({"@authority", "@target-uri"}, {"signature-agent"})


class Fault(Enum):
    """Why a request is not by a key of the directory."""

    UNSIGNED = "no signature"
    MALFORMED = "a signature that cannot be read"
    KEY = "another key"
    TIME = "not the time"
    FORGED = "a signature of another request"


class Judgement(NamedTuple):
    """``fault``: None if the signature holds. ``why``: one line, if it does not hold.

    ``keyid``: of a signature that holds. ``value``: the signature itself, in hex.
    """

    fault: Fault | None
    why: str = ""
    keyid: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as a server saw it.

    ``host``: ``host[:port]``. ``target``: path and query, raw. ``at``: Unix seconds. ``fields``:
    header fields by their name in lower case, with the values of all lines of that name.
    ``scheme``: empty if the log does not say it.
    """

    method: str
    host: str
    target: str
    at: float
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scheme: str = ""


def have_library() -> bool:
    """Whether the extra ``sign`` is installed."""
    return importlib.util.find_spec("http_message_signatures") is not None


def directory_keys(body: bytes) -> list[dict[str, Any]]:
    """The keys of a directory that can have signed requests. DocumentInvalid if it has none."""
    keys = named_by_thumbprint(keys_of(body))
    if not keys:
        raise DocumentInvalid("it lists no Ed25519 key that is named by its thumbprint")
    return keys


def judge(request: Seen, keys: Sequence[dict[str, Any]], *, slack: float = 0.0) -> Judgement:
    """Whether a key of *keys* signed this very request, for its time.

    *keys*: of :func:`directory_keys`. *slack*: seconds that clocks may differ. If a request has
    several signatures, it is enough that one holds.
    """
    if not any(request.fields.get(name.lower()) for name in signing.FIELDS):
        return Judgement(Fault.UNSIGNED, "it carries no signature")
    claims, values = (_dictionary(request, name) for name in (signing.INPUT, signing.SIGNATURE))
    judgements = []
    for label, (members, parameters) in claims.items():
        value = values.get(label, (None,))[0]
        if isinstance(value, bytes) and _is_whole(members, parameters):
            judged = _judge_signature(request, keys, slack, label, parameters)
            judgements.append(judged._replace(value=value.hex()))
    if not judgements:
        fault = "it carries no signature that can be read, and has all that the draft wants"
        return Judgement(Fault.MALFORMED, fault)
    return next(
        (judgement for judgement in judgements if judgement.fault is None),
        judgements[0],
    )


def _dictionary(request: Seen, name: str) -> dict[str, Any]:
    """The members of a field, each with its parameters; none if it cannot be read (RFC 9651)."""
    import http_sf  # noqa: PLC0415  comes with the extra

    text = ", ".join(request.fields.get(name.lower(), ()))
    if len(text) > _LONGEST:
        return {}
    try:
        parsed: Any = http_sf.parse(text.encode("latin-1"), tltype="dictionary")
        return dict(parsed)
    except (ValueError, RecursionError):
        return {}


def _is_whole(members: Any, parameters: Mapping[str, Any]) -> bool:
    """Whether a signature covers what it must, and has the tag and all other parameters."""
    times = (parameters.get("created"), parameters.get("expires"))
    if parameters.get("tag") != signing.TAG or not isinstance(parameters.get("keyid"), str):
        return False
    if not isinstance(members, list) or any(type(time) is not int for time in times):
        return False
    covered = {name for name, _ in members}
    return all(required & covered for required in _LEAST)


def _judge_signature(
    request: Seen,
    keys: Sequence[dict[str, Any]],
    slack: float,
    label: str,
    claimed: Mapping[str, Any],
) -> Judgement:
    """Judge the signature with this *label*; *claimed*: its parameters."""
    keyid, created, expires = (claimed[name] for name in ("keyid", "created", "expires"))
    try:
        key = public_key(_in_use(keys, request.at), keyid)
    except DocumentInvalid as error:
        return Judgement(Fault.KEY, str(error))
    if not created - slack <= request.at <= expires + slack:
        fault = f"its signature is for {created} to {expires}, not {request.at:.0f} (Unix seconds)"
        return Judgement(Fault.TIME, fault)
    if _is_valid(request, label, keyid, key):
        return Judgement(None, "", keyid)
    fault = f"its signature is not by key {keyid} over this host, method and path"
    return Judgement(Fault.FORGED, fault)


def _in_use(keys: Sequence[dict[str, Any]], at: float) -> list[dict[str, Any]]:
    """Those of *keys* that are valid now (``nbf``, ``exp``: Unix seconds) has begun and is not
    over.
    """
    return [key for key in keys if _time(key.get("nbf"), at) <= at <= _time(key.get("exp"), at)]


def _time(value: object, otherwise: float) -> float:
    if isinstance(value, (int, float)):
        return value
    return otherwise


class _Request(NamedTuple):
    """A request as the library reads it."""

    method: str
    url: str
    headers: dict[str, str]


def _is_valid(seen: Seen, label: str, keyid: str, key: Any) -> bool:
    """Whether *key* signed the request, as one of the schemes that it may have had."""
    from http_message_signatures import HTTPMessageVerifier, MappingKeyResolver  # noqa: PLC0415
    from http_message_signatures.algorithms import ED25519  # noqa: PLC0415
    from http_message_signatures.exceptions import HTTPMessageSignaturesException  # noqa: PLC0415

    keys = MappingKeyResolver(public_keys={keyid: key}, private_keys={})
    verifier = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=keys)
    # The time to judge by is that of the log, and it has been looked at.
    verifier.max_clock_skew = timedelta(days=100 * 365)
    headers = {name: ", ".join(lines) for name, lines in seen.fields.items()}
    for scheme in (seen.scheme,) if seen.scheme else ("https", "http"):
        request = _Request(seen.method, f"{scheme}://{seen.host}{seen.target}", headers)
        with suppress(HTTPMessageSignaturesException):
            verifier.verify(
                request,
                max_age=None,
                expect_tag=signing.TAG,
                expect_label=label,
            )
            return True
    return False


def repeated(
    judged: Sequence[tuple[Any, Judgement]],
) -> Iterator[tuple[Any, Any]]:
    """Each pair of requests with the same signature, which holds for both: the later is a replay.

    One that does not hold is left out: it says nothing about the request that it was taken from.
    """
    earlier: dict[str, Any] = {}
    for request, judgement in judged:
        if judgement.fault is not None:
            continue
        if judgement.value in earlier:
            yield earlier[judgement.value], request
        else:
            earlier[judgement.value] = request
