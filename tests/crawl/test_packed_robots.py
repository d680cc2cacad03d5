"""R2: a robots.txt under a Content-Encoding that nobody asked for."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import AGAIN, DAY, Crawl, Runs, crawl, make_project, site, solo, state_dir
from tests.kit import report_of, told

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

RULES = b"User-agent: *\nDisallow: /private/\n"
#: What br makes of some rules; no reader of it is installed, and none is needed here.
BROTLI = b"\x1b\x22\x00\xf8\x25\x82\xb2\xb5\xec\xbe\x03\x91\x80\x14"
CUT = gzip.compress(RULES * 50)[:-20]


def packed(body: bytes, *encodings: str) -> Route:
    fields = tuple(("Content-Encoding", each) for each in encodings)
    return Route(body=body, content_type="text/plain", headers=fields)


READ = {
    "utf-8.test": packed(RULES, "utf-8"),
    "none.test": packed(RULES, "none"),
    "said-br.test": packed(RULES, "br"),
    "identity.test": packed(RULES, "identity, identity"),
    "both.test": packed(gzip.compress(RULES), "gzip, identity"),
    "utf-8-gzip.test": packed(gzip.compress(RULES), "utf-8, gzip"),
    "two-lines.test": packed(gzip.compress(RULES), "gzip", "utf-8"),
    "latin-1.test": packed(RULES + "# caf\xe9\n".encode("latin-1"), "8bit"),
}
UNREAD = {
    "br.test": packed(BROTLI, "br"),
    "cut.test": packed(CUT, "gzip"),
    "gzip-br.test": packed(gzip.compress(BROTLI), "br, gzip"),
    "hidden-gzip.test": packed(gzip.compress(RULES), "utf-8"),
    "led-on.test": Route(302, headers={"Location": "/packed"}),
}


@pytest.fixture(scope="module", params=["allow", "defer", "deny"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    directory = tmp_path_factory.mktemp("packed")
    run = solo(
        directory,
        *(f"http://{host}{path}" for host in READ | UNREAD for path in ("/private/x", "/open")),
        sites=tuple(
            site(host, {"/packed": packed(BROTLI, "br")}, robots=route)
            for host, route in (READ | UNREAD).items()
        ),
        settings={"WALSH_ROBOTS_UNREACHABLE": request.param},
        timeout=120,
    )
    assert told(report_of(state_dir(directory))) == []
    return run


@pytest.mark.parametrize("host", READ)
def test_r2_27_what_is_text_is_read(found: Crawl, host: str) -> None:
    assert found.asked(host) == ["/robots.txt", "/open"]
    assert "disallowed_explicit" in found.why(f"http://{host}/private/x")


@pytest.mark.parametrize("host", UNREAD)
def test_r2_27_what_is_not_text_defers_the_host(found: Crawl, host: str) -> None:
    led_on = ["/packed"] if host == "led-on.test" else []
    assert found.asked(host) == ["/robots.txt", *led_on]
    for path in ("/private/x", "/open"):
        assert "R2 unknown_parse_error" in found.why(f"http://{host}{path}")
    (line,) = found.lines("INFO: rejected", f"http://{host}/")
    assert "is not readable text" in line
    assert "owner could serve robots.txt as plain text" in line
    assert len(found.lines("WARNING: deferred", f" {host}", "(R2 unknown_parse_error): ")) == 1


def test_r2_27_the_next_run_asks_for_it_again(box: Sandbox, tmp_path: Path) -> None:
    box.put(site("br.test", robots=UNREAD["br.test"]))
    project = make_project(tmp_path)
    crawl(project, box, "http://br.test/open")
    box.set_route("br.test", "/robots.txt", packed(RULES))
    again = crawl(project, box, "http://br.test/open", "http://br.test/private/x")
    assert again.asked("br.test") == ["/robots.txt", "/open"]
    assert told(report_of(state_dir(project))) == []


def test_r2_27_nor_do_rules_that_were_held_open_it(tmp_path: Path) -> None:
    with Runs(tmp_path, site("h.test", robots=packed(RULES)), settings=AGAIN) as runs:
        assert runs("http://h.test/open").asked("h.test") == ["/robots.txt", "/open"]
        runs.age("robots", "http://h.test", DAY)
        runs.serve("h.test", "/robots.txt", packed(BROTLI, "br"))
        second = runs("http://h.test/open")
        assert second.asked("h.test") == ["/robots.txt"]
        assert "unknown_parse_error" in second.why("http://h.test/open")
        assert told(report_of(state_dir(runs.project))) == []
