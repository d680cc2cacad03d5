"""Read the entries of a feed: RSS 0.9x, 1.0 and 2.0, Atom, and JSON Feed 1.x (R9).

    >>> item = "<item><title>News</title><link>/1</link></item>"
    >>> feed = f"<rss version='2.0'><channel>{item}</channel></rss>".encode()
    >>> [entry.url for entry in read_feed(feed, None, "https://site.example/feed").entries]
    ['https://site.example/1']

Only title, URL, date and the terms of RSL are used. feedparser gets bytes, never a URL or a file
name, because it would open those. First, ``xmltext`` refuses or mends everything that would harm
it.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import feedparser

from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly
from scrapy_walsh.policy.formats import dates
from scrapy_walsh.policy.formats.representation import FEED, HTML, JSON_FEED, representation
from scrapy_walsh.policy.formats.text import (
    MAX_URL,
    Entry,
    Links,
    absolute_http_url,
    plain_text,
    resolved,
)
from scrapy_walsh.policy.formats.xmltext import without_gzip, xml_text
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Octets that are searched for a document type, and a document type without own declarations.
_HEAD: Final = 4096
_DOCTYPE: Final = re.compile(rb"<!DOCTYPE[^<>\[]*+>", re.IGNORECASE)
#: How IANA's registry names a link relation in full (RFC 4287, 4.2.7.2).
_IANA: Final = "http://www.iana.org/assignments/relation/"
#: CDATA sections and comments, which have no tags; up to the end if they are not closed.
_NO_TAGS: Final = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL)
#: The root element of a feed, CHANNEL in CDF and RSS 1.1. A feed without entries may end with it.
_ROOT: Final = re.compile(
    r"<(?P<name>(?:[\w.-]+:)?(?:rss|feed|rdf|channel))(?:\s[^<>]*?)?(?P<end>/?)>", re.IGNORECASE
)
#: A link to nothing: its tag up to ``href=""``. Or text in which a tag is no tag.
_EMPTY_LINK: Final = re.compile(
    rf"({_NO_TAGS.pattern})|(<(?:[\w.-]+:)?link\s(?:[^<>]*?\s)?)href\s*=\s*(?:\"\s*\"|'\s*')",
    re.DOTALL | re.IGNORECASE,
)
#: The start and the end tag of an entry.
_ENTRY: Final = re.compile(r"<(?:[\w.-]+:)?(?:item|entry)[\s>]", re.IGNORECASE)
#: RSL 1.0 (rslstandard.org/rsl): its namespace, the prefixes for it, and the characters kept.
_RSL: Final = "://rslstandard.org/rsl"
_PREFIX: Final = re.compile(rf"xmlns:([\w.-]{{1,40}})\s*=\s*[\"']https?{_RSL}/?[\"']")
_MAX_TERMS: Final = 4096
_END_OF_ENTRY: Final = re.compile(r"</(?:[\w.-]+:)?(?:item|entry)\s*>", re.IGNORECASE)


def read_feed(body: bytes, content_type: str | None, url: str) -> Links:
    """The entries of *body*, which may be packed with gzip, in document order.

    Entries without a link are left out; ``linkless`` counts them. ``content_type``: the header's
    value or None. ``url``: of the feed, and the base of its relative links. A malformed feed
    returns the entries that can be read; ``ends_early`` means that its root element is not closed.
    Raises DocumentInvalid for what is not a feed, and for a document type with declarations of its
    own; DocumentTooCostly for elements or JSON that are nested too deeply.
    """
    body = without_gzip(body, url)
    if representation(content_type, body) == JSON_FEED:
        return _links(_json_entries(body, url))
    head = _DOCTYPE.sub(b"", body[:_HEAD], count=1)  # some feeds have that of HTML
    if representation(None, body) == HTML and representation(None, head) != FEED:
        raise DocumentInvalid(f"{url}: an HTML page, not a feed")
    # The parser would take a link to nothing for one to the feed itself.
    text = _EMPTY_LINK.sub(r"\1\2", xml_text(body, content_type, url))
    ends_early = _ends_early(_NO_TAGS.sub("", text))
    if ends_early:
        text = _without_half_entry(text)
    links = _links(_xml_entries(text, url), ends_early)
    return _with_terms(links, _NO_TAGS.sub("", text)) if _RSL in text else links


def _ends_early(tags: str) -> bool:
    """Whether the root element of a feed with these *tags* is not closed.

    Some hosts print a script behind its end.
    """
    root = _ROOT.search(tags)
    if root is None:
        return True
    end = rf"</{re.escape(root['name'])}\s*>"
    return not root["end"] and re.search(end, tags, re.IGNORECASE) is None


def _without_half_entry(text: str) -> str:
    """The *text* of a feed that is cut off, without a last entry that is not whole.

    If its link were missing, its enclosure or guid would count as the link. Only its date may be
    missing.
    """
    starts = [match.start() for match in _ENTRY.finditer(text)]
    if not starts or _END_OF_ENTRY.search(text, starts[-1]):
        return text
    last_entry = text[starts[-1] :].lower()
    return text if "</title>" in last_entry and "</link>" in last_entry else text[: starts[-1]]


def _with_terms(links: Links, tags: str) -> Links:
    """*links* with their terms of RSL, from a feed with these *tags*.

    All are about each entry if it is unclear which entry is which.
    """
    shared, of_entries = _terms(tags)
    if len(of_entries) != len(links.entries):
        shared += [term for terms in of_entries for term in terms]
        return replace(links, terms=_joined(shared))
    pairs = zip(links.entries, of_entries, strict=True)
    entries = tuple(replace(entry, terms=_joined(terms)) for entry, terms in pairs)
    return replace(links, entries=entries, terms=_joined(shared))


def _joined(terms: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(terms))[:_MAX_TERMS]


def _terms(tags: str) -> tuple[list[str], list[list[str]]]:
    """The elements of RSL outside the entries of a feed, and within each of them, as they stand."""
    prefixes = "|".join(re.escape(prefix) for prefix in {*_PREFIX.findall(tags), "rsl"})
    names = rf"(?:{prefixes}):(?:rsl|content|license)|(?:rsl|content|license)"
    marks = re.compile(
        rf"<(?P<end>/?)(?:(?P<term>{names})|(?:[\w.-]+:)?(?P<entry>item|entry))"
        r"(?=[\s/>])(?P<attributes>[^<>]*)>",
        re.IGNORECASE,
    )
    shared: list[str] = []
    of_entries: list[list[str]] = []
    here = shared
    name = ""  # of the element that is open, and where it begins
    start = 0
    for mark in marks.finditer(tags):
        is_end = bool(mark["end"])
        if mark["entry"]:
            if name:  # it is not closed
                here.append(tags[start : mark.start()])
            name = ""
            if not is_end:
                of_entries.append([])
            here = shared if is_end else of_entries[-1]
        elif name:
            if is_end and mark["term"] == name:
                here.append(tags[start : mark.end()])
                name = ""
        elif not is_end and (":" in mark["term"] or _RSL in mark["attributes"]):
            name = mark["term"]
            start = mark.start()
            if mark["attributes"].endswith("/"):
                here.append(mark[0])
                name = ""
    if name:
        here.append(tags[start:])
    return shared, of_entries


def _links(entries: Iterable[Entry | None], ends_early: bool = False) -> Links:
    """The *entries* of a feed; None stands for one without a link."""
    linked: list[Entry] = []
    linkless = 0
    for entry in entries:
        if entry is None:
            linkless += 1
        else:
            linked.append(entry)
    notes = []
    if linkless:
        notes.append(f"{plural(linkless, 'entry', 'entries')} without a link")
    if ends_early:
        notes.append(f"it ends early, after {plural(len(linked), 'entry', 'entries')}")
    return Links(tuple(linked), note="; ".join(notes), linkless=linkless, ends_early=ends_early)


def _xml_entries(text: str, url: str) -> Iterator[Entry | None]:
    feed = _parse(text, url)
    version = str(feed.get("version", ""))
    if not version and not feed.entries:
        raise DocumentInvalid(f"{url}: neither RSS nor Atom; nothing in it can be read as a feed")
    for entry in feed.entries:
        link = _first_link(_links_of(entry, version), url)
        if link is None:
            yield None
        else:
            yield Entry(_title(entry, version), link, _entry_date(entry))


def _parse(text: str, url: str) -> Any:
    try:
        return feedparser.parse(
            BytesIO(text.encode()),
            # No content-location: it would make a link of a guid that is none.
            response_headers={"content-type": "application/xml; charset=utf-8"},
            sanitize_html=False,  # titles are stripped here, nothing else is kept
            resolve_relative_uris=False,
        )
    except MemoryError:  # of this machine; it says nothing of the feed
        raise
    except Exception as error:  # the parser does not say which errors it raises
        kind = type(error).__name__
        raise DocumentInvalid(f"{url}: cannot be read as a feed ({kind})") from error


def _title(entry: Any, version: str) -> str:
    """The title of an entry. An Atom title is text, unless its type says HTML (RFC 4287, 3.1.1)."""
    title = str(entry.get("title", ""))
    kind = entry.get("title_detail", {}).get("type")
    is_text = version == "atom10" and kind == "text/plain"
    return plain_text(title, markup=not is_text)


def _links_of(entry: Any, version: str) -> Iterator[str]:
    """The links of an entry, the best first; an enclosure, for example a podcast, comes last.

    The id of an entry of Atom must not be taken for a link (RFC 4287, 4.2.6).
    """
    link = str(entry.get("link", ""))
    has_permalink = not version.startswith("atom") and absolute_http_url(link)
    if not entry.get("guidislink") or has_permalink:  # else it is the name of the entry
        yield link
    # The picture of an episode comes after its sound.
    links = sorted(entry.get("links", ()), key=_is_picture)
    for relation in ("alternate", "enclosure"):
        for link in links:
            if str(link.get("rel", "")).removeprefix(_IANA) == relation:
                yield str(link.get("href", ""))


def _is_picture(link: Any) -> bool:
    return str(link.get("type", "")).startswith("image/")


def _first_link(candidates: Iterable[str], base: str) -> str | None:
    """The first of *candidates* that is a usable link, as an absolute URL.

    None if a longer one comes before it: another link, for example of a sound, is not the entry's.
    """
    for candidate in candidates:
        link = resolved(base, candidate)
        if link or len(candidate) > MAX_URL:
            return link
    return None


def _first_date(texts: Iterable[str]) -> str | None:
    """The date in the first of *texts* that is not empty."""
    for text in texts:
        if text.strip():
            return dates.published(text)
    return None


def _entry_date(entry: Any) -> str | None:
    names = ("published", "updated", "created")
    # The `get` of feedparser's entries would return another of these dates, and warn.
    return _first_date(str(dict.get(entry, name) or "") for name in names)


def _json_entries(body: bytes, url: str) -> Iterator[Entry | None]:
    for item in _json_items(body, url):
        link = _first_link(_json_links(item), url)
        if link is None:
            yield None
            continue
        title = plain_text(_string(item, "title"), markup=False)  # JSON Feed 1.1: plain text
        date = _first_date(_string(item, name) for name in ("date_published", "date_modified"))
        yield Entry(title, link, date)


def _json_links(item: dict[str, Any]) -> Iterator[str]:
    yield _string(item, "url")
    yield _string(item, "external_url")
    attachments = item.get("attachments")
    if isinstance(attachments, list):
        yield from (_string(file, "url") for file in attachments if isinstance(file, dict))


def _json_items(body: bytes, url: str) -> list[dict[str, Any]]:
    try:
        document = _json(body.removeprefix(codecs.BOM_UTF8))
    except RecursionError as error:
        raise DocumentTooCostly(f"{url}: JSON nested too deeply; not read") from error
    except ValueError as error:
        raise DocumentInvalid(f"{url}: not JSON, so not a JSON Feed") from error
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise DocumentInvalid(f"{url}: a JSON Feed without a list of items")
    return [item for item in items if isinstance(item, dict)]


def _json(body: bytes) -> Any:
    """The JSON in *body*, with U+FFFD for an octet that is damaged."""
    try:
        return json.loads(body)
    except UnicodeDecodeError:
        return json.loads(body.decode("utf-8", "replace"))


def _string(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""
