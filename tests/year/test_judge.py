"""The judge of the year, by logs that are in order but for one line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.year import due, growth, judge
from tests.year.clock import Shift
from tests.year.log import Book, Ran, Sent
from tests.year.manners import USER_AGENT
from tests.year.world import DAY, FEED, HOUR, LIST, SLOW, START, UP, Host, Phase, Rules, World

if TYPE_CHECKING:
    from collections.abc import Callable

DAYS = 6
PLAIN, SLOWLY = "plain.test", "slow.test"
PAGE = "http://plain.test/a/feed.xml"
PAGES = ("http://slow.test/a/feed.xml", "http://slow.test/b/feed.xml")
Log = list[Sent]


def world(*phases: Phase, plain: tuple[Phase, ...] = ()) -> World:
    """A quick host and a slow one, with *phases* after the first."""
    made = World(DAYS)
    first = Phase(START)
    made.hosts = {
        PLAIN: Host(PLAIN, {"/a/feed.xml": FEED}, (first, *plain)),
        SLOWLY: Host(
            SLOWLY,
            {"/a/feed.xml": FEED, "/b/feed.xml": FEED},
            (replace(first, rules=Rules(delay=SLOW)), *phases),
        ),
    }
    return made


def begin(day: int) -> float:
    """When the run of *day* begins, each a little later than the one before."""
    return START + day * (DAY + 600) + 5 * HOUR


def sent(day: int, since: float, url: str, status: int | None = 200, **more: object) -> Sent:
    """A request *since* seconds after the run's beginning, answered in 0.1 s."""
    _, _, host, path = url.split("/", 3)
    start = begin(day) + since
    line = Sent(
        run=day + 1,
        start=start,
        wall=start,
        method="GET",
        url=url,
        host=host,
        path=f"/{path}",
        end=start + 0.1,
        status=status,
        asked={"user-agent": USER_AGENT, "accept": "*/*"},
    )
    return replace(line, **more)  # type: ignore[arg-type]


def morning(day: int) -> Log:
    """The requests of a run that does everything right."""
    return [
        sent(day, 0, f"https://wal.sh{LIST}"),
        sent(day, 1, f"http://{PLAIN}/robots.txt"),
        sent(day, 3, PAGE),
        sent(day, 4, f"http://{SLOWLY}/robots.txt"),
        sent(day, 6, PAGES[day % 2]),
    ]


def runs() -> list[Ran]:
    """One run a day, none of them killed, each leaving the same behind."""
    declared = [f"GET {url} " for url in (PAGE, *PAGES)]
    return [
        Ran(
            day + 1,
            "walsh_metadata",
            "cron",
            begin(day),
            begin(day),
            begin(day) + 10,
            declared=declared,
            startup=0.05,
            rows={"sources": 3, growth.LINKS: 5 + day},
            octets={"ledger": 10_000 * (day + 1), "database": 50_000},
        )
        for day in range(DAYS)
    ]


def found(
    log: Log,
    made: World | None = None,
    ran: list[Ran] | None = None,
    shifts: tuple[Shift, ...] = (),
) -> set[str]:
    """The rules that the judge sees broken."""
    book = Book(made or world(), log, ran or runs(), shifts)
    return {each.rule for each in judge.judge(book)}


def honest() -> Log:
    """Six mornings in order."""
    return [each for day in range(DAYS) for each in morning(day)]


def test_a_log_in_order_is_in_order() -> None:
    assert found(honest()) == set()


def without(day: int, url: str) -> Callable[[Log], Log]:
    """A log without that request."""
    return lambda log: [e for e in log if not (e.run == day + 1 and e.url == url)]


def also(*lines: Sent) -> Callable[[Log], Log]:
    """A log with more requests."""
    return lambda log: [*log, *lines]


def changed(day: int, url: str, **change: object) -> Callable[[Log], Log]:
    """A log with that request altered."""
    return lambda log: [
        replace(e, **change) if e.run == day + 1 and e.url == url else e  # type: ignore[arg-type]
        for e in log
    ]


def moved(day: int, url: str, seconds: float) -> Callable[[Log], Log]:
    """A log with that request sent later."""

    def alter(log: Log) -> Log:
        return [
            replace(e, start=e.start + seconds, wall=e.wall + seconds, end=e.end + seconds)
            if e.run == day + 1 and e.url == url
            else e
            for e in log
        ]

    return alter


ROBOTS, SLOW_ROBOTS = f"http://{PLAIN}/robots.txt", f"http://{SLOWLY}/robots.txt"

BROKEN: dict[str, tuple[Callable[[Log], Log], str]] = {
    "a source that is not asked": (without(3, PAGE), due.MISSED),
    "a source asked every second day": (
        lambda log: [e for e in log if e.url != PAGE or e.run % 2],
        due.MISSED,
    ),
    "a source asked twice a day": (also(sent(3, 12 * HOUR, PAGE)), due.SOON),
    "a source asked twice a run": (also(sent(3, 9, PAGE)), due.SOON),
    "a slow host asked for robots.txt alone": (without(3, PAGES[1]), due.PROGRESS),
    "the same target of a slow host again": (
        lambda log: [
            replace(e, url=PAGES[0], path="/a/feed.xml") if e.url == PAGES[1] else e for e in log
        ],
        due.ORDER,
    ),
    "two targets of a slow host": (also(sent(3, 8, PAGES[0])), "R4.3"),
    "a slow host's target at once": (moved(3, PAGES[1], -1.5), "R4.3"),
    "a target half a second after robots.txt": (moved(3, PAGE, -1.4), "R4.3"),
    "two requests at a time": (changed(3, PAGE, end=begin(3) + 5), "R4.1"),
    "no robots.txt": (lambda log: [e for e in log if e.url != ROBOTS], "R2.1"),
    "a robots.txt of two days ago": (without(3, ROBOTS), "R2.3"),
    "no list": (without(0, f"https://wal.sh{LIST}"), "R3"),
    "a list of yesterday": (without(3, f"https://wal.sh{LIST}"), "R3.8"),
    "another User-Agent": (changed(3, PAGE, asked={"user-agent": "curl"}), "R1"),
    "no validator": (changed(2, PAGE, told={"etag": '"1"'}), "R7.1"),
    "a Retry-After cut short": (
        changed(2, PAGE, status=503, told={"retry-after": "259200"}),
        "R5.3",
    ),
    "seven attempts at a host that hangs": (
        also(*(sent(3, 20 + 3 * n, PAGE, None) for n in range(7))),
        "attempts",
    ),
    "a host that answers 429 to three requests of a run": (
        also(*(sent(3, 20 + 3 * n, PAGE, 429) for n in range(3))),
        "D28",
    ),
    "a redirect that is not followed": (
        changed(3, PAGE, status=301, told={"location": PAGES[0]}),
        due.HOP,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_judge_sees_a_log_that_is_broken(name: str) -> None:
    alter, rule = BROKEN[name]
    assert rule in found(alter(honest()))


def test_the_judge_sees_a_path_asked_that_robots_txt_forbids() -> None:
    closed = Phase(begin(3) - HOUR, Rules(("/",)))
    rules = found(honest(), world(plain=(closed,)))
    assert "R2.2" in rules
    # Nor is it an excuse that the file was not read again.
    unread = [e for e in honest() if e.url != ROBOTS or e.run < 4]
    assert "R2.31" in found(unread, world(plain=(closed,)))


def test_the_judge_knows_that_an_opt_out_excuses_what_is_not_asked() -> None:
    closed = Phase(begin(3) - HOUR, Rules(("/",)))
    kept = [e for e in honest() if e.url != PAGE or e.run < 4]
    assert found(kept, world(plain=(closed,))) == set()
    # Once it is lifted, and what was held of it is stale, the source is due again.
    lifted = Phase(begin(4) - 26 * HOUR)
    assert found(kept, world(plain=(closed, lifted))) == {due.MISSED}


def test_the_judge_sees_a_host_asked_that_the_list_names() -> None:
    listed = Phase(begin(3) - HOUR, listed=True)
    assert "R3.2" in found(honest(), world(plain=(listed,)))
    kept = [e for e in honest() if e.host != PLAIN or e.run < 4]
    assert found(kept, world(plain=(listed,))) == set()


def test_the_judge_wants_a_host_tried_that_does_not_answer() -> None:
    hangs = Phase(begin(3) - HOUR, reach="hangs")
    none = [e for e in honest() if e.host != PLAIN or e.run < 4]
    assert found(none, world(plain=(hangs,))) == {due.MISSED}
    tried = [
        replace(e, status=None) if e.host == PLAIN and e.run > 3 and e.is_robots else e
        for e in honest()
        if e.url != PAGE or e.run < 4
    ]
    assert found(tried, world(plain=(hangs,))) == set()
    assert UP not in {each.reach for each in (hangs,)}


def test_the_judge_grants_the_exemption_of_slow_hosts_once_a_day() -> None:
    # An hour earlier than the day before: its robots.txt is still fresh, and yet asked for.
    early = [
        replace(e, start=e.start - HOUR, end=e.end - HOUR, wall=e.wall - HOUR)
        if e.run == 4 and e.host == SLOWLY
        else e
        for e in honest()
    ]
    assert "R4.3" in found(early)


def test_the_judge_leaves_open_what_a_kill_left_open() -> None:
    ran = runs()
    ran[3] = replace(ran[3], killed=True, end=begin(3) + 3.2, rows={}, octets={})
    again = replace(ran[3], number=DAYS + 1, killed=False, start=begin(3) + 420)
    again = replace(again, wall=again.start, end=again.start + 10, rows=ran[2].rows)
    again = replace(again, octets=ran[2].octets)
    log = [e for e in honest() if e.run != 4 or e.start < begin(3) + 3.2]
    asked_again = [
        replace(sent(3, 420, PAGE), run=DAYS + 1),
        replace(sent(3, 424, SLOW_ROBOTS), run=DAYS + 1),
        replace(sent(3, 426, PAGES[1]), run=DAYS + 1),
    ]
    in_order = [*ran[:4], again, *ran[4:]]
    assert found([*log, *asked_again], ran=in_order) == set()
    assert found([*log, *asked_again[1:]], ran=in_order) == set()
    earlier = replace(ran[3], end=begin(3) + 60)  # it had kept the answer for a minute
    assert found([*log, *asked_again], ran=[*ran[:3], earlier, again, *ran[4:]]) == {due.SOON}


def grown(change: Callable[[int, Ran], Ran]) -> set[str]:
    """What the judge finds where each run leaves something else behind."""
    many = [
        change(number, replace(runs()[0], number=number, rows={"sources": 3}, octets={}))
        for number in range(1, 61)
    ]
    book = Book(world(), [], many)
    questions = (growth.rows, growth.octets, growth.startup)
    return {each.rule for question in questions for each in question(book)}


def level(number: int, ran: Ran) -> Ran:
    return replace(ran, octets={"ledger": 1000 * number, "database": 50_000})


def test_the_judge_sees_what_grows_with_the_number_of_runs() -> None:
    assert grown(level) == set()
    assert grown(lambda n, r: replace(level(n, r), rows={"sources": n})) == {"R11"}
    assert grown(lambda n, r: replace(level(n, r), rows={growth.LINKS: 10_000})) == {"R11"}
    ledger = {"database": 50_000}
    square = lambda n, r: replace(r, octets={"ledger": 1000 * n * n, **ledger})  # noqa: E731
    assert grown(square) == {"R11"}
    assert grown(lambda n, r: replace(level(n, r), startup=0.05 * n)) == {"R11"}
    database = lambda n, r: replace(r, octets={"ledger": 0, "database": 1000 * n * n})  # noqa: E731
    assert grown(database) == {"R11"}


def test_the_judge_holds_the_report_to_its_word() -> None:
    ran = runs()
    ran[2] = replace(ran[2], promised={PAGE: begin(3) + HOUR})
    assert found(honest(), ran=ran) == {due.REPORT}
    ran[2] = replace(ran[2], promised={PAGE: begin(3)})
    assert found(honest(), ran=ran) == set()


def test_a_clock_that_is_set_moves_the_time_that_the_report_named_and_no_further() -> None:
    ran = runs()
    there_and_back = (Shift(begin(3) - 2 * HOUR, -HOUR / 2), Shift(begin(3) - HOUR, HOUR / 2))
    ran[2] = replace(ran[2], promised={PAGE: begin(3) + HOUR})
    assert found(honest(), ran=ran, shifts=there_and_back) == set()
    ran[2] = replace(ran[2], promised={PAGE: begin(3) + 2 * HOUR})
    assert found(honest(), ran=ran, shifts=there_and_back) == {due.REPORT}


def test_a_run_that_ends_in_a_traceback_is_seen() -> None:
    ran = runs()
    ran[2] = replace(ran[2], trouble=["Traceback (most recent call last): ..."])
    assert found(honest(), ran=ran) == {"runs"}
