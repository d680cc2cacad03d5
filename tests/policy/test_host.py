"""R4, R5: a host keeps the answer of *admit*, and never longer than it is true."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy import chain
from scrapy_walsh.policy.backoff import Answer
from scrapy_walsh.policy.event import Pace
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.host import Host, Terms
from scrapy_walsh.policy.throttle import Learned
from scrapy_walsh.policy.verdict import Verdict

HOUR = 3600.0

#: What may happen to a host; a number is the seconds that it is about.
EVENTS = {
    "started": lambda host, now, _: host.traffic.started(now),
    "finished": lambda host, now, _: host.traffic.finished(now),
    "first robots.txt": lambda host, now, _: host.traffic.finished(now, exempt=True),
    "given back": lambda host, now, seconds: host.traffic.gave_back(now + seconds),
    "hold": lambda host, now, seconds: host.traffic.hold(now + seconds),
    "Crawl-delay": lambda host, _, seconds: host.traffic.set_interval(seconds),
    "taught": lambda host, _, seconds: host.learn(Learned(seconds)),
    "robots.txt of a slow host": lambda host, _, seconds: host.traffic.visit(seconds),
    "no answer": lambda host, now, _: host.silence.note(now),
    "answer": lambda host, now, _: host.silence.answered(now),
    "an earlier run": lambda host, now, seconds: host.traffic.restore(now - seconds, now),
    "another crawl's minimum": lambda host, _, seconds: host.traffic.raise_minimum(seconds),
    "nothing": lambda host, now, seconds: None,
}
seconds = st.sampled_from([0.0, 0.5, 1.0, 2.0, 50.0, 299.0, 300.0, 301.0, HOUR, 2 * HOUR])
steps = st.lists(st.tuples(seconds, st.sampled_from(sorted(EVENTS)), seconds), max_size=30)


def anew(host: Host, now: float) -> Verdict | float:
    """What the chain says, with nothing kept."""
    wait, gates = host.traffic.wait(now), host.terms.gates
    pace = Pace(host.key, wait, host.traffic.interval, host.spent(now))
    return chain.admit(pace, gates, now)


@given(steps, st.booleans(), st.booleans(), st.booleans())
def test_r4_what_is_kept_is_what_the_chain_says_now(
    steps: list[tuple[float, str, float]], skip_slow: bool, fleet: bool, silent: bool
) -> None:
    now = 1000.0
    gates = Gates(max_retries=1, skip_slow=skip_slow)
    terms = Terms(gates, forget_after=HOUR if fleet else math.inf)
    host = Host("h.test", terms)
    host.silence.before = silent
    for pause, event, about in steps:
        EVENTS[event](host, now, about)
        assert kind(host.admit(now)) == kind(anew(host, now))
        now += pause
        assert kind(host.admit(now)) == kind(anew(host, now)), (pause, event, about)


RANDS = st.lists(st.floats(0, 1, exclude_max=True), min_size=5, max_size=5)


@given(RANDS, st.sampled_from([0.0, 1.5, 4.0, 20.0]))
def test_r5_5_the_waits_after_429_are_those_after_503(rands: list[float], taught: float) -> None:
    """Where both are drawn alike, they are alike, and never shorter than the interval in force."""
    waits = {status: retries(status, rands, taught) for status in (429, 503)}
    assert waits[429] == pytest.approx(waits[503])
    assert min(waits[429]) >= max(1.0, taught)


def retries(status: int, rands: list[float], taught: float) -> list[float]:
    """The seconds before each retry at a host that answers all by *status*."""
    gates, now, waits = Gates(), 1000.0, []
    host = Host("h.test", Terms(gates))
    host.learn(Learned(taught, 0.0, 3, now) if taught else Learned())
    host.accepted = now - 1.0
    for attempt, rand in enumerate(rands):
        spacing = host.spacing(now, now + 0.1)
        answer = Answer("target", status, attempt=attempt, spacing=spacing, known=host.learned)
        host.traffic.started(now)
        now += 0.1
        host.finished(answer, chain.conclude(answer, gates, now, rand), now, now)
        waits.append(host.traffic.due - now)
        now = host.traffic.due
    return waits


def test_r5_5_what_429_has_taught_binds_once_an_answer_is_accepted() -> None:
    host, now = Host("h.test", Terms(Gates())), 1000.0
    intervals = []
    for status in (200, 429, 429, 200):
        answer = Answer("target", status, spacing=host.spacing(now, now), known=host.learned)
        host.finished(answer, chain.conclude(answer, Gates(), now, 0.0), now, now)
        intervals.append(host.traffic.interval)
        now = host.traffic.due
    assert intervals == [1.0, 1.0, 1.0, 2.0]


def kind(step: Verdict | float) -> object:
    """The step; of a refusal, without the time of day in its reason."""
    return step.requirement if isinstance(step, Verdict) else step


def test_admit_is_worked_out_when_something_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Pace] = []
    admit = chain.admit

    def counted(pace: Pace, *more: object, **options: object) -> Verdict | float:
        asked.append(pace)
        return admit(pace, *more, **options)

    monkeypatch.setattr(chain, "admit", counted)
    host = Host("h.test")
    assert [host.admit(0.0) for _ in range(5)] == [0.0] * 5
    assert host.turn(0.0) <= 0.0 == host.wait(0.0)
    assert len(asked) == 1
    host.traffic.started(0.0)
    host.traffic.finished(1.0)
    assert [host.admit(1.0 + 0.25 * n) for n in range(4)] == [1.0 - 0.25 * n for n in range(4)]
    assert len(asked) == 2
    assert host.admit(2.0) == 0.0
    assert len(asked) == 3


def test_two_crawls_of_a_process_share_the_spacing_and_not_the_attempts() -> None:
    one = Host("h.test", Terms(Gates(max_retries=0), "deny"))
    other = Host("h.test", one.terms, one.traffic)
    one.silence.note(0.0)
    one.traffic.finished(0.0)
    assert isinstance(one.admit(0.5), Verdict)
    assert other.admit(0.5) == 0.5
