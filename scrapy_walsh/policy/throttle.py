"""Rules of spacing that several processes share (R4, R5; the others are in ``host.py``).

The second part is the interval that a host teaches by its answers 429 (D28).

Some servers allow fewer requests than robots.txt says. For example, nginx's ``limit_req`` at 30 a
minute answers 429 to every second request if they come a second apart. R5 waits after each 429, and
then the host is back at its interval, so the next 429 follows. Here the interval itself grows.

How it works. An answer *refuses* (429), *accepts* (2xx, 3xx and 4xx otherwise), or teaches nothing:
503 and other 5xx mean maintenance or a fault, and no answer means no server. A *gap* is the time
from the end of the last accepted answer to the start of the next request.

- One 429 changes nothing. It only begins a count, ``calm``, of the accepted answers since.
- If a 429 comes within ten requests after another, the interval becomes longer: the smallest gap
  that was accepted, or twice the interval in force if there is no such gap or it is longer. It
  never becomes longer than a minute, or than WALSH_PATIENCE.
- A gap counts only if it is a fifth longer than the interval in force. A server may have a reserve,
  and then it first accepts a gap, and a moment later refuses the same gap.
- Fifty accepted answers in a row make it a fifth shorter. Their interval stays the smallest
  accepted gap. So if the new interval is too short, two refusals bring the old interval back.
- A longer interval binds from the next accepted answer on. Until then the retries wait as R5 says,
  and for the interval that was in force before. If the longer interval bound them, bots that were
  refused together would come back together, without R5's jitter.
- Each two days without a 429 halve it, until the record is empty. So if a host was hostile for an
  hour, it is back at its own interval within twelve days.

A learned interval of a second or less is dropped, because R4 demands that anyway. If a host has not
refused twice, it has no learned interval, and after fifty accepted answers its record is empty. The
host takes the largest of all intervals (``Traffic.set_interval``), so a learned interval never
shortens a Crawl-delay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

#: The types of times in a record, so that a tool can move each time to another clock. ``Wall`` and
#: ``Steady`` have passed, by the wall clock and by the steady clock (D9). ``Due`` and ``Until``, by
#: the same two clocks, may lie ahead. All are Unix seconds.
Wall = float
Due = float
Steady = float
Until = float

#: MIN_REQUEST_INTERVAL of spec section 6, seconds.
MIN_REQUEST_INTERVAL: Final = 1.0

#: Seconds between two targets of a slow host that go ahead of its interval (D11).
VISIT_EVERY: Final = 86400.0

#: Seconds that the wall clock and the monotonic clock of a process may differ at an instant.
_ROUNDING: Final = 0.005

#: The due time of a host that never had a request: at once (R4.4).
UNSEEN: Final = -math.inf


def shared_wait(
    last: float, not_before: float | None, interval: float, now: float, *, own: bool
) -> float:
    """Seconds until a host with a record in the store may get a request (R4.6).

    ``last``: when any process last sent a request; a time in the future counts as now (D9).
    ``not_before``: the end of a hold by any process, or None. ``interval``: seconds. ``own``: this
    process sent the last request, so its own throttle has kept the interval. Times are Unix
    seconds. The scripts in ``fleet/scripts.py`` have the same rule in Lua.
    """
    hold = (not_before or now) - now
    spacing = 0.0 if own else min(last, now) + interval - now
    wait = max(hold, spacing, 0.0)
    return 0.0 if own and wait < _ROUNDING else wait


def visit_from(
    interval: float, patience: float, rested: float, spaced: float, visited_at: float | None
) -> float | None:
    """When a slow host's single target may follow its robots.txt; None if it may not.

    *interval*: seconds between two requests to the host, by the new robots.txt. *patience*:
    WALSH_PATIENCE. *rested*: seconds that the host had been left alone before its robots.txt.
    *spaced*: when WALSH_MIN_INTERVAL is over since that answer. *visited_at*: when a target last
    went ahead in this way, or None. All times are by the same clock.
    """
    if interval <= patience or rested < interval:
        return None
    return spaced if visited_at is None else max(spaced, visited_at + VISIT_EVERY)


# -- what a host has taught (D28) ---------------------------------------------------------

#: The name under which the throttle has the learned interval, beside a Crawl-delay.
LEARNED: Final = "learned"

#: Seconds: the longest learned interval. It is never longer than WALSH_PATIENCE, either.
LONGEST: Final = 60.0

#: Requests among which two answers 429 make the interval longer.
WITHIN: Final = 10
#: Accepted answers in a row after which the interval becomes shorter.
ENOUGH: Final = 50
#: Seconds without a 429 that halve the interval.
HALVED_AFTER: Final = 2 * 86400.0

_SHORTER: Final = 0.8
_LONGER: Final = 1.2


@dataclass(frozen=True, slots=True)
class Learned:
    """The learned pace of a host.

    ``interval``: seconds; 0 if none was learned. ``accepted``: the smallest gap that counts,
    seconds; 0 for none. ``calm``: accepted answers since the last 429; None if no 429 is on record.
    ``at``: when that 429 came, or when the interval was last halved, Unix seconds by the steady
    clock. ``before``: the interval that was in force when the last 429 came, seconds.
    """

    interval: float = 0.0
    accepted: float = 0.0
    calm: int | None = None
    at: Steady = 0.0
    before: float = 0.0

    @property
    def in_force(self) -> float:
        """Seconds: ``interval``, but ``before`` until an answer was accepted since the last 429.

        ``fleet/scripts.py`` has the same rule in Lua.
        """
        return self.before if self.calm == 0 else self.interval


#: The record of a host that has not refused.
NOTHING: Final = Learned()


@dataclass(frozen=True, slots=True)
class Spacing:
    """How a request was spaced.

    ``interval``: seconds that had to pass before it, by all rules. ``gap``: seconds from the end of
    the last accepted answer to its start; None if that is not known. ``ended``: when its answer
    ended, Unix seconds by the steady clock.
    """

    interval: float
    gap: float | None
    ended: float


# -- hosts of one server (T43) ------------------------------------------------------------

#: Seconds within which two hosts of an address must answer 429, so that all of them wait.
TOGETHER: Final = 600.0
#: Seconds: the longest wait of a host because of its neighbours.
LONGEST_TOGETHER: Final = 60.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last answer 429 of a server: its ``host``, and when the answer ended."""

    host: str = ""
    at: Steady = 0.0


@dataclass(frozen=True, slots=True)
class Shared:
    """What the hosts of a server share: the last ``refusal``, and the ``learned`` pace of all.

    ``wait``: seconds to leave all of them alone after the last answer; None if there is no need.
    ``declared``: the operator says that the hosts belong together.
    """

    refusal: Refusal = field(default_factory=Refusal)
    learned: Learned = NOTHING
    wait: float | None = None
    declared: bool = False


def share(
    shared: Shared, answer: tuple[str, int | None, float], spacing: Spacing, patience: float
) -> Shared:
    """What the hosts of a server share after one of them has answered (T43).

    *answer*: the key of the host, the status, and the seconds that R5 holds the host itself.
    *spacing*: of the request among all to the server. *patience*: WALSH_PATIENCE. For 429, two
    hosts must answer so; but one is enough if the operator has declared that they belong together.
    """
    host, status, wait = answer
    learned = ease(shared.learned, spacing.ended)
    if status != 429:
        learned = learn(learned, status, spacing, patience)
        return replace(shared, learned=learned, wait=None)
    last = shared.refusal
    is_second = last.host not in ("", host) and spacing.ended - last.at <= TOGETHER
    shared = replace(shared, refusal=Refusal(host, spacing.ended), learned=learned, wait=None)
    if not (is_second or shared.declared):
        return shared
    if is_second and not learned.interval:
        # The neighbour's answer counts as the first.
        learned = replace(learned, calm=0, at=last.at)
    learned = learn(learned, status, spacing, patience)
    # It binds at once, because most of its hosts have not refused, and have no jitter of R5.
    learned = replace(learned, before=learned.interval)
    return replace(shared, learned=learned, wait=min(wait, LONGEST_TOGETHER))


def accepts(status: int | None) -> bool:
    """Whether an answer with *status* (None: no answer) shows that the server took the request."""
    return status is not None and status < 500 and status != 429


def learn(learned: Learned, status: int | None, spacing: Spacing, patience: float) -> Learned:
    """Learn from an answer with *status* to a request that was spaced by *spacing*.

    *patience*: WALSH_PATIENCE, seconds.
    """
    learned = ease(learned, spacing.ended)
    if status == 429:
        return _note_refusal(learned, spacing, min(patience, LONGEST))
    if learned.calm is None or not accepts(status):
        return learned
    return _note_acceptance(learned, learned.calm + 1, spacing)


def ease(learned: Learned, now: float) -> Learned:
    """*learned* as of *now*: halved for each two days without a 429.

    *now*: Unix seconds by the steady clock; ``known.at`` after that counts as *now* (D9).
    """
    at = min(learned.at, now)
    halvings = math.floor((now - at) / HALVED_AFTER)
    if learned.calm is None or halvings < 1:
        return learned if at == learned.at else replace(learned, at=at)
    factor = 0.5 ** min(halvings, 1000)
    interval = _of_use(learned.interval * factor)
    if not interval:
        return NOTHING
    at += halvings * HALVED_AFTER
    previous_interval = _of_use(learned.before * factor)
    return replace(
        learned, interval=interval, accepted=2 * interval, at=at, before=previous_interval
    )


def slower(one: Learned, other: Learned) -> Learned:
    """The record with the longer interval, of two records of a host; on a tie the later."""
    return max(
        one, other, key=lambda learned: (learned.interval, learned.calm is not None, learned.at)
    )


def _note_refusal(learned: Learned, spacing: Spacing, longest: float) -> Learned:
    is_repeated = learned.calm is not None and learned.calm + 2 <= WITHIN
    learned = replace(learned, calm=0, at=spacing.ended, before=learned.in_force)
    if not is_repeated:
        return learned
    interval = max(spacing.interval, learned.interval)
    is_tried = spacing.interval == interval or spacing.gap is None or spacing.gap >= interval
    if not is_tried:
        return learned  # a longer interval was learned before: this refusal says nothing about it
    accepted = learned.accepted if learned.accepted >= _LONGER * interval else math.inf
    longer = min(2 * interval, accepted, longest)
    return replace(learned, interval=longer, accepted=0.0) if longer > interval else learned


def _note_acceptance(learned: Learned, calm: int, spacing: Spacing) -> Learned:
    if not learned.interval and calm >= ENOUGH:
        return NOTHING
    learned = replace(learned, before=0.0)
    accepted, gap = learned.accepted, spacing.gap
    if gap is not None and gap >= _LONGER * max(spacing.interval, learned.interval):
        accepted = min(accepted or math.inf, gap)
    if calm % ENOUGH:
        return replace(learned, calm=calm, accepted=accepted)
    shorter = _of_use(learned.interval * _SHORTER)
    return replace(learned, calm=calm, interval=shorter, accepted=learned.interval)


def _of_use(interval: float) -> float:
    """*interval*, seconds; 0 if R4 demands as much anyway."""
    return interval if interval > MIN_REQUEST_INTERVAL else 0.0
