"""The formats of answers, and how their links are read (R9)."""

from __future__ import annotations


def markdown_links(text: str) -> list[tuple[str, str]]:
    """Title and absolute URL of each link of a markdown text, in its order, each URL once."""
    from scrapy_walsh.policy.formats import links  # noqa: PLC0415  it loads a parser

    return [(link.title, link.url) for link in links.markdown_links(text).entries]
