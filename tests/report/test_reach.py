"""The owner's page has the requests of the server's log, whatever has failed on our side."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scrapy_walsh.proof.report.owner import Extract
from scrapy_walsh.proof.report.reach import Reach
from scrapy_walsh.proof.report.runs import runs_of
from scrapy_walsh.proof.sandbox import Route, Sandbox, paths
from tests.crawl.harness import (
    DAY,
    FAR_OFF,
    LIST_SPIDER,
    LIST_URL,
    NAMES,
    SCHEMA_URL,
    Runs,
    closed_port,
    site,
    state_dir,
    verify,
    without_proxy,
)
from tests.crawl.test_private_addresses import HANDLERS
from tests.kit import ROBOTS_URL, asked, began, decided, ended, lines_of, told, verified

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.proof.sandbox.log import LoggedRequest
    from scrapy_walsh.proof.verify import Report

PAGES = ("/a", "/b")
#: Each day's faults stand in files of the project: no name is resolved, or there is a proxy.
FAULTS = """
import pathlib

_resolve = socket.getaddrinfo

def _without_dns(*names, **more):
    if pathlib.Path("no-dns").exists():
        raise socket.gaierror(-3, "Temporary failure in name resolution")
    return _resolve(*names, **more)

socket.getaddrinfo = _without_dns

class Proxy:
    def process_request(self, request, spider=None):
        file = pathlib.Path("proxy")
        if file.exists() and "//site.test" in request.url:
            request.meta["proxy"] = file.read_text()
"""
#: By day, why the owner reads that pages were not requested, and that attempts are not counted.
NO_NAME = "we could not look up the name of your site"
SILENT = "your site gave no answer, or asked us to slow down, so we stopped trying"
REASONS: dict[str, tuple[set[str], dict[str, int]]] = {
    "well": (set(), {}),
    "no names": ({NO_NAME}, {NO_NAME: 2}),
    "proxy away": (
        {"something on our side failed"}, {"a proxy of ours did not pass it on": 1}
    ),
    "proxy well": (set(), {}),
    "proxy closes": (
        {"something on our side failed"}, {"a proxy of ours took it and gave no answer": 1}
    ),
    "site closes": ({SILENT}, {}),
    "site fails": ({SILENT}, {}),
    "site refuses": (
        {"no connection to your site came about"}, {"no connection to your site came about": 2}
    ),
}  # fmt: skip


class Day(NamedTuple):
    """A day's ledger lines and log, and the page for the site's owner about that day alone."""

    page: Extract
    log: list[LoggedRequest]


class Week(NamedTuple):
    """The days by name, and the page about all of them."""

    days: dict[str, Day]
    page: Extract
    judged: Report
    ledger: Path


@contextmanager
def closing_server() -> Iterator[int]:
    """The port of a server that takes each request, and closes the connection."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def extract(ledger: Path, host: str, since: float = 0.0) -> tuple[Extract, Report]:
    lines = ledger.read_bytes().splitlines()
    page = Extract(host, since, runs_of([ledger]))
    return page, verified(lines, page.take)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    """One run a day, direct or through a proxy, with each kind of outage."""
    directory = tmp_path_factory.mktemp("week")
    server = Sandbox([])
    runs = Runs(directory, spider=NAMES + FAULTS + LIST_SPIDER)
    days: dict[str, Day] = {}
    with runs, server, closed_port() as dead_port, closing_server() as closing_port:
        host, port = f"site.test:{server.port}", server.port
        # As a proxy, the first sandbox plays the site itself.
        for box in (runs.box, server):
            box.put(site(host))
        settings = {
            "HTTPPROXY_ENABLED": False,
            "WALSH_BLOCKLIST_URL": LIST_URL.replace(".test", f".test:{runs.box.port}"),
            "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL.replace(".test", f".test:{runs.box.port}"),
            "DOWNLOADER_MIDDLEWARES": {"spiders.Proxy": 500},
            "WALSH_MAX_RETRIES": 1,
            "DOWNLOAD_TIMEOUT": 5,
        }
        rewrite(runs, settings)
        start = time.time()

        def run(name: str) -> None:
            moment = start + len(days) * 1.1 * DAY  # each robots.txt is stale by then
            runs.at(moment)
            server.clear()
            urls = [f"http://{host}{path}" for path in PAGES]
            done = runs(*urls, WALSH_LAB_PROXY="")
            log = [each for each in (*done.log, *server.log) if each.key == host]
            page, _ = extract(state_dir(directory) / "ledger.jsonl", host, moment)
            days[name] = Day(page, log)

        run("well")
        with file(directory / "no-dns", ""):
            run("no names")
        with file(directory / "proxy", f"http://127.0.0.1:{dead_port}"):
            run("proxy away")
        with file(directory / "proxy", runs.box.proxy_url):
            run("proxy well")
        with file(directory / "proxy", f"http://127.0.0.1:{closing_port}"):
            run("proxy closes")
        server.set_route(host, "*", Route(behaviour="close"))
        run("site closes")
        server.set_route(host, "*", Route(503))
        server.set_route(host, "/robots.txt", Route(503))
        run("site fails")
        server.__exit__(None, None, None)
        run("site refuses")
        ledger = state_dir(directory) / "ledger.jsonl"
        assert port == server.port
        yield Week(days, *extract(ledger, host), ledger)


def rewrite(runs: Runs, settings: dict[str, Any]) -> None:
    with (runs.project / "probe_settings.py").open("a") as written:
        written.write("".join(f"{name} = {value!r}\n" for name, value in settings.items()))


@contextmanager
def file(path: Path, text: str) -> Iterator[None]:
    path.write_text(text)
    try:
        yield
    finally:
        path.unlink()


@pytest.mark.crawl
def test_the_requests_of_the_page_are_those_of_the_servers_log(week: Week) -> None:
    for name, day in week.days.items():
        shown = ["/" + one.url.split("/", 3)[3] for one in day.page.requests]
        assert shown == paths(day.log), name
    assert week.page.total == sum(len(paths(day.log)) for day in week.days.values())
    sent = {name for name, day in week.days.items() if day.log}
    assert sent == {"well", "proxy well", "site closes", "site fails"}
    assert verify(week.ledger.parent)[0] == 0


@pytest.mark.crawl
def test_a_fault_on_our_side_is_never_called_the_sites(week: Week) -> None:
    found = {
        name: (
            {reason for reason, _ in day.page.left},
            {reason: count for count, reason, _ in day.page.attempts},
        )
        for name, day in week.days.items()
    }
    assert found == REASONS
    said = [version.said for version in week.page.versions]
    assert [each for each in said if each] == [
        "could not be read (503 Service Unavailable), so we followed the one before"
    ]


@pytest.mark.crawl
def test_a_pause_is_measured_between_requests_that_the_server_saw(week: Week) -> None:
    """On a day with an outage, attempts lie between the requests of the days beside it."""
    by_time = {one.at: one for one in week.page.requests}
    for before, name in (("well", "proxy well"), ("proxy well", "site closes")):
        earlier, first = week.days[before].page.requests[-1], week.days[name].page.requests[0]
        gap = by_time[first.at].gap
        assert gap is not None
        assert abs(gap.seconds - (first.at - earlier.at)) < 60, name


@pytest.mark.crawl
@pytest.mark.parametrize("name", HANDLERS)
def test_an_exchange_says_at_which_stage_it_ended(tmp_path: Path, name: str) -> None:
    with closed_port() as dead_port, closing_server() as closing_port:
        stages = {
            "http://nowhere.invalid/": "name",
            f"http://dead.test:{dead_port}/": "connection",
            f"https://plain.test:{closing_port}/": "tls",
            f"http://closes.test:{closing_port}/": None,
        }
        settings = {**HANDLERS[name], "WALSH_MAX_RETRIES": 0, **FAR_OFF}
        done = without_proxy(tmp_path, *stages, settings=settings)
    ledger = state_dir(tmp_path) / "ledger.jsonl"
    lines = map(json.loads, ledger.read_text().splitlines())
    sent = {line["url"]: line.get("unsent") for line in lines if line.get("purpose") == "robots"}
    robots = {f"{url}robots.txt": stage for url, stage in stages.items()}
    assert sent == robots, done.output


@pytest.mark.crawl
def test_a_proxy_that_is_away_is_a_line_with_a_count(tmp_path: Path) -> None:
    with closed_port() as dead_port:
        spider = f"""
class Proxy:
    def process_request(self, request, spider=None):
        request.meta["proxy"] = "http://127.0.0.1:{dead_port}"
"""
        settings = {"DOWNLOADER_MIDDLEWARES": {"spiders.Proxy": 500}, "LOG_LEVEL": "WARNING"}
        urls = [f"http://h{number}.test/" for number in range(40)]
        done = without_proxy(tmp_path, *urls, spider=spider + LIST_SPIDER, settings=settings)
    lines = [line for line in done.output.splitlines() if " [scrapy_walsh] " in line]
    (counted,) = [line for line in lines if "deferred 40 targets of " in line]
    assert "and 30 other hosts" in counted
    assert len(lines) <= 5, done.output


# -- by lines -----------------------------------------------------------------------------


def stages_of(*entries: dict[str, Any]) -> list[str]:
    """The stage of each line that ends a target, or rejects a robots.txt."""
    reach = Reach()
    stages = []

    def watch(line: Any, _: object) -> None:
        reach.take(line)
        if line.kind in ("refused", "deferred", "given_up", "rejected"):
            stages.append(reach.stage(line))

    verified(lines_of(began(), *entries, ended()), watch)
    return stages


OURS = {"requirement": "R2", "verdict": "deferred"}
UNREACHABLE = {"requirement": "R2", "verdict": "unknown_unreachable"}
GAVE_UP = decided("given_up", 9.0, requirement="R5", wait=1.0)


@pytest.mark.parametrize(
    ("entries", "stages"),
    [
        ([asked(0, status=None), GAVE_UP], [""]),
        ([asked(0, status=None, unsent="name"), GAVE_UP], ["name"]),
        ([asked(0, status=None, unsent="name"), asked(3, status=503), GAVE_UP], [""]),
        ([asked(0, status=503), asked(3, status=None, unsent="tls"), GAVE_UP], ["tls"]),
        ([asked(0, status=None, proxy="p.test"), GAVE_UP], ["silent"]),
        ([asked(0, status=None, proxy="p.test", cut=True), GAVE_UP], [""]),
        ([asked(0, status=502, proxy="p.test"), GAVE_UP], [""]),
        ([asked(0, status=None, unsent="name", host="x.test"), GAVE_UP], [""]),
        ([decided("deferred", 1.0, due=9.0, **OURS)], ["ours"]),
        ([decided("deferred", 1.0, due=9.0, requirement="R3", verdict="deferred")], ["ours"]),
        ([decided("refused", 1.0, requirement="R3", verdict="blocked_operator")], [""]),
        (
            [
                decided("rejected", 1.0, requirement="R2", url=ROBOTS_URL, hop="http://x.test/"),
                decided("deferred", 2.0, due=9.0, **OURS),
            ],
            ["", ""],
        ),
        (
            [
                asked(0, url=ROBOTS_URL, purpose="robots", status=None, unsent="connection"),
                decided("rejected", 1.0, url=ROBOTS_URL, **UNREACHABLE),
                decided("deferred", 2.0, due=9.0, **UNREACHABLE),
                decided("refused", 3.0, requirement="R2", verdict="disallowed_explicit", rule="/"),
            ],
            ["connection", "connection", ""],
        ),
    ],
)
def test_the_site_has_a_part_only_in_what_came_there(
    entries: list[dict[str, Any]], stages: list[str]
) -> None:
    assert stages_of(*entries) == stages


@pytest.mark.parametrize(
    ("members", "is_wrong"),
    [
        ({"status": 200}, True),
        ({"status": 407}, True),
        ({"status": None, "cut": True}, True),
        ({"status": 407, "proxy": "p.test"}, False),
        ({"status": None}, False),
    ],
)
def test_r11_an_exchange_with_an_answer_was_sent(
    members: dict[str, Any], *, is_wrong: bool
) -> None:
    report = verified(lines_of(began(), asked(0, unsent="proxy", **members), ended()), _nothing)
    text = "nothing was sent, and it has an answer"
    assert any(text in finding for finding in told(report)) == is_wrong


def _nothing(*_: object) -> None:
    pass
