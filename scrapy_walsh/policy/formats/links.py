"""R9: reads the links of one source's answer, whatever its format.

A hostile answer can take any time to read. :mod:`scrapy_walsh.adapters.documents.apart` decides
whether it is read in a child process, with limits.
"""

from __future__ import annotations

from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats.feeds import Entry, Heading, Links, read_feed
from scrapy_walsh.policy.formats.sitemaps import read_sitemap


def links_of(kind: str, body: bytes, content_type: str | None, url: str) -> Links:
    """Read a body whose :func:`formats.representation` is *kind*.

    Feeds and sitemaps are read as such, all else as markdown. Raises as ``read_feed`` and
    ``read_sitemap``.
    """
    if kind in (formats.FEED, formats.JSON_FEED):
        return Links(tuple(read_feed(body, content_type, url)))
    if kind in (formats.SITEMAP, formats.GZIP):
        return read_sitemap(body, content_type, url)
    text = formats.text_of(body, content_type)
    entries: list[Entry] = []
    headings: list[Heading] = []
    for section in formats.markdown_sections(text):
        headings.append(Heading(section.level, section.title, len(entries)))
        entries += [Entry(title, link, None) for title, link in section.links]
    cut = len(text) > formats.MAX_MARKDOWN
    note = f"read up to {formats.MAX_MARKDOWN} characters" if cut else ""
    return Links(tuple(entries), tuple(headings), note)
