"""R5: how many attempts without an answer a run grants a host."""

from __future__ import annotations

import pytest

from scrapy_walsh.policy.backoff import Answer, GiveUp, Retry, after_failure, silent_attempts
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.host import Host, Silence, Terms


@pytest.mark.parametrize("position", ["defer", "deny"])
@pytest.mark.parametrize("retries", range(6))
def test_r5_6_a_host_gets_what_r5_grants_one_url(retries: int, position: str) -> None:
    assert silent_attempts(retries, position) == retries + 1


def answered(max_retries: int, position: str) -> Silence:
    silence = Silence(max_retries, position)
    silence.answered(0.0)
    return silence


@pytest.mark.parametrize(("retries", "attempts"), [*enumerate([3, 3, 4, 5, 6], 1)])
def test_r5_6_under_allow_a_target_gets_the_last(retries: int, attempts: int) -> None:
    silence = answered(retries, "allow")
    for made in range(attempts):
        assert silence.spent(0.0, robots=True) is (made == attempts - 1)
        assert not silence.spent(0.0)
        silence.note(0.0, f"/{made}")
    assert silence.spent(0.0)
    assert silent_attempts(retries, "allow") == attempts


@pytest.mark.parametrize("position", ["defer", "deny"])
def test_r5_6_else_robots_txt_may_use_all(position: str) -> None:
    host = Host("h", Terms(Gates(max_retries=5), position))
    host.silence.answered(0.0)
    for _ in range(5):
        host.silence.note(0.0, "http", robots=True)
    assert host.spent(0.0, document=True) is host.spent(0.0) is None
    host.silence.note(0.0, "https", robots=True)
    verdict = host.spent(0.0, document=True)
    assert verdict is not None
    assert (verdict.allowed, verdict.name, verdict.requirement) == (False, "deferred", "R5")
    assert verdict.reason.startswith("h did not answer 6 times")


#: What a run grants a host that has answered nothing in it, by WALSH_ROBOTS_UNREACHABLE and whether
#: its rules are known: R for its robots.txt, T for a target.
GRANTED = {
    ("allow", False): "RRT",
    ("defer", False): "RR",
    ("deny", False): "RR",
    ("allow", True): "TT",
    ("defer", True): "TT",
    ("deny", True): "TT",
}


def sent(silence: Silence, wanted: str) -> str:
    """Of the attempts *wanted*, in order, those that are granted; none is answered."""
    made = ""
    for each in wanted:
        if not silence.spent(0.0, robots=each == "R"):
            silence.note(0.0, robots=each == "R")
            made += each
    return made


@pytest.mark.parametrize("retries", range(1, 6))
@pytest.mark.parametrize(("position", "known"), GRANTED)
def test_a_host_that_has_answered_nothing_gets_two_attempts(
    position: str, known: bool, retries: int
) -> None:
    wanted = "TTTT" if known else "RRRRTTTT"
    assert sent(Silence(retries, position), wanted) == GRANTED[position, known]


@pytest.mark.parametrize("retries", range(6))
@pytest.mark.parametrize(("position", "known"), GRANTED)
@pytest.mark.parametrize("connected", ["", "R", "RR", "T"])
def test_d13_without_a_connection_a_target_gets_no_third_attempt(
    position: str, known: bool, retries: int, connected: str
) -> None:
    """*connected*: the first attempts, to which a TCP connection came about."""
    silence = Silence(retries, position)
    made = ""
    for wanted in connected + ("TTTT" if known else "RRRRTTTT"):
        if not silence.spent(0.0, robots=wanted == "R"):
            is_connected = connected.startswith(made + wanted)
            silence.note(0.0, robots=wanted == "R", connected=is_connected)
            made += wanted
    assert silence.unanswered("h", 0.0).dead == (not connected)
    if not connected:
        assert len(made) == min(retries + 1, 2), made
        assert known or "T" not in made
    silence.answered(1.0)
    assert not silence.unanswered("h", 1.0).dead


def test_an_attempt_for_robots_txt_and_one_for_a_target_are_two() -> None:
    assert sent(Silence(5, "allow"), "RTT") == "RT"
    assert [sent(Silence(0, each), "RRTT") for each in ("allow", "defer")] == ["RT", "R"]


def test_it_goes_last_from_its_first_attempt_without_an_answer_until_it_answers() -> None:
    host = Host("h", Terms(Gates(), "defer"))
    assert not host.goes_last(0.0)
    host.silence.note(0.0, robots=True)
    assert host.goes_last(0.0)
    host.silence.answered(0.0)
    assert not host.goes_last(0.0)
    host.silence.note(0.0)
    assert not host.goes_last(0.0)  # it has answered in this run


def test_what_a_run_sends_no_more_to_waits_for_nobody() -> None:
    host = Host("h", Terms(Gates(), "defer"))
    for _ in range(2):
        host.silence.note(0.0, robots=True)
    assert not host.goes_last(0.0)
    assert host.turn(0.0) < 0.0


def test_a_fleet_forgets() -> None:
    silence = Silence(5, "deny", forget_after=3600.0)
    silence.note(0.0, robots=True)
    silence.note(3000.0, robots=True)
    assert silence.spent(6599.0)
    assert not silence.spent(6600.0)
    silence.note(6600.0)
    assert (silence.count(6600.0), silence.documents) == (1, 0)


def test_r5_6_the_last_attempt_of_a_host_is_not_retried() -> None:
    def after(last: str) -> object:
        return after_failure(Answer("target", None, last=last), Gates(), 0.0, 0.5)

    assert isinstance(after(""), Retry)
    found = after("h is silent")
    assert isinstance(found, GiveUp)
    assert found.reason() == "no answer; given up: h is silent"
    assert found.delay == 0.5


@pytest.mark.parametrize("position", ["allow", "defer", "deny"])
@pytest.mark.parametrize("retries", range(6))
def test_a_host_that_was_silent_in_an_earlier_run_gets_one_attempt(
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
    assert verdict.reason == "h did not answer, nor in an earlier run; skipped"
    assert silence.lasts(0.0)


def test_a_host_that_answers_has_its_usual_attempts_again() -> None:
    host = Host("h", Terms(Gates(max_retries=5), "allow"))
    silence = host.silence
    silence.before = True
    silence.answered(0.0)
    assert not silence.before
    assert not host.goes_last(0.0)
    for _ in range(5):
        silence.note(0.0, "/a")
    assert not silence.spent(0.0)
    silence.note(0.0, "/b")
    assert silence.spent(0.0)
    assert not silence.lasts(0.0)  # it gave an answer in this run


def in_vain(*said: str) -> int:
    """How many of these are granted to a host that has answered: a URL in vain, or ``-``: answered.

    By the number of the last that is granted.
    """
    silence = answered(5, "defer")
    for place, each in enumerate(said):
        if silence.spent(0.0):
            return place
        if each == "-":
            silence.answered(0.0)
        else:
            silence.note(0.0, each)
    return len(said)


def test_one_url_does_not_use_up_the_account_of_its_host() -> None:
    six = "a" * 6
    assert in_vain(*six, "b", "c") == 7  # another one is asked for, and that ends it
    assert in_vain(*"abababab") == 6
    for said in (f"{six}-b-c-d", f"{six}-bbbbbb-c-d", f"{six}bbbbb", f"{six}-{six}-b"):
        expected = 7 if said == f"{six}bbbbb" else len(said)
        assert in_vain(*said) == expected, said


def test_six_urls_in_vain_end_a_host_whatever_it_answers_between() -> None:
    assert in_vain(*"a-b-c-d-e-f-g-h") == 11


def test_the_last_urls_of_a_worker_of_a_fleet_are_forgotten() -> None:
    silence = Silence(5, "deny", forget_after=3600.0)
    silence.answered(0.0)
    for url in "abcde":
        silence.note(10.0, url)
    silence.answered(4000.0)
    silence.note(4000.0, "f")
    assert not silence.spent(4000.0)


@pytest.mark.parametrize(("position", "attempts"), [("allow", 2), ("defer", 2), ("deny", 2)])
def test_it_is_silent_once_it_has_used_what_a_robots_txt_is_granted(
    position: str, attempts: int
) -> None:
    silence = Silence(5, position)
    for made in range(attempts):
        assert not silence.lasts(0.0), made
        silence.note(0.0)
    assert silence.lasts(0.0)


def test_a_worker_of_a_fleet_goes_by_the_last_hour() -> None:
    silence = Silence(0, "deny", forget_after=3600.0)
    silence.answered(0.0)
    silence.note(100.0)
    assert not silence.lasts(100.0)
    silence.note(5000.0)
    assert silence.lasts(5000.0)
