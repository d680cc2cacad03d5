"""R3b, R5, R12: what follows an attempt to get the operator's blocklist, as a state machine.

One :class:`State` says how a crawl stands with the list: which one is in force, when it was
fetched, and how the attempts to get a newer one went. It is a frozen value, and each of its methods
returns a value: what happens makes a new state, and nothing here reads a clock, a file or chance.
``adapters/documents/operator_list.py`` keeps the state, makes the requests, and does what the
answers say.

After each change, :meth:`State.in_force` says what targets go by, and for how long:

| state | what a target does | until |
|---|---|---|
| the run begins | waits | the stored list was read, and requested anew if stale |
| an answer has come | waits: it may name the target's host | it was validated, or rejected |
| a list is in force, and no attempt failed | goes by the list | its ``refresh`` is over (R12) |
| the last attempt failed | goes by the old list (R3b), or :func:`without_list` | one succeeds |

Where the list is stale, a target that waits causes an attempt. The attempt looks into the store
first, where another process may have put a newer list meanwhile. It ends in one of two ways:

- A list was validated and adopted, or the operator answered that the old one still holds (304).
  The count of failures begins anew.
- Anything else is a failure, and :meth:`State.failed` says what follows. So is an attempt for which
  no request is made, since R5 leaves the list's host alone (:func:`held_off`). The list in force
  stays, however old it is: no failure ever empties it. The next attempt comes on R5's schedule, and
  normally no target waits for it, since it is made beside the crawl. Targets wait only at the
  beginning of a run in which nothing may be requested without a list, as long as R5 grants a retry
  that comes within WALSH_PATIENCE.

Where an attempt fails because of us, the list is *not known*, and nothing is requested until a list
can be had: the operator's server may have named more domains, and it was we who did not read them.
So it is with a list that an earlier run stored and that cannot be read any more: site owners have
opted out, and nobody knows which. WALSH_BLOCKLIST_UNREACHABLE has no say in either.

The list belongs to the product token, not to a URL (D39). What the bot held from another address
binds beside the list of its own one, and also where there is none, until a list is adopted from the
address that is configured now. As long as it does (``elsewhere``), the list counts as stale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from scrapy_walsh.policy import verdict as verdicts
from scrapy_walsh.policy.backoff import GiveUp, Retry, backoff_delay
from scrapy_walsh.policy.event import REJECTED, Event
from scrapy_walsh.policy.freshness import is_fresh
from scrapy_walsh.policy.gates import BACKOFF_CAP, Gates
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.verdict import Verdict, VerdictName
from scrapy_walsh.policy.words import plural

#: Seconds that an attempt may take while targets wait for it.
_TIMEOUT: Final = 30.0
#: Seconds that an attempt beside the crawl may take, and so keep the wire from the targets.
_TIMEOUT_BESIDE: Final = 5.0
#: Seconds by which two processes may differ over the time of one fetch.
SAME_FETCH: Final = 1.0


@dataclass(frozen=True, slots=True)
class InForce:
    """What targets go by from ``since`` on, before ``until``; at other times they wait.

    ``answer``: the list, or what stands for it; None: targets wait at all times. Unix seconds.
    """

    answer: Blocklist | Verdict | None
    since: float = 0.0
    until: float = math.inf


_WAIT: Final = InForce(None)
_NOTHING: Final = Blocklist()


@dataclass(frozen=True, slots=True)
class Failed:
    """What follows a failed attempt. ``event``: what the log and the ledger say about it.

    ``delay``: seconds until the next attempt. ``targets_wait``: whether targets wait for that one;
    else it is made beside the crawl.
    """

    state: State
    event: Event
    delay: float
    targets_wait: bool


@dataclass(frozen=True, slots=True)
class State:
    """How a crawl stands with the list at ``url``; times in Unix seconds.

    ``position``: WALSH_BLOCKLIST_UNREACHABLE. ``blocklist``: the list in force, None where there is
    none. ``fetched_at``: when it was fetched, or confirmed. ``elsewhere``: lists from other
    addresses than ``url`` are in force with it. ``serial``: grows with each list, and where the
    list is not known any more. ``not_known``: what has failed on our side, in one line; empty where
    nothing has. ``begun``: the first attempt of the run is over, with all retries that targets wait
    for. ``arrived``: an answer has come that is neither adopted nor rejected. ``beside``: the last
    attempt failed, and the next is made beside the crawl. ``failures``: failed attempts since the
    last one that succeeded, or that R5 gave up.
    """

    url: str
    position: str
    blocklist: Blocklist | None = None
    fetched_at: float = 0.0
    elsewhere: bool = False
    serial: int = 0
    not_known: str = ""
    begun: bool = False
    arrived: bool = False
    beside: bool = False
    failures: int = 0

    # -- what holds now -------------------------------------------------------------------

    def in_force(self) -> InForce:
        """What targets go by, as the table in the module's docstring says."""
        blocklist = self.blocklist
        if not self.begun or self.arrived or (blocklist is None and not self.beside):
            return _WAIT
        if self.not_known or blocklist is None:
            return InForce(self._without() or _NOTHING)
        if self.beside:
            return InForce(blocklist)
        if self.elsewhere:
            return _WAIT
        return InForce(blocklist, self.fetched_at, self.fetched_at + blocklist.refresh)

    def is_stale(self, now: float) -> bool:
        """Whether a target that comes at *now* needs an attempt first (R12)."""
        blocklist = self.blocklist
        if blocklist is None or self.elsewhere:
            return True
        return not is_fresh(self.fetched_at, now, blocklist.refresh)

    def _without(self) -> Verdict | None:
        """The verdict where there is no list to go by; None where there is, or where all may go."""
        if self.not_known:
            return verdicts.not_known("R3", self.not_known, self.url)
        return without_list(self.position, self.url) if self.blocklist is None else None

    # -- the next attempt -----------------------------------------------------------------

    @property
    def looks_first(self) -> bool:
        """Whether an attempt begins in the store, since the last look was some time ago (R4.6)."""
        return self.begun or self.failures > 0

    @property
    def newer_from(self) -> float:
        """The time from which on a list must have been fetched to be newer than the one held."""
        return 0.0 if self.blocklist is None else self.fetched_at + SAME_FETCH

    @property
    def timeout(self) -> float:
        """Seconds that one request of the attempt may take."""
        return _TIMEOUT_BESIDE if self.beside else _TIMEOUT

    # -- what happens ---------------------------------------------------------------------

    def lose(self, cause: str) -> State:
        """The list is not known because of us, until one is adopted. *cause*: one line."""
        return replace(self, not_known=cause, serial=self.serial + 1)

    def answered(self) -> State:
        """The operator's server has answered: no target passes before the answer was read."""
        return replace(self, arrived=True)

    def adopt(self, blocklist: Blocklist, fetched_at: float, *, elsewhere: bool = False) -> State:
        """*blocklist* is validated, and in force from now on. *elsewhere*: see the class."""
        return replace(
            self,
            blocklist=blocklist,
            fetched_at=fetched_at,
            elsewhere=elsewhere,
            serial=self.serial + 1,
            not_known="",
        )

    def confirm(self, now: float) -> State:
        """The list in force is still the operator's (304)."""
        return replace(self, fetched_at=now, not_known="")

    def succeeded(self) -> State:
        """The attempt has brought or confirmed a list."""
        return replace(self, beside=False, failures=0)

    def over(self) -> State:
        """The attempt is over, however it ended."""
        return replace(self, arrived=False)

    def begin(self) -> State:
        """The run's first attempt is over, and so are the retries that targets wait for."""
        return replace(self, begun=True)

    def failed(
        self,
        reason: str,
        failure: Retry | GiveUp | None,
        gates: Gates,
        rand: float,
        *,
        own_fault: bool = False,
    ) -> Failed:
        """The attempt has failed: *reason*, in one line. *failure*: what R5 said, if it applied.

        *rand*: in [0, 1), for the back-off; ValueError otherwise. *own_fault*: our side failed.
        Then no target waits for the next attempt, since a retry seldom mends our own faults.
        """
        state = self.lose(reason) if own_fault else self
        refusal = state._without()
        name, stays = "" if refusal is None else refusal.name, state._stays(refusal)
        event = Event(REJECTED, self.url, "R3", name, f"blocklist not refreshed: {reason}; {stays}")
        delay, failures = self._backed_off(failure, gates, rand)
        targets_wait = (
            refusal is not None
            and not own_fault
            and not self.begun
            and 0 < failures <= gates.max_retries
            and delay <= gates.patience
        )
        new_state = replace(state, failures=failures, beside=state.beside or not targets_wait)
        return Failed(new_state, event, delay, targets_wait)

    def _stays(self, refusal: Verdict | None) -> str:
        if refusal is not None:
            return f"no target is requested: {refusal.reason}"
        if self.blocklist is not None:
            details = ", from ".join(
                [plural(len(self.blocklist), "domain"), *self.blocklist.addresses]
            )
            return f"the last list stays in force ({details})"
        return "NO LIST WAS EVER HELD: no opt-out is known, nothing is blocked by R3"

    def _backed_off(
        self, failure: Retry | GiveUp | None, gates: Gates, rand: float
    ) -> tuple[float, int]:
        """R5: seconds until the next attempt, and the count of failures.

        A failure that R5 does not know of, such as an invalid list, is backed off from as one that
        it does. Giving up is the end of a series, not of the attempts: the next series begins
        after the longest back-off.
        """
        delay = backoff_delay(self.failures, rand, gates.backoff_base, gates.backoff_cap)
        if isinstance(failure, GiveUp):
            return max(failure.delay, BACKOFF_CAP), 0
        wait = 0.0 if failure is None else failure.delay
        return max(delay, wait), self.failures + 1


def still_binds(fetched_at: float, own_at: float, now: float) -> bool:
    """Whether a list from another address binds beside the list from the bot's own one (D39).

    It does unless its own list is later. *fetched_at*, *own_at*: when the two were fetched or
    confirmed, 0 where that is not known, or where there is no own list; *now*: Unix seconds all. A
    time in the future says nothing (D9).
    """
    return not (0.0 < fetched_at <= own_at - SAME_FETCH and own_at <= now)


def held_off(wait: float, interval: float) -> float | None:
    """Seconds for which R5 leaves the list's host alone; None where an attempt may be made.

    *wait*: seconds until the host is due, infinite while a request to it is under way. What is no
    longer than *interval*, the host's spacing in seconds, an attempt waits for.
    """
    return wait if interval < wait < math.inf else None


def without_list(position: str, document: str) -> Verdict | None:
    """R3 where no list was ever had: the verdict about every target, or None for an empty list.

    ``position``: ``allow`` (the specification's, R3.10), ``defer`` or ``deny``, of
    WALSH_BLOCKLIST_UNREACHABLE. ``document``: the list's URL.
    """
    if position == "allow":
        return None
    reason = f"no blocklist can be had, and WALSH_BLOCKLIST_UNREACHABLE is {position}"
    name: VerdictName = verdicts.DEFERRED if position == "defer" else verdicts.UNKNOWN_BLOCKLIST
    return Verdict(False, name, "R3", reason, document)
