"""Read a sitemap (sitemaps.org, protocol 0.9): its links, or the sitemaps of an index (R9).

Only URL, title and date are used; only the news extension has a title. First, ``xmltext`` refuses
or mends everything that would harm the parser, so no entity is ever declared. We read the parser's
events and make no tree. Names count without their prefix, because publishers forget to declare it.
"""

from __future__ import annotations

import re
from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.formats import dates
from scrapy_walsh.policy.formats.text import Entry, Links, absolute_http_url, plain_text
from scrapy_walsh.policy.formats.xmltext import without_gzip, xml_text
from scrapy_walsh.policy.words import plural

#: Entries of a sitemap, or sitemaps of an index, that are read: the protocol's limit.
MAX_ENTRIES: Final = 50_000

#: By root element, the element that is one entry.
_ENTRIES: Final = {"urlset": "url", "sitemapindex": "sitemap"}
#: The beginning of a sitemap that follows other text, for example a notice of PHP.
_ROOT: Final = re.compile(r"<(?:[\w.-]+:)?(?:urlset|sitemapindex)[\s/>]")
#: The prefix of the news extension, which publishers forget to declare.
_NEWS: Final = "news"
#: The fields of an entry, by their path within the root.
_KEPT: Final = {
    "url/loc": "loc",
    "url/lastmod": "lastmod",
    "url/news/title": "title",
    "url/news/publication_date": "published",
    "sitemap/loc": "loc",
}


def read_sitemap(body: bytes, content_type: str | None, url: str) -> Links:
    """The sitemap in *body*, XML that may be packed with gzip.

    ``content_type``: the header's value or None. ``url``: of the sitemap, for messages. A malformed
    sitemap returns the entries before the fault. Raises DocumentInvalid if it is no sitemap, for
    broken gzip data, and for a document type with declarations of its own; DocumentTooCostly for
    more than MAX_OCTETS, and for elements that are nested too deeply.
    """
    reader = _Reader()
    text = xml_text(without_gzip(body, url), content_type, url)
    root = _ROOT.search(text)
    fault = reader.read(text[root.start() :] if root else text)
    if reader.root not in _ENTRIES:
        raise DocumentInvalid(f"{url}: neither a sitemap nor a sitemap index")
    if fault and not reader.found:
        raise DocumentInvalid(f"{url}: its XML is broken before any entry")
    entries = [entry for entry in map(_entry, reader.found) if entry is not None]
    note = _note(reader, fault, len(reader.found) - len(entries))
    if reader.root == "sitemapindex":
        return Links((), note=note, children=tuple(dict.fromkeys(entry.url for entry in entries)))
    return Links(tuple(entries), note=note, ends_early=fault and not reader.full)


def _note(reader: _Reader, fault: bool, unusable: int) -> str:
    notes = []
    if reader.full:
        notes.append(f"read up to {MAX_ENTRIES} entries")
    if fault:
        notes.append(f"read up to entry {len(reader.found)}, after which its XML is broken")
    if unusable:
        notes.append(f"{plural(unusable, 'entry', 'entries')} without a usable URL")
    return "; ".join(notes)


class _Reader:
    """``root``: the local name of the root element. ``found``: the fields of each entry.

    ``full``: there are more than MAX_ENTRIES entries.
    """

    def __init__(self) -> None:
        self.root = ""
        self.found: list[dict[str, str]] = []
        self.full = False
        self._prefix = ""
        self._path: list[str] = []
        self._entry: dict[str, str] = {}
        self._text: list[str] | None = None

    def read(self, text: str) -> bool:
        """Read *text*. Returns whether a fault in its XML ended that."""
        parser = ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._begun
        parser.EndElementHandler = self._ended
        parser.CharacterDataHandler = self._said
        try:
            parser.Parse(text.encode(), True)
        except ExpatError:
            if "loc" in self._entry and not self.full:  # cut off within the entry, after its URL
                self.found.append(self._entry)
            return True
        return False

    def _begun(self, name: str, _attributes: dict[str, str]) -> None:
        if not self.root:
            self._prefix, _, self.root = name.rpartition(":")
        self._path.append(self._own_name(name))
        within = self._path[1:]
        if self._is_entry(within):
            self._entry = {}
            self.full = len(self.found) == MAX_ENTRIES
        is_of_entry = within[:1] == [_ENTRIES.get(self.root)]
        self._text = [] if is_of_entry and "/".join(within) in _KEPT else None

    def _own_name(self, name: str) -> str:
        """The local name of a sitemap's own element; else *name* with its prefix.

        ``image:loc`` is the address of a picture, and no ``loc`` of the entry.
        """
        prefix, _, local = name.rpartition(":")
        return local if prefix in ("", self._prefix, _NEWS) else name

    def _is_entry(self, within: list[str]) -> bool:
        return within == [_ENTRIES.get(self.root)]

    def _said(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _ended(self, _name: str) -> None:
        within = self._path[1:]
        self._path.pop()
        if self._text is not None:
            self._entry.setdefault(_KEPT["/".join(within)], "".join(self._text).strip())
            self._text = None
        elif self._is_entry(within) and not self.full:
            self.found.append(self._entry)
            self._entry = {}


def _entry(fields: dict[str, str]) -> Entry | None:
    url = absolute_http_url(fields.get("loc", ""))
    if url is None:
        return None
    texts = (fields.get("published", ""), fields.get("lastmod", ""))
    published = next(filter(None, map(dates.published, texts)), None)
    return Entry(plain_text(fields.get("title", "")), url, published)
