"""What the report makes of a ledger's lines: gaps, holds, overlaps, the chain, runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scrapy_walsh.policy.recrawl import Visit, not_due
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.report.findings import findings
from scrapy_walsh.proof.report.lanes import ALL, COLUMNS, DRAWN, EXACT, NoRun, Report
from scrapy_walsh.proof.report.tally import EXEMPT, KEPT, SHORT, UNCLEAR
from tests.ledger.verify_kit import ONE, SHOWN, T, asked, began, decided, ended, lines_of, robots
from tests.report.kit import SAID, report_of

YES, NO, UNSEEN = SAID[Outcome.HELD], SAID[Outcome.BROKEN], SAID[Outcome.UNSEEN]
GAP = {"at": T, "run": "r1", "kind": "gap", "reason": "2 lines could not be written", "lost": 2}


def made(*entries: dict[str, object], wanted: str = "last") -> Report:
    return report_of(lines_of(began(), *entries, ended()), wanted)


def say(report: Report, words: str) -> str:
    return next(SAID[each.outcome] for each in findings(report) if words in each.about)


def verdicts(report: Report) -> dict[str, int]:
    return {name: count for name, count in report.hosts[0].gaps.items() if count}


# -- spacing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((asked(0), asked(1.01)), {KEPT: 1}),
        ((asked(0), asked(1.0)), {SHORT: 1}),  # a second from its start, 0.99 from its end
        ((asked(0), asked(1.5, interval=2.0)), {SHORT: 1}),
        ((asked(0), asked(2.01, interval=2.0)), {KEPT: 1}),
        ((asked(0, interval=0.1), asked(0.5, interval=0.1)), {SHORT: 1}),  # the floor is R4's
        ((robots(0), asked(0.02)), {EXEMPT: 1}),
        ((robots(0), robots(0.02, exempt=False)), {SHORT: 1}),
        ((robots(0), asked(0.02), asked(0.04)), {EXEMPT: 1, SHORT: 1}),
        ((asked(0, exempt=True), asked(0.02)), {SHORT: 1}),  # only a robots.txt is exempt
        ((asked(0, wait=5.0), asked(2.0)), {SHORT: 1}),
        ((asked(0, wait=5.0), asked(5.02)), {KEPT: 1}),
        ((asked(0, wait=9.0), asked(1.2, wait=1.0), asked(2.5)), {SHORT: 2}),  # a hold stays
        ((robots(0, wait=3.0), asked(0.02)), {SHORT: 1}),
        ((asked(0), asked(0.5, host="other.test")), {}),
        ((asked(0), GAP, asked(2.0)), {UNCLEAR: 1}),
        ((asked(0), GAP, asked(0.5)), {SHORT: 1}),
    ],
)
def test_r4_gaps_of_a_host(entries: tuple[dict[str, object], ...], expected: dict[str, int]):
    report = made(*entries)
    found = next(host for host in report.hosts if host.name == ONE)
    assert {name: count for name, count in found.gaps.items() if count} == expected


def test_r4_paced_robots_are_not_exempt():
    settings = {"min_interval": 1.0, "pace_robots": True}
    for start, verdict in ((0.5, SHORT), (1.02, KEPT)):
        lines = lines_of(began(settings=settings), robots(0), asked(start, interval=30.0), ended())
        assert verdicts(report_of(lines)) == {verdict: 1}


def test_r4_a_gap_between_two_runs_counts_for_the_later():
    lines = lines_of(
        began(), asked(0), ended(at=0.2), began("r2", 0.3), asked(0.5, run="r2"), ended("r2", 1.0)
    )
    assert verdicts(report_of(lines)) == {SHORT: 1}
    assert verdicts(report_of(lines, "r1")) == {}
    assert verdicts(report_of(lines, ALL)) == {SHORT: 1}


def test_r4_the_one_target_of_a_slow_host_went_ahead_as_it_may():
    """D11: after a robots.txt, on a host that had rested for its Crawl-delay, if the run visits."""
    slow: dict[str, Any] = {"interval": 600.0}
    visit = [robots(0, exempt=False, **slow), asked(1.02, visit=True, **slow), ended(at=2)]
    for way, verdict in (("visit", KEPT), ("skip", SHORT)):
        settings = {**SHOWN, "patience": 300.0, "slow_hosts": way}
        assert verdicts(report_of(lines_of(began(settings=settings), *visit))) == {verdict: 1}


def test_r4_between_processes_a_gap_counts_from_start_to_start():
    """The one that took long had not ended when the other process booked its request."""
    lines = lines_of(
        began(), began("r2"), asked(0, 3.0), asked(2.0, run="r2"), ended(at=9), ended("r2", 9.0)
    )
    assert verdicts(report_of(lines, ALL)) == {KEPT: 1}


def test_own_a_clock_set_back_between_two_runs_is_not_judged():
    lines = lines_of(
        began(), asked(50), ended(at=51), began("r2"), asked(0.5, run="r2"), ended("r2", 1.0)
    )
    assert verdicts(report_of(lines)) == {UNCLEAR: 1}


def test_r4_requests_of_one_process_never_overlap():
    lines = [asked(0, 2.0), asked(1.0, 3.0, host="other.test")]
    report = made(*lines)
    assert report.overlaps == 1
    assert say(report, "One request at a time") == NO
    other = {**lines[1], "run": "r2"}
    apart = report_of(lines_of(began(), began("r2"), lines[0], other, ended()), ALL)
    assert apart.overlaps == 0


def test_r5_a_hold_is_kept_broken_or_not_followed():
    words = "After 429"
    trouble = asked(0, status=429, wait=3.0)
    assert say(made(asked(0)), words) == UNSEEN
    assert say(made(trouble), words) == UNSEEN
    assert say(made(trouble, asked(3.2)), words) == YES
    assert say(made(trouble, asked(1.2)), words) == NO


def test_own_nothing_seen_is_never_said_to_hold():
    report = made()
    assert {SAID[found.outcome] for found in findings(report)} == {UNSEEN}
    assert {SAID[found.outcome] for found in findings(made(robots(0), asked(0.1)))} == {
        UNSEEN,
        YES,
    }
    assert say(made(robots(0), asked(0.1)), "left alone as long") == UNSEEN


def test_own_the_closest_gap_is_that_nearest_to_what_was_required():
    host = made(asked(0), asked(1.51), asked(11.52, interval=9.0), asked(13.0)).hosts[0]
    assert host.closest is not None
    assert (host.closest.line, host.closest.required) == (4, 9.0)
    assert host.closest.ratio == pytest.approx(10.0 / 9.0)


# -- the chain ----------------------------------------------------------------------------

CHAINED = lines_of(began(), asked(0), asked(2), asked(4), ended(at=5))


def chain_of(lines: list[bytes]) -> tuple[int, list[tuple[int | None, str]]]:
    report = report_of(lines)
    return report.broken, [(found.line, found.text) for found in report.breaks]


def test_own_a_whole_chain_holds_and_says_where_it_ends():
    report = report_of(CHAINED)
    assert (report.broken, report.chain.first) == (0, 1)
    assert report.chain.head == (5, re.findall(rb'"hash":"(\w+)"', CHAINED[-1])[0].decode())


def test_own_an_altered_octet_is_named_by_its_line():
    lines = list(CHAINED)
    lines[2] = lines[2].replace(b'"status":200', b'"status":201')
    assert chain_of(lines) == (1, [(3, "was altered: its hash is of other octets")])
    assert say(report_of(lines), "chained") == NO


def test_own_a_dropped_and_a_moved_line_are_named():
    broken, found = chain_of([*CHAINED[:2], *CHAINED[3:]])
    assert broken == 1
    assert found[0][0] == 4
    broken, found = chain_of([CHAINED[0], CHAINED[2], CHAINED[1], *CHAINED[3:]])
    assert broken == 2
    assert [line for line, _ in found] == [3, 2]


def test_own_a_line_that_is_none_is_named_by_its_place():
    report = report_of([*CHAINED[:2], b"not a line", *CHAINED[2:]])
    assert report.broken == 1
    assert report.breaks[0].line == 3


def test_own_gaps_over_a_break_are_not_said_to_be_kept():
    report = report_of([*CHAINED[:2], *CHAINED[3:]])
    assert verdicts(report) == {UNCLEAR: 1}


def test_own_a_ledger_that_begins_later_is_not_broken():
    report = report_of(lines_of(began(), asked(0), ended(), first=70, previous="ab" * 32))
    assert report.broken == 0
    assert report.chain.first == 70


@pytest.mark.parametrize(
    ("said", "expected"),
    [(None, UNSEEN), ((5, "0" * 64), NO), ((9, "0" * 64), NO)],
)
def test_own_the_end_of_the_ledger_is_what_its_head_says(
    said: tuple[int, str] | None, expected: str
):
    report = report_of(CHAINED, said=said)
    assert say(report, "chained") == expected
    assert say(report_of(CHAINED, said=report.chain.head), "chained") == YES


# -- runs, rules --------------------------------------------------------------------------


def test_own_the_last_run_that_has_ended_is_taken():
    lines = lines_of(began(), ended(), began("r2"), ended("r2"), began("r3"))
    assert [run.name for run in report_of(lines).runs] == ["r2"]
    assert [run.name for run in report_of(lines, "r3").runs] == ["r3"]
    assert [run.name for run in report_of(lines, ALL).runs] == ["r1", "r2", "r3"]
    assert [run.name for run in report_of(lines_of(began("r9"))).runs] == ["r9"]
    with pytest.raises(NoRun, match="no run 'nope'"):
        report_of(lines, "nope")
    with pytest.raises(NoRun):
        report_of([], ALL)


def test_own_rules_are_counted_with_their_line_and_document():
    rule = {
        "requirement": "R2", "verdict": "disallowed_explicit", "rule": "Disallow: /p",
        "document": "http://h.test/robots.txt", "line": 7, "group": ["*"],
    }  # fmt: skip
    report = made(*(decided("refused", at, **rule) for at in (1.0, 2.0, 3.0, 4.0)))
    (found,) = report.rules
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
        "/gone": Visit(now - day, now - day, gone=True),
        "/down": Visit(0.0, 0.0, gave_up_at=now - 60), "/busy": Visit(0.0, 0.0, gave_up_at=now - 9),
    }  # fmt: skip
    refusals = {path: not_due(visit, now, day, None) for path, visit in visits.items()}
    report = made(
        *(
            decided("refused", url=f"http://h.test{path}", requirement="R8", verdict=each.name,
                    reason=each.reason)
            for path, each in refusals.items() if each is not None
        )
    )  # fmt: skip
    rows = {tuple(url[13:] for url, _ in rule.examples) for rule in report.rules}
    assert rows == {("/a", "/b"), ("/gone",), ("/down", "/busy")}


def test_own_members_of_another_type_do_not_stop_it():
    odd = {"started": "soon", "ended": None, "status": "x", "group": 7, "line": [], "wait": {}}
    report = made(
        asked(0), {**asked(2), **odd}, {**asked(4), "host": 3}, decided("refused", group="x"),
        {**asked(6), "started": 1e300}, {**began("r2"), "settings": 3, "at": 5},
        {"kind": "asked", "at": "x", "run": 5},
    )  # fmt: skip
    assert report.unread == 4
    assert report.purposes == {"target": 1}


# -- what is drawn ------------------------------------------------------------------------


def test_own_the_marks_of_a_busy_host_stand_for_others_and_hide_no_breach():
    many = [asked(at * 1.2) for at in range(EXACT + 10)]
    early = asked(many[-1]["started"] - T + 0.5, wait=2.0)
    (lane,) = made(*many, early).lanes
    assert len(lane.marks) <= COLUMNS + 1
    assert sum(mark.more + 1 for mark in lane.marks) == EXACT + 11
    (broken,) = (mark for mark in lane.marks if mark.short)
    assert broken.trouble
    assert not broken.more


def test_own_a_run_of_any_name_and_purpose_is_drawn():
    name = 'r"1\\\u202e'
    lines = lines_of(began(name), asked(0, run=name, purpose="other"), ended(name))
    report = report_of(lines, name)
    assert [mark.kind for lane in report.lanes for mark in lane.marks] == ["target"]


def test_own_hosts_asked_too_early_are_drawn_before_busy_ones():
    busy = [
        asked(at * 40 + 0.2 * n, host=f"busy{n}.test") for at in range(3) for n in range(DRAWN + 9)
    ]
    early = [asked(200), asked(200.5)]
    report = made(*busy, *early)
    assert len(report.lanes) == DRAWN
    assert report.lanes[0].host.name == ONE
    assert len(report.hosts) == DRAWN + 10
