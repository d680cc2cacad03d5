"""RFC 9421 section 3.2 from its text, for signatures of Ed25519: a second implementation.

Nothing of it is shared with the package, nor with the library that the package signs with. It
knows what the draft allows a signature to cover, and refuses everything else. Of RFC 9651 it reads
the forms that occur: dictionaries of strings, of byte sequences, and of inner lists of strings with
string parameters.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy_walsh.proof.sandbox import LoggedRequest

NAMES = ("Signature-Agent", "Signature-Input", "Signature")
LABEL = re.compile(r"[a-z*][a-z0-9_.*-]*")
STRING = r'"((?:[ !#-\[\]-~]|\\["\\])*)"'
NUMBER = r"(-?[0-9]{1,15})"
KEY = r"([a-z*][a-z0-9_.*-]*)"


class Bad(Exception):
    """The signature does not hold."""


def need(holds: object, why: str) -> None:
    if not holds:
        raise Bad(why)


def one_member(value: str) -> tuple[str, str]:
    """Label and value of a dictionary that has one member."""
    label, equals, rest = value.partition("=")
    need(equals and LABEL.fullmatch(label), f"{value[:40]!r} is no dictionary")
    return label, rest


def string(text: str) -> str:
    found = re.fullmatch(STRING, text)
    need(found, f"{text[:60]!r} is no string")
    assert found is not None
    return re.sub(r"\\(.)", r"\1", found[1])


def inner_list(text: str) -> tuple[list[str], dict[str, Any]]:
    """The components as they are written, and the parameters of an inner list."""
    found = re.fullmatch(r"\(([^()]*)\)((?:;.*)?)", text)
    need(found, "no inner list")
    assert found is not None
    item = rf"{STRING}(?:;{KEY}={STRING}|;{KEY})*"
    parts = [each[0] for each in re.finditer(item, found[1])]
    need(" ".join(parts) == found[1], "no list of components")
    parameters: dict[str, Any] = {}
    rest = found[2]
    while rest:
        each = re.match(rf";{KEY}=(?:{STRING}|{NUMBER})", rest)
        need(each, f"{rest[:40]!r} are no parameters")
        assert each is not None
        need(each[1] not in parameters, f"{each[1]} is named twice")
        parameters[each[1]] = int(each[3]) if each[3] else string(each[0].partition("=")[2])
        rest = rest[each.end() :]
    return parts, parameters


def octets(text: str) -> bytes:
    found = re.fullmatch(r":([A-Za-z0-9+/]*={0,2}):", text)
    need(found, "no byte sequence")
    assert found is not None
    try:
        return base64.b64decode(found[1], validate=True)
    except ValueError as error:
        raise Bad(str(error)) from None


def from_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def thumbprint(jwk: Mapping[str, str]) -> str:
    """RFC 7638: SHA-256 of the required members in order, without blanks."""
    text = json.dumps(
        {name: jwk[name] for name in sorted(("crv", "kty", "x"))}, separators=(",", ":")
    )
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def authority(scheme: str, host: str) -> str:
    """RFC 9421 section 2.2.3."""
    return re.sub(r":0*80$" if scheme == "http" else r":0*443$", "", host.lower())


def base_of(components: Sequence[str], parameters: str, values: Mapping[str, str]) -> bytes:
    """RFC 9421 section 2.5: the signature base."""
    need(len(set(components)) == len(components), "a component is covered twice")
    lines = []
    for name in components:
        need(name in values, f"{name} cannot be covered")
        lines.append(f"{name}: {values[name]}")
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode("ascii")


def verify(
    request: Mapping[str, Any],
    keys: Sequence[Mapping[str, str]],
    *,
    now: float,
    tag: str = "web-bot-auth",
) -> dict[str, Any]:
    """The parameters of the one signature of *request*; raises Bad if it does not hold *now*.

    *request*: ``scheme``, ``host`` (as in the Host field), ``method``, ``path``, and ``headers``,
    pairs of name and value.
    """
    lines = {
        name: [value for key, value in request["headers"] if key.lower() == name.lower()]
        for name in NAMES
    }
    for name, found in lines.items():
        need(len(found) == 1, f"{len(found)} lines of {name}")
    label, listed = one_member(lines["Signature-Input"][0])
    signed, value = one_member(lines["Signature"][0])
    named, agent = one_member(lines["Signature-Agent"][0])
    need(label == signed == named, "the labels differ")
    need(string(agent).startswith("https://"), "the agent is not https")
    components, parameters = inner_list(listed)
    need(parameters.get("tag") == tag, "another tag")
    times = parameters.get("created"), parameters.get("expires")
    need(all(type(each) is int for each in times), "no times")
    need(times[0] <= now <= times[1], "not now")  # type: ignore[operator]
    agent_component = f'"signature-agent";key="{label}"'
    need({'"@authority"', agent_component} <= set(components), "too little is covered")
    values = {
        '"@authority"': authority(request["scheme"], request["host"]),
        '"@method"': request["method"],
        '"@path"': request["path"] or "/",
        agent_component: agent,
    }
    by_print = {thumbprint(key): key for key in keys}
    need(parameters.get("keyid") in by_print, "the key is not listed")
    key = by_print[parameters["keyid"]]
    try:
        Ed25519PublicKey.from_public_bytes(from_base64url(key["x"])).verify(
            octets(value), base_of(components, listed, values)
        )
    except InvalidSignature:
        raise Bad("the signature is not of this request") from None
    return {**parameters, "covered": components, "directory": string(agent)}


def as_sent(logged: LoggedRequest) -> dict[str, Any]:
    """A request as the sandbox's server saw it, for :func:`verify`."""
    return {
        "scheme": logged.scheme,
        "host": logged.values("Host")[0],
        "method": logged.method,
        "path": logged.path,
        "headers": logged.headers,
    }
