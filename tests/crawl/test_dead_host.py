"""R5, D13: a host to which no TCP connection comes about has no page to give."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.ledger.files import parse_line
from scrapy_walsh.proof.sandbox import Route, Sandbox
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import VisitRecord
from tests.crawl.harness import (
    LIST_SPIDER,
    LIST_URL,
    NAMES,
    SCHEMA_URL,
    Crawl,
    closed_port,
    crawl,
    listing,
    make_project,
    operator,
    site,
    state_dir,
)
from tests.kit import report_of, wrong_in

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOSE = Route(behaviour="close")
#: Seconds: to connect, in the test; and for a whole request.
CONNECT, REQUEST = 1.0, 25.0
SHORTER = f"""
from scrapy_walsh.adapters import compat
compat.CONNECT_TIMEOUT = {CONNECT}
"""
HANDLERS: dict[str, dict[str, Any]] = {
    "twisted": {},
    **(
        {"aiohttp": {"TWISTED_REACTOR_ENABLED": False}}
        if hasattr(default_settings, "TWISTED_REACTOR_ENABLED")
        else {}
    ),
}


@contextmanager
def swallowing_port() -> Iterator[int]:
    """A port of this machine that drops each SYN, because its backlog is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port


@dataclass
class Dead:
    """A run, the run after it, and what the first one has left. ``urls``: by the kind of host."""

    urls: dict[str, list[str]]
    first: Crawl
    again: Crawl
    lines: list[dict[str, Any]]
    visits: dict[str, VisitRecord | None]
    wrong: list[Any]

    def exchanges(self, kind: str) -> list[dict[str, Any]]:
        host = self.urls[kind][0].split("/")[2]
        return [line for line in self.lines if line["kind"] == "asked" and line["host"] == host]


@pytest.fixture(scope="module", params=HANDLERS)
def dead(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dead]:
    with swallowing_port() as swallowing, closed_port() as closed, Sandbox() as box:
        box.put(operator(listing("other.test")))
        box.put(site("shut.test", {"*": CLOSE}, CLOSE))
        ports = {"swallowed": swallowing, "closed": closed, "shut": box.port}
        urls = {
            kind: [f"http://{kind}.test:{port}/{number}" for number in range(3)]
            for kind, port in ports.items()
        }
        settings = {
            **HANDLERS[request.param],
            "HTTPPROXY_ENABLED": False,
            "WALSH_BLOCKLIST_URL": LIST_URL.replace(".test", f".test:{box.port}"),
            "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL.replace(".test", f".test:{box.port}"),
            "WALSH_BACKOFF_BASE": 0.01,
            "DOWNLOAD_TIMEOUT": REQUEST,
        }
        directory = tmp_path_factory.mktemp("dead")
        project = make_project(directory / "project", NAMES + SHORTER + LIST_SPIDER, settings)
        targets = [url for each in urls.values() for url in each]
        first = crawl(project, box, *targets)
        store = open_store(state_dir(project))
        visits = {url: store.get(VisitRecord, url) for url in targets}
        store.close()
        again = crawl(project, box, *targets)
        lines = [*map(parse_line, (state_dir(project) / "ledger.jsonl").read_bytes().splitlines())]
        yield Dead(urls, first, again, lines, visits, wrong_in(report_of(state_dir(project))))


@pytest.mark.parametrize("kind", ["swallowed", "closed"])
def test_d13_no_target_of_a_dead_host_is_requested(dead: Dead, kind: str) -> None:
    exchanges = dead.exchanges(kind)
    assert [line["purpose"] for line in exchanges] == ["robots", "robots"], dead.first.output
    assert {line["unsent"] for line in exchanges} == {"connection"}
    for url in dead.urls[kind]:
        assert "did not answer 2 times" in dead.first.why(url)


def test_d13_a_host_that_connects_and_gives_no_answer_gets_a_third_request(dead: Dead) -> None:
    exchanges = dead.exchanges("shut")
    purposes = [line["purpose"] for line in exchanges]
    assert purposes[:3] == ["robots", "robots", "target"]
    assert not any("unsent" in line for line in exchanges)


def test_connecting_has_a_time_out_of_its_own(dead: Dead) -> None:
    took = [line["ended"] - line["started"] for line in dead.exchanges("swallowed")]
    assert all(CONNECT - 0.1 < seconds < REQUEST for seconds in took), took


@pytest.mark.parametrize("kind", ["swallowed", "closed"])
def test_r8_the_sources_of_a_dead_host_have_failed(dead: Dead, kind: str) -> None:
    for url in dead.urls[kind]:
        visit = dead.visits[url]
        assert visit is not None, url
        assert visit.failures == 1
        assert visit.gave_up_at
        assert "R8" in dead.again.why(url), "it is due after an hour, not by the next run"


def test_the_ledger_of_both_runs_holds(dead: Dead) -> None:
    assert dead.wrong == []
