"""R9: makes the values of an item: plain titles, absolute http(s) URLs, times, Link fields."""

from __future__ import annotations

import html
import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from scrapy_walsh.policy.urls import without_userinfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Characters of a title, with its markup, that are read.
MAX_TITLE: Final = 10_000

_OPENS: Final = re.compile(r"<(script|style)\b", re.IGNORECASE)
_CLOSES: Final = {
    name: re.compile(rf"</{name}[^<>]*>", re.IGNORECASE) for name in ("script", "style")
}
_TAG: Final = re.compile(r"<(?:/?[a-z][^<>]*|!--[^<>]*--)>", re.IGNORECASE)
_BLOCK: Final = re.compile(r"</?(?:br|p|div|li|tr|td|h[1-6])\b[^<>]*>", re.IGNORECASE)
# Bidirectional overrides and isolates: they can make a title look like another one.
_BIDI: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def plain_text(text: str, markup: bool = True) -> str:
    """A title on one line, without markup and control characters, its entities decoded once.

    With ``markup`` False, ``<`` and ``&`` are the characters themselves.
    """
    text = text[:MAX_TITLE]
    if markup:
        text = _BLOCK.sub(" ", _without_scripts(text))
        text = html.unescape(_TAG.sub("", text))
    return " ".join("".join(_clean(character) for character in text).split())


def _without_scripts(text: str) -> str:
    """*text* without scripts and styles; the end of each kind is looked for once in vain."""
    kept: list[str] = []
    position, unclosed = 0, set[str]()
    for opening in _OPENS.finditer(text):
        name = opening[1].lower()
        if opening.start() < position or name in unclosed:
            continue
        if (closing := _CLOSES[name].search(text, opening.end())) is None:
            unclosed.add(name)
        else:
            kept.append(text[position : opening.start()])
            position = closing.end()
    return "".join((*kept, text[position:]))


def _clean(character: str) -> str:
    if character.isspace():
        return " "
    gone = character in _BIDI or unicodedata.category(character) in ("Cc", "Cs")
    return "" if gone else character


def absolute_http_url(url: str) -> str | None:
    """*url* as a link can be sent: without blanks around it, tabs, line ends and userinfo.

    None if it is not an absolute http or https URL.
    """
    url = without_userinfo(re.sub(r"[\t\r\n]", "", url.strip()).replace(" ", "%20"))
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        return url if usable and not _UNUSABLE.search(url) else None
    except ValueError:
        return None


_UNUSABLE: Final = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")


def utc_iso(moment: datetime) -> str | None:
    """*moment* as ``2026-05-23T00:00:00Z``, read as UTC if it is naive.

    None where its time in UTC is outside the years 1 to 9999.
    """
    try:
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    except (OverflowError, ValueError):
        return None


_LINK: Final = re.compile(r"<([^<>]*)>([^<]*)")
_PARAMETER: Final = re.compile(r';\s*([\w!#$&+.^`|~-]+)\s*=\s*(?:"([^"]*)"|([^\s;,"]+))')
#: Characters of a Link field that are read.
MAX_LINK: Final = 4096


def links_in(fields: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The links of ``Link`` fields (RFC 8288): each target as written, with its parameters.

    Names of parameters are in lower case; of two with one name the first counts (section 3.3).
    """
    for field in fields:
        for target, parameters in _LINK.findall(field[:MAX_LINK]):
            found: dict[str, str] = {}
            for name, quoted, bare in _PARAMETER.findall(parameters):
                found.setdefault(name.lower(), quoted or bare)
            yield target, found
