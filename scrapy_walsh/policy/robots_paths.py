"""R2: URL paths and rule values in one spelling, so that they can be compared (9.1.4)."""

from __future__ import annotations

import re
from typing import Final

_UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_DELIMITERS: Final = ":/?#@!&'()+,;="
_RESERVED: Final = _DELIMITERS + "[]"
"""RFC 3986's, without ``$`` and ``*``: RFC 9309 2.2.3 reads ``%24`` and ``%2A`` as those."""

_HEX: Final = "0123456789abcdefABCDEF"


def _spelling(pair: str) -> str:
    character = chr(int(pair, 16))
    return character if character in _UNRESERVED else f"%{pair.upper()}"


_SPELLINGS: Final = {high + low: _spelling(high + low) for high in _HEX for low in _HEX}
# RFC 3986 has no bare bracket in a path or query, so whoever sends one escapes it: one octet.
_CHARACTERS: Final = {f"{octet:02X}": chr(0x100 + octet) for octet in range(256)} | {
    "5B": "[",
    "5D": "]",
}
_BARE_PERCENT: Final = _CHARACTERS["25"]
_TO_ENCODE: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%]+")
_TO_ENCODE_IN_VALUES: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%*\n]+")
_PLAIN_VALUES: Final = re.compile(f"[{re.escape(_UNRESERVED + _RESERVED)}*\n]*").fullmatch
is_plain = re.compile(f"/[{re.escape(_UNRESERVED + _DELIMITERS)}]*").fullmatch
"""Of a value: it has a leading slash, no star, anchor, bracket or escape, and one spelling."""
_PLAIN_URL: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\\s]+)?(/[A-Za-z0-9_.~/=&?,;:@!'()+-]*)"
).fullmatch
_AUTHORITY: Final = re.compile(
    r"(?:https?:[/\\]*|[a-z][a-z0-9+.-]*:[/\\]{2})[^/?#\\]*", re.IGNORECASE | re.ASCII
)
"""WHATWG URL: after http and https any run of slashes and backslashes opens it."""
_URL_NOISE: Final = str.maketrans("", "", "\t\r\n")

AS_SENT: Final = "path as sent"
RESOLVED: Final = "dot segments resolved"
SLASHED: Final = "backslashes as slashes"
NO_MARK: Final = "without the empty query"


def normalize(text: str) -> str:
    """One spelling for every octet: unreserved bare, reserved as found, the rest ``%XX``."""
    return _spelt(text, _TO_ENCODE)


def _spelt(text: str, to_encode: re.Pattern[str]) -> str:
    if "%" in text:
        head, *rest = text.split("%")
        text = head + "".join(
            [
                _SPELLINGS.get(part)
                or (known + part[2:] if (known := _SPELLINGS.get(part[:2])) else "%" + part)
                for part in rest
            ]
        )
    return to_encode.sub(_encode, text)


def normalize_values(bodies: list[str]) -> list[str]:
    """Rule values (their anchors taken off) in the spelling of paths; each ``*`` is a wildcard.

    All at once: no value has a line end, and neither that nor a ``*`` is part of an escape.
    """
    text = "\n".join(bodies)
    return bodies if _PLAIN_VALUES(text) else _spelt(text, _TO_ENCODE_IN_VALUES).split("\n")


def _encode(match: re.Match[str]) -> str:
    return "%" + utf8(match.group()).hex("%").upper()


def utf8(text: str) -> bytes:
    """The octets of any text, also one with surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def as_octets(text: str) -> str:
    """Normalized text with one character an octet, so that nothing matches inside an escape.

    A ``%`` that escapes nothing is the octet ``%25``; a bracket is one octet, escaped or not.
    """
    head, *rest = text.split("%")
    return head + "".join(
        [
            _CHARACTERS.get(part)
            or (known + part[2:] if (known := _CHARACTERS.get(part[:2])) else _BARE_PERCENT + part)
            for part in rest
        ]
    )


def plain_path(url: str) -> str | None:
    """Path and query of a URL that has only one form, or None if :func:`forms` must look."""
    plain = _PLAIN_URL(url)
    return plain[1] if plain and "/." not in url and url[-1:] != "?" else None


def forms(url: str) -> dict[str, str]:
    """The forms of a URL's path and query that rules are held against: name by form.

    Dot segments are judged raw and resolved (T41), a ``?`` with nothing after it with and
    without, a backslash in the path as one and as the slash that WHATWG URL, and Scrapy, make of
    it. The fragment is dropped, an empty path is ``/``.
    """
    text = url.translate(_URL_NOISE).strip().partition("#")[0]
    authority = _AUTHORITY.match(text)
    target = text[authority.end() :] if authority else text
    path, mark, query = target.partition("?")
    found = {_rooted(normalize(target)): AS_SENT}
    if "\\" in path:
        found[_rooted(normalize(path.replace("\\", "/") + mark + query))] = SLASHED
    for form, name in list(found.items()):
        found.setdefault(_resolved(form), _and(name, RESOLVED))
    for form, name in list(found.items()):
        if form.find("?") == len(form) - 1:
            found.setdefault(form[:-1], _and(name, NO_MARK))
    return found


def _and(name: str, more: str) -> str:
    """A name that no other form has: findings are kept by it."""
    return more if name == AS_SENT else f"{name}, {more}"


def _rooted(target: str) -> str:
    return target if target.startswith("/") else "/" + target


def _resolved(target: str) -> str:
    """Path and query with the path's dot segments taken out (RFC 3986 5.2.4)."""
    path, mark, query = target.partition("?")
    if "/." not in path:
        return target
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept) + mark + query
