"""R5: how many attempts without an answer a run grants a host."""

from __future__ import annotations

import pytest

from scrapy_walsh.policy.backoff import GiveUp, Retry, after_failure, granted
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.host import Host, Silence, Terms


@pytest.mark.parametrize("position", ["defer", "deny"])
@pytest.mark.parametrize("retries", range(6))
def test_r5_6_a_host_gets_what_r5_grants_one_url(retries: int, position: str) -> None:
    assert granted(retries, position) == retries + 1


@pytest.mark.parametrize(("retries", "attempts"), [*enumerate([2, 3, 3, 4, 5, 6])])
def test_r5_6_under_allow_a_target_gets_the_last(retries: int, attempts: int) -> None:
    silence = Silence(retries, "allow")
    for made in range(attempts):
        assert silence.spent(0.0, robots=True) is (made == attempts - 1)
        assert not silence.spent(0.0)
        silence.note(0.0)
    assert silence.spent(0.0)
    assert granted(retries, "allow") == attempts


@pytest.mark.parametrize("position", ["defer", "deny"])
def test_r5_6_else_robots_txt_may_use_all(position: str) -> None:
    host = Host("h", Terms(Gates(max_retries=5), position))
    for _ in range(5):
        host.silence.note(0.0)
    assert host.spent(0.0, document=True) is host.spent(0.0) is None
    host.silence.note(0.0)
    verdict = host.spent(0.0, document=True)
    assert verdict is not None
    assert (verdict.allowed, verdict.name, verdict.requirement) == (False, "deferred", "R5")
    assert verdict.reason.startswith("h gave no answer to 6 requests")


def test_own_a_fleet_forgets() -> None:
    silence = Silence(1, "deny", forget_after=3600.0)
    silence.note(0.0)
    silence.note(3000.0)
    assert silence.spent(6599.0)
    assert not silence.spent(6600.0)
    silence.note(6600.0)
    assert silence.count(6600.0) == 1


def test_r5_6_the_last_attempt_of_a_host_is_not_retried() -> None:
    def after(last: str) -> object:
        return after_failure(None, [], 0, now=0.0, rand=0.5, last=last)

    assert isinstance(after(""), Retry)
    found = after("h is silent")
    assert isinstance(found, GiveUp)
    assert found.why == "no answer; given up: h is silent"
    assert found.hold == 0.5


@pytest.mark.parametrize("position", ["allow", "defer", "deny"])
@pytest.mark.parametrize("retries", range(6))
def test_own_a_host_that_was_silent_in_an_earlier_run_gets_one_attempt(
    retries: int, position: str
) -> None:
    host = Host("h", Terms(Gates(max_retries=retries), position))
    silence = host.silence
    silence.before = True
    assert host.goes_last(0.0)
    assert host.spent(0.0, document=True) is host.spent(0.0) is None
    silence.note(0.0)
    assert not host.goes_last(0.0)
    verdict = host.spent(0.0, document=True)
    assert verdict is not None
    assert verdict == host.spent(0.0)
    assert verdict.reason == (
        "h gave no answer to 1 request, nor in an earlier run, and this run makes no more to it"
    )
    assert silence.lasts(0.0)


def test_own_a_host_that_answers_has_its_usual_attempts_again() -> None:
    host = Host("h", Terms(Gates(max_retries=5), "allow"))
    silence = host.silence
    silence.before = True
    silence.answered(0.0)
    assert not silence.before
    assert not host.goes_last(0.0)
    for _ in range(5):
        silence.note(0.0)
    assert not silence.spent(0.0)
    silence.note(0.0)
    assert silence.spent(0.0)
    assert not silence.lasts(0.0)  # it gave an answer in this run


@pytest.mark.parametrize(("position", "attempts"), [("allow", 5), ("defer", 6), ("deny", 6)])
def test_own_it_is_silent_once_it_has_used_what_a_robots_txt_is_granted(
    position: str, attempts: int
) -> None:
    silence = Silence(5, position)
    for made in range(attempts):
        assert not silence.lasts(0.0), made
        silence.note(0.0)
    assert silence.lasts(0.0)


def test_own_a_worker_of_a_fleet_goes_by_the_last_hour() -> None:
    silence = Silence(0, "deny", forget_after=3600.0)
    silence.answered(0.0)
    silence.note(100.0)
    assert not silence.lasts(100.0)
    silence.note(5000.0)
    assert silence.lasts(5000.0)
