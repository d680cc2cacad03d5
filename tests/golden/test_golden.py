"""What every judge says of small things written by hand, compared with a golden file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands import doctor, doctor_state
from scrapy_walsh.commands.conformance import lines as report_lines
from scrapy_walsh.commands.main import main
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.ledger.files import FILE
from scrapy_walsh.policy.throttle import Learned
from scrapy_walsh.proof.attest import document
from scrapy_walsh.proof.attest.document import IDS, PolicyPage
from scrapy_walsh.proof.audit.judge import Terms, judge
from scrapy_walsh.proof.audit.reading import read_logs
from scrapy_walsh.proof.conformance.check import WORDS, Check, in_order
from scrapy_walsh.proof.conformance.evidence import spaced
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.report.html import page
from scrapy_walsh.proof.report.runs import ALL
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.sources.report import ReportRow, as_lines
from scrapy_walsh.state.records import (
    Deferral,
    HostRecord,
    Reading,
    StoredDocument,
    Validators,
    VisitRecord,
)
from scrapy_walsh.state.store import SqliteStore
from scrapy_walsh.terminal import columns
from tests import golden
from tests.crawl.harness import OWN_IDENTITY, USER_AGENT
from tests.kit import (
    BOT,
    T0,
    H,
    Read,
    T,
    check,
    honest,
    line,
    lines_of,
    record,
    report_of,
    rules,
    tally_of,
    write,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# -- the chain ------------------------------------------------------------------------------


def altered(lines: list[bytes], at: int) -> list[bytes]:
    return [*lines[:at], lines[at].replace(b'"at":1', b'"at":2'), *lines[at + 1 :]]


def dropped(lines: list[bytes], at: int) -> list[bytes]:
    return lines[:at] + lines[at + 1 :]


def moved(lines: list[bytes], at: int) -> list[bytes]:
    return [*dropped(lines, at), lines[at]]


def repeated(lines: list[bytes], at: int) -> list[bytes]:
    return [*lines[: at + 1], *lines[at:]]


def noise(lines: list[bytes], at: int) -> list[bytes]:
    return [*lines[:at], b"noise\n", *lines[at:]]


def cut_short(lines: list[bytes], at: int) -> list[bytes]:
    return [*lines[:at], lines[at][:-20]]


def headless(lines: list[bytes], at: int) -> list[bytes]:
    return lines[at:]


def cut_inside(lines: list[bytes], at: int) -> list[bytes]:
    return [*lines[:at], lines[at][:-20] + b"\n", *lines[at + 1 :]]


@pytest.mark.parametrize("at", [0, 1, 7, -1])
@pytest.mark.parametrize(
    "change", [altered, dropped, moved, repeated, noise, cut_short, cut_inside, headless]
)
def test_a_chain_that_was_tampered_with(
    change: Callable[[list[bytes], int], list[bytes]], at: int, tmp_path: Path
) -> None:
    """By ``verify``."""
    write(tmp_path, honest().entries)
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    lines = change(lines, at % len(lines))
    (tmp_path / FILE).write_bytes(b"".join(lines))
    report_of(tmp_path)


# -- spacing at the edge --------------------------------------------------------------------


@pytest.mark.parametrize("short", [0.0, 0.0009, 0.0011, 0.004, 0.006, 0.019, 0.021, 0.5])
def test_a_gap_that_is_short_by_so_many_seconds(short: float, tmp_path: Path) -> None:
    """By ``verify``, and by a row of conformance."""
    forge = honest()
    one = forge.only("asked", f"{H}/target")
    before = forge.only("asked", f"{H}/own")
    one["started"] = before["ended"] + 2.0 - short
    one["ended"] = one["started"] + 0.01
    other = forge.only("asked", f"{H}/d")
    forge.start(200, "three", "p3")
    forge.ask(other["started"] - T + 9 - short, f"{H}/x", interval=6.0)
    held = forge.only("asked", f"{H}/busy", nth=1)
    held["started"] = forge.only("asked", f"{H}/busy")["ended"] + 7.0 - short
    forge.check(tmp_path)
    found = spaced([2.0 - short, 2.5], 2.0)
    golden.note([WORDS[found.outcome], found.text])


@pytest.mark.parametrize("delay", ["1.01", "1.02", "1.03", "1.5", "2", "2.5"])
def test_stamps_of_whole_seconds(delay: str, tmp_path: Path) -> None:
    """Ten requests, a second apart by the log's clock."""
    lines = [line(T0, "/robots.txt"), *(line(T0 + 5 + at, f"/{at}") for at in range(99))]
    log = read_logs([written(tmp_path / "access.log", lines)], BOT)
    terms = Terms(USER_AGENT, rules((0.0, f"User-agent: *\nCrawl-delay: {delay}\n")))
    (spacing,) = (row for row in judge(log, terms) if row.id == "R4")
    golden.note(spacing.members())


# -- whole answers --------------------------------------------------------------------------


def test_the_page_of_a_report() -> None:
    lines = lines_of(*honest().entries)
    golden.note(" ".join(Read(page(*tally_of(lines, ALL))).text.split()))


def test_rows_of_an_audit_as_json(tmp_path: Path) -> None:
    lines = [
        line(T0, "/robots.txt"),
        line(T0, "/a"),
        line(T0, "/private", 503),
        line(T0 + 1, "/private", agent="Walsh-Research/9"),
        line(T0 + 9, "/a", 304),
        line(T0 + 99999, "/b"),
    ]
    log = read_logs([written(tmp_path / "access.log", lines)], BOT)
    timeline = rules((0.0, "User-agent: *\nDisallow: /private\n"))
    golden.note([row.members() for row in judge(log, Terms(USER_AGENT, timeline, optout=T0 + 5.0))])


def told(found: Iterable[Any]) -> None:
    for each in found:
        cells = doctor.cells_of(each)
        (shown,) = columns([cells], least=doctor.LEAST, gap=1)
        golden.note([shown, doctor.members_of(each)])


OWN: dict[str, Any] = {"WALSH_IDENTITY": OWN_IDENTITY}


def config(**settings: Any) -> WalshConfig:
    return WalshConfig.from_settings({**OWN, **settings}, Path)


def test_doctor_on_settings() -> None:
    given = config(
        WALSH_FOLLOW_LINKS=True,
        WALSH_SCRAPING=True,
        WALSH_BACKOFF_BASE=0.5,
        WALSH_REVISIT_REASON="x",
    )
    told(doctor.of_identity(given))


def test_doctor_on_state() -> None:
    memory = config(WALSH_STATE_DIR="memory")
    told(doctor_state.of_state(memory))
    url = "http://l.test/"
    text = json.dumps(blocklist()).encode()
    held = StoredDocument("blocklist", url, url, text, T, 200, "", refresh=21600.0)
    told([doctor_state.of_blocklist(None, T, url)])
    for now in (T + 60, T + 30_000, T - 60):
        told([doctor_state.of_blocklist(held, now, url)])


def test_doctor_on_spiders() -> None:
    pin = ["WARNING", "RETRY_ENABLED is True: scrapy_walsh overrides it with False"]
    value = ["BROKEN", "WALSH_MIN_INTERVAL is 0.5; accepted: a number of seconds, at least 1"]
    spiders = {"a": [pin], "b": [pin, value]}
    told(doctor.of_spiders({"broken": [], "spiders": spiders}))
    told(doctor.of_spiders({"broken": ["they cannot be loaded: no"], "spiders": {}}))


def test_attest_says_what_stands_against_each_requirement() -> None:
    checks = [check(id_, "FAIL" if id_ in ("R2", "R4") else "PASS") for id_ in IDS if id_ != "R2b"]
    evidence = record(checks=checks)
    strict = config(WALSH_FOLLOW_LINKS=True, WALSH_REVISIT=4000, WALSH_STATE_DIR="memory")
    for looked_at in (PolicyPage("http://p.test/"), PolicyPage("http://p.test/", "now", 404, "x")):
        found = document.judge(evidence, strict, looked_at)
        golden.note(
            [
                {id_: document.value_of(each) for id_, each in found.items()},
                [f"{id_}: {why.text}" for id_, against in found.items() for why in against],
                looked_at.members(),
            ]
        )
    found = document.judge(None, config(), PolicyPage("http://p.test/", "now", 200))
    golden.note(json.dumps(sorted(found)))


def test_the_report_of_conformance() -> None:
    checks = [
        Check("R4b", "R4", "MUST", "spaced", Outcome.BROKEN, "gap=0.1s"),
        Check("R2", "R2", "SHOULD", "kept", Outcome.HELD, ""),
        Check("R1", "R1", "MUST NOT", "rotated", Outcome.UNSEEN, "nothing was asked"),
    ]
    golden.note([*report_lines("title", in_order(checks), 1.5)])
    golden.note([each.members() for each in checks])


def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """What people read has local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_state_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text, cut by ``--limit``, and as JSON."""
    url = "https://h.test/feed"
    store = SqliteStore(tmp_path / "state")
    store.put(HostRecord("h.test", T - 60, 30.0, T + 7200))
    store.put(
        HostRecord("slow.test", T, 1.0, taught=Learned(40.0, 0.0, 3, T), silent_since=T - 9e5)
    )
    store.put(HostRecord("free.test", T - 600, 1.0))
    store.put(
        Deferral(f"{url}/a/rather/long/path/to/\x1b[31m/one?page=2", "h.test", T + 9e4, "why")
    )
    store.put(StoredDocument("blocklist", url, url, b"{}", T - 90, 200, "held", refresh=60.0))
    store.put(StoredDocument("robots", "https://h.test", url, b"", T, 404, "allow"))
    store.put(VisitRecord(url, T - 60, "200", "asked to"))
    store.put(Reading(url, T - 8e5, T, 1, "HTTP 403", f"{url}/new"))
    store.put(Reading(f"{url}/2", T - 8e5, T - 9, 0, "no answer", None))
    store.put(Validators(url, "*/*", '"v"', None, T, "text/xml"))
    store.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time", lambda: T + 0.5)
    in_utc(monkeypatch)
    for arguments in ((), ("--limit", "1"), ("--json",), ("--all",)):
        assert main(["state", "show", "--dir", "state", *arguments]) == 0
        golden.note(capsys.readouterr().out.splitlines())


def test_the_source_report(monkeypatch: pytest.MonkeyPatch) -> None:
    in_utc(monkeypatch)
    due = "2026-05-24T00:00:00Z"
    moved = ReportRow(
        "b", "https://b.test/1", "left_out", "R9", "page: HTML", moved_to="https://c.test/"
    )
    moved.suggested_feeds = ["https://c.test/f", "https://c.test/"]
    moved.suggested_sitemaps = ["https://b.test/s.xml"]
    rows = [
        ReportRow("a", "https://a.test/", "fed", "R9", "", 1, 1234, 10, 10, 3, next_due=due),
        ReportRow(
            "x" * 50, "https://x.test/", "refused", "R2", "robots.txt line 3: \x1b[31m", 0, 0, 0
        ),
        moved,
        ReportRow("b", "https://b.test/2", None),
    ]
    golden.note(as_lines(rows))
