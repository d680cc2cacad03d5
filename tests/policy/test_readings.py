"""Which sources an operator must hear of, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy import readings, summary, visits
from scrapy_walsh.policy.event import Event
from scrapy_walsh.policy.readings import (
    FAILED,
    LEFT_OUT,
    NO_CAUSE,
    NOT_REQUESTED,
    READ,
    REFUSED,
    Cause,
    Reading,
    Result,
    cause_of,
    is_unread,
    replaces,
    updated,
)
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.verdict import DEFERRED, NOT_DUE, Unanswered, Verdict
from scrapy_walsh.policy.visits import Due, Visit
from scrapy_walsh.proof.report.sources import sources_of
from scrapy_walsh.state.records import VisitRecord
from scrapy_walsh.state.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 86400.0
BEGIN = 1772323200.0  # 2026-03-01
URL = "https://x.test/feed"
READ_OR, PERSON = (
    "sources read or unchanged",
    "a person: warnings name each once a week, `scrapy walsh state show` always",
)


def days(*outcomes: str) -> Reading:
    """The record after one run a day, of these outcomes."""
    reading: Reading | None = None
    for day, outcome in enumerate(outcomes):
        now = BEGIN + day * DAY
        reading = updated(reading, URL, Result(outcome, f"why on day {day}", now), now)
    assert reading is not None
    return reading


@pytest.mark.parametrize("outcome", [REFUSED, DEFERRED, LEFT_OUT, FAILED])
def test_what_was_not_read_for_three_periods_is_named(outcome: str) -> None:
    runs = (READ, outcome, outcome, outcome)
    named = [is_unread(days(*runs[: day + 1]), BEGIN + day * DAY, DAY) for day in range(4)]
    assert named == [False, False, False, True]


def test_what_was_never_read_is_named_three_periods_after_it_was_declared() -> None:
    named = [is_unread(days(*[FAILED] * (day + 1)), BEGIN + day * DAY, DAY) for day in range(4)]
    assert named == [False, False, False, True]


@pytest.mark.parametrize(("early", "named"), [(0.1, True), (0.11, False)])
def test_the_third_period_ends_as_early_as_a_run_may_be(early: float, named: bool) -> None:
    now = BEGIN + (3 - early) * DAY
    assert is_unread(days(READ), now + 1e-3, DAY) is named


def test_a_period_is_an_hour_at_least() -> None:
    assert not is_unread(days(READ), BEGIN + 2.8 * 3600, 1.0)
    assert is_unread(days(READ), BEGIN + 3 * 3600, 1.0)


@pytest.mark.parametrize("outcome", [NOT_DUE, NOT_REQUESTED])
def test_a_run_that_learned_nothing_changes_nothing(outcome: str) -> None:
    before, after = days(READ, FAILED), days(READ, FAILED, outcome)
    assert (after.since, after.read, after.reason) == (before.since, 1, "why on day 1")
    assert (before.declared_at, after.declared_at) == (BEGIN + DAY, BEGIN + 2 * DAY)


def test_what_is_read_again_is_named_no_more() -> None:
    reading = days(READ, FAILED, FAILED, FAILED, READ)
    assert (reading.since, reading.reason) == (BEGIN + 4 * DAY, None)
    assert not is_unread(reading, BEGIN + 4 * DAY, DAY)


def test_a_record_from_the_future_counts_from_now() -> None:
    future = Reading(URL, BEGIN + 400 * DAY, BEGIN + 400 * DAY, 1)
    assert updated(future, URL, Result(FAILED, "dead", BEGIN), BEGIN) == Reading(
        URL, BEGIN, BEGIN, 1, "dead"
    )


def test_a_move_is_known_until_the_source_is_read_without_one() -> None:
    moved = updated(None, URL, Result(READ, at=BEGIN, moved_to="https://y.test/"), BEGIN)
    assert updated(moved, URL, Result(NOT_DUE), BEGIN).moved_to == "https://y.test/"
    assert updated(moved, URL, Result(FAILED, "dead"), BEGIN).moved_to == "https://y.test/"
    assert updated(moved, URL, Result(READ, at=BEGIN), BEGIN).moved_to is None
    left_out = Result(LEFT_OUT, "HTML", moved_to="https://y.test/")
    assert updated(None, URL, left_out, BEGIN).moved_to == "https://y.test/"


def test_within_a_run_what_was_read_stays_read_and_else_the_last_reason_holds() -> None:
    assert replaces(NOT_REQUESTED, FAILED)
    assert replaces(FAILED, REFUSED)
    assert replaces(FAILED, READ)
    assert not replaces(FAILED, NOT_DUE)
    assert not replaces(READ, FAILED)
    assert not replaces(READ, NOT_DUE)


def test_the_line_says_since_when_and_why() -> None:
    now = BEGIN + 12 * DAY
    never = Reading("https://n.test/", BEGIN, now, 0, "dead")
    cut_off = Reading("https://c.test/", BEGIN + 1.5 * DAY, now, 1)
    dead = Reading(URL, BEGIN + 1, now, 1, "HTTP 403")
    cut = "since then, each run ended before it got an answer"
    assert summary.attention_lines([cut_off, dead, never], now, DAY) == [
        "https://n.test/ has not been read since 2026-03-01: dead",
        "https://x.test/feed has not been read since 2026-03-01: HTTP 403",
        f"https://c.test/ has not been read since 2026-03-02: {cut}",
    ]


def test_a_source_with_a_cadence_of_its_own_is_missed_by_that() -> None:
    weekly = updated(None, URL, Result(FAILED, "dead", BEGIN, revisit=7 * DAY), BEGIN)
    assert not is_unread(weekly, BEGIN + 20 * DAY, DAY)
    assert is_unread(weekly, BEGIN + 20.5 * DAY, DAY)
    daily = updated(weekly, URL, Result(NOT_DUE), BEGIN + 7 * DAY)
    assert daily.revisit is None, "the list says so no more"


def test_a_source_that_was_retired_is_missed_by_that() -> None:
    visit = Visit(BEGIN, BEGIN, retired=410)
    reading = Reading(URL, BEGIN, BEGIN, 1, "dead")
    unread = [is_unread(reading, BEGIN + day * DAY, DAY, lambda _: visit) for day in (4, 86, 88)]
    assert unread == [False, False, True]


def test_a_new_cause_of_a_due_time_is_heard_by_all_that_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A source that was made due in 30 days was "not read" on day 4: the time was told twice."""
    causes = visits._causes

    def with_closed_door(last: Visit, now: float, revisit: float) -> Iterator[Due]:
        yield from causes(last, now, revisit)
        yield Due(last.sent_at + 30 * DAY, "closed", last.sent_at + 30 * DAY)

    monkeypatch.setattr(visits, "_causes", with_closed_door)
    visit = Visit(BEGIN, BEGIN)
    reading = Reading(URL, BEGIN - DAY, BEGIN, 1, "HTTP 402")
    due = BEGIN + 30 * DAY
    now = BEGIN + 4 * DAY
    assert visits.due(visit, now, DAY) == Due(due, "closed", due)
    assert visits.next_due(visit, 0.0, now, DAY) == due
    assert visits.not_due(visit, due - 1, DAY, None) is not None
    assert visits.not_due(visit, due, DAY, None) is None
    assert visits.met(due + 60, visit, DAY).counted_from == due
    assert is_unread(reading, now, DAY), "without its record the interval is all that is known"
    assert not is_unread(reading, now, DAY, lambda _: visit)
    assert summary.attention(reading, now, DAY, lambda _: visit) == ""
    event = Event("given_up", URL, "R5")
    assert not readings.is_known(reading, event, now, DAY, lambda _: visit)
    table = sources_of([reading], now, DAY, lambda _: visit)
    assert table is not None
    assert table.needs == 0
    store = MemoryStore()
    store.put(VisitRecord(URL, BEGIN, "402"))
    assert not is_unread(reading, now, DAY, store.visit_of)
    late = BEGIN + 90 * DAY
    assert is_unread(reading, late, DAY, store.visit_of)


def test_a_refusal_names_the_rule_its_document_and_line() -> None:
    robots = parse_robots(b"User-agent: *\n\nDisallow: /\n", "bot", "https://x.test/robots.txt")
    assert readings.refusal_line(robots.decide(URL)) == (
        "R2 disallowed_explicit by Disallow: / in https://x.test/robots.txt:3"
    )


@pytest.mark.parametrize("moved", [None, f"{URL}/new"])
def test_twenty_sources_are_named_and_the_others_counted(moved: str | None) -> None:
    since = BEGIN if moved is None else BEGIN + 9 * DAY
    found = [Reading(f"{URL}/{n}", since, BEGIN, 1, None, moved) for n in range(23)]
    lines = summary.attention_lines(found, BEGIN + 9 * DAY, DAY)
    assert len(lines) == 21
    assert lines[-1] == "... and 3 more (scrapy walsh state show lists them)"
    assert len(summary.attention_lines(found[:20], BEGIN + 9 * DAY, DAY)) == 20


@pytest.mark.parametrize(
    ("outcomes", "needy", "reason", "line"),
    [
        ({READ: 100}, 0, "finished", "walsh: 100 of 100 sources read or unchanged"),
        ({READ: 1}, 0, "finished", "walsh: 1 of 1 source read or unchanged"),
        (
            {FAILED: 1, READ: 97, REFUSED: 1, DEFERRED: 1},
            2,
            "finished",
            f"walsh: 97 of 100 {READ_OR}, 1 refused, 1 deferred, 1 failed; 2 need {PERSON}",
        ),
        (
            {NOT_DUE: 3, LEFT_OUT: 2},
            1,
            "finished",
            f"walsh: 0 of 5 {READ_OR}, 3 not due, 2 left out; 1 needs {PERSON}",
        ),
        (
            {READ: 4, NOT_REQUESTED: 6},
            0,
            "shutdown",
            "walsh: stopped (shutdown): 4 of 10 sources read or unchanged, 6 not requested",
        ),
        ({}, 0, "finished", "walsh: no source was declared"),
    ],
)
def test_the_last_line(outcomes: dict[str, int], needy: int, reason: str, line: str) -> None:
    assert summary.last_line(outcomes, needy, reason) == line


def test_the_last_line_of_a_job_that_has_no_source_left() -> None:
    line = summary.last_line({}, 0, "finished", was_done=True)
    assert line == "walsh: earlier runs of this JOBDIR have requested all sources"


def test_a_run_that_is_not_well_was_stopped_only_if_something_was_left() -> None:
    """It ends by itself, and then its outcome is told: nothing closed it before it was done."""
    four = {READ: 4}
    ended = summary.last_line(four, 0, summary.NOT_WELL)
    assert ended == f"walsh: ended with errors: 4 of 4 {READ_OR}"
    unstored = summary.last_line(four, 0, summary.NOT_WELL, unstored=3)
    assert unstored == f"walsh: ended with errors: 4 of 4 {READ_OR}, 3 items not stored"
    stopped = summary.last_line(four, 0, summary.NOT_WELL, halted=True)
    assert stopped == f"walsh: stopped (walsh_not_well): 4 of 4 {READ_OR}"


FOLLOW = "set WALSH_FOLLOW_LINKS = True if the bot may follow links, or yield them from start()"


@pytest.mark.parametrize(
    ("refused", "rules", "links", "said"),
    [
        (0, {}, {"R6": 20}, f"; 20 links refused (R6): {FOLLOW}"),
        (0, {}, {"R2": 1}, "; 1 link refused (R2)"),
        (3, {"R3": 1, "R2": 2}, {}, ", 3 refused (2 by R2, 1 by R3)"),
        (2, {"R2": 1}, {}, ", 2 refused"),  # one of them became another outcome meanwhile
        (1, {"": 1}, {}, ", 1 refused"),  # a spider's own reason names no rule
        (
            1,
            {"WALSH_EXCLUDED_TLDS": 1},
            {"R2": 3, "R6": 1},
            ", 1 refused (WALSH_EXCLUDED_TLDS); 4 links refused (3 by R2, 1 by R6): " + FOLLOW,
        ),
    ],
)
def test_the_last_line_counts_what_each_rule_refused(
    refused: int, rules: dict[str, int], links: dict[str, int], said: str
) -> None:
    line = summary.last_line({READ: 2, REFUSED: refused}, 0, "finished", rules, links)
    assert line == f"walsh: 2 of {2 + refused} sources read or unchanged{said}"


RULE = "R2 disallowed_explicit by Disallow: / in https://x.test/robots.txt:2"
LISTED = "R3 blocked_operator by x.test in https://operator.test/list"


DEAD = "R5 deferred (x.test did not answer)"
OPT_OUT, SILENT = cause_of("R2", "disallowed_explicit"), cause_of("R5", DEFERRED)


def told(*visits: Result, moved: str | None = None) -> list[str]:
    """By day, what a daily run tells of a source: named, counted as needing a person, or silent."""
    reading, found = None, []
    for day, visit in enumerate(visits):
        now = BEGIN + day * DAY
        reading = updated(reading, URL, replace(visit, at=now, moved_to=moved), now)
        needs = summary.attention(reading, now, DAY)
        named = needs and readings.is_due_again(reading.told_at, now)
        if named:
            assert summary.attention_lines([reading], now, DAY)
            reading = replace(reading, told_at=now)
        found.append("named" if named else "counted" if needs else "-")
    return found


GOOD = Result(READ)
DOWN = Result(DEFERRED, DEAD, cause=SILENT)
BUSY = Result(FAILED, "R5: status 503", cause=cause_of("R5"))
NO = Result(REFUSED, RULE, cause=OPT_OUT)
LIST_NO = Result(REFUSED, LISTED, cause=cause_of("R3", "blocked_operator"))
OUT_OF_SCOPE = Result(REFUSED, "R6 out_of_scope (no)", cause=cause_of("R6", "out_of_scope"))
FORBIDDEN = Result(FAILED, "HTTP 403", cause=Cause(status=403))
NOT_FOUND = Result(FAILED, "HTTP 404", cause=Cause(status=404))
WEEK = ["named", *["counted"] * 6]


@pytest.mark.parametrize(
    ("visits", "said"),
    [
        # What its owner refuses is said the day it begins, and again only once it was let again.
        ([GOOD, NO, NO, *[NO] * 30], ["-", "named", *["-"] * 31]),
        ([GOOD, NO, DOWN, NO, BUSY, NO], ["-", "named", "-", "-", "named", "named"]),
        ([GOOD, NO, DOWN, NO, DOWN, DOWN, NO, NO], ["-", "named", *["-"] * 6]),
        ([GOOD, NO, GOOD, NO], ["-", "named", "-", "named"]),
        ([GOOD, NO, LIST_NO, LIST_NO], ["-", "named", "named", "-"]),
        ([GOOD, NO, replace(NO, reason=f"{RULE}0")], ["-", "named", "-"]),
        ([*[NO] * 12], ["-", "-", "-", "named", *["-"] * 8]),
        # What is dead is named after three periods, once a week, and when something changes.
        ([GOOD, *[DOWN] * 17], ["-", "-", "-", *WEEK, *WEEK, "named"]),
        ([GOOD, *[DOWN, BUSY] * 8], ["-", "-", "-", *WEEK, *WEEK]),
        (
            [GOOD, *[DOWN] * 4, FORBIDDEN, NOT_FOUND, NOT_FOUND],
            ["-", "-", "-", "named", "counted", "named", "named", "counted"],
        ),
        ([GOOD, *[DOWN] * 4, NO, NO], ["-", "-", "-", "named", "counted", "named", "-"]),
        ([GOOD, OUT_OF_SCOPE], ["-", "-"]),
    ],
)
def test_what_needs_a_person_is_named_when_it_begins_and_once_a_week(
    visits: list[Result], said: list[str]
) -> None:
    assert told(*visits) == said[: len(visits)]


def test_what_has_moved_is_named_once_a_week() -> None:
    assert told(*[GOOD] * 8, moved="https://y.test/") == [*WEEK, "named"]


def test_what_is_gone_is_named_once() -> None:
    gone = updated(None, URL, Result(FAILED, "HTTP 410", BEGIN, gone=True), BEGIN)
    line = f"{URL} is gone (410): remove it from your list"
    assert summary.attention_lines([gone], BEGIN, DAY) == [line]
    gone = replace(gone, told_at=BEGIN)
    for days, visit in ((31, (DEFERRED, DEAD, 0.0)), (40, (FAILED, "HTTP 410", 0.0, None, True))):
        gone = updated(gone, URL, Result(*visit), BEGIN + days * DAY)
        assert summary.attention(gone, BEGIN + days * DAY, DAY) == ""


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "closed: it asks for a licence"),
        (402, "closed: it asks for payment"),
        (451, "closed for legal reasons (451)"),
    ],
)
def test_a_closed_door_needs_a_person_once(status: int, words: str) -> None:
    result = Result(FAILED, f"HTTP {status}", BEGIN, gone=True, cause=Cause(status=status))
    closed = updated(None, URL, result, BEGIN)
    line = f"{URL} is {words} (HTTP {status}): ask its owner, or remove it from your list"
    assert summary.attention_lines([closed], BEGIN, DAY) == [line]
    month_later = BEGIN + 31 * DAY
    again = updated(
        replace(closed, told_at=BEGIN), URL, replace(result, at=month_later), month_later
    )
    assert summary.attention(again, month_later, DAY) == ""


def test_a_clock_that_was_put_back_silences_nothing() -> None:
    dead = Reading(URL, BEGIN - 9 * DAY, BEGIN, 1, DEAD, told_at=BEGIN + DAY)
    assert readings.is_due_again(dead.told_at, BEGIN)


@pytest.mark.parametrize(
    ("cause", "event", "known"),
    [
        (SILENT, Event("deferred", URL, "R5", "deferred"), True),
        (SILENT, Event("given_up", URL, "R5"), True),
        (cause_of("R5"), Event("deferred", URL, "R5", "deferred"), True),
        (cause_of("D5"), Event("too_many_redirects", URL, "D5"), True),
        (cause_of("R4", DEFERRED), Event("deferred", URL, "R4", "deferred"), True),
        (cause_of("R4", DEFERRED), Event("deferred", URL, "R5", "deferred"), False),
        (cause_of("R2", "unknown_parse_error"), Event("deferred", URL, "R2", "deferred"), False),
        (Cause(status=403), Event("given_up", URL, "R5"), False),
        (NO_CAUSE, Event("given_up", URL, "R5"), False),
    ],
)
def test_a_warning_of_a_target_is_none_where_the_last_visit_ended_so(
    cause: Cause, event: Event, known: bool
) -> None:
    reading = Reading(URL, BEGIN, BEGIN, 1, "why", cause=cause)
    assert readings.is_known(reading, event, BEGIN + DAY, DAY) is known
    # The run names it at its end.
    assert readings.is_known(reading, event, BEGIN + 3 * DAY, DAY)


def test_an_opt_out_is_one_line_a_host() -> None:
    both = [
        Reading(f"https://x.test/{path}", BEGIN, BEGIN, 1, RULE, cause=OPT_OUT) for path in "ab"
    ]
    said = "x.test no longer allows your bot: 2 sources of your list, by "
    line = f"{said}{RULE}: remove them; shown once"
    assert summary.attention_lines(both, BEGIN, DAY) == [line]
    # It is not lost among many others that need a person.
    dead = [Reading(f"https://d{n}.test/", BEGIN - 9 * DAY, BEGIN, 1, DEAD) for n in range(30)]
    lines = summary.attention_lines([*dead, *both], BEGIN, DAY)
    assert lines[0] == line
    assert lines[20:] == ["... and 11 more (scrapy walsh state show lists them)"]


def test_only_what_was_never_read_has_a_stand_in() -> None:
    never, fed, mapped = (
        Reading(URL, BEGIN, BEGIN, 1, read_as=kind) for kind in (None, "feed", "sitemap")
    )
    answers = [
        [readings.has_stand_in(record, kind) for kind in ("feed", "sitemap")]
        for record in (None, never, fed, mapped)
    ]
    assert answers == [[True, True], [True, True], [False, False], [True, False]]


@pytest.mark.parametrize(
    ("had", "was_early", "entries", "ends_early", "why"),
    [
        (None, 0, 0, False, ""),
        (0, 0, 0, True, ""),
        (40, 0, 0, False, "no entries, and it had 40 entries when it was last read"),
        (1, 1, 0, True, "no entries, and it had 1 entry when it was last read"),
        (40, 0, 41, True, "cut off, and it had 40 entries when it was last read"),
        (40, 1, 3, True, ""),  # its publisher never closes it
        (40, 0, 1, False, ""),
    ],
)
def test_a_document_that_lost_what_it_had_is_unread(
    had: int | None, was_early: int, entries: int, ends_early: bool, why: str
) -> None:
    before = Reading(URL, BEGIN, BEGIN, 1, entries=had or 0, ends_early=was_early)
    known = None if had is None else before
    assert readings.loss(known, entries, ends_early=ends_early) == why


def test_a_reading_that_brought_no_entries_leaves_their_number() -> None:
    record = updated(None, URL, Result(READ, at=BEGIN, entries=40), BEGIN)
    for result in (Result(READ, at=BEGIN), Result(FAILED, "HTTP 500"), Result(NOT_DUE)):
        record = updated(record, URL, result, BEGIN)
        assert record.entries == 40
    record = updated(record, URL, Result(READ, entries=3, ends_early=True), BEGIN)
    assert (record.entries, record.ends_early) == (3, 1)


def test_what_was_read_as_a_feed_stays_so() -> None:
    record = Reading(URL, BEGIN, BEGIN)
    said = []
    for day, kind in enumerate((None, "sitemap", None, "feed", "sitemap", None)):
        result = Result(READ, at=BEGIN + day * DAY, read_as=kind)
        record = updated(record, URL, result, BEGIN + day * DAY)
        said.append(record.read_as)
    assert said == [None, "sitemap", "sitemap", "feed", "feed", "feed"]
    failed = updated(record, URL, Result(FAILED, "HTTP 404", BEGIN + 9 * DAY), BEGIN + 9 * DAY)
    assert (failed.read_as, failed.reason) == ("feed", "HTTP 404")


def test_places_that_sources_of_several_hosts_move_to_are_doubtful() -> None:
    moves = [
        ("http://a.test/f", "https://a.test/f"),
        ("http://b.test/f", "http://portal.test/"),
        ("http://c.test/f POST 00", "http://portal.test/"),
        ("http://d.test/1", "http://d.test/all"),
        ("http://d.test/2", "http://d.test/all"),
        ("https://d.test/3", "http://d.test/all"),
    ]
    assert readings.moved_together(moves) == {"http://portal.test/"}
    assert readings.moved_together([]) == set()


@pytest.mark.parametrize(
    ("cause", "told_at", "is_over"),
    [
        (cause_of("R5"), None, True),
        (cause_of("D5"), None, True),
        (cause_of("R5", DEFERRED), None, True),
        (cause_of("R3", DEFERRED), None, True),
        (cause_of("R4", DEFERRED), None, False),
        (cause_of("R4", DEFERRED), BEGIN, True),
        (cause_of("R9"), None, False),
        (cause_of("R9"), BEGIN, True),
        (OPT_OUT, None, False),
        (OPT_OUT, BEGIN, True),
    ],
)
def test_what_a_warning_named_is_over_when_the_source_is_read(
    cause: readings.Cause, told_at: float | None, *, is_over: bool
) -> None:
    bad = replace(Reading(URL, BEGIN, BEGIN, 1, "no"), cause=cause, told_at=told_at)
    good = updated(bad, URL, replace(GOOD, at=BEGIN + DAY), BEGIN + DAY)
    assert readings.is_over(bad, good) is is_over
    assert not readings.is_over(bad, bad)
    assert not readings.is_over(None, good)
    assert not readings.is_over(good, good)


def test_a_rejected_robots_txt_is_named_at_first_when_it_changes_and_once_a_week() -> None:
    reading, days = Reading(URL, BEGIN, BEGIN, 1), []
    causes = (
        ["rejected"] * 9
        + ["unknown_unreachable"] * 2
        + [None, "unknown_unreachable", "", "rejected"]
    )
    for day, cause in enumerate(causes):
        now = BEGIN + day * DAY
        reading = readings.with_robots(reading, cause, now)
        if reading.robots_told_at == now:
            days.append(day)
    assert days == [0, 7, 9, 14]


def test_what_is_over_is_named_in_a_line_each() -> None:
    rows = [
        Reading(f"http://h{n:02}.test/f", BEGIN, BEGIN, 1, "no", cause=SILENT) for n in range(12)
    ]
    lines = summary.over_lines([*rows, replace(rows[0], cause=OPT_OUT)], {"r.test"})
    assert lines[0] == "the owner allows your bot again: h00.test"
    assert lines[1].startswith("read again: http://h00.test/f (not since ")
    assert lines[1].endswith(" and 2 more")
    assert lines[2] == "robots.txt is available again: r.test"
    assert summary.over_lines([]) == []


@pytest.mark.parametrize(("dead", "outcome"), [(True, FAILED), (False, readings.DEFERRED)])
def test_a_source_of_a_dead_host_has_failed(dead: bool, outcome: str) -> None:
    silent = Unanswered("x.test", 2, dead=dead)
    verdict = Verdict(False, DEFERRED, "R5", str(silent), unanswered=silent)
    assert readings.result_of(verdict, BEGIN).outcome == outcome
