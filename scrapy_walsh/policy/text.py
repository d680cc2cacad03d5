"""R9: makes the values of an item: titles as plain text, absolute http(s) URLs, times in UTC.

``visible`` is for what goes to a log or a terminal, where nothing that a server sent may have an
effect.
"""

from __future__ import annotations

import html
import re
import unicodedata
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

#: Characters of a title, with its markup, that are read.
MAX_TITLE: Final = 10_000

_DROPPED: Final = re.compile(r"<(script|style)\b[^<]*(?:<(?!/\1)[^<]*)*</\1[^<>]*>", re.IGNORECASE)
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
        text = _BLOCK.sub(" ", _DROPPED.sub("", text))
        text = html.unescape(_TAG.sub("", text))
    return " ".join("".join(_clean(character) for character in text).split())


def _clean(character: str) -> str:
    if character.isspace():
        return " "
    gone = character in _BIDI or unicodedata.category(character) in ("Cc", "Cs")
    return "" if gone else character


def visible(text: str) -> str:
    """*text* on one line, without anything that a log or a terminal could take for a command.

    Whatever Python calls unprintable is escaped as in its string literals: control characters
    with line ends, bidirectional overrides, lone surrogates. All else stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def one_line(what: object, limit: int = 300) -> str:
    """*what* as text, its white space folded into single spaces, cut after *limit* characters."""
    return " ".join(str(what).split())[:limit]


def plural(count: int, noun: str, many: str = "") -> str:
    """A count with its noun, for a person: ``1 request``, ``1,204 requests``."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def absolute_http_url(url: str) -> str | None:
    """*url* as a link can be sent: without blanks around it, tabs and line ends.

    None if it is not an absolute http or https URL.
    """
    url = re.sub(r"[\t\r\n]", "", url.strip()).replace(" ", "%20")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        return url if usable and not _UNUSABLE.search(url) else None
    except ValueError:
        return None


_UNUSABLE: Final = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")


LAST_SECOND: Final = 253402300799.0
"""Unix seconds: the last that a date can name. A Crawl-delay may lead beyond the calendar."""


def iso(seconds: float) -> str:
    """Unix seconds as a UTC time, ``2026-05-23T00:00:00Z``; :data:`LAST_SECOND` for later ones."""
    return datetime.fromtimestamp(min(seconds, LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_iso(moment: datetime) -> str | None:
    """*moment* as ``2026-05-23T00:00:00Z``, read as UTC if it is naive.

    None where its time in UTC is outside the years 1 to 9999.
    """
    try:
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    except (OverflowError, ValueError):
        return None
