"""Bots of both kinds, in front of a server that logs as nginx does: the audit agrees with the
sandbox's own log, whose clock is exact."""

from __future__ import annotations

import ipaddress
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest

from scrapy_walsh.proof.audit.match import match_rows, read_ledgers
from scrapy_walsh.proof.audit.reading import Bot, Log, read_logs
from scrapy_walsh.proof.sandbox import (
    LoggedRequest,
    Route,
    Sandbox,
    Site,
    gaps,
    requests,
    user_agents,
)
from tests.crawl.harness import TOLERANCE, USER_AGENT, Crawl, crawl, make_project, site, state_dir
from tests.kit import line, rows_of, rules, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from scrapy_walsh.proof.audit.rows import Row

HOST = "site.example"
ROBOTS = "User-agent: *\nCrawl-delay: 1.5\nDisallow: /private\n"
RETRY_AFTER = 3
BUSY = Route(429, headers={"Retry-After": str(RETRY_AFTER)})
#: A visitor two days ago: so long has the server logged.
LONG_AGO = 2 * 86400 + 60


def nginx(log: Iterable[LoggedRequest], host: str) -> list[str]:
    """What nginx would have logged of *host*: at the end of each request, at its end's second."""
    done = [
        (record.wall + (record.completed or record.arrived) - record.arrived, record)
        for record in log
        if record.host == host and record.method != "CONNECT"
    ]
    return [
        line(
            ended,
            record.target.removeprefix(f"http://{host}"),  # the sandbox is a proxy, nginx is not
            record.status or 499,
            agent=", ".join(record.values("User-Agent")) or "-",
            address="127.0.0.1",
            method=record.method,
            referer=", ".join(record.values("Referer")) or "-",
        )
        for ended, record in sorted(done, key=lambda pair: pair[0])
    ]


def the_site(busy: Route) -> Site:
    return site(HOST, {"/busy": busy}, robots=ROBOTS)


def visitor() -> str:
    return line(
        time.time() - LONG_AGO, "/", agent="Mozilla/5.0 Firefox/139.0", address="198.51.100.20"
    )


def log_of(path: Path, lines: list[str], bot: Bot) -> Log:
    return read_logs([written(path, lines)], bot)


def exact(log: list[LoggedRequest]) -> set[str]:
    """What was broken, by the sandbox's clock."""
    ours = requests(log, HOST)
    apart = gaps(log, HOST, start_to_start=True)[1:]  # T1: robots.txt and the first target
    pauses = gaps(log, HOST)
    waits = [pause for pause, before in zip(pauses, ours, strict=False) if before.status == 429]
    broken = {
        "agent": user_agents(ours) != {USER_AGENT},
        "asked": ours[0].path != "/robots.txt",
        "obeyed": any(record.path.startswith("/private") for record in ours),
        "spacing": min(apart, default=9.0) < 1.5 - TOLERANCE,
        "backoff": min(waits, default=9.0) < RETRY_AFTER - TOLERANCE or len(waits) > 5,
    }
    return {name for name, value in broken.items() if value}


def found(rows: dict[str, Row]) -> set[str]:
    return {
        name for name, row in rows.items() if row.outcome.value == "broken" and row.level == "MUST"
    }


def judged(log: Log) -> dict[str, Row]:
    terms = {"timeline": rules((float("-inf"), ROBOTS)), "retry_after": float(RETRY_AFTER)}
    return rows_of(log, **terms)


# -- an honest bot ------------------------------------------------------------------------


@dataclass
class Honest:
    """One crawl, what its server logged, and the directory of its ledger."""

    crawl: Crawl
    lines: list[str]
    state: Path
    folder: Path

    def log(self, lines: list[str] | None = None) -> Log:
        return log_of(
            self.folder / "access.log", lines or self.lines, Bot(b"walsh-research", host=HOST)
        )


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    folder = tmp_path_factory.mktemp("honest")
    first_busy = Route(sequence=(BUSY, Route(body="<p>page</p>")))
    urls = [f"http://{HOST}{path}" for path in ("/a", "/private/x", "/busy", "/b?c=%22d%22")]
    with Sandbox() as box:
        box.put(the_site(first_busy))
        project = make_project(folder / "project")
        done = crawl(project, box, *urls)
    assert done.returncode == 0, done.output
    return Honest(done, [visitor(), *nginx(done.log, HOST)], state_dir(project), folder)


def test_an_honest_crawl_is_held(honest: Honest) -> None:
    rows = judged(honest.log())
    assert exact(honest.crawl.log) == found(rows) == set()
    assert sorted(honest.crawl.asked(HOST)) == ["/a", "/b", "/busy", "/busy", "/robots.txt"]
    for name in ("agent", "asked", "obeyed", "spacing", "backoff"):
        assert rows[name].outcome.value == "held", (name, rows[name])
    assert (rows["agent"].seen, rows["asked"].seen, rows["obeyed"].seen) == (5, 4, 4)
    assert rows["spacing"].seen + rows["spacing"].undecided == 3
    for name in ("optout",):
        assert rows[name].outcome.value == "not seen"


def test_its_ledger_has_every_request_and_no_other(honest: Honest) -> None:
    ledgers = read_ledgers([str(honest.state)], {HOST})
    assert [row.outcome.value for row in match_rows(honest.log(), ledgers, 0.2)] == ["held", "held"]
    assert len(ledgers.sent) == 5


def test_a_request_that_the_ledger_omits_is_named(honest: Honest, tmp_path: Path) -> None:
    # Whole seconds decide nothing at the ledger's ends: one from its middle is left out.
    lines = (honest.state / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    shortened = tmp_path / "ledger.jsonl"
    shortened.write_bytes(b"".join(each for each in lines if b'"status":429' not in each))
    ledgers = read_ledgers([str(shortened)], {HOST})
    by_ledger, by_log = match_rows(honest.log(), ledgers, 0.2)
    (finding,) = by_ledger.findings
    number = 1 + next(n for n, each in enumerate(honest.lines) if " 429 " in each)
    assert finding.place.endswith(f"access.log:{number}")
    assert (by_ledger.seen, by_log.outcome.value) == (4, "held")


def test_a_request_that_the_log_omits_is_named(honest: Honest) -> None:
    ledgers = read_ledgers([str(honest.state)], {HOST})
    lines = [each for each in honest.lines if '"GET /a ' not in each]
    lines.append(line(time.time() + 60, agent="Mozilla/5.0 Firefox/139.0"))
    by_ledger, by_log = match_rows(honest.log(lines), ledgers, 0.2)
    assert [finding.text for finding in by_log.findings] == ["/a: not in the log"]
    assert by_ledger.outcome.value == "held"


# -- others -------------------------------------------------------------------------------


def too_fast(ask: Callable[..., int]) -> None:
    for path in ("/robots.txt", "/a", "/b", "/c", "/d"):
        ask(path)


def disguised(ask: Callable[..., int]) -> None:
    ask("/robots.txt")
    ask("/a", agent="Mozilla/5.0 (X11; Linux x86_64) Firefox/139.0")


def nearly(ask: Callable[..., int]) -> None:
    ask("/robots.txt")
    ask("/a", agent=USER_AGENT.replace("1.2", "1.3"))


def trespassing(ask: Callable[..., int]) -> None:
    ask("/robots.txt")
    ask("/private/diary")


def careless(ask: Callable[..., int]) -> None:
    ask("/a")


def hammering(ask: Callable[..., int]) -> None:
    ask("/robots.txt")
    for _ in range(8):
        ask("/busy")


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as running:
        running.put(the_site(BUSY))
        yield running


@pytest.mark.parametrize(
    ("bot", "breaks"),
    [
        (too_fast, {"spacing"}),
        (disguised, {"agent"}),
        (nearly, {"agent"}),
        (trespassing, {"obeyed"}),
        (careless, {"asked"}),
        (hammering, {"spacing", "backoff"}),
    ],
)
def test_a_misbehaving_bot_is_found_out(
    box: Sandbox, tmp_path: Path, bot: Callable[..., None], breaks: set[str]
) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": box.proxy_url}))

    def ask(path: str, agent: str = USER_AGENT) -> int:
        request = urllib.request.Request(f"http://{HOST}{path}", headers={"User-Agent": agent})
        try:
            with opener.open(request, timeout=10) as answer:
                answer.read()
                return int(answer.status)
        except HTTPError as error:
            error.read()
            return error.code

    box.clear()
    bot(ask)
    by_address = Bot(b"walsh-research", (ipaddress.ip_network("127.0.0.1"),), host=HOST)
    rows = judged(log_of(tmp_path / "a.log", [visitor(), *nginx(box.log, HOST)], by_address))
    assert found(rows) == exact(box.log) == breaks
    if bot is hammering:
        assert "retry 6 of at most 5" in " ".join(f.text for f in rows["backoff"].findings)
