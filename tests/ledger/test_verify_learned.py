"""R4, D28: verify derives what a host has taught, and finds what is forged, missing or not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import ROBOTS, ROBOTS_URL, Forge, H, T, digest, honest, told
from tests.ledger.test_verify_forged import DAY, declared, drop, name_of, third_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    #: Breaks one promise in a ledger, and gives the entry that must be named.
    Break = Callable[[Forge], dict[str, Any]]

PAGES = [f"{H}/{number}" for number in range(4)]
BEGIN = 3 * DAY
#: Its robots.txt asks for two seconds, so two refusals make it four.
TAUGHT = 4.0


def refused(forge: Forge, at: float, attempt: int, **more: Any) -> dict[str, Any]:
    asked = forge.ask(BEGIN + at, PAGES[0], 429, wait=0.5, attempt=attempt, **more)
    forge.add(BEGIN + at + 0.02, "retried", url=PAGES[0], host="h.test", status=429, wait=0.5)
    return asked


def taught(forge: Forge) -> Forge:
    """A run that is refused twice, and then answered."""
    declared(third_run(forge, longest_learned=60.0), *PAGES)
    refused(forge, 5, 0)
    refused(forge, 8, 1, learned=TAUGHT)
    forge.get(BEGIN + 13, PAGES[0], attempt=2, interval=TAUGHT)
    forge.get(BEGIN + 18, PAGES[1], interval=TAUGHT)
    return forge


def next_run(forge: Forge, **more: Any) -> dict[str, Any]:
    """A run an hour later; *more*: of its first exchange with the host."""
    forge.add(BEGIN + 20, "ended", reason="finished")
    forge.start(BEGIN + 3600, "four", "p4", longest_learned=60.0)
    forge.operator_list(BEGIN + 3601)
    forge.in_force(BEGIN + 3602, "taken_up", digest(ROBOTS))
    forge.declare(BEGIN + 3603, PAGES[2])
    return forge.get(BEGIN + 3604, PAGES[2], **more)


#: Interval, smallest accepted gap, accepted answers since the last 429, when that came, and what
#: was in force before: what the third run leaves.
LEFT = [TAUGHT, 18 - 13.01, 2, T + BEGIN + 8.01, 0.0]


def asked(forge: Forge, url: str = PAGES[0], nth: int = 0) -> dict[str, Any]:
    return forge.only("asked", url, nth)


def none_learned(forge: Forge) -> dict[str, Any]:
    del asked(taught(forge), nth=1)["learned"]
    return asked(forge, nth=1)


def too_little_learned(forge: Forge) -> dict[str, Any]:
    asked(taught(forge), nth=1)["learned"] = 2.5
    return asked(forge, nth=1)


def learned_from_one_refusal(forge: Forge) -> dict[str, Any]:
    asked(taught(forge))["learned"] = TAUGHT
    return asked(forge)


def learned_from_an_answer(forge: Forge) -> dict[str, Any]:
    asked(taught(forge), PAGES[1])["learned"] = 0.0
    return asked(forge, PAGES[1])


def not_kept(forge: Forge) -> dict[str, Any]:
    asked(taught(forge), PAGES[1])["interval"] = 2.0
    return asked(forge, PAGES[1])


def a_refusal_taken_out(forge: Forge) -> dict[str, Any]:
    drop(taught(forge), asked(forge), forge.only("retried", PAGES[0]))
    return asked(forge)


def less_taken_than_was_left(forge: Forge) -> dict[str, Any]:
    return next_run(taught(forge), taught=[2.5, *LEFT[1:]], interval=2.5)


def taken_and_not_kept(forge: Forge) -> dict[str, Any]:
    return next_run(taught(forge), taught=LEFT, interval=2.0)


def what_nobody_taught(forge: Forge) -> dict[str, Any]:
    """Another time: it would be halved later."""
    return next_run(taught(forge), taught=[*LEFT[:3], LEFT[3] + 600, 0.0], interval=TAUGHT)


def refused_again(forge: Forge, interval: float) -> dict[str, Any]:
    """A third refusal makes it longer: to the gap before PAGES[1]. Its retry comes after that."""
    forge = taught(forge)
    asked = {"wait": 0.5, "interval": TAUGHT, "learned": LEFT[1]}
    forge.ask(BEGIN + 24, PAGES[2], 429, **asked)
    forge.add(BEGIN + 24.02, "retried", url=PAGES[2], host="h.test", status=429, wait=0.5)
    return forge.get(BEGIN + 28.5, PAGES[2], attempt=1, interval=interval)


def sooner_than_what_was_in_force(forge: Forge) -> dict[str, Any]:
    return refused_again(forge, interval=2.0)


def taken_of_another_form(forge: Forge) -> dict[str, Any]:
    return next_run(taught(forge), taught=[TAUGHT], interval=TAUGHT)


def a_longest_of_its_own(forge: Forge) -> dict[str, Any]:
    taught(forge)
    started = forge.only("started", nth=2)
    started["settings"]["longest_learned"] = 3.0
    return started


BREAKS = [
    none_learned, too_little_learned, learned_from_one_refusal, learned_from_an_answer, not_kept,
    a_refusal_taken_out, sooner_than_what_was_in_force, less_taken_than_was_left,
    what_nobody_taught, taken_and_not_kept, taken_of_another_form, a_longest_of_its_own,
]  # fmt: skip


@pytest.mark.parametrize("broken", BREAKS, ids=name_of)
def test_a_forged_or_missing_lesson_is_named_by_its_line(broken: Break, tmp_path: Path) -> None:
    forge = honest()
    entry = broken(forge)
    report = forge.check(tmp_path)
    named = {(finding.line, finding.rule) for finding in report.findings}
    assert (forge.number(entry), "R4") in named, told(report)


def test_an_honest_lesson_is_derived(tmp_path: Path) -> None:
    report = taught(honest()).check(tmp_path)
    assert told(report) == []


def test_what_is_learned_binds_from_the_next_accepted_answer_on(tmp_path: Path) -> None:
    forge = honest()
    refused_again(forge, interval=TAUGHT)
    assert told(forge.check(tmp_path)) == []


def test_the_next_run_goes_by_what_was_left(tmp_path: Path) -> None:
    forge = taught(honest())
    next_run(forge, taught=LEFT, interval=TAUGHT)
    report = forge.check(tmp_path)
    assert told(report) == []
    assert not [why for why in report.underived if "depend on missing lines" in why]


def test_what_was_left_is_halved_after_two_days(tmp_path: Path) -> None:
    """The honest run goes by what is left of it: two seconds, by the middle of a long run."""
    forge = honest()
    taught(forge)
    forge.add(BEGIN + 20, "ended", reason="finished")
    later = BEGIN + 3 * DAY
    forge.start(later, "four", "p4", longest_learned=60.0)
    forge.operator_list(later + 1)
    forge.ask(later + 2, ROBOTS_URL, 200, "robots", interval=2.0, taught=[
        2.0, TAUGHT, 2, LEFT[3] + 2 * DAY, 0.0,
    ])  # fmt: skip
    report = forge.check(tmp_path)
    assert told(report) == []
    assert not [why for why in report.underived if "depend on missing lines" in why]


def test_a_lesson_that_was_dropped_is_counted_and_is_no_finding(tmp_path: Path) -> None:
    """``state forget`` drops it, and writes no line."""
    forge = taught(honest())
    next_run(forge)
    report = forge.check(tmp_path)
    assert told(report) == []
    assert [why for why in report.underived if "state forget" in why]


@pytest.mark.parametrize("killed", [True, False])
def test_what_rests_on_other_lines_is_counted_and_is_no_finding(
    tmp_path: Path, killed: bool
) -> None:
    """A longer interval, as an import brings it; a shorter one after a run that was killed."""
    forge = taught(honest())
    interval = 3.0 if killed else 8.0
    next_run(forge, taught=[interval, *LEFT[1:]], interval=interval)
    if killed:
        drop(forge, forge.only("ended", nth=2))
    report = forge.check(tmp_path)
    assert told(report) == []
    assert [why for why in report.underived if "depend on missing lines" in why]
