"""No octet of a server reaches a log, a terminal or a ledger unescaped; a header section ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.exceptions import visible
from scrapy_walsh.proof.sandbox import Route, Sandbox, blocklist
from tests.crawl.harness import Crawl, crawl, make_project, site, solo, state_dir, walsh

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

#: ESC, BEL, CR and LF, an override, NEL, DEL, and what an 8-bit terminal takes for ESC [.
ACTS = "\x1b]0;t\x07\x1b[31m\r\n\u202e\x85\x7f\x9b2J"
#: The same for a header, where a line end would end it.
IN_HEADER = "".join(each for each in ACTS if each not in "\r\n")
HEADER = IN_HEADER.encode().decode("latin-1")
HOSTS = ("location", "odd-robots", "back-robots", "out-robots", "again", "rules", "feed", "type")
FEED = """<?xml version="1.1"?><rss version="2.0"><channel><title>t&#x1b;\u202e</title><item>
<title>an item \u202e\x85 &#27;[31m &#x9b;2J</title><link>http://feed.test/\u202ex</link>
</item></channel></rss>"""
RULES = f"User-agent: *\nDisallow: /secret{IN_HEADER}\nDisallow: /x\n".encode()


def operator() -> Any:
    document = blocklist()
    document["blocked"].append(
        {"domain": "listed.test", "added": "2026-01-01", "reason": f"why {ACTS}"}
    )
    return site(
        "operator.test",
        {"/.well-known/walsh-research/blocklist.json": Route(
            body=json.dumps(document), content_type="application/json"
        )},
    )  # fmt: skip


SITES = (
    operator(),
    site("location.test", {"/": Route(302, location=f"/to/{HEADER}é")}),
    site("odd-robots.test", robots=Route(301, location=f"/ro\xe9bots{HEADER}.txt?é")),
    site("back-robots.test", robots=Route(302, location="http:\\\\back-robots.test\\r.txt")),
    site("out-robots.test", robots=Route(302, location=f"gopher://x{HEADER}/")),
    site("again.test", {"/": Route(503, headers={"Retry-After": "soon \x1b\x07\x9b 0.1"})}),
    site("rules.test", robots=Route(body=RULES, content_type="text/plain")),
    site("feed.test", {"/": Route(body=FEED, content_type="application/rss+xml")}),
    site("type.test", {"/": Route(body="<p>", content_type=f"text/{HEADER}", headers=(
        ("X-Odd", HEADER), ("ETag", f'"{HEADER}"'), ("Link", f"<{HEADER}>; rel=next"),
    ))}),
)  # fmt: skip
URLS = [
    *(f"http://{host}.test/" for host in HOSTS),
    "http://rules.test/x",
    "http://rules.test/secret%1B%5D0;t%07%1B%5B31m%E2%80%AE%C2%85%7F%C2%9B2J",
    "http://listed.test/",
]


def acting(text: str) -> list[str]:
    """The lines that hold what a terminal may take for a command."""
    return [ascii(line) for line in text.split("\n") if not line.replace("\t", " ").isprintable()]


class Seen:
    """Two crawls of hostile sites: with a spider of one's own, and with walsh_metadata."""

    def __init__(self, directory: Path) -> None:
        settings = {
            "SPIDER_MODULES": ["spiders", "scrapy_walsh.spiders"],
            "WALSH_MAX_RETRIES": 1,
            "WALSH_REVISIT_REASON": "twice",
        }
        self.project = make_project(directory, settings=settings)
        with Sandbox() as box:
            for each in SITES:
                box.put(each)
            self.crawls = [
                crawl(self.project, box, *URLS),
                crawl(
                    self.project, box, *URLS, spider_name="walsh_metadata",
                    arguments=("-a", "report=report.json"),
                ),
            ]  # fmt: skip
            self.discovered = self.walsh("discover", "http://type.test/", box=box)

    def walsh(self, *words: str, **given: Any) -> subprocess.CompletedProcess[str]:
        """The output of a command, as a terminal would get it."""
        options = {"module": "scrapy", "PYTHONIOENCODING": "utf-8", **given}
        return walsh(self.project, "walsh", *words, **options)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory.mktemp("escapes"))


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_that_acts_reaches_the_log(seen: Seen, number: int) -> None:
    done: Crawl = seen.crawls[number]
    assert acting(done.output) == []
    assert "Traceback" not in done.output


def test_the_hostile_answers_were_met(seen: Seen) -> None:
    done = seen.crawls[0]
    assert len(done.asked("odd-robots.test")) >= 2  # the redirect was followed
    assert done.lines("refused http://rules.test/x", "R2")
    assert done.lines("refused http://listed.test/", "R3")
    assert done.lines("robots.txt is unreachable (HTTP 302)")  # a redirect to gopher leads nowhere
    assert done.lines("again.test", "given_up")


def test_an_honest_ledger_passes_verify_whatever_robots_redirects_to(seen: Seen) -> None:
    done = seen.walsh("verify", str(state_dir(seen.project)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert acting(done.stdout + done.stderr) == []


def test_the_ledger_is_ascii(seen: Seen) -> None:
    ledger = (state_dir(seen.project) / "ledger.jsonl").read_bytes()
    assert ledger.isascii()
    assert acting(ledger.decode()) == []
    assert acting((seen.project / "report.json").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "command",
    [
        ("state", "show"), ("state", "show", "--json"), ("state", "verify"),
        ("check", "http://rules.test/x"),
        ("check", "http://rules.test/x", "--json"), ("doctor",),
        ("verify", "--json", ".scrapy/walsh"),
        ("report", "--output", "report.html"), ("plan", "-a", "urls=http://rules.test/x"),
    ],
)  # fmt: skip
def test_nothing_that_acts_reaches_a_terminal(seen: Seen, command: tuple[str, ...]) -> None:
    done = seen.walsh(*command)
    assert acting(done.stdout + done.stderr) == []
    assert "Traceback" not in done.stderr


def test_nor_does_it_from_discover(seen: Seen) -> None:
    assert acting(seen.discovered.stdout + seen.discovered.stderr) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 \\", "plain é 漢 \\"),
        ("\x1b[31m\x07", r"\x1b[31m\x07"),
        ("a\r\nb", r"a\r\nb"),
        ("\u202e\x85\u2028\x9b", r"\u202e\x85\u2028\x9b"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_acts_is_escaped_and_nothing_else(text: str, shown: str) -> None:
    assert visible(text) == shown


# -- header sections ----------------------------------------------------------------------

MEASURED = """
import resource
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            yield scrapy.Request(url, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "bytes": 0}

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}

    def closed(self, reason):
        print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
"""
ENDLESS = Route(behaviour="headers", pause=0.0)
LONG = [(f"X-{number}", "v" * 90) for number in range(900)]
MANY = [(f"X-{number}", "v") for number in range(3000)]


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (
        site("target.test", {"/": ENDLESS}),
        site("robots.test", robots=ENDLESS),
        site("long.test", {"/": Route(body="b\n" * 5000, headers=LONG)}),
        site("many.test", {"/": Route(body="b", headers=MANY)}),
    )
    urls = [f"http://{name}.test/" for name in ("target", "robots", "long", "many")]
    settings = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.01, "DOWNLOAD_TIMEOUT": 20}
    directory = tmp_path_factory.mktemp("headed")
    return solo(directory, *urls, sites=sites, spider=MEASURED, settings=settings)


def test_header_lines_without_end_are_a_failure_of_the_transport(headed: Crawl) -> None:
    assert headed.asked("target.test") == ["/robots.txt", "/", "/"]
    assert "GaveUp" in headed.why("http://target.test/")
    assert "its header section is too large" in headed.why("http://target.test/")
    assert headed.asked("robots.test").count("/robots.txt") == 2
    assert headed.lines("rejected http://robots.test/robots.txt", "header section is too large")
    assert "GaveUp" in headed.why("http://many.test/")
    assert "Traceback" not in headed.output


def test_a_long_header_section_is_taken(headed: Crawl) -> None:
    assert headed.fetched("http://long.test/")


def test_they_take_no_memory(headed: Crawl) -> None:
    (line,) = headed.lines("PEAK")
    assert (
        int(line.split()[1]) < 700_000
    )  # KiB; Scrapy itself has 100,000, and unbounded it would be gigabytes
