"""Statements of files as they are in the field, found by other readers as well, and compared.

The other reader of robots.txt reads line by line, that of a feed with a parser of XML.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from scrapy_walsh.policy.formats.feeds import read_feed
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.robots.usage import combine, of_feed

TOKEN = "ExampleBot"
FEED = "https://press.test/feed"

#: As a large CDN writes it for its customers, a plugin for blogs, and sites by hand (autumn 2026).
ROBOTS = {
    "managed by a CDN": """\
# Preferences of this site, see its terms.
User-agent: *
Content-Signal: search=yes,ai-train=no,use=reference
Allow: /

User-agent: TrainBot
Disallow: /
""",
    "a plugin": """\
User-agent: *
Disallow: /admin/
Allow: /admin/ajax

# RSL
License: https://press.test/?rsl_license=1

# AI preferences
Content-Usage: train-ai=n
Content-Usage: /open/ train-ai=y
""",
    "two vocabularies, for us by name": """\
License: https://press.test/license.xml
User-agent: TrainBot
User-agent: examplebot
Content-Usage: train-ai=n, ai-use=n, search=y
Content-Signal: search=yes, ai-input=no, ai-train=no, use=immediate
Allow: /

User-agent: *
Content-Signal: search=no
Disallow: /
Sitemap: https://press.test/sitemap.xml
""",
    "a licence of each section": """\
User-agent: *
License: https://press.test/news.xml
Disallow:
License: https://press.test/photos.xml
""",
    "nothing": "User-agent: *\nDisallow: /x\n# License: https://press.test/old.xml\n",
}


def statements_of(text: str) -> set[tuple[int, str, str]]:
    """Number, field and value of the statements for us; those for a path must fit ``/page``."""
    by_name: dict[str, set[tuple[int, str, str]]] = {}
    names: set[str] = set()
    has_rules = True
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        field, colon, value = (part.strip() for part in line.split("#")[0].partition(":"))
        field = field.lower()
        if field == "user-agent":
            names = {value.lower()} | (set() if has_rules else names)
            has_rules = False
        elif field in {"allow", "disallow"}:
            has_rules = True
        elif field == "license":
            found.add((number, field, value))
        elif field in {"content-usage", "content-signal"} and not value.startswith("/open"):
            for name in names:
                by_name.setdefault(name, set()).add((number, field, value))
        for name in names if colon else ():
            by_name.setdefault(name, set())
    return found | by_name.get(TOKEN.lower(), by_name.get("*", set()))


@pytest.mark.parametrize("text", ROBOTS.values(), ids=ROBOTS)
def test_robots_txt(text: str) -> None:
    said = parse_robots(text.encode(), TOKEN, "https://press.test/robots.txt").said("/page")
    expected = statements_of(text)
    assert {(each.line, each.field.lower(), each.value) for each in said} == expected
    assert len(said) == len(expected)


RSL = "https://rslstandard.org/rsl"


def terms(uses: str, prefix: str = "rsl:", more: str = "") -> str:
    """The element of RSL that prohibits *uses*."""
    return (
        f'<{prefix}content url="/1"{more}><{prefix}license>'
        f'<{prefix}permits type="usage">search</{prefix}permits>'
        f'<{prefix}prohibits type="usage">{uses}</{prefix}prohibits>'
        f'<{prefix}prohibits type="geo">US</{prefix}prohibits>'
        f'<{prefix}payment type="crawl"><{prefix}amount currency="USD">1</{prefix}amount>'
        f"</{prefix}payment></{prefix}license></{prefix}content>"
    )


def item(number: int, more: str = "") -> str:
    return (
        f"<item><title>T {number}</title><link>https://press.test/{number}</link>{more}"
        "<description><![CDATA[<rsl:content><rsl:prohibits>cdata</rsl:prohibits>]]></description>"
        "</item>"
    )


def rss(body: str, namespaces: str = f'xmlns:rsl="{RSL}"') -> str:
    return f'<rss version="2.0" {namespaces}><channel><title>P</title>{body}</channel></rss>'


def atom(*entries: str, more: str = "") -> str:
    text = "".join(
        f'<entry><title>T</title><id>u:{n}</id><link href="https://press.test/{n}"/>{entry}</entry>'
        for n, entry in enumerate(entries)
    )
    name = "http://www.w3.org/2005/Atom"
    return f'<feed xmlns="{name}" xmlns:lic="{RSL}"><title>P</title>{more}{text}</feed>'


FEEDS = {
    "each item": rss(item(1, terms("ai-train")) + item(2, terms("ai-input ai-index")) + item(3)),
    "the channel": rss(terms("train-x") + item(1) + item(2, terms("future"))),
    "after the items": rss(item(1) + item(2, terms("ai-input")) + terms("search")),
    "several of an item": rss(item(1, terms("ai-train") + terms("search")) + item(2)),
    "empty elements": rss(item(1, '<rsl:content url="/1" server="https://l.test"/>') + item(2)),
    "a comment": rss(f"<!-- {terms('ai-train')} -->" + item(1) + item(2, terms("search"))),
    "another prefix, Atom": atom(terms("ai-train", "lic:"), "<content>plain</content>", ""),
    "no prefix": rss(item(1, terms("ai-train", "", f' xmlns="{RSL}"')) + item(2), ""),
    "no prefix, Atom": atom("", terms("search", "", f' xmlns="{RSL}"')),
    "a wrapper": rss(item(1, f'<rsl xmlns="{RSL}">{terms("ai-input", "")}</rsl>') + item(2), ""),
    "no terms": rss(item(1) + item(2)),
    "another namespace": rss(item(1, "<x:content><x:prohibits>a</x:prohibits></x:content>"),
                             'xmlns:x="https://other.test/"'),
}  # fmt: skip


def prohibited(element: ET.Element) -> set[str]:
    found = {
        word
        for each in element.iter(f"{{{RSL}}}prohibits")
        if each.get("type") == "usage"
        for word in (each.text or "").split()
    }
    return {{"ai-train": "train-ai"}.get(word, word) for word in found}


def is_entry(element: ET.Element) -> bool:
    return element.tag.rpartition("}")[2] in {"item", "entry"}


@pytest.mark.parametrize("text", FEEDS.values(), ids=FEEDS)
def test_feeds(text: str) -> None:
    root = ET.fromstring(text)  # noqa: S314  written above
    parent = next(each for each in root.iter() if any(map(is_entry, each)))
    entries = [child for child in parent if is_entry(child)]
    shared = set().union(*(prohibited(child) for child in parent if not is_entry(child)))
    links = read_feed(text.encode(), None, FEED)
    found = [
        set(combine((*of_feed(links.terms, FEED), *of_feed(entry.terms, FEED))))
        for entry in links.entries
    ]
    assert found == [shared | prohibited(entry) for entry in entries]


def test_terms_count_for_all_if_it_is_unclear_whose_they_are() -> None:
    """An entry without a link is left out, and an element that is not closed has no end."""
    linkless = "<item><title>none</title></item>"
    links = read_feed(rss(linkless + item(1, terms("search")) + item(2)).encode(), None, FEED)
    assert [set(combine(of_feed(links.terms, FEED)))] == [{"search"}]
    cut = terms("ai-train").removesuffix("</rsl:content>")
    links = read_feed(rss(item(1, cut) + item(2)).encode(), None, FEED)
    assert set(combine(of_feed(links.entries[0].terms, FEED))) == {"train-ai"}
    assert links.entries[1].terms == ""


def test_a_flood_of_terms_takes_no_more_room_than_one() -> None:
    flood = "".join(terms(f"use-{number}") for number in range(2000))
    links = read_feed(rss(flood + item(1, flood) + item(2)).encode(), None, FEED)
    assert max(len(links.terms), *(len(entry.terms) for entry in links.entries)) == 4096
