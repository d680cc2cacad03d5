"""Reading of declared sources: each problem is one line, and the rest goes on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.sources.sources import Source, parse_urls, read_sources

if TYPE_CHECKING:
    from pathlib import Path

A = Source("A", "https://a.test/blog", "https://a.test/feed.xml")
B = Source("b.test", "http://b.test/")

UNUSABLE = "cannot be used; write an absolute http or https URL"

SAME_LIST = {
    "list.toml": """
[[source]]
name = "A"
url = "https://a.test/blog"
feed = "https://a.test/feed.xml"
[[source]]
url = "http://b.test/"
""",
    "list.jsonl": """{"name": "A", "url": "https://a.test/blog", "feed": "https://a.test/feed.xml"}

{"url": "http://b.test/"}
""",
    "list.opml": """<?xml version="1.0" encoding="ISO-8859-1"?>
<opml version="2.0"><head><title>mine</title></head><body>
 <outline text="Folder">
  <outline type="rss" text="A" xmlUrl="https://a.test/feed.xml" htmlUrl="https://a.test/blog"/>
 </outline>
 <outline type="link" text="" url="http://b.test/"/>
</body></opml>
""",
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SAME_LIST)
def test_every_kind_of_file(tmp_path: Path, name: str) -> None:
    assert read_sources(write(tmp_path, name, SAME_LIST[name])) == ([A, B], [])


SITEMAPS = {
    "list.toml": """
[[source]]
sitemap = "https://s.test/news-sitemap.xml"

[[source]]
name = "S"
url = "https://s.test/"
sitemap = "https://u:p@s.test/index.xml"
children = true

[[source]]
name = "no sitemap"
url = "https://s.test/a"
children = true

[[source]]
name = "no truth"
sitemap = "https://s.test/b.xml"
children = "yes"

[[source]]
name = "no URL"
sitemap = "/c.xml"
""",
    "list.jsonl": """{"sitemap": "https://s.test/news-sitemap.xml"}
{"name": "S", "url": "https://s.test/", "sitemap": "https://u:p@s.test/index.xml", "children": true}
{"name": "no sitemap", "url": "https://s.test/a", "children": true}
{"name": "no truth", "sitemap": "https://s.test/b.xml", "children": "yes"}
{"name": "no URL", "sitemap": "/c.xml"}
""",
}


CADENCES = {
    "list.toml": """
[[source]]
url = "https://a.test/"
revisit = "P7D"
[[source]]
url = "https://b.test/"
revisit = 7200
[[source]]
url = "https://c.test/"
revisit = "PT5M"
[[source]]
url = "https://a.test"
revisit = "P30D"
[[source]]
url = "https://b.test"
""",
    "list.jsonl": """{"url": "https://a.test/", "revisit": "P7D"}
{"url": "https://b.test/", "revisit": 7200}
{"url": "https://c.test/", "revisit": "PT5M"}
{"url": "https://a.test", "revisit": "P30D"}
{"url": "https://b.test"}
""",
}


@pytest.mark.parametrize("name", CADENCES)
def test_r8_1_a_source_has_a_cadence_of_its_own(tmp_path: Path, name: str) -> None:
    sources, problems = read_sources(write(tmp_path, name, CADENCES[name]))
    assert sources == [
        Source("a.test", "https://a.test/", revisit=7 * 86400.0),  # the first of two
        Source("b.test", "https://b.test/", revisit=7200.0),
    ]
    short, again, twice = problems
    assert short.endswith(
        "revisit is 'PT5M'; accepted: auto, a number of seconds, or a duration such as P7D, "
        "at least 3600, at most 31536000 (365 days)"
    )
    assert again.endswith("dropped")
    assert twice.endswith("dropped")


@pytest.mark.parametrize("name", SITEMAPS)
def test_sitemaps(tmp_path: Path, name: str) -> None:
    sources, problems = read_sources(write(tmp_path, name, SITEMAPS[name]))
    news, index = "https://s.test/news-sitemap.xml", "https://s.test/index.xml"
    assert sources == [
        Source("s.test", news, sitemap=news),
        Source("S", "https://s.test/", sitemap=index, children=True),
    ]
    assert [source.first for source in sources] == [news, index]
    userinfo, *said = [problem.partition("): ")[2] for problem in problems]
    assert userinfo.startswith("a URL of s.test holds a user name or a password; it is ignored")
    assert said == [
        'children = true without a sitemap; add sitemap = "https://..."',
        "Expected `bool`, got `str` - at `$.children`",
        f"sitemap '/c.xml' {UNUSABLE}",
    ]


def test_txt(tmp_path: Path) -> None:
    text = "\ufeff# my list\n\nhttps://a.test/x#part  # why\n  http://b.test/  \n#https://c.test/\n"
    sources, problems = read_sources(write(tmp_path, "list.TXT", text))
    assert sources == [Source("a.test", "https://a.test/x#part"), B]
    assert problems == []


def test_opml_subscription_without_a_page(tmp_path: Path) -> None:
    subscription = '<outline title="T" xmlUrl="https://a.test/f"/>'
    text = f'<opml><body>{subscription}<outline text="x"/></body></opml>'
    sources, problems = read_sources(write(tmp_path, "l.opml", text))
    assert sources == [Source("T", "https://a.test/f", "https://a.test/f")]
    assert problems == ['l.opml: outline 2 (x): no url; add url = "https://..."']


def test_bad_entries_are_named_and_the_others_kept(tmp_path: Path) -> None:
    text = """
[[source]]
url = "https://a.test/"
[[source]]
name = "no URL"
[[source]]
name = "mail"
url = "mailto:me@a.test"
[[source]]
url = "ftp://a.test/"
[[source]]
url = 7
[[source]]
name = "feed"
url = "https://f.test/"
feed = "feed.xml"
[[source]]
name = "again"
url = "https://A.test:443/#top"
[[source]]
name = "typo"
url = "https://t.test/"
fedd = "https://t.test/feed"
[[source]]
url = "https://host with space/"
[[source]]
url = "http://[::1"
[[source]]
url = "https://a.test:99999/"
[[source]]
url = "http://b.test/"
"""
    sources, problems = read_sources(write(tmp_path, "s.toml", text))
    assert [source.url for source in sources] == [
        "https://a.test/",
        "https://t.test/",
        "http://b.test/",
    ]
    assert problems == [
        's.toml: source 2 (no URL): no url; add url = "https://..."',
        f"s.toml: source 3 (mail): url '***@a.test' {UNUSABLE}",
        f"s.toml: source 4: url 'ftp://a.test/' {UNUSABLE}",
        "s.toml: source 5: Expected `str`, got `int` - at `$.url`",
        f"s.toml: source 6 (feed): feed 'feed.xml' {UNUSABLE}",
        "s.toml: source 7 (again): the same URL as source 1; dropped",
        "s.toml: source 8 (typo): unknown key 'fedd'; ignored",
        f"s.toml: source 9: url 'https://host with space/' {UNUSABLE}",
        f"s.toml: source 10: url 'http://[::1' {UNUSABLE}",
        f"s.toml: source 11: url 'https://a.test:99999/' {UNUSABLE}",
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.toml", "[[source]\n", "s.toml: not TOML: "),
        ("s.toml", 'url = "https://a.test/"', "s.toml: no [[source]] table"),
        ("s.toml", '[source]\nurl = "https://a.test/"', "s.toml: no [[source]] table"),
        ("s.opml", "<opml><body>", "s.opml: not OPML: "),
        ("s.opml", "<html/>", "s.opml: not OPML: its root is <html>"),
        ("s.csv", "", "s.csv: unknown kind of file; use .toml, .jsonl, .opml, .txt"),
        ("s", "", "s: unknown kind of file"),
    ],
)
def test_a_file_that_is_not_what_it_says(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(SourcesInvalid) as caught:
        read_sources(write(tmp_path, name, text))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourcesInvalid, match="cannot be read: No such file"):
        read_sources(tmp_path / "none.toml")
    path = tmp_path / "latin.txt"
    path.write_bytes("https://a.test/é".encode("latin-1"))
    with pytest.raises(SourcesInvalid, match=r"latin.txt: not UTF-8 \(byte 15\)"):
        read_sources(path)


def test_jsonl_lines_fail_alone(tmp_path: Path) -> None:
    text = '{"url": "http://b.test/"}\n{"url": \n[1]\n'
    sources, problems = read_sources(write(tmp_path, "l.jsonl", text))
    assert sources == [B]
    assert problems == [
        'l.jsonl: line 2: not a JSON object; write {"url": "..."}',
        'l.jsonl: line 3: not a JSON object; write {"url": "..."}',
    ]


@pytest.mark.parametrize(
    ("written", "url", "bare"),
    [
        ("example.org", "https://example.org/", True),
        ("example.org:8443", "https://example.org:8443/", True),
        ("example.org/blog?x=1", "https://example.org/blog?x=1", True),
        ("bücher.example", "https://bücher.example/", True),
        ("localhost:6800", "https://localhost:6800/", True),
        ("http://example.org", "http://example.org", False),
    ],
)
def test_bare_host(written: str, url: str, bare: bool) -> None:
    sources, problems = parse_urls(written)
    assert ([(s.url, s.bare_host) for s in sources], problems) == ([(url, bare)], [])


@pytest.mark.parametrize(
    "written", ["word", "https:/a.test", "javascript:alert(1)", "//a.test/", "a.test:port"]
)
def test_not_a_url(written: str) -> None:
    sources, problems = parse_urls(written)
    assert sources == []
    assert problems == [f"urls: url 1: url {written!r} {UNUSABLE}"]


# -- files as other programs export them ---------------------------------------------------------

ONE = '<outline text="A" xmlUrl="https://a.test/f"/>'
TWO = '<outline xmlUrl="https://b.test/f"/>'
IDN = '<outline xmlUrl="https://b\u00fccher.test/f"/>'
PUNYCODE = '<outline xmlUrl="https://xn--bcher-kva.test/f"/>'


@pytest.mark.parametrize(
    ("body", "feeds"),
    [
        ('<outline text="Q & A" xmlUrl="https://a.test/f?x=1&y=2"/>', ["https://a.test/f?x=1&y=2"]),
        ('<outline text="x &copy; y &nbsp; &hearts;" xmlUrl="https://a.test/f"/>',
         ["https://a.test/f"]),
        ('<outline text="1 < 2" xmlUrl="https://a.test/f"/>', ["https://a.test/f"]),
        (f'<outline isComment="true">{ONE}<outline>{ONE}</outline></outline>{TWO}',
         ["https://b.test/f"]),
        (f'<outline isComment="TRUE" xmlUrl="https://b.test/f"/>{ONE}', ["https://a.test/f"]),
        ('<outline xmlUrl="feed:https://a.test/f"/><outline xmlUrl="FEED://b.test/f"/>',
         ["https://a.test/f", "http://b.test/f"]),
        ('<outline xmlUrl="\u200bhttps://a.test/f\ufeff "/>', ["https://a.test/f"]),
        (f"{IDN}{PUNYCODE}", ["https://b\u00fccher.test/f"]),
        (f'{ONE}<outline text="no end" xmlUrl=https://b.test/f>',
         ["https://a.test/f", "https://b.test/f"]),
        (f'{ONE}<outline a="1" a="2" xmlUrl="https://b.test/f"/>',
         ["https://a.test/f", "https://b.test/f"]),
        (f"{ONE}</body>", ["https://a.test/f"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("declared", "encoding"),
    [("", "utf-8"), ("utf-8", "utf-8-sig"), ("UTF-16", "utf-16"), ("iso-8859-1", "latin-1")],
)
def test_an_opml_file_is_read_as_kindly_as_a_feed(
    tmp_path: Path, body: str, feeds: list[str], declared: str, encoding: str
) -> None:
    head = f"<?xml version='1.0' encoding='{declared}'?>" if declared else ""
    text = f"{head}<opml version='2.0'><body>{body}</body></opml>"
    path = tmp_path / "list.opml"
    path.write_bytes(text.encode(encoding, "xmlcharrefreplace"))
    sources, _ = read_sources(path)
    assert [source.feed for source in sources] == feeds


def test_an_opml_file_that_is_not_well_formed_says_so(tmp_path: Path) -> None:
    _, problems = read_sources(write(tmp_path, "l.opml", f"<opml><body>{ONE}<outline a=1></body>"))
    assert problems[0].startswith("l.opml: not well-formed, read by its tags: ")
    with pytest.raises(SourcesInvalid, match="declares its own entities"):
        read_sources(write(tmp_path, "m.opml", f"<!DOCTYPE o [<!ENTITY a 'b'>]><opml>{ONE}</opml>"))


def test_the_file_of_newsboat(tmp_path: Path) -> None:
    lines = (
        "\ufeff# feeds",
        'https://one.test/feed "news" "~One of them"',
        "https://two.test/rss tech  ~Two # daily",
        '"--- a section ---"',
        "https://three.test/feed#part",
        "\u200bhttps://four.test/feed\u2060",
        "\thttps://five.test/feed\t",
    )
    sources, problems = read_sources(write(tmp_path, "urls.txt", "\n".join(lines)))
    assert [(source.url, source.name) for source in sources] == [
        ("https://one.test/feed", "One of them"),
        ("https://two.test/rss", "Two"),
        ("https://three.test/feed#part", "three.test"),
        ("https://four.test/feed", "four.test"),
        ("https://five.test/feed", "five.test"),
    ]
    assert not problems


@pytest.mark.parametrize("blank", ["\t", "\u00a0", " \t "])
def test_words_behind_a_url_are_no_part_of_it(tmp_path: Path, blank: str) -> None:
    text = f'https://one.test/feed{blank}news\n"https://two.test/feed"{blank}"news"\n'
    sources, problems = read_sources(write(tmp_path, "urls.txt", text))
    assert [source.url for source in sources] == ["https://one.test/feed", "https://two.test/feed"]
    assert not problems


def test_a_query_of_newsboat_with_a_url_costs_one_line(tmp_path: Path) -> None:
    text = '"filter:cat:https://one.test/feed"\n"query:New:unread = yes"\nhttps://two.test/feed'
    sources, problems = read_sources(write(tmp_path, "urls.txt", text))
    assert [source.url for source in sources] == ["https://two.test/feed"]
    (problem,) = problems
    assert "line 1: url 'filter:cat:https://one.test/feed' cannot be used" in problem


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_list_of_urls_may_have_the_mark_of_utf_16(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "urls.txt"
    path.write_bytes("\ufeffhttps://one.test/ż\r\n".encode(encoding))
    sources, problems = read_sources(path)
    assert [source.url for source in sources] == ["https://one.test/ż"]
    assert not problems
    path.write_bytes("\ufeffhttps://one.test/".encode(encoding) + b"x")
    with pytest.raises(SourcesInvalid, match="not UTF-8"):
        read_sources(path)


def test_a_file_that_would_never_end_or_fit_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    deep = write(tmp_path, "deep.toml", "a = " + "[" * 100_000)
    long = write(tmp_path, "long.txt", "x" * 2_000)
    monkeypatch.setattr("scrapy_walsh.sources.sources.MAX_FILE", 1024**2)
    for path, message in ((pipe, "not a file"), (deep, "deep.toml: n"), (tmp_path, "unknown kind")):
        with pytest.raises(SourcesInvalid, match=message):
            read_sources(path)
    monkeypatch.setattr("scrapy_walsh.sources.sources.MAX_FILE", 1_000)
    with pytest.raises(SourcesInvalid, match="longer than"):
        read_sources(long)


DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    [
        *(f"source = {opening * DEEP}" for opening in ("[", "{a = ", "[{a = [")),
        *(f"{start}{'.a' * DEEP}{end}" for start, end in (
            ("a", " = 1"), ("[a", "]"), ("[[source", "]]"), ("a. a .'a'", " = 1"),
        )),
        *(f"[[source]]\n{key}{'.a' * DEEP} = 1" for key in ("revisit", "name", "other", '"x y"')),
        f"[[source]]\nrevisit = {'[' * 700}{']' * 700}",
        f"[[source]]\nrevisit = {'1' * 10_000}",
    ],
)  # fmt: skip
def test_a_file_that_is_nested_or_long_beyond_measure_costs_one_line(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(SourcesInvalid) as caught:
        read_sources(write(tmp_path, "deep.toml", text))
    message = str(caught.value)
    assert message.startswith("deep.toml: ")
    assert len(message) < 300
    assert message.isprintable()


def test_a_url_with_many_dots_is_no_deep_key(tmp_path: Path) -> None:
    url = f"https://{'a.' * 50}test/{'b.' * 400}"
    path = write(tmp_path, "sources.toml", f'[[source]]\nurl = "{url}"\n# {url}\n')
    (source,), problems = read_sources(path)
    assert (source.url, problems) == (url, [])


def test_a_file_for_which_no_memory_is_left_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    for name in ("a.toml", "a.jsonl", "a.opml", "a.txt"):
        path = write(tmp_path, name, "x")
        monkeypatch.setattr("scrapy_walsh.sources.sources._text", full)
        monkeypatch.setattr("scrapy_walsh.sources.sources.xml_text", full)
        with pytest.raises(SourcesInvalid, match=f"{name}: too large or too deep"):
            read_sources(path)
