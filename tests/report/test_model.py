"""What the report makes of a ledger's lines: hosts, runs, rules."""

from __future__ import annotations

import pytest

from scrapy_walsh.policy.visits import Visit, not_due
from scrapy_walsh.proof.report.runs import ALL, NoRun
from tests.kit import ONE, Shown, T, asked, began, decided, ended, lines_of, robots, tally_of


def made(*entries: dict[str, object], wanted: str = "last") -> Shown:
    return tally_of(lines_of(began(), *entries, ended()), wanted)


# -- hosts --------------------------------------------------------------------------------


def test_r4_a_host_has_its_shortest_pause_beside_the_one_that_is_required():
    busy = [asked(at * 40, host="busy.test", interval=30.0) for at in range(4)]
    hosts = made(robots(0), asked(0.02), asked(1.04), asked(9), *busy).report.hosts
    assert [(host.name, host.requests, host.interval) for host in hosts] == [
        ("busy.test", 4, 30.0), (ONE, 4, 1.0),
    ]  # fmt: skip
    assert hosts[1].shortest == pytest.approx(1.01)  # not that which T1 exempts
    assert hosts[0].shortest == pytest.approx(39.99)
    (host,) = made(robots(0)).report.hosts
    assert host.shortest is None


def test_a_host_has_its_answers():
    lines = asked(0), asked(2, status=404), asked(4, status=None), asked(6), asked(8, status=299)
    (host,) = made(*lines).report.hosts
    assert host.answers == {"200 OK": 2, "404 Not Found": 1, "no answer": 1, "299": 1}


# -- runs, rules --------------------------------------------------------------------------


def test_the_last_run_that_has_ended_is_taken():
    lines = lines_of(began(), ended(), began("r2"), ended("r2"), began("r3"))
    assert [run.name for run in tally_of(lines).report.runs] == ["r2"]
    assert [run.name for run in tally_of(lines, "r3").report.runs] == ["r3"]
    assert [run.name for run in tally_of(lines, ALL).report.runs] == ["r1", "r2", "r3"]
    assert [run.name for run in tally_of(lines_of(began("r9"))).report.runs] == ["r9"]
    with pytest.raises(NoRun, match="no run 'nope'"):
        tally_of(lines, "nope")
    with pytest.raises(NoRun, match="no run 'last' begins in this ledger"):
        tally_of([])


def test_what_another_run_did_is_not_counted():
    lines = lines_of(
        began(), asked(0), ended(at=2), began("r2", 3), asked(4, run="r2"), ended("r2")
    )
    assert tally_of(lines).report.purposes == {"target": 1}
    assert tally_of(lines).report.others == 1
    assert tally_of(lines, ALL).report.purposes == {"target": 2}


def test_rules_are_counted_with_their_line_and_document():
    rule = {
        "requirement": "R2", "verdict": "disallowed_explicit", "rule": "Disallow: /p",
        "document": "http://h.test/robots.txt", "line": 7, "group": ["*"],
    }  # fmt: skip
    report = made(*(decided("refused", at, **rule) for at in (1.0, 2.0, 3.0, 4.0)))
    (found,) = report.report.rules
    assert (found.count, found.of.rule, found.of.line, found.of.group) == (
        4,
        "Disallow: /p",
        7,
        ("*",),
    )
    assert [line for _, line in found.examples] == [2, 3, 4]


def test_r8_what_was_given_up_and_what_is_gone_have_rows_of_their_own():
    """D35: beside the sources that were requested within the day."""
    now, day = T, 86_400.0
    visits = {
        "/a": Visit(now - 99, now - 99), "/b": Visit(now - 50, now - 50),
        "/gone": Visit(now - day, now - day, 410),
        "/down": Visit(0.0, 0.0, gave_up_at=now - 60), "/busy": Visit(0.0, 0.0, gave_up_at=now - 9),
    }  # fmt: skip
    refusals = {path: not_due(visit, now, day, None) for path, visit in visits.items()}
    report = made(
        *(
            decided("refused", url=f"http://h.test{path}", requirement="R8", verdict=each.name,
                    reason=each.reason, cause=each.cause)
            for path, each in refusals.items() if each is not None
        )
    )  # fmt: skip
    rows = {tuple(url[13:] for url, _ in rule.examples) for rule in report.report.rules}
    assert rows == {("/a", "/b"), ("/gone",), ("/down", "/busy")}


def test_members_of_another_type_do_not_stop_it():
    odd = {"started": "soon", "ended": None, "status": "x", "group": 7, "line": [], "wait": {}}
    report, found = made(
        asked(0), {**asked(2), **odd}, {**asked(4), "host": 3}, decided("refused", group="x"),
        {**asked(6), "started": 1e300}, {**began("r2"), "settings": 3, "at": 5},
        {"kind": "asked", "at": "x", "run": 5},
    )  # fmt: skip
    assert report.purposes == {"target": 1}
    assert len(found.findings) > 5
