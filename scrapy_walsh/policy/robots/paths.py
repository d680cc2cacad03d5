"""R2: URL paths and rule values in one spelling, so that they can be compared (9.1.4).

The spelling: unreserved characters stand for themselves, reserved ones stay as they are found,
escaped or not, and everything else is escaped with upper-case digits. Two questions stay open, and
are answered in each way that can be defended (D1):

- Is an escape three characters, or the one octet that it stands for? It matters for the length of a
  rule and for what a ``*`` may stand for. :func:`as_octets` gives the second way.
- Which path does a URL have, if it has dot segments, backslashes or an empty query?
  :func:`forms` gives each.
"""

from __future__ import annotations

import re
from typing import Final

_UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_DELIMITERS: Final = ":/?#@!&'()+,;="
#: RFC 3986's reserved characters without ``$`` and ``*``, which have a meaning in rules: a literal
#: one is always escaped, since RFC 9309 2.2.3 writes it as ``%24`` or ``%2A``.
_RESERVED: Final = _DELIMITERS + "[]"

_HEX: Final = "0123456789abcdefABCDEF"


def _spelling(pair: str) -> str:
    character = chr(int(pair, 16))
    return character if character in _UNRESERVED else f"%{pair.upper()}"


_SPELLINGS: Final = {high + low: _spelling(high + low) for high in _HEX for low in _HEX}
# The character that stands for each escape in :func:`as_octets`. A bracket's is the bracket itself:
# RFC 3986 allows no bare bracket in a path or query, so both are the same octet.
_CHARACTERS: Final = {f"{octet:02X}": chr(0x100 + octet) for octet in range(256)} | {
    "5B": "[",
    "5D": "]",
}
_BARE_PERCENT: Final = _CHARACTERS["25"]
_TO_ENCODE: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%]+")
_TO_ENCODE_IN_VALUES: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%*\n]+")
_PLAIN_VALUES: Final = re.compile(f"[{re.escape(_UNRESERVED + _RESERVED)}*\n]*").fullmatch
#: Whether a rule's value is plain: it begins with a slash, has no star, anchor, bracket or escape,
#: and needs no other spelling. Such a rule matches the paths that begin with it, as text.
is_plain = re.compile(f"/[{re.escape(_UNRESERVED + _DELIMITERS)}]*").fullmatch
_PLAIN_URL: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\\s]+)?(/[A-Za-z0-9_.~/=&?,;:@!'()+-]*)"
).fullmatch
#: Scheme and authority. By WHATWG URL the authority begins, after http: and https:, behind any run
#: of slashes and backslashes.
_AUTHORITY: Final = re.compile(
    r"(?:https?:[/\\]*|[a-z][a-z0-9+.-]*:[/\\]{2})[^/?#\\]*", re.IGNORECASE | re.ASCII
)
#: Characters that WHATWG URL drops wherever they are.
_URL_NOISE: Final = str.maketrans("", "", "\t\r\n")

#: The names of a URL's forms.
AS_SENT: Final = "path as sent"
RESOLVED: Final = "dot segments resolved"
SLASHED: Final = "backslashes as slashes"
NO_MARK: Final = "without the empty query"


def normalize(text: str) -> str:
    """*text* in the spelling that the module's docstring describes."""
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
    """Rule values, without their final ``$``, in the spelling of paths; a ``*`` stays one.

    They are joined by line ends and spelt all at once, which is faster. No value contains a line
    end, and no escape can reach across one.
    """
    text = "\n".join(bodies)
    return bodies if _PLAIN_VALUES(text) else _spelt(text, _TO_ENCODE_IN_VALUES).split("\n")


def _encode(match: re.Match[str]) -> str:
    return "%" + utf8(match.group()).hex("%").upper()


def utf8(text: str) -> bytes:
    """The UTF-8 octets of *text*; surrogates in it are allowed (PEP 383, else their own octets)."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def as_octets(text: str) -> str:
    """Text of :func:`normalize` with one character for each escape.

    So nothing can match a part of an escape, and each octet counts as one. A ``%`` that begins no
    escape is read as ``%25``. A bracket is the same octet, escaped or not.
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
    """Path and query of a URL that surely has one form; else None, and :func:`forms` has them."""
    plain = _PLAIN_URL(url)
    return plain[1] if plain and "/." not in url and url[-1:] != "?" else None


def forms(url: str) -> dict[str, str]:
    """The forms of a URL's path and query that rules must be matched with: each form's name.

    There is one with dot segments as they are and one without them (T41), one with a ``?`` that
    ends the URL and one without it, one with a backslash in the path as it is and one with the
    slash that WHATWG URL and Scrapy make of it, and each combination. The first is the one with
    nothing changed but the spelling. The fragment is dropped, and an empty path is ``/``.
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
    """The name of a form that is made from the one called *name*. No two forms share a name."""
    return more if name == AS_SENT else f"{name}, {more}"


def _rooted(target: str) -> str:
    return target if target.startswith("/") else "/" + target


def _resolved(target: str) -> str:
    """Path and query with the path's dot segments resolved (RFC 3986 5.2.4)."""
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
