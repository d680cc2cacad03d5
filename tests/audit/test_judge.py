"""Each row of the audit: when it is held, when broken, and when the log does not tell."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.proof.audit.judge import outcome
from scrapy_walsh.proof.audit.reading import Entry, Log, read_logs
from tests.crawl.harness import USER_AGENT
from tests.kit import BOT, T0, line, rows_of, rules, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from scrapy_walsh.proof.audit.rows import Row

DAY = 86400
ANYBODY = partial(line, agent="Mozilla/5.0 Firefox/139.0", address="198.51.100.20")
ROBOTS = "/robots.txt"
PRIVATE = "User-agent: *\nDisallow: /private\n"
OPEN = "User-agent: *\nDisallow:\n"
CLOSED = "User-agent: Walsh-Research\nDisallow: /\n"


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., dict[str, Row]]:
    """The rows of a log of some lines, by what they are about."""

    def audited(lines: Iterable[str], **terms: Any) -> dict[str, Row]:
        return rows_of(read_logs([written(tmp_path / "access.log", lines)], BOT), **terms)

    return audited


def places(row: Row) -> list[int]:
    """The line numbers of what broke."""
    return [int(finding.place.rpartition(":")[2]) for finding in row.findings]


def told(row: Row) -> tuple[str, int, int, int]:
    return row.outcome.value, row.seen, row.undecided, row.broken


# -- R1 -----------------------------------------------------------------------------------


def test_r1_1_one_octet_more_is_broken(rows: Any) -> None:
    found = rows([line(T0), line(T0 + 9, agent=f"{USER_AGENT} "), line(T0 + 18)])["agent"]
    assert told(found) == ("broken", 2, 0, 1)
    assert places(found) == [2]


def test_r1_1_exact_is_held(rows: Any) -> None:
    assert told(rows([line(T0), line(T0 + 9)])["agent"]) == ("held", 2, 0, 0)


def test_of_r1_is_not_seen_where_the_log_has_no_user_agents(rows: Any) -> None:
    entry = Entry(T0, "a", 1, "", "", "/", "192.0.2.7", "GET", 200, None)
    found = rows_of(Log([entry], 1, T0, T0))["agent"]
    assert told(found) == ("not seen", 0, 1, 0)


# -- R2: asked before -----------------------------------------------------------------------


def test_r2_1_robots_txt_first_is_held(rows: Any) -> None:
    lines = [line(T0, ROBOTS), line(T0, "/a"), line(T0 + DAY, "/b")]
    assert told(rows(lines)["asked"]) == ("held", 2, 0, 0)


def test_a_log_that_has_just_begun_cannot_tell(rows: Any) -> None:
    """The bot may have asked before the first line of the log."""
    lines = [ANYBODY(T0), line(T0 + 2 * DAY, "/a"), line(T0 + 2 * DAY + 5, ROBOTS)]
    assert told(rows(lines)["asked"]) == ("not seen", 0, 1, 0)


def test_r2_1_never_asked_is_broken_once_the_log_is_long_enough(rows: Any) -> None:
    lines = [ANYBODY(T0), line(T0 + 2 * DAY + 2, "/a"), line(T0 + 2 * DAY + 9, "/b")]
    found = rows(lines)["asked"]
    assert told(found) == ("broken", 0, 0, 2)
    assert places(found) == [2, 3]


def test_r2_3_robots_txt_held_too_long(rows: Any) -> None:
    """Up to 48 hours a bot may still be refreshing it (R12.2); beyond it has not."""
    lines = [line(T0, ROBOTS), line(T0 + 2 * DAY, "/a"), line(T0 + 2 * DAY + 2, "/b")]
    found = rows(lines)["asked"]
    assert told(found) == ("broken", 1, 0, 1)
    assert places(found) == [3]


def test_r2_4_each_port_has_its_robots_txt(rows: Any) -> None:
    lines = [
        ANYBODY(T0 - 3 * DAY),
        line(T0, ROBOTS, host="site.example:443"),
        line(T0 + 9, "/a", host="site.example:443"),
        line(T0 + 18, "/b", host="site.example:80"),
    ]
    assert places(rows(lines)["asked"]) == [4]


def test_the_operators_own_documents_need_no_robots_txt(rows: Any) -> None:
    """T14."""
    path = "/.well-known/walsh-research/blocklist.json"
    lines = [ANYBODY(T0 - 3 * DAY), line(T0, path), line(T0 + 60, path)]
    exempt = {"documents": frozenset({("site.example", path)})}
    closed = {"timeline": rules((-math.inf, CLOSED))}
    for name, row in rows(lines, **closed).items():
        assert row.broken == {"asked": 2, "obeyed": 2, "visit": 1}.get(name, 0), name
    for name, row in rows(lines, **closed, **exempt).items():
        assert row.broken == 0, name


# -- R2: obeyed ---------------------------------------------------------------------------


def test_r2_2_a_disallowed_path_is_broken_with_its_rule(rows: Any) -> None:
    lines = [line(T0, ROBOTS), line(T0 + 9, "/a"), line(T0 + 18, "/private/x?y")]
    found = rows(lines, timeline=rules((-math.inf, PRIVATE)))["obeyed"]
    assert told(found) == ("broken", 1, 0, 1)
    assert found.findings[0].text == "/private/x?y: Disallow: /private (line 2, group *)"
    assert places(found) == [3]


def test_without_a_file_nothing_is_said_about_paths(rows: Any) -> None:
    found = rows([line(T0, ROBOTS), line(T0 + 9, "/private")])["obeyed"]
    assert told(found) == ("not seen", 0, 0, 0)
    assert "--robots" in found.detail


def test_a_path_that_only_one_reading_refuses_is_undecided(rows: Any) -> None:
    """T2: the pattern is shorter, the path that it matches is longer."""
    body = "User-agent: *\nAllow: /page\nDisallow: /*.ph\n"
    lines = [line(T0, ROBOTS), line(T0 + 9, "/page.php5")]
    found = rows(lines, timeline=rules((-math.inf, body)))["obeyed"]
    assert told(found) == ("not seen", 0, 1, 0)
    assert "one reading" in found.detail


def test_of_several_files_each_must_refuse_in_every_reading(rows: Any) -> None:
    doubtful = "User-agent: *\nAllow: /page\nDisallow: /*.ph\n"
    timeline = rules((-math.inf, "User-agent: *\nDisallow: /page\n"), (T0, doubtful))
    lines = [line(T0 - 60, ROBOTS), line(T0 + 9, "/page.php5")]
    assert told(rows(lines, timeline=timeline)["obeyed"]) == ("not seen", 0, 1, 0)


def test_encoded_and_raw_octets_are_one_path(rows: Any) -> None:
    body = "User-agent: *\nDisallow: /caf%C3%A9\n"
    lines = [line(T0, ROBOTS), line(T0 + 9, "/caf\xc3\xa9"), line(T0 + 18, "/caf%c3%a9")]
    assert places(rows(lines, timeline=rules((-math.inf, body)))["obeyed"]) == [2, 3]


def test_r2_31_a_change_counts_from_24_hours_on(rows: Any) -> None:
    lines = [
        line(T0 - DAY, ROBOTS),
        line(T0 - 100, ROBOTS),
        line(T0 - 50, "/a"),
        line(T0 + 3600, "/a"),  # it asked 100 s before the change: it need not know
        line(T0 + DAY + 2, "/a"),
        line(T0 + DAY + 60, ROBOTS),
    ]
    found = rows(lines, timeline=rules((-math.inf, OPEN), (T0, CLOSED)))["obeyed"]
    assert told(found) == ("broken", 1, 1, 1)
    assert places(found) == [5]
    assert "after the change of 2026-05-23T10:00:00Z: the last 1 d after it" in found.detail


def test_r2_31_who_has_read_the_change_is_bound_at_once(rows: Any) -> None:
    lines = [line(T0 - 5000, ROBOTS), line(T0 + 10, ROBOTS), line(T0 + 20, "/a")]
    found = rows(lines, timeline=rules((-math.inf, OPEN), (T0, CLOSED)))["obeyed"]
    assert told(found) == ("broken", 0, 0, 1)


def test_a_change_within_the_logs_second_is_undecided(rows: Any) -> None:
    closed = rules((-math.inf, OPEN), (T0, CLOSED))
    found = rows([line(T0, ROBOTS), line(T0 + 9, "/a")], timeline=closed)["obeyed"]
    assert told(found) == ("not seen", 0, 1, 0)
    opened = rules((-math.inf, CLOSED), (T0 + 0.5, OPEN))
    found = rows([line(T0 - 60, ROBOTS), line(T0, "/a")], timeline=opened)["obeyed"]
    assert told(found) == ("not seen", 0, 1, 0)


@pytest.mark.parametrize("status", [429, 503, 499])
def test_a_failed_refresh_leaves_the_old_rules_in_force(rows: Any, status: int) -> None:
    """T6, D7."""
    lines = [line(T0 - 60, ROBOTS), line(T0, ROBOTS, status), line(T0 + 60, "/a")]
    found = rows(lines, timeline=rules((-math.inf, CLOSED)))["obeyed"]
    assert told(found) == ("broken", 0, 0, 1)


def test_a_robots_txt_that_could_not_be_had_told_the_bot_nothing(rows: Any) -> None:
    lines = [line(T0 - 5000, ROBOTS), line(T0 + 10, ROBOTS, 503), line(T0 + 20, "/a")]
    timeline = rules((-math.inf, OPEN), (T0, CLOSED))
    assert told(rows(lines, timeline=timeline)["obeyed"])[1:] == (0, 1, 0)
    for status in (404, 503):  # 9.1.1: no rules, fail open
        lines = [line(T0 + 10, ROBOTS, status), line(T0 + 20, "/a")]
        found = rows(lines, timeline=rules((-math.inf, CLOSED)))["obeyed"]
        assert told(found) == ("not seen", 0, 1, 0)


@pytest.mark.parametrize(
    ("after", "undecided", "broken"),
    [
        pytest.param([("/private/rules", 200)], 1, [], id="its-own-rules"),
        pytest.param([("/private/a", 200), ("/private/b", 200)], 1, [3], id="only-one"),
        pytest.param([("/a", 200), ("/b", 301), ("/private/rules", 200)], 1, [], id="later"),
        pytest.param(
            [("/private/1", 302), ("/a", 200), ("/private/2", 200), ("/private/3", 200)],
            *(2, [5]),
            id="redirects-on",
        ),
        pytest.param([("/private/r", 503), ("/private/r", 200), ("/private/x", 200)], 2, [4],
                     id="a-retry"),
        pytest.param([(ROBOTS, 200), ("/private/x", 200)], 0, [3], id="read-again"),
    ],
)  # fmt: skip
def test_one_refused_page_after_a_redirected_robots_txt_may_be_its_rules(
    rows: Any, after: list[tuple[str, int]], undecided: int, broken: list[int]
) -> None:
    """Allowed pages may come between: of another process, or for another site's robots.txt."""
    lines = [line(T0, ROBOTS, 302)]
    lines += [line(T0 + 9 * n, path, status) for n, (path, status) in enumerate(after, 1)]
    found = rows(lines, timeline=rules((-math.inf, PRIVATE)))["obeyed"]
    assert (found.undecided, places(found)) == (undecided, broken)


def test_what_came_before_the_first_file_is_undecided(rows: Any) -> None:
    lines = [line(T0 - 60, ROBOTS), line(T0 - 50, "/a"), line(T0 + 60, ROBOTS), line(T0 + 70)]
    found = rows(lines, timeline=rules((T0, CLOSED)))["obeyed"]
    assert told(found) == ("broken", 0, 1, 1)
    assert places(found) == [4]


def test_a_page_that_was_opened_since_is_no_breach(rows: Any) -> None:
    lines = [line(T0 - 60, ROBOTS), line(T0 + 70, "/a")]
    found = rows(lines, timeline=rules((-math.inf, CLOSED), (T0, OPEN)))["obeyed"]
    assert told(found)[1:] == (1, 0, 0)


# -- R3 -----------------------------------------------------------------------------------


def test_r3_8_requests_after_the_refresh_are_broken(rows: Any) -> None:
    lines = [line(T0 - 9), line(T0 + 100), line(T0 + 21601), line(T0 + 21602, ROBOTS)]
    found = rows(lines, optout=float(T0))["optout"]
    assert told(found) == ("broken", 0, 2, 1)
    assert places(found) == [4]
    assert "requests after 2026-05-23T10:00:00Z: 3; the last 6 h after it" in found.detail


def test_r3_8_silence_is_held_only_where_the_log_goes_on(rows: Any) -> None:
    lines = [line(T0 - 9), ANYBODY(T0 + 21500)]
    assert told(rows(lines, optout=float(T0))["optout"]) == ("not seen", 0, 0, 0)
    lines.append(ANYBODY(T0 + 21700))
    assert told(rows(lines, optout=float(T0))["optout"]) == ("held", 1, 0, 0)


# -- R4 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apart", "delay", "verdict"),
    [
        (0, "", "broken"),  # under 1 s
        (1, "", "undecided"),  # 0 to 2 s
        (2, "", "held"),  # 1 to 3 s
        (1, "2", "broken"),  # under 2 s
        (2, "2", "undecided"),
        (3, "2", "held"),
        (0, "0.5", "broken"),  # a second at least
        (1, "2.5", "broken"),
        (2, "2.5", "undecided"),
    ],
)
def test_r4_3_bounds_of_a_gap(rows: Any, apart: int, delay: str, verdict: str) -> None:
    body = f"User-agent: *\nCrawl-delay: {delay}\n" if delay else OPEN
    lines = [line(T0, ROBOTS), line(T0 + 60, "/a"), line(T0 + 60 + apart, "/b")]
    found = rows(lines, timeline=rules((-math.inf, body)))["spacing"]
    counts = {"held": found.seen, "undecided": found.undecided, "broken": found.broken}
    assert counts.pop(verdict) == 1
    assert set(counts.values()) == {0}  # the first robots.txt and its target are exempt
    assert found.outcome.value == ("broken" if verdict == "broken" else "held")


def test_t1_exempts_the_first_robots_txt_and_one_target(rows: Any) -> None:
    lines = [line(T0, ROBOTS), line(T0, "/a"), line(T0, "/b")]
    assert places(rows(lines)["spacing"]) == [3]
    refused = [line(T0, ROBOTS, 503), line(T0, "/a")]
    assert places(rows(refused)["spacing"]) == [2]
    late = [line(T0 - 60, "/a"), line(T0, ROBOTS), line(T0, "/b")]
    assert places(rows(late)["spacing"]) == [3]


def test_t1_another_process_may_have_begun_after_an_hour(rows: Any) -> None:
    lines = [line(T0, ROBOTS), line(T0 + 5), line(T0 + DAY, ROBOTS), line(T0 + DAY)]
    assert told(rows(lines)["spacing"]) == ("held", 1, 0, 0)


def test_r4_5_hosts_are_paced_apart_and_ports_80_and_443_together(rows: Any) -> None:
    lines = [
        line(T0, "/a", host="site.example:443"),
        line(T0, "/b", host="other.example:443"),
        line(T0, "/c", host="site.example:80"),
    ]
    assert places(rows(lines)["spacing"]) == [3]


def test_a_crawl_delay_binds_who_can_have_read_it(rows: Any) -> None:
    slow = "User-agent: *\nCrawl-delay: 30\n"
    lines = [line(T0 - 60, ROBOTS), line(T0 + 5, "/a"), line(T0 + 15, "/b"), line(T0 + 60, ROBOTS)]
    lines += [line(T0 + 70, "/c")]
    found = rows(lines, timeline=rules((-math.inf, OPEN), (T0, slow)))["spacing"]
    assert places(found) == [5]


def test_one_request_has_no_gap(rows: Any) -> None:
    assert told(rows([line(T0)])["spacing"]) == ("not seen", 0, 0, 0)


@given(
    st.lists(st.tuples(st.floats(0, 4), st.floats(0, 1.5)), min_size=2, max_size=12),
    st.floats(0, 1),
    st.booleans(),
)
def test_r4_3_what_is_said_of_a_gap_is_true(
    schedule: list[tuple[float, float]], phase: float, ends: bool
) -> None:
    """Requests at exact times, logged at their start or end: broken is short, held is long."""
    exact: list[tuple[float, float]] = []
    for pause, took in schedule:
        start = (exact[-1][1] if exact else T0 + phase) + pause
        exact.append((start, start + took))
    stamps = [int(end if ends else start) for start, end in exact]
    for number in range(1, len(stamps)):
        pair = stamps[number - 1 : number + 1]
        entries = [Entry(at, "a", 1, "", "", f"/{at}", "", "GET", 200, USER_AGENT) for at in pair]
        found = rows_of(Log(entries, 2, *pair), answer_time=1.5 if ends else 0.0)["spacing"]
        start_to_start = exact[number][0] - exact[number - 1][0]
        if found.broken:
            assert start_to_start < 1.0 + 1e-6
        elif found.seen:
            assert start_to_start >= 1.0 - 1e-6


def test_r4_3_gaps_that_are_each_within_the_clock_do_not_add_up(rows: Any) -> None:
    """A request a second, where one in a second and a half is allowed: no single gap shows it."""
    timeline = rules((-math.inf, "User-agent: *\nCrawl-delay: 1.5\n"))
    lines = [line(T0, ROBOTS), *(line(T0 + number, f"/{number}") for number in range(7))]
    found = rows(lines, timeline=timeline)["spacing"]
    assert places(found) == [5, 8]
    assert "with the gaps before it 1.44 s too early, 1.5 s required" in found.findings[0].text
    assert found.undecided == 4
    assert told(rows(lines)["spacing"]) == ("held", 0, 6, 0)  # one a second is allowed
    kept = [line(T0, ROBOTS), *(line(T0 + 1.5 * number, f"/{number}") for number in range(40))]
    assert rows(kept, timeline=timeline)["spacing"].broken == 0


@given(
    st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 1.5)), min_size=2, max_size=60),
    st.floats(0, 1),
    st.sampled_from(("", "1.1", "1.5", "2.75")),
    st.booleans(),
)
def test_who_keeps_every_gap_is_never_broken(
    schedule: list[tuple[float, float]], phase: float, delay: str, ends: bool
) -> None:
    """However close to the required spacing, from start to start, and however long the run."""
    body = f"User-agent: *\nCrawl-delay: {delay}\n" if delay else OPEN
    at, stamps = T0 + phase, []
    for more, took in schedule:
        at += float(delay or 1) + more
        stamps.append(int(at + took if ends else at))
    asked = [(T0 - 60, ROBOTS), *((stamp, "/a") for stamp in sorted(stamps))]
    entries = [
        Entry(stamp, "a", 1, "", "", target, "", "GET", 200, USER_AGENT) for stamp, target in asked
    ]
    log = Log(entries, len(entries), entries[0].time, entries[-1].time)
    terms = {"timeline": rules((-math.inf, body)), "answer_time": 1.5 if ends else 0.0}
    assert rows_of(log, **terms)["spacing"].broken == 0


# -- R5 -----------------------------------------------------------------------------------


def test_a_retry_is_certainly_late_enough_only_beyond_the_answers_time(rows: Any) -> None:
    """In a log of the ends, a slow answer to the request after moves its stamp, not its start."""
    lines = [line(T0, status=429), line(T0 + 33)]
    assert told(rows(lines, retry_after=30.0)["backoff"]) == ("held", 1, 0, 0)
    assert told(rows(lines, retry_after=30.0, answer_time=5.0)["backoff"]) == ("held", 0, 1, 0)


def test_r5_3_a_retry_before_its_time_is_broken(rows: Any) -> None:
    lines = [line(T0, status=429), line(T0 + 29), line(T0 + 60, status=503), line(T0 + 90)]
    lines += [line(T0 + 200, status=429), line(T0 + 231)]
    found = rows(lines, retry_after=30.0)["backoff"]
    assert told(found) == ("broken", 1, 1, 1)
    assert places(found) == [2]


def test_r5_3_another_target_of_the_host_waits_too(rows: Any) -> None:
    """T25."""
    lines = [line(T0, "/a", 429), line(T0 + 10, "/b")]
    assert places(rows(lines, retry_after=30.0)["backoff"]) == [2]


def test_r5_5_without_a_retry_after_jitter_may_be_anything_from_a_second(rows: Any) -> None:
    found = rows([line(T0, status=429), line(T0 + 1), line(T0 + 60, status=429), line(T0 + 60)])
    assert places(found["backoff"]) == [4]
    assert "--retry-after" in found["backoff"].detail


def test_r5_6_a_sixth_retry_is_broken(rows: Any) -> None:
    lines = [line(T0 + 20 * n, status=503) for n in range(7)]
    found = rows(lines)["backoff"]
    assert (found.broken, places(found)) == (1, [7])
    assert rows(lines[:6])["backoff"].outcome.value == "held"


def test_after_a_pause_it_may_be_another_run(rows: Any) -> None:
    lines = [line(T0 + 20 * n, status=503) for n in range(6)]
    lines += [line(T0 + 1000 + 20 * n, status=503) for n in range(6)]
    assert rows(lines)["backoff"].broken == 0


def test_of_r5_without_a_refusal_is_not_seen(rows: Any) -> None:
    lines = [line(T0), line(T0 + 9)]
    assert rows(lines)["backoff"].outcome.value == "not seen"
    lines.append(line(T0 + 18, status=429))  # and nothing after it
    assert rows(lines)["backoff"].outcome.value == "not seen"


# -- R6, R7, R8 ---------------------------------------------------------------------------


def test_r7_3_a_304_shows_a_conditional_request(rows: Any) -> None:
    lines = [line(T0, "/a"), line(T0 + DAY, "/a", 304, size=0)]
    assert told(rows(lines)["again"]) == ("held", 1, 0, 0)


def test_r8_2_the_same_target_within_the_hour_is_counted(rows: Any) -> None:
    lines = [line(T0, "/a"), line(T0 + 3598, "/a"), line(T0 + 3600 + 3598, "/a"), ANYBODY(T0 + DAY)]
    found = rows(lines)
    assert told(found["visit"]) == ("broken", 2, 0, 1)
    assert places(found["visit"]) == [2]
    assert outcome([found["visit"]]).value == "not seen"  # a SHOULD breaks nothing
    assert outcome(list(found.values())).value == "held"


def test_of_r8_a_retry_is_no_visit(rows: Any) -> None:
    lines = [line(T0 + 60 * n, "/a", status) for n, status in enumerate((429, 500, 406, 200))]
    found = rows(lines)["visit"]
    assert told(found) == ("not seen", 0, 0, 0)  # and the log ends within the hour
