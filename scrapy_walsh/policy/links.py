"""R9: reads the links of one source's answer, whatever its format.

A hostile answer can take any time to read. :mod:`scrapy_walsh.adapters.apart` decides whether it is
read in a child process, with limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scrapy_walsh.policy import formats
from scrapy_walsh.policy.feeds import Entry, read_feed
from scrapy_walsh.policy.formats import Section
from scrapy_walsh.policy.sitemaps import read_sitemap


class Heading(NamedTuple):
    """Where a section of a markdown text begins: ``first`` is the index of its first entry."""

    level: int
    title: str
    first: int


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one answer, in its order. ``headings``: those of markdown, empty for a feed.

    ``note``: one line about what was not read, empty where all was. ``children``: the sitemaps of a
    sitemap index; None where it is none.
    """

    entries: tuple[Entry, ...]
    headings: tuple[Heading, ...] = ()
    note: str = ""
    children: tuple[str, ...] | None = None

    def sections(self) -> list[Section]:
        """The links under their headings; those of a feed as one section."""
        headings = self.headings or (Heading(0, "", 0),)
        ends = (*(each.first for each in headings[1:]), len(self.entries))
        return [
            Section(level, title, [(entry.title, entry.url) for entry in self.entries[first:end]])
            for (level, title, first), end in zip(headings, ends, strict=True)
        ]


def links_of(kind: str, body: bytes, content_type: str | None, url: str) -> Links:
    """Read a body whose :func:`formats.representation` is *kind*.

    Feeds and sitemaps are read as such, all else as markdown. Raises as ``read_feed`` and
    ``read_sitemap``.
    """
    if kind in (formats.FEED, formats.JSON_FEED):
        return Links(tuple(read_feed(body, content_type, url)))
    if kind in (formats.SITEMAP, formats.GZIP):
        found = read_sitemap(body, content_type, url)
        return Links(found.entries, note=found.note, children=found.children)
    text = formats.text_of(body, content_type)
    entries: list[Entry] = []
    headings: list[Heading] = []
    for section in formats.markdown_sections(text):
        headings.append(Heading(section.level, section.title, len(entries)))
        entries += [Entry(title, link, None) for title, link in section.links]
    cut = len(text) > formats.MAX_MARKDOWN
    note = f"read up to {formats.MAX_MARKDOWN} characters" if cut else ""
    return Links(tuple(entries), tuple(headings), note)
