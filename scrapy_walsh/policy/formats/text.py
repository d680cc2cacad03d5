"""The links of an answer, with plain titles, absolute http or https URLs, and times (R9)."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urljoin

from scrapy_walsh.policy.urls import is_http_url, without_userinfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Characters of a title, with its markup, that are read.
MAX_TITLE: Final = 10_000
#: Characters of a link, as in the sitemap protocol. A longer link is left out, and never cut.
MAX_URL: Final = 2_048

_SCRIPT: Final = re.compile(r"<(script|style)\b.*?</\1[^<>]*>", re.IGNORECASE | re.DOTALL)
#: The elements of HTML (WHATWG HTML, its index of elements) and those that it made obsolete.
_ELEMENT: Final = (
    r"a|abbr|acronym|address|applet|area|article|aside|audio|b|base|basefont|bdi|bdo|big|"
    r"blink|blockquote|body|br|button|canvas|caption|center|cite|code|col|colgroup|data|"
    r"datalist|dd|del|details|dfn|dialog|dir|div|dl|dt|em|embed|fieldset|figcaption|figure|"
    r"font|footer|form|frame|frameset|h1|h2|h3|h4|h5|h6|head|header|hgroup|hr|html|i|"
    r"iframe|img|input|ins|kbd|label|legend|li|link|main|map|mark|marquee|math|menu|meta|"
    r"meter|nav|nobr|noframes|noscript|object|ol|optgroup|option|output|p|param|picture|"
    r"pre|progress|q|rp|rt|ruby|s|samp|script|search|section|select|slot|small|source|span|"
    r"strike|strong|style|sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|"
    r"thead|time|title|tr|track|tt|u|ul|var|video|wbr"
)
#: Markup is what HTML has: the <T> of "Vec<T>" is text.
_TAG: Final = re.compile(rf"<(?:/?(?:{_ELEMENT})(?=[\s/>])[^<>]*|!--[^<>]*--)>", re.IGNORECASE)
_BLOCK: Final = re.compile(r"</?(?:br|p|div|li|tr|td|h[1-6])\b[^<>]*>", re.IGNORECASE)
# Control characters that are no white space, and surrogates; bidirectional overrides and isolates,
# which can make a title look like another one.
_GONE: Final = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufeff]"
)
#: Characters of a URL that change the order in which it is read (Unicode, UAX 9).
_BIDIRECTIONAL: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Codecs of Python that no publisher uses. Their time grows faster than the text.
_SLOW_CODECS: Final = frozenset({"idna", "punycode"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``title``: plain text, may be empty. ``url``: absolute, http or https.

    ``published``: UTC, as ``2026-05-23T00:00:00Z``, or None. ``terms``: the elements of RSL within
    an entry of a feed, as they stand (``usage.of_feed``).
    """

    title: str
    url: str
    published: str | None
    terms: str = ""


class Heading(NamedTuple):
    """The heading of a markdown section. ``first``: the index of its first entry."""

    level: int
    title: str
    first: int


@dataclass(frozen=True, slots=True)
class Links:
    """The links of an answer, in its order. ``headings``: H1 and H2 of markdown, else empty.

    ``note``: one line about parts that were not read; empty if all were. ``children``: the sitemaps
    of a sitemap index; None if it is none. ``linkless``: entries of a feed without a usable link.
    ``ends_early``: the document was cut off. ``terms``: the elements of RSL that are about all
    entries.
    """

    entries: tuple[Entry, ...]
    headings: tuple[Heading, ...] = ()
    note: str = ""
    children: tuple[str, ...] | None = None
    linkless: int = 0
    ends_early: bool = False
    terms: str = ""


def declared_charset(content_type: str | None) -> str:
    """The charset that Content-Type names, in lower case; empty if it names none of use."""
    match = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", content_type or "", re.IGNORECASE)
    name = match[1].lower() if match else ""
    return "" if name in _SLOW_CODECS else name


def text_of(body: bytes, content_type: str | None) -> str:
    """A markdown or plain body as text, by its declared charset, else as UTF-8. Never raises."""
    try:
        text = body.decode(declared_charset(content_type) or "utf-8", "replace")
    except (LookupError, UnicodeError):
        text = body.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def plain_text(text: str, markup: bool = True) -> str:
    """A title on one line, without markup and control characters, its entities decoded once.

    With ``markup`` False, ``<`` and ``&`` are the characters themselves.
    """
    text = text[:MAX_TITLE]
    if markup:
        text = html.unescape(_TAG.sub("", _BLOCK.sub(" ", _SCRIPT.sub("", text))))
    return " ".join(_GONE.sub("", text).split())


def absolute_http_url(url: str) -> str | None:
    """*url* as a link can be sent: without blanks around it, tabs, line ends and userinfo.

    Bidirectional controls are percent-encoded, because they can make it look like another URL. None
    if it is not an absolute http or https URL, if it is longer than MAX_URL, or has U+FFFD: a
    damaged octet stood there, so there is no such URL.
    """
    if "\ufffd" in url:
        return None
    url = without_userinfo(re.sub(r"[\t\r\n]", "", url.strip()).replace(" ", "%20"))
    # D36: the octets of UTF-8, each escaped, on each Python.
    url = _BIDIRECTIONAL.sub(lambda match: quote(match[0]), url)
    return url if len(url) <= MAX_URL and is_http_url(url) else None


def resolved(base: str, target: str) -> str | None:
    """*target*, a link in a document from *base*, as :func:`absolute_http_url` has it."""
    try:
        # D36: a link of an item. If it is ever requested, it is judged as it stands here.
        return absolute_http_url(urljoin(base, target.strip())) if target.strip() else None
    except ValueError:
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
            attributes: dict[str, str] = {}
            for name, quoted, bare in _PARAMETER.findall(parameters):
                attributes.setdefault(name.lower(), quoted or bare)
            yield target, attributes
