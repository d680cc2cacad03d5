"""R9: reads a sitemap (sitemaps.org, protocol 0.9): its links, or the sitemaps of an index.

Only URL, title and date are kept; a title stands in the news extension alone. What the parser gets
has passed ``xmltext``, which refuses or mends what would harm it, so no entity is ever declared.
The parser's own events are read, and no tree is made: names count without their prefix, since
publishers forget to declare it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate
from zlib import error as zlib_error

from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly
from scrapy_walsh.policy.formats.representation import GZIP_MAGIC
from scrapy_walsh.policy.formats.text import Entry, Links, absolute_http_url, plain_text, utc_iso
from scrapy_walsh.policy.formats.xmltext import xml_text
from scrapy_walsh.policy.packing import unpacked
from scrapy_walsh.policy.words import plural

#: Octets of a sitemap, unpacked: the protocol's limit of 50 MB.
MAX_OCTETS: Final = 52_428_800
#: Entries of a sitemap, or sitemaps of an index, that are read: the protocol's limit.
MAX_ENTRIES: Final = 50_000
#: Characters of a URL; the protocol's are shorter.
MAX_URL: Final = 2_048

_NO_DAY: Final = re.compile(r"\d{4}(?:-\d\d)?")
#: By root element, the element that is one entry.
_ENTRIES: Final = {"urlset": "url", "sitemapindex": "sitemap"}
#: What is kept of an entry, by the path to it within the root.
_KEPT: Final = {
    "url/loc": "loc",
    "url/lastmod": "lastmod",
    "url/news/title": "title",
    "url/news/publication_date": "published",
    "sitemap/loc": "loc",
}


def read_sitemap(body: bytes, content_type: str | None, url: str) -> Links:
    """The sitemap in *body*, XML that may be packed with gzip.

    ``content_type``: the header's value or None. ``url``: where it was fetched, for messages. Of a
    malformed one what stands before the fault is returned. Raises DocumentInvalid for what is not a
    sitemap, for broken gzip data, and for a document type with declarations of its own;
    DocumentTooCostly for more than MAX_OCTETS, and for elements that are nested too deeply.
    """
    reader = _Reader()
    fault = reader.read(xml_text(_unpacked(body, url), content_type, url))
    if reader.root not in _ENTRIES:
        raise DocumentInvalid(f"{url}: neither a sitemap nor a sitemap index")
    if fault and not reader.found:
        raise DocumentInvalid(f"{url}: its XML is broken before any entry")
    entries = [entry for entry in map(_entry, reader.found) if entry is not None]
    note = _note(reader, fault, len(reader.found) - len(entries))
    if reader.root == "sitemapindex":
        return Links((), note=note, children=tuple(dict.fromkeys(it.url for it in entries)))
    return Links(tuple(entries), note=note)


def _note(reader: _Reader, fault: bool, unusable: int) -> str:
    said = []
    if reader.full:
        said.append(f"read up to {MAX_ENTRIES} entries")
    if fault:
        said.append(f"read up to entry {len(reader.found)}, after which its XML is broken")
    if unusable:
        said.append(f"{plural(unusable, 'entry', 'entries')} without a usable URL")
    return "; ".join(said)


def _unpacked(body: bytes, url: str) -> bytes:
    """*body* without gzip, of which little more than MAX_OCTETS are ever unpacked."""
    if not body.startswith(GZIP_MAGIC):
        return body
    try:  # RFC 1952 2.2: members follow each other
        found = unpacked(body, MAX_OCTETS + 1, GZIP_MAGIC)
    except zlib_error:
        raise DocumentInvalid(f"{url}: its gzip data is damaged") from None
    if found is None:
        raise DocumentInvalid(f"{url}: its gzip data is cut off")
    if len(found) > MAX_OCTETS:
        raise DocumentTooCostly(f"{url}: over {MAX_OCTETS} bytes when unpacked; not read")
    return found


class _Reader:
    """``root``: the local name of the root element. ``found``: what is kept of each entry.

    ``full``: there are more than MAX_ENTRIES entries.
    """

    def __init__(self) -> None:
        self.root = ""
        self.found: list[dict[str, str]] = []
        self.full = False
        self._path: list[str] = []
        self._entry: dict[str, str] = {}
        self._text: list[str] | None = None

    def read(self, text: str) -> bool:
        """Read *text*; whether a fault in its XML ended that."""
        parser = ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._begun
        parser.EndElementHandler = self._ended
        parser.CharacterDataHandler = self._said
        try:
            parser.Parse(text.encode(), True)
        except ExpatError:
            if "loc" in self._entry and not self.full:  # cut off within the entry, after that
                self.found.append(self._entry)
            return True
        return False

    def _begun(self, name: str, _attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self.root:
            self.root = name
        self._path.append(name)
        within = self._path[1:]
        if within == [_ENTRIES.get(self.root)] and len(self.found) == MAX_ENTRIES:
            self.full = True
        self._text = [] if "/".join(within) in _KEPT else None

    def _said(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _ended(self, _name: str) -> None:
        within = self._path[1:]
        self._path.pop()
        if self._text is not None:
            self._entry.setdefault(_KEPT["/".join(within)], "".join(self._text).strip())
            self._text = None
        elif within == [_ENTRIES.get(self.root)] and not self.full:
            self.found.append(self._entry)
            self._entry = {}


def _entry(kept: dict[str, str]) -> Entry | None:
    url = absolute_http_url(kept.get("loc", ""))
    if url is None or len(url) > MAX_URL:
        return None
    dates = (kept.get("published", ""), kept.get("lastmod", ""))
    published = next((date for date in map(_date, dates) if date), None)
    return Entry(plain_text(kept.get("title", "")), url, published)


def _date(text: str) -> str | None:
    """A W3C date as UTC; a year or a month is its first day."""
    if _NO_DAY.fullmatch(text):
        text = f"{text}-01-01"[:10]
    try:
        return utc_iso(datetime.fromisoformat(text))
    except ValueError:
        return None
