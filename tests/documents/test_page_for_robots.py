"""R2, D44: an answer that is no robots.txt does not take the place of known rules at once.

A captive portal, a page about maintenance or a parked domain answers 200 to every URL.
"""

from __future__ import annotations

import gzip
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy.packing import unpacked_once_more
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.robots.fetch import is_page, seen_page
from scrapy_walsh.policy.robots.groups import is_readable
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import DAY, HOUR, RULES, Crawl, Runs, rules, site, solo, state_dir
from tests.kit import report_of, told

if TYPE_CHECKING:
    from pathlib import Path

HTML = "<!DOCTYPE html><title>Sign in</title><p>User-agent and password, please</p>"


def html(body: str = HTML, content_type: str = "text/html; charset=utf-8") -> Route:
    return Route(body=body, content_type=content_type)


# -- the rule ---------------------------------------------------------------------------------

PAGES = {
    "HTML": (200, "text/html", HTML.encode()),
    "an empty body that has a type": (200, "text/html", b""),
    "JSON": (200, "application/json", b'{"error": "maintenance", "allow": true}'),
    "204": (204, "", b""),
    "204 as text": (204, "text/plain", b""),
    "HTML that says it is text": (200, "text/plain", HTML.encode()),
    "HTML without a type": (200, "", HTML.encode()),
    "prose": (200, "text/plain", b"We are away.\nBack on Monday.\n"),
}
ROBOTS = {
    "an empty file": (200, "text/plain", b""),
    "an empty file without a type": (200, "", b""),
    "comments": (200, "text/plain", b"# nothing here\n\n  # at all\n"),
    "a file": (200, "text/plain", RULES.encode()),
    "a file of another type": (200, "text/html", b"User-agent: *\nDisallow:\n"),
    "a sitemap alone": (200, "application/octet-stream", b"Sitemap: https://h.test/s.xml\n"),
    "a file in UTF-16": (200, "text/html", b"\xff\xfe" + RULES.encode("utf-16-le")),
}


@pytest.mark.parametrize("name", PAGES | ROBOTS)
def test_r2_what_is_no_robots_txt(name: str) -> None:
    assert is_page(*(PAGES | ROBOTS)[name]) is (name in PAGES)


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        ((0, None), 100.0, (1, 100.0)),
        ((1, 100.0), 100.0 + HOUR, (1, 100.0)),
        ((1, 100.0), 100.0 + DAY - 1, (1, 100.0)),
        ((1, 100.0), 100.0 + DAY, (2, 100.0 + DAY)),
        ((2, 100.0), 100.0 + 9 * DAY, (3, 100.0 + 9 * DAY)),
        ((1, 9 * DAY), 100.0, (1, 100.0)),  # the clock was put back
    ],
)
def test_r2_pages_count_a_day_apart(before: Any, now: float, after: Any) -> None:
    assert seen_page(*before, now) == after


def test_r2_a_robots_txt_is_unpacked_by_its_octets() -> None:
    text = RULES.encode()
    assert unpacked_once_more(text, 1000) == text
    assert unpacked_once_more(gzip.compress(text), 1000) == text
    assert unpacked_once_more(zlib.compress(text), 1000) == text
    assert (
        unpacked_once_more(gzip.compress(text + bytes(10**7)), 1000) == (text + bytes(1000))[:1000]
    )
    assert unpacked_once_more(gzip.compress(text)[:-9], 1000) is None
    assert unpacked_once_more(b"x\x01", 1000) is not None
    for unread in (
        gzip.compress(gzip.compress(text))[10:],
        b"\x89PNG\r\n\x1a\n\0\0\0",
        b"\x1b\x22\0",
    ):
        assert not is_readable(unread)
    for read in (
        text,
        b"",
        b"\0",
        text + b"\0\x01",
        b"\xff\xfe" + text.decode().encode("utf-16-le"),
    ):
        assert is_readable(read)


# -- over days ------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [html(), Route(204)], ids=["HTML", "204"])
def test_r2_known_rules_stay_until_a_page_has_come_on_three_days(
    tmp_path: Path, answer: Route
) -> None:
    """Each run goes on with what the rules allow, and asks for robots.txt again."""
    start = time.time()
    settings = {"WALSH_REVISIT": 3600}
    with Runs(tmp_path, site("h.test", robots=RULES), settings=settings) as runs:
        urls = "http://h.test/open", "http://h.test/private/x"

        def at(passed: float) -> Crawl:
            runs.at(start + passed)
            return runs(*urls)

        assert at(0).targets("h.test") == ["/open"]
        runs.serve("h.test", "/robots.txt", answer)
        for passed in (DAY + HOUR, DAY + 3 * HOUR, 2 * DAY + 2 * HOUR):
            run = at(passed)
            assert run.asked("h.test") == ["/robots.txt", "/open"]
            (line,) = run.lines("rejected http://h.test/robots.txt")
            assert "a page and not a robots.txt" in line
            assert "stay in force" in line
            assert run.returncode == 0
        # A robots.txt between them begins the count anew.
        runs.serve("h.test", "/robots.txt", rules("Disallow: /private/\nDisallow: /also"))
        assert at(2 * DAY + 4 * HOUR).targets("h.test") == ["/open"]
        runs.serve("h.test", "/robots.txt", answer)
        for passed in (4 * DAY + 6 * HOUR, 5 * DAY + 7 * HOUR):
            assert at(passed).targets("h.test") == ["/open"]
        assert at(6 * DAY + 8 * HOUR).targets("h.test") == ["/open", "/private/x"]
        assert told(report_of(runs.state)) == []


def test_r2_an_empty_file_and_a_page_without_known_rules_are_no_rules(tmp_path: Path) -> None:
    start = time.time()
    sites = site("empty.test", robots=RULES), site("new.test", robots=html())
    with Runs(tmp_path, *sites, settings={"WALSH_REVISIT": 3600}) as runs:
        urls = "http://empty.test/private/x", "http://new.test/private/x"
        runs.at(start)
        first = runs(*urls)
        assert (first.targets("empty.test"), first.targets("new.test")) == ([], ["/private/x"])
        runs.serve("empty.test", "/robots.txt", Route(body="# gone\n", content_type="text/plain"))
        runs.at(start + DAY + HOUR)
        assert runs(*urls).targets("empty.test") == ["/private/x"]
        assert told(report_of(runs.state)) == []


def packed(body: bytes, **headers: str) -> Route:
    return Route(body=body, content_type="text/plain", headers=headers)


def test_r2_a_packed_robots_txt_is_judged_by_its_octets(tmp_path: Path) -> None:
    text = RULES.encode()
    read = {
        "bare.test": packed(gzip.compress(text)),
        "twice.test": packed(gzip.compress(gzip.compress(text)), **{"Content-Encoding": "gzip"}),
        "zlib.test": packed(zlib.compress(text)),
        "nul.test": packed(b"\0" + text),
    }
    unread = {
        "cut.test": packed(gzip.compress(text * 50)[:-20]),
        "thrice.test": packed(gzip.compress(gzip.compress(text))),
        "image.test": packed(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    }
    run = solo(
        tmp_path,
        *(f"http://{host}{path}" for host in read | unread for path in ("/private/x", "/open")),
        sites=tuple(site(host, robots=route) for host, route in (read | unread).items()),
    )
    for host in read:
        assert run.targets(host) == ["/open"], host
    for host in unread:
        assert run.targets(host) == [], host
        assert "R2 unknown_parse_error" in run.why(f"http://{host}/open")
        (line,) = run.lines("INFO: rejected", f"http://{host}/")
        assert "without a Content-Encoding and is not readable text" in line
    assert told(report_of(state_dir(tmp_path))) == []


FORGETFUL = """
from scrapy_walsh.adapters.documents.robots_txt import RobotsTxt
RobotsTxt._is_doubted = lambda self, origin, fetched: False
"""


def test_verify_finds_a_page_that_took_the_place_of_rules(tmp_path: Path) -> None:
    start = time.time()
    with Runs(tmp_path, site("h.test", robots=RULES)) as runs:
        runs.at(start)
        runs("http://h.test/private/x")
        runs.serve("h.test", "/robots.txt", html())
        spider = tmp_path / "spiders.py"
        spider.write_text(FORGETFUL + spider.read_text())
        runs.at(start + DAY + HOUR)
        assert runs("http://h.test/private/x").targets("h.test") == ["/private/x"]
        (found,) = report_of(runs.state).findings
        assert found.rule == "R2"
        assert "a page replaced the rules" in found.text


def test_r2_the_meaning_of_a_page_is_in_one_place() -> None:
    kept = robots_fetch.without(robots_fetch.PAGE, "HTTP 200, a page", "u", "deny")
    assert isinstance(kept, robots_fetch.Keep)
    assert "stay in force" in kept.reason
