"""What ``verify`` makes of several days: R8's rhythm, slow hosts, and a clock that is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import RULE, Forge, H, digest, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY = 86400.0
SLOW = b"User-agent: *\nDisallow: /private/\nAllow: /\nCrawl-delay: 600\n"
#: With what the gates let a target pass by those rules.
BY_SLOW: dict[str, Any] = {"verdict": "allowed_explicit", "digest": digest(SLOW), "interval": 600.0}


def a_day(forge: Forge, number: int, at: float, **settings: Any) -> None:
    """A run of its own, whose targets are declared and whose documents are in force."""
    forge.start(at, f"run{number}", f"p{number}", **settings)
    forge.declare(at + 0.1, f"{H}/a", f"{H}/b")
    forge.operator_list(at + 0.5)


def sent(forge: Forge, at: float, page: str, **more: Any) -> dict[str, Any]:
    """A target of the slow host, and the answer that its spider got."""
    asked = forge.ask(at, f"{H}/{page}", 200, **{**BY_SLOW, **more})
    told = forge.tell(at + 0.02, "fetched", f"{H}/{page}", 200)
    told["digest"] = digest(SLOW)
    return asked


def visit(forge: Forge, at: float, page: str, after: float = 1.02) -> dict[str, Any]:
    """A robots.txt that had to be refreshed, and the one target that follows it."""
    forge.robots(at, SLOW)["digest"] = digest(SLOW)
    forge.entries[-2]["exempt"] = False
    return sent(forge, at + after, page, visit=True)


def slow_days(**settings: Any) -> Forge:
    """Two daily runs over a slow host: /a, then /b, which was put off."""
    forge = Forge()
    for number, page in enumerate("ab"):
        at = number * (DAY + 60)
        a_day(forge, number, at, slow_hosts="visit", **settings)
        visit(forge, at + 10, page)
        left = "b" if page == "a" else "a"
        forge.add(
            at + 12,
            "deferred",
            url=f"{H}/{left}",
            host="h.test",
            requirement="R4",
            verdict="deferred",
            reason="h.test may not be asked before then",
            due=forge.entries[-1]["at"] + 600,
        )
        forge.add(at + 13, "ended", reason="finished")
    return forge


def test_r4_one_target_of_a_slow_host_may_follow_its_robots_txt(tmp_path: Path) -> None:
    report = slow_days().check(tmp_path, SLOW)
    assert told(report) == []


def too_soon(forge: Forge) -> dict[str, Any]:
    one = forge.only("asked", f"{H}/b")
    one["started"] -= 0.2
    one["ended"] -= 0.2
    return one


def second_in_a_day(forge: Forge) -> dict[str, Any]:
    forge.entries = [each for each in forge.entries if each["at"] < forge.entries[0]["at"] + DAY]
    a_day(forge, 3, DAY / 2, slow_hosts="visit")
    return visit(forge, DAY / 2 + 10, "b")


def not_rested(forge: Forge) -> dict[str, Any]:
    """The host was sent its last target five minutes before: too soon for a robots.txt, too."""
    a_day(forge, 3, 2 * DAY, slow_hosts="visit")
    visit(forge, 2 * DAY + 100, "a")
    a_day(forge, 4, 3 * DAY + 200, slow_hosts="visit")
    sent(forge, 3 * DAY + 210, "b")
    a_day(forge, 5, 3 * DAY + 500, slow_hosts="visit")
    return visit(forge, 3 * DAY + 510, "a")


def without_robots(forge: Forge) -> dict[str, Any]:
    forge.run = "run1"
    end = forge.entries.pop()
    one = sent(forge, DAY + 700, "a", visit=True)
    forge.entries.append({**end, "at": end["at"] + 800})
    return one


def skipping(forge: Forge) -> dict[str, Any]:
    for entry in forge.entries:
        if entry["kind"] == "started":
            entry["settings"]["slow_hosts"] = "skip"
    return forge.only("asked", f"{H}/a")


def patient(forge: Forge) -> dict[str, Any]:
    """A run that waits 600 s is not excused from them."""
    for entry in forge.entries:
        if entry["kind"] == "started":
            entry["settings"]["patience"] = 900.0
    return forge.only("asked", f"{H}/a")


def hasty(forge: Forge) -> dict[str, Any]:
    """It follows after a second, in a run whose WALSH_MIN_INTERVAL is five."""
    for entry in forge.entries:
        if entry["kind"] == "started":
            entry["settings"]["min_interval"] = 5.0
    return forge.only("asked", f"{H}/b")


def unmarked(forge: Forge) -> dict[str, Any]:
    one = forge.only("asked", f"{H}/b")
    del one["visit"]
    return one


@pytest.mark.parametrize(
    "broken",
    [too_soon, second_in_a_day, not_rested, without_robots, skipping, patient, hasty, unmarked],
)
def test_r4_what_no_slow_host_excuses_is_named(
    broken: Callable[[Forge], dict[str, Any]], tmp_path: Path
) -> None:
    forge = slow_days()
    wrong = broken(forge)
    found = told(forge.check(tmp_path, SLOW))
    assert any(line.startswith(f"line {forge.number(wrong)}: R4") for line in found), found


def rhythm(*times: float, revisit: float = DAY, **settings: Any) -> Forge:
    """A run at each of *times*, which sends one source."""
    forge = Forge()
    for number, at in enumerate(times):
        a_day(forge, number, at, revisit=revisit, **settings)
        forge.robots(at + 1)
        forge.entries[-2]["exempt"] = number == 0
        forge.get(at + 4, f"{H}/a")
        forge.add(at + 9, "ended", reason="finished")
    return forge


@pytest.mark.parametrize(
    "times", [(0, DAY - 600, 2 * DAY + 900), (0, 0.91 * DAY, 1.91 * DAY), (0, 5 * DAY, 6 * DAY)]
)
def test_r8_a_daily_rhythm_holds(times: tuple[float, ...], tmp_path: Path) -> None:
    assert told(rhythm(*times).check(tmp_path)) == []


@pytest.mark.parametrize("times", [(0, 0.89 * DAY), (0, DAY + 8000, 2 * DAY - 8000), (0, 3000)])
def test_r8_a_source_sent_before_its_time_is_named(
    times: tuple[float, ...], tmp_path: Path
) -> None:
    forge = rhythm(*times)
    last = [entry for entry in forge.entries if entry.get("url") == f"{H}/a"][-2]
    found = told(forge.check(tmp_path))
    assert any(line.startswith(f"line {forge.number(last)}: R8") for line in found), found


def cadenced(*times: float, **declared: float) -> Forge:
    """As :func:`rhythm`; *declared*: by run (``of0``), the cadence that it declares for /a."""
    forge = rhythm(*times)
    for number, each in enumerate(e for e in forge.entries if e.get("url") == f"{H}/a"
                                  and e["kind"] == "declared"):  # fmt: skip
        if f"of{number}" in declared:
            each["revisit"] = declared[f"of{number}"]
    return forge


@pytest.mark.parametrize(
    ("times", "declared", "kept"),
    [
        ((0, 7 * DAY, 13.9 * DAY), {"of0": 7 * DAY, "of1": 7 * DAY, "of2": 7 * DAY}, True),
        ((0, 3700, 7300), {"of0": 3600.0, "of1": 3600.0, "of2": 3600.0}, True),
        ((0, DAY), {"of0": 7 * DAY, "of1": 7 * DAY}, False),
        ((0, DAY), {"of1": 7 * DAY}, False),
        ((0, DAY), {"of0": 7 * DAY}, True),  # taken out of the list: from then on it is daily
        ((0, 3700), {"of0": 3600.0}, False),
        ((0, 3000), {"of0": 60.0, "of1": 60.0}, False),  # never under the hour
    ],
)
def test_r8_a_source_is_judged_by_the_cadence_that_its_run_declares(
    times: tuple[float, ...], declared: dict[str, float], kept: bool, tmp_path: Path
) -> None:
    found = told(cadenced(*times, **declared).check(tmp_path))
    assert any(": R8" in line for line in found) is not kept, found
    assert not kept or found == []


@pytest.mark.parametrize(("days", "kept"), [(2, False), (29, False), (30.1, True)])
@pytest.mark.parametrize(
    ("status", "words"),
    [(410, ""), (402, ""), (402, "Crawler-Price: USD 1"), (451, ""), (401, "License")],
)
def test_a_source_that_is_gone_or_closed_and_sent_within_thirty_days_is_named(
    status: int, words: str, days: float, kept: bool, tmp_path: Path
) -> None:
    found = told(closed(status, words, days).check(tmp_path))
    assert [line for line in found if ": R8" in line] == [] if kept else found, found


def closed(status: int, words: str, days: float) -> Forge:
    """As :func:`rhythm`, with a second run after *days*. Each answer has *status* and *words*."""
    forge = rhythm(0, days * DAY)
    for each in (entry for entry in forge.entries if entry.get("url") == f"{H}/a"):
        if each.get("status") == 200 and each["kind"] in {"asked", "fetched"}:
            each["status"] = status
            if each["kind"] == "asked" and words:
                each["words"] = words
    return forge


@pytest.mark.parametrize("status", [401, 403, 404])
def test_another_refusal_keeps_the_interval(status: int, tmp_path: Path) -> None:
    """A 401 without the challenge of a licence closes no door."""
    assert told(closed(status, "", 1).check(tmp_path)) == []


@pytest.mark.parametrize("status", [402, 451])
def test_a_ledger_of_before_knows_no_closed_doors(status: int, tmp_path: Path) -> None:
    forge = closed(status, "", 1)
    for each in forge.entries:
        if each["kind"] == "started":
            del each["stored_form"]
    assert [line for line in told(forge.check(tmp_path)) if ": R8" in line] == []


@pytest.mark.parametrize(
    ("hints", "second", "holds", "kept"),
    [
        ({"seconds": 7200.0, "origin": "ttl"}, 3700, DAY, False),
        ({"seconds": 7200.0, "origin": "ttl"}, 7300, DAY, True),
        ({"seconds": 7200.0, "origin": "ttl"}, 3700, 0.0, True),
        ({"seconds": 9e9, "origin": "ttl"}, DAY + 100, DAY, True),
        ({"seconds": 3600.0, "origin": "ttl"}, 3700, DAY, True),
        ({"skip_hours": 2**24 - 1}, 3700, DAY, False),
        (None, 3700, DAY, True),
    ],
)
def test_a_source_that_is_sent_before_its_hint_is_over_is_named(
    hints: dict[str, Any] | None, second: float, holds: float, kept: bool, tmp_path: Path
) -> None:
    forge = rhythm(0, second, hints=holds, revisit=3600.0)
    for entry in forge.entries:
        if entry["kind"] == "fetched" and hints:
            entry["hints"] = hints
    found = told(forge.check(tmp_path))
    assert [line for line in found if ": R8" in line] == [] if kept else found, found


def within(**again: Any) -> Forge:
    """One run that sends a source twice."""
    forge = Forge()
    a_day(forge, 0, 0)
    forge.robots(1)
    forge.get(2, f"{H}/a")
    forge.get(5, f"{H}/a", **again)
    forge.add(9, "ended", reason="finished")
    return forge


def test_r8_what_a_run_sends_again_is_marked(tmp_path: Path) -> None:
    assert told(within(again=True).check(tmp_path / "marked")) == []
    assert "R8" in "".join(told(within().check(tmp_path / "unmarked")))


def test_r8_another_method_is_another_request(tmp_path: Path) -> None:
    forge = within(form="POST 0123456789abcdef")
    assert told(forge.check(tmp_path)) == []


def put_back(forge: Forge, at: float, seconds: float) -> None:
    """Set the wall clock back at *at*: later lines say less, the clock of pacing goes on."""
    start = forge.entries[0]["at"]
    for entry in forge.entries:
        if entry["at"] > start + at:
            entry["at"] -= seconds


@pytest.mark.parametrize("seconds", [3600.0, 10 * 365 * DAY])
def test_r12_a_clock_that_is_put_back_within_a_run_is_no_finding(
    seconds: float, tmp_path: Path
) -> None:
    forge = Forge()
    a_day(forge, 0, 0)
    forge.robots(1)
    forge.get(2, f"{H}/a", started=forge.entries[0]["at"] + 1.5)  # under way when it is set
    forge.operator_list(5)  # what was fetched in the future is fetched again
    forge.robots(6)
    forge.entries[-2].update(exempt=False, interval=2.0)
    forge.get(9, f"{H}/b")
    forge.add(12, "ended", reason="finished")
    put_back(forge, 1.9, seconds)
    assert told(forge.check(tmp_path)) == []


def test_the_rule_of_a_slow_host_is_that_of_its_documents() -> None:
    """The kit's own rules name the same rule at the same line, so that verdicts can be compared."""
    assert RULE["line"] == SLOW.split(b"\n").index(b"Allow: /") + 1
