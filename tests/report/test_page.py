"""The page: its numbers are the ledger's and the server's, and what strangers wrote stays text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.readings import Reading
from scrapy_walsh.policy.times import duration
from scrapy_walsh.proof.report.html import environment, page
from scrapy_walsh.proof.report.sources import LISTED, SourceTable, sources_of
from scrapy_walsh.proof.report.words import cut
from scrapy_walsh.proof.sandbox import gaps, hosts
from tests.kit import SETTINGS, Read, asked, began, decided, ended, lines_of, robots, tally_of

if TYPE_CHECKING:
    from tests.report.conftest import World

EVIL = (
    '"><img src=x onerror=alert(1)></script></style></title><!--\u202e\u2066\x00\x1b[2J\ud800&amp;'
)
ALLOWED_TAGS = {
    "a", "b", "bdi", "body", "code", "dd", "details", "div", "dl", "dt", "footer", "h1", "h2", "h3",
    "head", "header", "html", "i", "li", "line", "main", "meta", "nav", "p", "rect",
    "section", "small", "span", "strong", "style", "summary", "svg", "table", "tbody", "td", "text",
    "th", "thead", "title", "tr", "ul",
}  # fmt: skip


# -- numbers ------------------------------------------------------------------------------


@pytest.mark.crawl
def test_the_numbers_are_those_of_the_ledger_and_of_the_server(world: World):
    read = Read(page(*tally_of(world.lines)))
    assert int(read.number("Requests")) == len(world.log) == len(world.entries("asked"))
    asked = [host for host in tally_of(world.lines).report.hosts if host.requests]
    assert len(asked) == len(hosts(world.log))
    for tile, kind in (
        ("Fetched", "fetched"), ("Refused", "refused"), ("Waits", "held"),
        ("Backed off", "retried"), ("Given up", "given_up"), ("Deferred", "deferred"),
        ("Declared", "declared"), ("Not modified", "not_modified"),
    ):  # fmt: skip
        assert int(read.number(tile)) == len(world.entries(kind)), tile
    assert int(read.number("Refused")) == 2
    assert int(read.number("Given up")) == 1


@pytest.mark.crawl
def test_r4_the_gaps_are_those_that_the_server_saw(world: World):
    report, found = tally_of(world.lines)
    seen = 0
    for host in report.hosts:
        shortest = [host.shortest] if host.shortest is not None else []
        for seconds in shortest:
            slept = gaps(world.log, host.name)
            assert min(abs(seconds - each) for each in slept) < 0.2, host.name  # a busy machine
            seen += 1
    assert seen >= 2
    assert not [each for each in found.findings if each.rule == "R4"]


@pytest.mark.crawl
def test_what_was_refused_is_told_with_its_rule_line_and_document(world: World):
    text = Read(page(*tally_of(world.lines))).text
    for word in ("Disallow: /private/", "http://path.test/robots.txt", "blocked.test"):
        assert word in text
    (refused,) = (entry for entry in world.entries("refused") if entry["requirement"] == "R2")
    assert f"line {refused['n']}" in text


@pytest.mark.crawl
def test_the_octets_of_each_answer_are_in_the_ledger(world: World):
    lines = [each for each in world.entries("asked") if "status" in each]
    assert all("octets" in each for each in lines)
    assert sum(host.octets for host in tally_of(world.lines).report.hosts) > 0


NOW = 1_800_000_000.0
DAY = 86_400.0


def known(*readings: Reading) -> SourceTable:
    found = sources_of(readings, NOW, DAY)
    assert found is not None
    return found


def source(name: str, age: float = 0.0, declared: float = 0.0, **more: Any) -> Reading:
    return Reading(f"http://{name}.test/", NOW - age, NOW - declared, **{"read": 1, **more})


def test_the_sources_that_need_a_person_come_first():
    found = known(
        source("good"), source("new", read=0), source("late", DAY, reason="HTTP 503"),
        source("dead", 9 * DAY, reason="no answer"), source("moved", moved_to="http://b.test/"),
        source("gone", DAY, reason="HTTP 410", gone_at=NOW - DAY),
        source("silent", 4 * DAY), source("other", 9 * DAY, 8 * DAY),
    )  # fmt: skip
    assert [(row.url[7:-6], row.state) for row in found.rows] == [
        ("dead", "needs a person"), ("silent", "needs a person"), ("gone", "needs a person"),
        ("moved", "needs a person"), ("late", "not read at its last visit"),
        ("new", "not requested yet"), ("good", "read"),
    ]  # fmt: skip
    assert str(found) == "2 of 7 sources read, 4 need a person"
    assert "not read for 9 d: no answer" in found.rows[0].why
    assert sources_of([], NOW, DAY) is None


def test_the_head_speaks_of_sources_before_it_speaks_of_promises():
    shown = tally_of(lines_of(began(), asked(0), asked(2), ended()))
    html = page(*shown, known(source("good"), source("dead", 9 * DAY, reason="no answer")))
    assert "1 of 2 sources read, 1 needs a person; 2 requests, 0 refused, " in html
    text = Read(html).text
    assert text.index("http://dead.test/") < text.index("http://good.test/")
    assert text.index("not read for 9 d") < text.rindex("What the ledger shows")
    assert "There is no state with sources beside this ledger." in Read(page(*shown)).text


def test_more_sources_than_fit_are_counted():
    found = known(*(source(f"s{n}") for n in range(LISTED + 7)))
    assert (len(found.rows), found.total) == (LISTED, LISTED + 7)
    html = page(*tally_of(lines_of(began(), ended())), found)
    assert "And 7 more" in Read(html).text


def test_the_codes_of_a_page_lead_to_what_they_say():
    read = Read(page(*tally_of(lines_of(began(), asked(0), asked(2), ended()))))
    identifiers = {value for _, name, value in read.attributes if name == "id"}
    linked = {value for _, name, value in read.attributes if name == "href"}
    assert {f"#R{n}" for n in (2, 3, 4, 5, 6, 7, 8)} <= linked
    assert {f"R{n}" for n in range(1, 14)} <= identifiers
    assert "serial; max(1 s, Crawl-delay) per host" in read.text


# -- what strangers wrote -----------------------------------------------------------------


def evil_sources() -> SourceTable:
    return known(*(Reading(f"{EVIL}{n}", 1.0, NOW, 0, EVIL, EVIL) for n in range(3)))


def evil_lines(*more: dict[str, Any]) -> list[bytes]:
    told = dict.fromkeys(("requirement", "verdict", "reason", "document", "rule", "digest"), EVIL)
    whole = {**told, "url": EVIL, "host": EVIL, "group": [EVIL], "line": 3, "schema": EVIL}
    terms = dict.fromkeys(("version", "spec", "user_agent", "token", "blocklist_url"), EVIL)
    odd = {**SETTINGS, "usage": {EVIL: EVIL}, "slow_hosts": EVIL, "revisit_reason": EVIL}
    settings = {**odd, "silent_attempts": 1, "longest_learned": 1.0}
    run = EVIL
    decisions = ("refused", "deferred", "given_up", "held", "adopted", "rejected", "fetched")
    return lines_of(
        {**began(run), **terms, "process": EVIL, "settings": settings},
        robots(0, run=run, url=EVIL, host=EVIL),
        asked(0.1, run=run, url=EVIL, host=EVIL, purpose=EVIL, status=429, wait=1.0, method=EVIL),
        asked(0.5, run=run, url=EVIL, host=EVIL),
        *(decided(kind, 0.6, run=run, **whole) for kind in decisions),
        {**ended(run), "reason": EVIL},
        {"at": 1.0, "run": run, "kind": "gap", "reason": EVIL},
        {"at": 1.0, "run": run, "kind": EVIL, "url": EVIL},
        *more,
    )


def test_hostile_text_stays_text():
    html = page(*tally_of(evil_lines(), "all"), evil_sources())
    read = Read(html)
    assert set(read.tags) <= ALLOWED_TAGS
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert not [value for _, name, value in read.attributes if name in ("src", "style", "action")]
    assert html.count("<style>") == html.count("</style>") == 1
    acting = [each for each in html if not each.isprintable() and each != "\n"]
    assert not acting
    assert r"\u202e\u2066\x00\x1b[2J\ud800&amp;" in read.text
    html.encode()


def test_no_template_takes_a_value_for_markup():
    loader = environment().loader
    assert loader is not None
    names = loader.list_templates()
    assert "page.html" in names
    for name in names:
        source, _, _ = loader.get_source(environment(), name)
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", source), name


def test_the_page_refers_to_nothing_outside_of_it():
    html = page(*tally_of(evil_lines(), "all"))
    read = Read(html)
    references = [value for _, name, value in read.attributes if name in ("href", "src")]
    assert references
    assert all(value.startswith("#") for value in references)
    identifiers = {value for _, name, value in read.attributes if name == "id"}
    assert {value[1:] for value in references} <= identifiers
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in style
    assert set(re.findall(r"url\(([^)]*)\)", style)) <= {f"#{name}" for name in identifiers}
    policy = next(value for _, name, value in read.attributes if name == "content")
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


def test_each_request_of_the_picture_stands_in_a_table():
    lines = lines_of(began(), robots(0), asked(0.1), asked(2.0, status=503, wait=86400.0), ended())
    html = page(*tally_of(lines))
    read = Read(html)
    assert read.tags.count("details") == 1
    table = html.partition("<details>")[2].partition("</details>")[0]
    assert table.count('<th scope="row">') == 3
    assert "503 Service Unavailable" in table
    assert "1 d, to 2027-01-16" in table


def test_long_urls_are_cut_with_the_whole_beside_them():
    url = "http://h.test/" + "a" * 250
    refused = decided("refused", url=url, requirement="R6", verdict="out_of_scope")
    read = Read(page(*tally_of(lines_of(began(), refused, ended()))))
    assert url in [value for _, name, value in read.attributes if name == "title"]
    assert url not in read.text


@pytest.mark.slow
def test_the_size_of_a_page_is_bounded():
    long = "http://h.test/?" + "&'<" * 400
    entries = [asked(n * 1.1, host=f"h{n}.test{'x' * 200}", url=long) for n in range(1500)]
    by = {"requirement": "R2", "verdict": "disallowed_explicit", "document": long, "url": long}
    rules = [decided("refused", n, rule=f"{n}{long}", **by) for n in range(900)]
    sources = known(*(source(f"{n}{long}", reason=long, read=0) for n in range(LISTED)))
    html = page(*tally_of(lines_of(began(), *entries, *rules, ended())), sources)
    assert len(html.encode()) < 5_000_000
    text = Read(html).text
    assert "The first 200 of 900." in text


def test_a_cut_table_says_so():
    by = {"requirement": "R2", "verdict": "disallowed_explicit"}
    rules = [decided("refused", n, rule=f"Disallow: /{n}", **by) for n in range(500)]
    assert "The first 200 of 500." in Read(page(*tally_of(lines_of(began(), *rules)))).text


# -- small parts --------------------------------------------------------------------------


def written(template: str, value: str) -> str:
    """What *template* writes of *value*."""
    return environment().from_string(template).render(value=value)


def test_text_becomes_visible_and_is_escaped_once():
    assert visible("a\u202eb\n\x00") == r"a\u202eb\n\x00"
    assert written('<b title="{{ value }}">{{ value }}</b>', "\"<&>'\n\x00") == (
        r'<b title="&#34;&lt;&amp;&gt;&#39;\n\x00">&#34;&lt;&amp;&gt;&#39;\n\x00</b>'
    )
    foreign = '{% from "parts.html" import foreign %}<p>{{ foreign(value) }}</p>'
    assert written(foreign, "<\u202e") == r'<p><bdi dir="ltr" class="f">&lt;\u202e</bdi></p>'
    assert cut("abcdefghij", 7) == "abcd…ij"
    assert cut("abc", 7) == "abc"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 s"), (0.0021, "0.002 s"), (1.0, "1 s"), (59.5, "59.5 s"), (300.0, "5 min"),
        (3600.0, "1 h"), (5400.0, "1 h 30 min"), (93600.0, "1 d 2 h"), (-0.25, "-0.250 s"),
    ],
)  # fmt: skip
def test_time_spans_are_readable(value: float, shown: str):
    assert duration(value) == shown
