"""A report judges the lines that it is about, and says so; ``verify`` judges the whole ledger."""

from __future__ import annotations

import json
import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands.common import read_blocklist
from scrapy_walsh.commands.main import main
from scrapy_walsh.ledger import files
from scrapy_walsh.ledger.files import DOCUMENTS, FILE, Bodies, Documents
from scrapy_walsh.proof import ledger
from scrapy_walsh.proof.ledger import OfHosts, files_of, lines_in, lines_with
from scrapy_walsh.proof.report.history import DAY, History
from scrapy_walsh.proof.report.owner import Extract
from scrapy_walsh.proof.report.runs import excerpt, runs_of, since
from scrapy_walsh.proof.report.tally import Tally
from scrapy_walsh.proof.verify import Report, verify
from tests.kit import (
    LIST,
    ROBOTS,
    Forge,
    H,
    Read,
    T,
    digest,
    header,
    honest,
    lines_of,
    told,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.report.conftest import World

TODAY = time.time() // DAY * DAY - T


def a_run(forge: Forge, name: str, at: float, *hosts: str) -> None:
    """A run with a target of each of *hosts*, and the 304 of a later run."""
    started = forge.start(at, name, f"p-{name}")
    forge.declare(at + 0.1, *(f"http://{host}/a" for host in hosts))
    forge.operator_list(at + 1)
    for number, host in enumerate(hosts):
        start = at + 2 + 3 * number
        url = f"http://{host}/robots.txt"
        known = {"host": host, "requirement": "R2", "reason": "", "status": 200, "group": ["*"]}
        forge.ask(start, url, 200, "robots", exempt=forge.number(started) == 2)
        forge.add(start + 0.02, "adopted", url=url, digest=digest(ROBOTS), **known)
        status = 304 if at >= TODAY else 200
        rule = {"document": url, "rule": "Allow: /", "line": 3, "verdict": "allowed_explicit"}
        forge.ask(start + 2.1, f"http://{host}/a", status, interval=2.0, octets=100)
        kind = "not_modified" if status == 304 else "fetched"
        forge.add(start + 2.12, kind, url=f"http://{host}/a", digest=digest(ROBOTS),
                  **{**known, **rule, "status": status})  # fmt: skip
    forge.add(at + 90, "ended", reason="finished")


def days(*hosts: str, before: int = 3) -> Forge:
    """Daily runs over *hosts*, the last of them today (UTC)."""
    forge = Forge()
    forge.entries[0]["at"] = T + TODAY - before * DAY
    for number in range(before, -1, -1):
        a_run(forge, f"run{number}", TODAY - number * DAY + 10, *hosts)
    return forge


def kept(forge: Forge, folder: Path) -> Path:
    write(folder, forge.entries)
    documents = Documents(folder / DOCUMENTS)
    for body in (LIST, ROBOTS):
        documents.put("any", body, digest(body), 1)
    return folder


def spoil(folder: Path, number: int, old: bytes, new: bytes) -> None:
    """Alter line *number* without its hash."""
    lines = (folder / FILE).read_bytes().splitlines(keepends=True)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    (folder / FILE).write_bytes(b"".join(lines))


def page_of(folder: Path, *options: str) -> tuple[int, str]:
    code = main(["report", str(folder), "-o", str(folder / "page.html"), *options])
    return code, " ".join(Read((folder / "page.html").read_text()).text.split())


# -- a day --------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [("--days", "1"), ()])
def test_a_day_is_judged_from_its_first_run_on(tmp_path: Path, option: tuple[str, ...]):
    folder = kept(days("h.test", "g.test"), tmp_path)
    assert main(["verify", str(folder)]) == 0
    code, text = page_of(folder, *option)
    assert (code, "lines before 44 are not judged here: walsh verify judges all" in text) == (
        0,
        True,
    )
    assert "walsh verify judges the whole ledger." in text
    assert "not judged: 2 answers whose bodies came before these lines" in text
    spoil(folder, 5, b'"kind"', b'"Kind"')
    assert main(["verify", str(folder)]) == 1
    assert page_of(folder, *option) == (code, text), "its exit code is of what it judged"
    assert page_of(folder, "--run", "all")[0] == page_of(folder, "--days", "30")[0] == 1
    spoil(folder, 50, b'"kind"', b'"Kind"')
    assert page_of(folder, *option)[0] == 1


def test_a_day_says_the_same_as_if_all_were_judged_but_for_what_needs_earlier_lines(
    tmp_path: Path,
):
    whole = days("h.test", "g.test")
    entries = whole.entries
    for name, place in (("one", None), ("two", 20), ("three", 46)):  # where a file was full
        folder = kept(whole, tmp_path / name)
        if place is not None:
            lines = [
                b"%s\n" % line for line in lines_of(*entries[:place], header(2), *entries[place:])
            ]
            (folder / "ledger-000001.jsonl").write_bytes(b"".join(lines[:place]))
            (folder / FILE).write_bytes(b"".join(lines[place:]))
            (folder / "ledger.head").unlink()
        parts = files_of(folder)
        runs = runs_of(parts.parts)
        assert list(runs) == ["run3", "run2", "run1", "run0"]
        shown = since(runs, T + TODAY)
        history = [History.until(T + TODAY, 1) for _ in range(2)]
        tallies = [Tally(shown, 3, each) for each in history]
        reports = [
            verify(part, [], read_blocklist, tally.take)
            for part, tally in zip((parts, excerpt(parts, runs, shown)), tallies, strict=True)
        ]
        assert [told(report) for report in reports] == [[], []]
        assert [report.excerpt for report in reports] == [False, True]
        assert reports[1].lines < reports[0].lines
        assert tallies[0].kinds == tallies[1].kinds
        for host in (*tallies[0].hosts, *tallies[1].hosts):
            host.shortest = None  # the first pause is since an earlier run
        assert tallies[0].hosts == tallies[1].hosts
        assert (tallies[0].unsaved, tallies[1].unsaved) == (0, 2)
        assert (tallies[0].saved, tallies[1].saved) == (200, 0)


def test_the_first_run_of_a_ledger_needs_nothing_earlier(tmp_path: Path):
    folder = kept(days("h.test", before=0), tmp_path)
    code, text = page_of(folder, "--days", "1")
    assert (code, "finds in the whole ledger, 1 run and 3 requests" in text) == (0, True)


# -- a host -------------------------------------------------------------------------------


def of_host(folder: Path, host: str, *, whole: bool = False) -> tuple[Extract, Report]:
    parts = files_of(folder)
    found = Extract(host, 0.0, runs_of(parts.parts))
    names = {host, found.twin, "operator.test"}
    wanted = None if whole else OfHosts(parts.parts, names)
    return found, verify(parts, [], read_blocklist, found.take, wanted)


def test_r4_another_hosts_fault_is_not_on_a_hosts_page_but_a_broken_chain_is(tmp_path: Path):
    forge = days("h.test", "g.test")
    forge.only("asked", "http://g.test/a", 1)["started"] -= 1.0
    folder = kept(forge, tmp_path)
    assert main(["verify", str(folder)]) == 1
    assert page_of(folder, "--host", "g.test")[0] == 1
    code, text = page_of(folder, "--host", "h.test")
    assert (code, "✗" in text) == (0, False)
    assert "checked the whole chain (57 lines), and worked out again each decision" in text
    spoil(folder, forge.number(forge.only("fetched", "http://g.test/a")), b"g.test", b"x.test")
    assert page_of(folder, "--host", "h.test")[0] == 1


def assert_same(found: Extract, whole: Extract) -> None:
    """All of it but its notes of other hosts."""
    for each in fields(Extract):
        if each.name != "_reach":
            assert getattr(found, each.name) == getattr(whole, each.name), each.name


def leads() -> dict[str, Forge]:
    """Ledgers in which a decision about a host rests on lines of another host."""
    made = {"honest": honest()}
    redirected = days("h.test", "g.test", before=0)
    end = redirected.entries.pop()
    at = TODAY + 60
    redirected.ask(at, "http://g.test/a", 302, again=True, interval=2.0)
    redirected.add(at + 0.02, "declared", url=f"{H}/b", via="http://g.test/a")
    redirected.get(at + 1.0, f"{H}/b")
    redirected.entries.append(end)
    made["redirect"] = redirected
    spelled = days("h.test", before=0)
    end = spelled.entries.pop()
    spelled.declare(at, "http://H.test:80/b", "http://u@h.test/c")
    url = "http://H.test:80/private/b"
    refusal = {"requirement": "R6", "verdict": "out_of_scope", "reason": "", "host": "h.test"}
    spelled.add(at + 1, "refused", url=url, **refusal)
    spelled.entries.append(end)
    made["spelled"] = spelled
    return made


LEADS = leads()


@pytest.mark.parametrize("name", LEADS)
def test_a_hosts_page_is_the_same_as_if_all_were_judged(tmp_path: Path, name: str):
    folder = kept(LEADS[name], tmp_path)
    for host in ("h.test", "g.test", "www.blocked.test"):
        whole, of_all = of_host(folder, host, whole=True)
        found, of_some = of_host(folder, host)
        assert_same(found, whole)
        broken = [each for each in of_all.findings if each.line in whole.lines]
        assert [each for each in of_some.findings if each.line in found.lines] == broken
        assert (of_some.head, of_some.lines) == (of_all.head, of_all.lines)


@pytest.mark.crawl
def test_a_hosts_page_of_a_real_crawl_is_the_same_as_if_all_were_judged(world: World):
    judged = []
    for host in ("path.test", "flaky.test", "delay.test", "www.blocked.test", "broken.test"):
        whole, of_all = of_host(world.ledger.parent, host, whole=True)
        found, of_some = of_host(world.ledger.parent, host)
        assert_same(found, whole)
        assert {each.rule for each in of_some.findings} <= {each.rule for each in of_all.findings}
        judged.append(of_some.requests < of_all.requests)
    assert all(judged)


MEMBERS = {"via": "http://b.test/x", "robots_of": "http://b.test", "hop": "http://b.test/r",
           "robots_host": "b.test"}  # fmt: skip


@pytest.mark.parametrize("member", MEMBERS)
def test_each_member_that_leads_to_a_host_takes_its_lines_along(tmp_path: Path, member: str):
    """Also over several hosts, and from either side."""
    entries: list[dict[str, Any]] = [
        {"at": T, "kind": "x", "url": "http://a.test/1", member: MEMBERS[member]},
        {"at": T, "kind": "x", "url": "http://c.test/1", "via": "http://b.test/2"},
        {"at": T, "kind": "x", "url": "http://d.test/1", "reason": '"via":"http://a.test/'},
        {"at": T, "kind": "x", "url": "http:\\\\a.test\\1"},
        {"at": T, "kind": "x", "url": "http://A.TEST:443/2"},
        {"at": T, "kind": "x"},
    ]
    path = tmp_path / FILE
    path.write_bytes(b"".join(b"%s\n" % line for line in lines_of(*entries)))
    for name in ("a.test", "b.test", "c.test"):
        wanted = OfHosts([path], [name])
        chosen = [wanted(raw) for _, raw in lines_in([path])]
        assert chosen[:3] == [True, True, False]
        assert chosen[4:] == [True, True]
    assert [OfHosts([path], ["d.test"])(raw) for _, raw in lines_in([path])][:3] == [
        False, False, True,
    ]  # fmt: skip


def test_each_fault_of_a_chain_is_found_in_lines_that_are_not_judged(tmp_path: Path):
    folder = kept(days("h.test", "g.test"), tmp_path)
    lines = (folder / FILE).read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if b'"url":"http://g.test/a"' in line)
    altered = lines[number].replace(b"g.test", b"x.test", 1)
    half = lines[number][:-40] + b"\n"
    for spoilt in (
        [*lines[:number], *lines[number + 1 :]],
        [*lines[:number], altered, *lines[number + 1 :]],
        [*lines[:number], half, *lines[number + 1 :]],
        [*lines[:number], lines[number], *lines[number:]],
        [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]],
        lines[:-1],
    ):
        (folder / FILE).write_bytes(b"".join(spoilt))
        assert not of_host(folder, "h.test")[1].holds


# -- what is read -------------------------------------------------------------------------


def test_lines_with_a_word_are_those_that_a_reader_of_all_lines_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whatever the size of a block is; each has its place in its file."""
    entries = days("h.test", "g.test").entries
    lines = [b"%s\n" % line for line in lines_of(*entries)]
    parts = [tmp_path / "1", tmp_path / "2", tmp_path / "3"]
    parts[0].write_bytes(b"".join(lines[:20]))
    parts[1].write_bytes(b"")
    parts[2].write_bytes(b"".join(lines[20:])[:-9])
    needles = b'"kind":"started"', b'"kind":"fetched"'
    expected = [raw for _, raw in lines_in(parts) if any(needle in raw for needle in needles)]
    for block in (1, 7, 500, 1 << 20):
        monkeypatch.setattr(ledger, "_BLOCK", block)
        found = list(lines_with(parts, *needles))
        assert [raw for _, _, raw in found] == expected
        for path, octets, raw in found:
            assert path.read_bytes()[octets:].startswith(raw)


def test_the_documents_are_opened_once_and_stay_open_to_a_crawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opened: list[object] = []
    connect = files.sqlite3.connect

    def counted(*given: Any, **named: Any) -> Any:
        opened.append(given)
        return connect(*given, **named)

    path = tmp_path / DOCUMENTS
    bodies = Bodies(path)
    assert bodies.get(digest(b"0")) is None
    documents = Documents(path)
    for number in range(5):
        documents.put("any", b"%d" % number, digest(b"%d" % number), 1)
    monkeypatch.setattr(files.sqlite3, "connect", counted)
    assert [bodies.get(digest(b"%d" % number)) for number in range(5)] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]
    assert len(opened) == 1
    documents.put("any", b"new", digest(b"new"), 1)  # a reader locks nothing
    assert bodies.get(digest(b"new")) == b"new"
    assert (bodies.get("\u00e9"), bodies.altered, bodies.fault) == (None, set(), None)
    bodies.close()


def test_a_page_about_a_host_names_the_time_that_the_ledger_covers(tmp_path: Path):
    forge = days("h.test", "g.test")
    forge.entries.pop()  # the run goes on, and its last line is of another host
    found, _ = of_host(kept(forge, tmp_path), "h.test")
    assert found.covers == (forge.entries[2]["at"], forge.entries[-1]["at"])
    assert json.dumps(forge.entries[-1]).count("g.test")
