"""R5, D13: a host that gives no answer gets few requests in one run, after all other hosts."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_walsh.adapters.events import Recorder
from scrapy_walsh.ledger.files import parse_line
from scrapy_walsh.policy.event import DEFERRED, GIVEN_UP, Event
from scrapy_walsh.policy.verdict import REMEDIES, Unanswered, Verdict
from scrapy_walsh.proof.sandbox import Request, Route, Sandbox, Site
from scrapy_walsh.proof.sandbox.routes import operator_documents
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import Deferral
from tests.crawl.harness import LIST, Crawl, age_document, crawl, make_project, site, state_dir
from tests.kit import report_of, wrong_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHORT: dict[str, Any] = {"WALSH_BACKOFF_BASE": 0.01}
HANG = Route(behaviour="hang")
CLOSE = Route(behaviour="close")
SILENT = site("hang.test", {"*": CLOSE}, CLOSE)
URLS = tuple(f"http://hang.test/{number}" for number in range(4))
OTHER = tuple(f"http://other.test/{number}" for number in range(3))


def honest(project: Path) -> None:
    """The ledger of every run so far is found honest, and each R5 deferral is derived."""
    report = report_of(state_dir(project))
    assert wrong_in(report) == []
    assert not any("deferrals" in reason for reason in report.underived)


def exchanges(project: Path) -> list[dict[str, Any]]:
    lines = (state_dir(project) / "ledger.jsonl").read_bytes().splitlines()
    return [each for each in map(parse_line, lines) if each["kind"] == "asked"]


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    def made(**settings: Any) -> Path:
        return make_project(tmp_path / "project", settings={**SHORT, **settings})

    return made


def test_a_host_that_hangs_gets_three_requests_and_nobody_waits_for_the_others(
    box: Sandbox, project: Callable[..., Path]
) -> None:
    box.put(site("hang.test", {"*": HANG}, HANG))
    box.put(site("other.test"))
    # Not much, and yet more than a loopback server that is busy needs.
    made = project(DOWNLOAD_TIMEOUT=2)
    run = crawl(made, box, *URLS, *OTHER)
    assert run.asked("hang.test") == ["/robots.txt", "/robots.txt", "/0"]
    assert run.asked("other.test") == ["/robots.txt", "/0", "/1", "/2"]
    hosts = [each.host for each in run.log if each.host in ("hang.test", "other.test")]
    assert hosts[-2:] == ["hang.test"] * 2
    assert "GaveUp" in run.why(URLS[0])
    assert all("R5 deferred: hang.test did not answer 3" in run.why(url) for url in URLS[1:])
    assert run.stats["walsh/deferred"] == 3
    assert run.stats["finish_reason"] == "finished"
    honest(made)


def test_one_line_tells_of_all_targets_of_a_silent_host(
    box: Sandbox, project: Callable[..., Path]
) -> None:
    box.put(SILENT)
    made = project()
    run = crawl(made, box, *URLS)
    (line,) = run.lines("ERROR: ", "(R5 deferred)")
    ended = "gave up 1 target and deferred 3 targets of hang.test"
    assert f"{ended} (R5 deferred): the host did not answer 3" in line
    assert (run.stats["walsh/given_up"], run.stats["walsh/deferred"]) == (1, 3)
    assert "remove it from the sources" in line
    assert len(run.lines("INFO: deferred", "hang.test")) == 1
    assert len(run.lines("DEBUG: deferred", "hang.test")) == 2
    store = open_store(state_dir(made))
    deferred = {each.url: each for each in store.rows(Deferral)}
    store.close()
    assert set(deferred) == set(URLS[1:])
    assert all("did not answer" in each.reason for each in deferred.values())
    lines = map(parse_line, (state_dir(made) / "ledger.jsonl").read_bytes().splitlines())
    ends = [line for line in lines if line["kind"] in ("deferred", "given_up")]
    assert [line["url"] for line in ends if line.get("error")] == [URLS[0]]
    assert {line.get("error") for line in ends} == {"connection lost", None}
    assert all(line["unanswered"] == {"host": "hang.test", "requests": 3} for line in ends)


def test_the_name_of_one_host_is_no_part_of_another(caplog: pytest.LogCaptureFixture) -> None:
    """The robots.txt of a.test leads to www.a.test, which gives no answer."""
    recorder = Recorder(get_crawler())
    silent = Unanswered("www.a.test", 2, earlier=True)
    verdict = Verdict(False, DEFERRED, "R5", str(silent), unanswered=silent)
    url = "http://a.test/: www.a.test no answer: x"
    recorder.record(Event.of(DEFERRED, url, verdict, "a.test", due=1.0, robots_host="www.a.test"))
    recorder.record(Event(GIVEN_UP, url, "R5", reason=f"no answer: {url}; a.test ", host="a.test"))
    caplog.clear()
    recorder.tell_alike()
    assert [record.getMessage() for record in caplog.records] == [
        f"deferred 1 target of a.test (R5 deferred): {silent}; {REMEDIES['R5', DEFERRED]}"
    ]


def test_a_morning_without_network_is_one_warning_a_cause(
    box: Sandbox, project: Callable[..., Path]
) -> None:
    names = [f"{chr(97 + number)}.test" for number in range(12)]
    for name in names:
        box.put(Site(name, {"*": Route(behaviour="reset")}))
    box.set_route("operator.test", LIST, Route(behaviour="reset"))
    run = crawl(
        project(WALSH_MAX_RETRIES=1), box, *(f"http://{name}/{n}" for name in names for n in "12")
    )
    # An error of the network is one as in Scrapy (D43).
    assert len(run.lines("[scrapy_walsh] WARNING: ")) == 2
    assert len(run.lines("[scrapy_walsh] ERROR: ")) == 1
    (line,) = run.lines("ERROR: gave up 12 targets and deferred 12 targets of ")
    assert [name in line for name in names].count(True) == 10
    assert " and 2 other hosts (R5 deferred): " in line
    assert line.endswith("(connection lost); no request was answered: check this machine's network")
    assert run.lines("WARNING: rejected", LIST, "gave no answer: connection lost")


def test_hosts_without_a_robots_txt_are_one_warning_a_cause(
    box: Sandbox, project: Callable[..., Path]
) -> None:
    names = ("a.test", "b.test")
    for name in names:
        box.put(site(name, robots=Route(status=500)))
    run = crawl(project(WALSH_MAX_RETRIES=0), box, *(f"http://{name}/" for name in names))
    (line,) = run.lines("WARNING: rejected robots.txt of ")
    assert "robots.txt of a.test, b.test (R2 unknown_unreachable): robots.txt is unreach" in line
    assert line.endswith("WALSH_ROBOTS_UNREACHABLE decides about such hosts")
    assert len(run.lines("INFO: rejected http://")) == 2


def test_r5_6_the_next_run_asks_again(box: Sandbox, project: Callable[..., Path]) -> None:
    box.put(SILENT)
    made = project(WALSH_MAX_RETRIES=1)
    crawl(made, box, *URLS)
    box.put(site("hang.test"))
    again = crawl(made, box, *URLS)
    first, *rest = again.asked("hang.test")
    assert first == "/robots.txt"
    # What was put off goes first, once it is named; the one that was given up waits an hour (R8.2).
    assert sorted(rest) == ["/1", "/2", "/3"]
    honest(made)


@pytest.mark.parametrize(
    ("position", "paths", "verdict"),
    [
        ("allow", ["/robots.txt", "/robots.txt", "/0"], "R5 deferred"),
        ("defer", ["/robots.txt", "/robots.txt"], "R2 unknown_unreachable"),
        ("deny", ["/robots.txt", "/robots.txt"], "R2 unknown_unreachable"),
    ],
)
def test_r5_6_with_one_retry(
    box: Sandbox, project: Callable[..., Path], position: str, paths: list[str], verdict: str
) -> None:
    box.put(SILENT)
    made = project(WALSH_MAX_RETRIES=1, WALSH_ROBOTS_UNREACHABLE=position)
    run = crawl(made, box, *URLS)
    assert run.asked("hang.test") == paths
    assert all(verdict in run.why(url) for url in URLS[1:])
    # That robots.txt cannot be had is a warning; that its target got no answer is an error.
    line = "ERROR: gave up 1 target and deferred" if position == "allow" else "WARNING: deferred"
    assert len(run.lines(line, "hang.test")) == (position != "deny")
    honest(made)


@pytest.mark.parametrize("position", ["defer", "deny"])
def test_robots_txt_has_all_attempts_where_no_target_could_follow(
    box: Sandbox, project: Callable[..., Path], position: str
) -> None:
    box.put(SILENT)
    made = project(WALSH_ROBOTS_UNREACHABLE=position)
    run = crawl(made, box, *URLS[:2])
    assert run.asked("hang.test") == ["/robots.txt"] * 2
    honest(made)


def test_r5_6_whatever_urls_they_were_for(box: Sandbox, project: Callable[..., Path]) -> None:
    """Where robots.txt answers, one target has what R5 grants, and another one attempt."""
    box.put(site("hang.test", {"*": CLOSE}))
    made = project(WALSH_MAX_RETRIES=3)
    run = crawl(made, box, *URLS)
    assert len(run.asked("hang.test")) == 1 + 5
    assert sum("R5 deferred" in run.why(url) for url in URLS) == 2
    honest(made)


def mixed(request: Request) -> Route:
    """No answer at the first two attempts for each page, then an error of some kind."""
    tries = sum(each.path == request.path for each in request.log)
    number = int(request.path.strip("/") or 0)
    if tries <= 2 and number < 2:
        return Route(behaviour="close")
    return Route((500, 404, 429)[number % 3], headers={"Retry-After": "0"})


def test_r5_6_an_answer_of_any_status_never_counts(
    box: Sandbox, project: Callable[..., Path]
) -> None:
    """Four attempts without an answer, and eleven with: the host stays open."""
    box.put(site("mixed.test", {"*": mixed}))
    made = project()
    run = crawl(made, box, *(f"http://mixed.test/{number}" for number in range(3)), timeout=120)
    asked = run.asked("mixed.test")
    assert [asked.count(f"/{number}") for number in range(3)] == [6, 3, 6]
    assert run.stats.get("walsh/deferred") is None
    honest(made)


def test_rules_that_were_held_still_hold_for_a_silent_host(
    box: Sandbox, project: Callable[..., Path]
) -> None:
    """T6: what an earlier robots.txt refused is refused, what it allows gets the last attempt."""
    box.put(site("hang.test", {"*": CLOSE}, "User-agent: *\nDisallow: /1\n"))
    made = project(WALSH_MAX_RETRIES=2)
    crawl(made, box, URLS[1])
    age_document(made, "robots", "http://hang.test")
    box.put(SILENT)
    run = crawl(made, box, URLS[1], URLS[0], URLS[2])
    assert run.asked("hang.test") == ["/robots.txt", "/robots.txt", "/0"]
    assert "disallowed_explicit" in run.why(URLS[1])
    assert "R5 deferred" in run.why(URLS[2])
    honest(made)


@pytest.mark.parametrize("position", ["allow", "defer"])
def test_a_robots_txt_that_answers_500_has_a_second_attempt_when_all_else_is_done(
    box: Sandbox, project: Callable[..., Path], position: str
) -> None:
    box.put(site("down.test", {}, Route(500)))
    box.put(site("other.test"))
    made = project(WALSH_ROBOTS_UNREACHABLE=position)
    run = crawl(made, box, *(f"http://down.test/{number}" for number in range(2)), *OTHER)
    targets = ["/0", "/1"] if position == "allow" else []
    assert run.asked("down.test") == ["/robots.txt", "/robots.txt", *targets]
    hosts = [each.host for each in run.log if each.host in ("down.test", "other.test")]
    assert hosts[-1 - len(targets) :] == ["down.test"] * (1 + len(targets))
    assert run.lines("INFO: rejected http://down.test/robots.txt", position)
    honest(made)


# -- without the sandbox: ports that do not serve -----------------------------------------


@contextmanager
def listener(then: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[int]]]:
    """A port that accepts, and *then* does something: the port, and one entry a connection."""
    accepted: list[int] = []
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                accepted.append(address[1])
                kept.append(connection)
                then(connection)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield server.getsockname()[1], accepted
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for each in kept:
                each.close()


def no_tls(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.0 400 no TLS here\r\n\r\n")
    connection.close()


def test_r5_6_no_connection_no_tls_and_no_answer_count_alike(
    box: Sandbox, project: Callable[..., Path]
) -> None:
    direct = f"http://127.0.0.1:{box.port}"
    documents = {"/robots.txt": Route(404), **operator_documents(direct)}
    box.put(Site("127.0.0.1", {**documents, "*": Route(body="a page")}))
    made = project(
        HTTPPROXY_ENABLED=False,
        DOWNLOAD_TIMEOUT=2,
        WALSH_MAX_RETRIES=2,
        WALSH_BLOCKLIST_URL=f"{direct}/.well-known/walsh-research/blocklist.json",
        WALSH_BLOCKLIST_SCHEMA_URL=f"{direct}/.well-known/walsh-research/blocklist.schema.json",
    )
    with (
        listener(lambda _: None) as (mute, accepted),
        listener(no_tls) as (plain, shaken),
        socket.socket() as closed,
    ):
        closed.bind(("127.0.0.1", 0))  # and never listens: each connection is refused
        ports = {mute: "http", plain: "https", closed.getsockname()[1]: "http"}
        urls = [f"{scheme}://127.0.0.1:{p}/{n}" for p, scheme in ports.items() for n in (1, 2)]
        run = crawl(made, box, *urls, f"{direct}/page")
    assert run.fetched(f"{direct}/page")
    assert len(accepted) == len(shaken) == 3
    for port in ports:
        tried = [each["purpose"] for each in exchanges(made) if each["host"].endswith(f":{port}")]
        ended = "ERROR: gave up 1 target and deferred 1 target of "
        if port not in (mute, plain):  # no TCP connection came about, so there is no page (D13)
            ended = "ERROR: deferred 2 targets of "
        assert tried == ["robots", "robots", "target"][: 3 if port in (mute, plain) else 2]
        assert len(run.lines(ended, f"127.0.0.1:{port}")) == 1
    honest(made)


# -- DOWNLOAD_TIMEOUT ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "arguments", "seconds"),
    [({}, (), 30), ({"DOWNLOAD_TIMEOUT": 180}, (), 180), ({}, ("-s", "DOWNLOAD_TIMEOUT=90"), 90)],
)
def test_the_timeout_is_a_default_that_a_project_may_change(
    run: Callable[..., Crawl], settings: dict[str, Any], arguments: tuple[str, ...], seconds: int
) -> None:
    spider = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = ["http://path.test/public"]

    def parse(self, response):
        yield {"url": response.url, "timeout": response.meta["download_timeout"]}
"""
    done = run(spider=spider, settings=settings, arguments=arguments)
    assert [item["timeout"] for item in done.items] == [seconds]


#: What the broken pages of a host do, and how often each of its pages is requested.
BROKEN = {
    "cut.test": ({"/0": Route(behaviour="truncate")}, [6, 1, 1, 1, 1]),
    "drop.test": ({"/0": CLOSE}, [6, 1, 1, 1, 1]),
    "two.test": ({"/0": CLOSE, "/2": CLOSE}, [6, 1, 6, 1, 1]),
    "all-cut.test": ({"*": Route(behaviour="truncate")}, [6, 6, 6, 6, 6]),
    "all-drop.test": ({"*": CLOSE}, [6, 1, 0, 0, 0]),
}
FAILURES = (500, 501, 502, 503, 504, 429, 599)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawl, Path]:
    folder = make_project(tmp_path_factory.mktemp("broken"), settings=SHORT)
    with Sandbox() as box:
        for host, (pages, _) in BROKEN.items():
            box.put(site(host, pages))
        for status in FAILURES:
            box.put(site(f"fails-{status}.test", {"*": Route(status)}))
        urls = [f"http://{host}/{page}" for host in BROKEN for page in range(5)]
        return crawl(
            folder, box, *urls, *(f"http://fails-{each}.test/" for each in FAILURES)
        ), folder


@pytest.mark.parametrize("host", BROKEN)
def test_r5_6_one_broken_page_does_not_take_its_host_along(
    broken: tuple[Crawl, Path], host: str
) -> None:
    run, (pages, often) = broken[0], BROKEN[host]
    assert [run.targets(host).count(f"/{page}") for page in range(5)] == often
    for page in range(5):
        is_whole = f"/{page}" not in pages and "*" not in pages
        assert run.fetched(f"http://{host}/{page}") is is_whole
        assert is_whole or run.why(f"http://{host}/{page}")


def test_r5_6_verify_counts_them_alike(broken: tuple[Crawl, Path]) -> None:
    honest(broken[1])
    cut = [each for each in exchanges(broken[1]) if each.get("cut")]
    assert {each["host"] for each in cut} == {"cut.test", "all-cut.test"}


@pytest.mark.parametrize("status", FAILURES)
def test_r5_8_what_was_given_up_is_told_in_one_way(broken: tuple[Crawl, Path], status: int) -> None:
    run, folder = broken
    url = f"http://fails-{status}.test/"
    assert not run.fetched(url)
    assert f"GaveUp {url}: gave up: status {status}" in run.why(url)
    lines = (state_dir(folder) / "ledger.jsonl").read_bytes().splitlines()
    told = [each["kind"] for each in map(parse_line, lines) if each.get("url") == url]
    told = [kind for kind in told if kind != "held"]
    assert told == ["declared", *["asked", "retried"] * 5, "asked", "given_up"]
