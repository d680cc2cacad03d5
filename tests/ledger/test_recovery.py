"""What binds is read from the ledger's lines that an older state lacks, by values."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.ledger import Ledger
from scrapy_walsh.ledger.recovery import recover, rollback, unknown_lines
from scrapy_walsh.state.records import (
    BLOCKLIST,
    ROBOTS,
    Deferral,
    HostRecord,
    StoredDocument,
    VisitRecord,
)
from scrapy_walsh.state.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = 1_800_000_000.0
DAY = 86400.0
URL = "http://a.test/p"
LIST = "http://operator.test/list"
#: Two exchanges show that the state is older, and not only one write behind.
OTHERS = ("http://x.test/1", "http://x.test/2")


class Lines:
    """A ledger, and the state beside it, which knows the lines up to now."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.ledger = Ledger(directory, lambda: NOW, **options)
        store = SqliteStore(directory)
        store.know(self.ledger.number)
        store.close()

    def write(self, kind: str, run: str = "run", **members: Any) -> None:
        self.ledger.write(run, {"kind": kind, **members})

    def exchange(self, url: str, status: int = 200, run: str = "run", **members: Any) -> None:
        host = url.split("/")[2]
        ends = {"started": NOW - 1, "ended": NOW, "interval": 1.0}
        given = {
            "host": host,
            "url": url,
            "purpose": "target",
            "status": status,
            "answered": True,
            **ends,
            **members,
        }
        self.write("declared", run, url=url)
        self.write("asked", run, **given)

    def adopt(self, rule: str, url: str, body: bytes | None, *, kept: bool = True) -> None:
        digest = None if body is None else hashlib.sha256(body).hexdigest()
        if kept and body is not None:
            self.ledger.keep(ROBOTS if rule == "R2" else BLOCKLIST, body, digest or "")
        self.write("adopted", url=url, requirement=rule, digest=digest, status=200)

    def old(self) -> None:
        """End the run after two exchanges, so that the state counts as older."""
        for url in OTHERS:
            self.exchange(url)
        self.write("ended")


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    made = Lines(tmp_path)
    made.write("started", token="ExampleBot")
    yield made
    made.ledger.close()


def recovered(lines: Lines) -> tuple[SqliteStore, str | None]:
    """The store of the next run, and the line that it logs; later runs log none."""
    is_said = rollback(lines.directory)
    store = SqliteStore(lines.directory)
    line = recover(store, lines.directory, lambda: lines.ledger.number, DAY)
    assert is_said == line, "state verify and doctor say what the run will say"
    assert unknown_lines(lines.directory) is None
    return store, line


# -- older, or one write behind -----------------------------------------------------------


@pytest.mark.parametrize(
    ("exchanges", "ends", "is_older"),
    [
        ({"run": 0}, False, False),
        ({"run": 1}, False, False),
        ({"run": 1, "beside": 1, "third": 1}, False, False),
        ({"run": 2}, False, True),
        ({"run": 1, "beside": 2}, False, True),
        ({"run": 0}, True, False),
        ({"run": 1}, True, True),
    ],
)
def test_one_unfinished_write_of_each_killed_run_is_taken_over_in_silence(
    lines: Lines, exchanges: dict[str, int], ends: bool, is_older: bool
) -> None:
    for run, count in exchanges.items():
        for number in range(count):
            lines.exchange(f"http://{run}.test/{number}", 503, run, wait=3600.0)
    if ends:
        lines.write("ended")
    store, line = recovered(lines)
    assert (line is not None) == is_older
    for run, count in exchanges.items():
        record = store.get(HostRecord, f"{run}.test")
        assert (record is not None and record.not_before == NOW + 3600) == bool(count)


def test_a_state_that_is_newer_than_its_ledger_is_no_rollback(lines: Lines) -> None:
    lines.old()
    store = SqliteStore(lines.directory)
    store.know(10_000)  # somebody has deleted the ledger, and it has begun anew
    store.close()
    store, line = recovered(lines)
    assert line is None
    assert store.follow(lambda: 0) == lines.ledger.number


# -- lifted holds -------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True], ids=["in the ledger", "in the state"])
@pytest.mark.parametrize("again", [False, True], ids=["lifted", "held again"])
def test_d40_a_lifted_hold_stays_lifted_until_the_host_asks_again(
    lines: Lines, stored: bool, again: bool
) -> None:
    late = "http://a.test/late"
    if stored:
        with_hold = SqliteStore(lines.directory)
        with_hold.put(HostRecord("a.test", NOW - 60, 1.0, NOW + DAY))
        with_hold.put(Deferral(late, "a.test", NOW + DAY, "Retry-After"))
        with_hold.put(Deferral("http://b.test/late", "b.test", NOW + DAY, "Retry-After"))
        with_hold.know(lines.ledger.number)
        with_hold.close()
    else:
        lines.exchange(URL, 429, wait=DAY)
        lines.write("deferred", host="a.test", url=late, due=NOW + DAY, reason="Retry-After")
    lines.old()
    lines.write("lifted", "", host="a.test", reason="a mistake")
    if again:
        lines.exchange("http://a.test/q", 429, "later", wait=DAY / 2)
        due = {"due": NOW + DAY / 2, "reason": "Retry-After"}
        lines.write("deferred", "later", host="a.test", url=late, **due)
    store, line = recovered(lines)
    assert line is not None
    record, deferral = store.get(HostRecord, "a.test"), store.get(Deferral, late)
    assert record is not None
    assert record.not_before == (NOW + DAY / 2 if again else None)
    assert (deferral is not None) == again
    assert (store.get(Deferral, "http://b.test/late") is not None) == stored


# -- documents ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kept", "outcome", "fetched_at"),
    [
        (b"User-agent: *\nDisallow: /\n", True, "parse", NOW),
        (None, True, "no rules", NOW),
        (b"User-agent: *\nDisallow: /\n", False, "lost", 0.0),
    ],
)
def test_r2_an_adopted_robots_txt(
    lines: Lines, body: bytes | None, kept: bool, outcome: str, fetched_at: float
) -> None:
    before = SqliteStore(lines.directory)
    url = "http://a.test/robots.txt"
    older = StoredDocument(ROBOTS, "http://a.test", url, b"", NOW - DAY, 200, "parse")
    before.put(older)
    before.know(lines.ledger.number)
    before.close()
    lines.adopt("R2", url, body, kept=kept)
    lines.old()
    store, _ = recovered(lines)
    record = store.get(StoredDocument, ROBOTS, "http://a.test")
    assert record is not None
    assert (record.outcome, record.fetched_at) == (outcome, fetched_at)
    assert record.body == (body or b"" if kept else b"")


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("older", [True, False])
def test_r3_d14_an_adopted_list(lines: Lines, kept: bool, older: bool) -> None:
    if older:
        before = SqliteStore(lines.directory)
        before.hold_list(
            StoredDocument(
                BLOCKLIST, LIST, LIST, b"{}", NOW - DAY, 200, "held", tokens="examplebot"
            )
        )
        before.know(lines.ledger.number)
        before.close()
    lines.adopt("R3", LIST, b'{"newer": 1}', kept=kept)
    lines.old()
    store, _ = recovered(lines)
    for _ in range(2):  # this run, and the next one
        (binding,) = store.binding_lists(LIST, "examplebot", NOW)
        assert binding.body == (b'{"newer": 1}' if kept else b""), "no older list is in force"
        assert binding.fetched_at == NOW
        store.close()
        store = SqliteStore(lines.directory)


# -- lines that are gone ------------------------------------------------------------------


@pytest.mark.parametrize("way", ["rotated away", "not readable", "never written", "all there"])
def test_r4_lines_that_are_gone_make_each_host_wait(tmp_path: Path, way: str) -> None:
    lines = Lines(tmp_path, keep_octets=1 << 16)  # a file has 4 KiB, and 16 are kept
    lines.write("started")
    lines.old()
    if way == "rotated away":
        for number in range(400):
            lines.exchange(f"http://host{number}.test/p")
    elif way == "never written":
        lines.ledger._missing = 3
    lines.exchange(URL, 429, wait=DAY)
    lines.ledger.close()
    if way == "not readable":
        path = tmp_path / "ledger.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"host":"x.test"', b'"host":[1]', 1))
    store, line = recovered(lines)
    assert line is not None
    assert ("each host counts as just requested" in line) == (way != "all there")
    assert store.rows_lost == (way != "all there")
    record = store.get(HostRecord, "a.test")
    assert record is not None, "what is there is read nevertheless"
    assert record.not_before == NOW + DAY


def test_r8_a_visit_is_that_of_the_last_answer(lines: Lines) -> None:
    lines.exchange(URL, 200)
    lines.exchange("http://b.test/p", 503)
    lines.old()
    store, _ = recovered(lines)
    answered, failed = (store.get(VisitRecord, url) for url in (URL, "http://b.test/p"))
    assert answered is not None
    assert failed is not None
    assert (answered.last_run_at, answered.failures) == (NOW - 1, 0)
    assert (failed.last_run_at, failed.gave_up_at, failed.failures) == (0.0, NOW - 1, 1)


@pytest.mark.parametrize("dead", [True, False])
def test_r8_the_source_of_a_dead_host_has_failed(lines: Lines, dead: bool) -> None:
    silent = {"host": "a.test", "requests": 2, "dead": dead}
    lines.write("declared", url=URL)
    due = {"due": NOW, "reason": "a.test did not answer"}
    lines.write("deferred", host="a.test", url=URL, requirement="R5", unanswered=silent, **due)
    lines.old()
    store, _ = recovered(lines)
    visit = store.get(VisitRecord, URL)
    assert (visit is not None) == dead
    if visit is not None:
        assert (visit.gave_up_at, visit.failures) == (NOW, 1)
