"""The state of the operator's blocklist in a crawl, as a state machine (R3b, R5, R12).

A :class:`State` has the list in force, the time when it was fetched, and the results of the
attempts to fetch a newer list. It is a frozen value, and each event makes a new state. Nothing here
reads a clock, a file or randomness. ``adapters/documents/operator_list.py`` stores the state, sends
the requests and acts on the results.

After each change, :meth:`State.in_force` returns the list that decides about targets, and for how
long:

| state | what a target does | until |
|---|---|---|
| the run begins | waits | the stored list was read, and requested anew if stale |
| an answer has come | waits: it may name the target's host | it was validated, or rejected |
| a list is in force, and no attempt failed | uses the list | its ``refresh`` is over (R12) |
| the last attempt failed | uses the old list (R3b), or :func:`without_list` | one succeeds |

If the list is stale, a target that waits causes an attempt. The attempt first reads the store,
because another process may have stored a newer list. It ends in one of two ways:

- A list was validated and adopted, or the operator confirmed the old list (304). The count of
  failures begins anew.
- Everything else is a failure, and :meth:`State.failed` decides what follows. It is also a failure
  if no request is made, because R5 holds the list's host (:func:`held_off`). The list in force
  stays, however old it is: no failure ever empties it. The next attempt comes on R5's schedule,
  beside the crawl, so normally no target waits for it. Targets wait only at the beginning of a run,
  if nothing may be requested without a list, and while R5 allows a retry within WALSH_PATIENCE.

If an attempt fails on our side, the list is *not known*, and nothing is requested until a list
can be loaded. The operator's server may have named more domains, and we failed to read them. The
same holds for a stored list that cannot be read any more: site owners have opted out, and we do not
know which. WALSH_BLOCKLIST_UNREACHABLE decides about neither case.

The list belongs to the product token, not to a URL (D39). A list that the bot loaded from another
address still binds until a list is adopted from the address that is configured now. While it binds
(``elsewhere``), the list counts as stale.
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

#: Seconds for an attempt while targets wait for it.
_TIMEOUT: Final = 30.0
#: Seconds for an attempt beside the crawl. It keeps the wire from the targets.
_TIMEOUT_BESIDE: Final = 5.0
#: If two processes record the time of a fetch, they may differ by so many seconds.
SAME_FETCH: Final = 1.0


@dataclass(frozen=True, slots=True)
class InForce:
    """The list that decides about targets from ``since`` until ``until``; at other times they wait.

    ``answer``: the list, or a verdict in its place; None if targets always wait. Unix seconds.
    """

    answer: Blocklist | Verdict | None
    since: float = 0.0
    until: float = math.inf


_WAIT: Final = InForce(None)
_NOTHING: Final = Blocklist()


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a failed attempt. ``event``: for the log and the ledger.

    ``delay``: seconds until the next attempt. ``targets_wait``: whether targets wait for it. If
    not, it is made beside the crawl.
    """

    state: State
    event: Event
    delay: float
    targets_wait: bool


@dataclass(frozen=True, slots=True)
class State:
    """The state of the list at ``url`` in a crawl. Times are Unix seconds.

    ``position``: WALSH_BLOCKLIST_UNREACHABLE. ``blocklist``: the list in force, None if there is
    none. ``fetched_at``: when it was fetched, or confirmed. ``elsewhere``: lists from other
    addresses than ``url`` are in force with it. ``serial``: grows with each list, and when the list
    becomes unknown. ``not_known``: what has failed on our side, in one line; empty if nothing has.
    ``begun``: the first attempt of the run is over, with all retries that targets wait for.
    ``arrived``: an answer has come that is neither adopted nor rejected. ``beside``: the last
    attempt failed, and the next is made beside the crawl. ``failures``: failed attempts since the
    last success, or since R5 gave up.
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
        """The list that decides about targets, by the table in the module's docstring."""
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
        """The verdict if there is no list; None if there is a list, or if all targets may go."""
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
        """A list is newer than the list in force if it was fetched at this time or later."""
        return 0.0 if self.blocklist is None else self.fetched_at + SAME_FETCH

    @property
    def timeout(self) -> float:
        """Seconds for one request of the attempt."""
        return _TIMEOUT_BESIDE if self.beside else _TIMEOUT

    # -- what happens ---------------------------------------------------------------------

    def lose(self, cause: str) -> State:
        """Our side could not load the list. This holds until one is adopted. *cause*: one line."""
        return replace(self, not_known=cause, serial=self.serial + 1)

    def answered(self) -> State:
        """The operator's server has answered. No target passes before the answer was read."""
        return replace(self, arrived=True)

    def adopt(self, blocklist: Blocklist, fetched_at: float, *, elsewhere: bool = False) -> State:
        """Put the validated *blocklist* in force. *elsewhere*: see the class."""
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
        return (
            "no blocklist loaded yet: no opt-out is known, so R3 blocks nothing; "
            "upload blocklist.json to this URL"
        )

    def _backed_off(
        self, failure: Retry | GiveUp | None, gates: Gates, rand: float
    ) -> tuple[float, int]:
        """R5: seconds until the next attempt, and the count of failures.

        A failure that R5 does not know, for example an invalid list, gets the same back-off. If R5
        gives up, that ends a series, not the attempts: the next series begins after the longest
        back-off.
        """
        delay = backoff_delay(self.failures, rand, gates.backoff_base, gates.backoff_cap)
        if isinstance(failure, GiveUp):
            return max(failure.delay, BACKOFF_CAP), 0
        wait = 0.0 if failure is None else failure.delay
        return max(delay, wait), self.failures + 1


def still_binds(fetched_at: float, own_at: float, now: float) -> bool:
    """Whether a list from another address binds beside the list from the bot's own address (D39).

    It does unless its own list is later. *fetched_at*, *own_at*: when the two were fetched or
    confirmed; 0 if that is not known, or if there is no own list. *now*: as these, in Unix seconds.
    A time in the future says nothing (D9).
    """
    return not (0.0 < fetched_at <= own_at - SAME_FETCH and own_at <= now)


def held_off(wait: float, interval: float) -> float | None:
    """Seconds that R5 still holds the list's host; None if an attempt may be made.

    *wait*: seconds until the host is due, infinite while a request to it is under way. *interval*:
    the host's spacing in seconds. An attempt waits if *wait* is no longer than that.
    """
    return wait if interval < wait < math.inf else None


def without_list(position: str, document: str) -> Verdict | None:
    """The verdict about each target if there never was a list (R3); None for an empty list.

    ``position``: ``allow`` (the specification's, R3.10), ``defer`` or ``deny``, of
    WALSH_BLOCKLIST_UNREACHABLE. ``document``: the list's URL.
    """
    if position == "allow":
        return None
    reason = f"no blocklist is available, and WALSH_BLOCKLIST_UNREACHABLE is {position}"
    name: VerdictName = verdicts.DEFERRED if position == "defer" else verdicts.UNKNOWN_BLOCKLIST
    return Verdict(False, name, "R3", reason, document)
