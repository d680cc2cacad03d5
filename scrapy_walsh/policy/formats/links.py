"""Read the links of an answer, whatever its format (R9). Markdown is read here.

A hostile answer can take any time to read. :mod:`scrapy_walsh.adapters.documents.apart` decides
whether a child process with limits reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats import text as texts
from scrapy_walsh.policy.formats.feeds import read_feed
from scrapy_walsh.policy.formats.sitemaps import read_sitemap
from scrapy_walsh.policy.formats.text import Entry, Heading, Links
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

#: Characters of a markdown body that are read; the rest is ignored.
MAX_MARKDOWN: Final = 1_000_000

_WORDS: Final = frozenset({"text", "code_inline", "image", "text_special"})
_BREAKS: Final = frozenset({"softbreak", "hardbreak"})


def links_of(kind: str, body: bytes, content_type: str | None, url: str) -> Links:
    """Read a body of the format *kind* (``representation``).

    Feeds and sitemaps are read as such, everything else as markdown. Raises as ``read_feed`` and
    ``read_sitemap``.
    """
    if kind in (formats.FEED, formats.JSON_FEED):
        return read_feed(body, content_type, url)
    if kind in (formats.SITEMAP, formats.GZIP):
        return read_sitemap(body, content_type, url)
    return markdown_links(texts.text_of(body, content_type))


def markdown_links(text: str) -> Links:
    """The inline links of a markdown text, in its order (R9.6), by its H1 and H2 headings.

    Only absolute http and https URLs count, each once. The title is the link's text without markup.
    Images, autolinks, reference links, code and raw HTML are not inline links. llms.txt has its
    name as H1, its lists of links as H2. Never raises.
    """
    titles: dict[str, str] = {}
    headings: list[Heading] = []
    level = 0
    too_long = 0
    for token in _tokens(text):
        if token.type == "heading_open":
            level = int(token.tag[1:])
        elif token.type == "inline":
            children = token.children or ()
            if level in (1, 2):
                words = "".join(child.content for child in children if child.type in _WORDS)
                headings.append(Heading(level, texts.plain_text(words, markup=False), len(titles)))
            level = 0
            for title, href in _inline_links(children):
                if url := texts.absolute_http_url(href):
                    # Before a link with words there is often the same link around an image.
                    titles[url] = titles.get(url) or title
                too_long += len(href) > texts.MAX_URL
    entries = tuple(Entry(title, url, None) for url, title in titles.items())
    notes = []
    if len(text) > MAX_MARKDOWN:
        notes.append(f"read up to {MAX_MARKDOWN} characters")
    if too_long:
        notes.append(f"{plural(too_long, 'link')} longer than {texts.MAX_URL} characters left out")
    return Links(entries, tuple(headings), "; ".join(notes))


def _tokens(text: str) -> list[Token]:
    from markdown_it import MarkdownIt  # noqa: PLC0415  slow, and no business of most crawls

    try:
        return MarkdownIt("commonmark").disable("reference").parse(text[:MAX_MARKDOWN])
    except (ValueError, IndexError, RecursionError):
        return []


def _inline_links(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    href: str | None = None
    words: list[str] = []
    for token in tokens:
        if token.type == "link_open":
            href = None if token.markup == "autolink" else str(token.attrs.get("href", ""))
            words = []
        elif token.type == "link_close":
            if href:
                yield texts.plain_text("".join(words), markup=False), href
            href = None
        elif token.type in _WORDS:
            words.append(token.content)
        elif token.type in _BREAKS:
            words.append(" ")
