"""A person looks at one page with a command of Scrapy's: why there is none is said, and exit 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import (
    OWN_IDENTITY,
    crawl,
    listing,
    make_project,
    operator,
    run_scrapy,
    site,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crawl.harness import Crawl

SITES = (
    operator(listing("closed.test")),
    site("open.test"),
    site("rules.test", robots="User-agent: *\nDisallow: /\n"),
    site("closed.test"),
    site("dead.test", {"*": Route(behaviour="close")}),
)
SETTINGS = {
    "WALSH_IDENTITY": OWN_IDENTITY,
    "WALSH_STATE_DIR": "memory",
    "WALSH_MAX_RETRIES": 1,
    "WALSH_BACKOFF_BASE": 0.05,
    "WALSH_BACKOFF_CAP": 0.05,
    "LOG_LEVEL": "ERROR",
}
#: What stderr says of each URL that brings no page.
REASONS = {
    "http://rules.test/x": "R2 disallowed_explicit",
    "http://closed.test/x": "R3 blocked_operator",
    "http://dead.test/x": "no answer: connection lost",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Sandbox]]:
    with Sandbox() as box:
        for each in SITES:
            box.put(each)
        yield make_project(tmp_path_factory.mktemp("look"), settings=SETTINGS), box


@pytest.mark.parametrize("url", REASONS)
@pytest.mark.parametrize("command", [("fetch",), ("shell", "-c", "print(response)")])
def test_a_look_that_brings_no_page_exits_with_1_and_the_reason(
    project: tuple[Path, Sandbox], command: tuple[str, ...], url: str
) -> None:
    done = run_scrapy(*project, *command, url, apart=True)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("scrapy_walsh: ")]
    assert len(said) == 1
    assert url in said[0]
    assert REASONS[url] in said[0]


@pytest.mark.parametrize("command", ["fetch", "shell"])
def test_a_look_at_a_page_exits_with_0(project: tuple[Path, Sandbox], command: str) -> None:
    words = () if command == "fetch" else ("-c", "response.status")
    words += ("-s", "LOG_LEVEL=WARNING")  # nothing is to be mended
    done = run_scrapy(*project, command, *words, "http://open.test/x", apart=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "page" in done.stdout or "200" in done.stdout


LARGE = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    custom_settings = {"DOWNLOAD_MAXSIZE": 4}

    async def start(self):
        for url in ("http://open.test/x", "http://dead.test/x"):
            yield scrapy.Request(url, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url}

    def failed(self, failure):
        names = [each.__name__ for each in failure.type.__mro__]
        yield {"url": failure.request.url, "names": names}
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    with Sandbox() as box:
        for each in SITES:
            box.put(each)
        folder = make_project(tmp_path_factory.mktemp("large"), LARGE, SETTINGS)
        return crawl(folder, box)


def test_a_body_over_the_limit_ends_as_an_ignored_request(failures: Crawl) -> None:
    (found,) = (each for each in failures.items if each["url"] == "http://open.test/x")
    assert found["names"][0] == "BodyTooLarge"
    assert "IgnoreRequest" in found["names"]
    assert {"DownloadCancelledError", "CancelledError"} & {*found["names"]}


@pytest.mark.parametrize(
    "words",
    [("ERROR", "http://open.test/x is not read"), ("ERROR", "dead.test", "connection lost")],
)
def test_what_the_network_did_not_bring_is_an_error_line(
    failures: Crawl, words: tuple[str, ...]
) -> None:
    assert len(failures.lines(*words)) == 1
    assert failures.returncode == 0
