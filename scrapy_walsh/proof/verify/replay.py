"""R4, R5, D11, D13, D28: each exchange concluded again, by ``policy/chain.py``, as the crawl did.

``chain.conclude`` is called with what the exchange's line and the lines before it say, and what it
answers is compared with the line. A run begins with what the store has of a host; its first
exchange with the host says what that was, and an earlier line must have left it so. Two things are
counted and are not findings. If it says nothing, the store had nothing: ``state forget`` drops what
was learned. If the run has a longer interval than the lines have left, the store had it from
elsewhere: a run without a ledger, another worker, or an exchange that lost its line in a kill.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import structs

from scrapy_walsh.config import SLOW_VISIT
from scrapy_walsh.policy import chain, hosts, urls
from scrapy_walsh.policy.addresses import literals_of
from scrapy_walsh.policy.backoff import Answer, GiveUp
from scrapy_walsh.policy.event import GIVEN_UP, TARGET, UNCONNECTED, Pace
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.throttle import NOTHING, Learned, Shared, Spacing, accepts, ease, share
from scrapy_walsh.policy.urls import REDACTED
from scrapy_walsh.policy.verdict import Unanswered, Verdict
from scrapy_walsh.proof.ledgered import Exchanges, Sent
from scrapy_walsh.proof.spacing import ONE_CLOCK, is_short
from scrapy_walsh.proof.verify.run import CLOCK_SET
from scrapy_walsh.proof.verify.terms import ADMITTED, ONE_KEY, RETRY_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.policy.chain import Conclusion
    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.ledgered import Gap
    from scrapy_walsh.proof.verify.run import Report, Run

_EXACT: Final = 0.001
#: Seconds that may lie between reading a Retry-After date and writing the line.
_LATER: Final = 2.0
#: The largest chance that a back-off can be made with.
_MOST: Final = math.nextafter(1.0, 0.0)
_ROBOTS: Final = "robots"
#: The status of a proxy that asks for a password.
_ASKS_FOR_PASSWORD: Final = 407
_numbers: Final = attrgetter("interval", "accepted", "at", "before")
#: The most requests without an answer in a trial of https: a crawl makes one, and two did earlier.
TRIALS: Final = 2
#: The count of numbers in older ledgers, when each interval was in force at once.
_EARLIER: Final = 4
_DROPPED: Final = "runs that go on without a learned interval: state forget drops it"


class Replay:
    """The exchanges of all runs. ``_left``: by host and run, what its last exchange has left of
    what the host had taught, and when that ended. ``gap``: before the exchange that was judged
    last, with the hold that R5 had put on its host; None before a host's first.
    """

    def __init__(self, report: Report) -> None:
        self.exchanges = Exchanges()
        self.gap: Gap | None = None
        #: By key of a server, what its hosts share by the lines so far, and their exchanges (T43).
        self._shared: dict[str, Shared] = {}
        self._report = report
        self._left: dict[str, dict[str, tuple[Learned, float]]] = {}

    def judge_exchange(self, run: Run, line: Line, *, partial: bool, others: bool) -> Conclusion:
        """Judge an exchange, keep it for the next ones, and return its conclusion.

        *partial*: lines are missing. *others*: lines of other runs may be missing too, because a
        run was killed.
        """
        is_partial = partial or others
        exempt = line.exempt and self.exchanges.of(line.host).first >= line.started
        learned = self._learned_before(run, line, is_partial=is_partial or run.terms.shared)
        no_retry = self._judge_silence(run, line) or _no_retry(line)
        shortest, longest = self._conclude(run, line, exempt=exempt, last=no_retry, known=learned)
        for rule, fault in (
            *self._judge_pace(run, line, shortest, partial=partial),
            *_check_wait(run, line, shortest, longest),
            *self._judge_server(run, line),
            *_check_tries(run, line),
            *_check_unsent(line),
        ):
            self._report.find(line.n, rule, fault)
        if not run.has_gaps:
            self._learn(run, line, learned, shortest.learned)
        return shortest

    def _conclude(
        self, run: Run, line: Line, *, exempt: bool, last: str | Unanswered, known: Learned
    ) -> list[Conclusion]:
        """The conclusions of the exchange with the least and with the most chance of a long
        back-off.
        """
        host = run.host(line.host)
        spacing = replace(host.spacing(line.started, line.ended), interval=line.interval)
        if accepts(line.status):
            host.accepted = line.ended
        answer = Answer(
            line.purpose,
            line.status if line.answered else None,
            line.method,
            line.retry_after,
            max(line.attempt, 0),
            line.hops,
            unseen=exempt and line.is_robots,
            whole=line.answered,
            last=last,
            spacing=spacing,
            known=known,
            date=line.date,
            unasked=bool(line.unasked),
            cut=bool(line.cut),
            reset=line.reset,
        )
        chances = (line.at, 0.0), (line.at - _LATER, _MOST)
        return [chain.conclude(answer, run.gates, at, rand) for at, rand in chances]

    # -- R4: one at a time, spaced, T1 once, holds kept ---------------------------------------

    def _judge_pace(
        self, run: Run, line: Line, concluded: Conclusion, *, partial: bool
    ) -> Iterator[tuple[str, str]]:
        terms = run.terms
        past = self.exchanges.of(line.host)
        credit = None
        delay = 0.0 if run.has_gaps else run.held.crawl_delay(line.host, line.moment)
        asked_for = max(terms.min_interval, delay)
        if is_short(line.interval, asked_for, ONE_CLOCK):
            yield (
                "R4",
                f"its interval is {line.interval:g} s, {line.host} asks for {asked_for:g} s",
            )
        if concluded.exempt:
            credit = terms.min_interval if terms.pace_robots else 0.0
            if partial:
                self._report.missed()
        elif line.exempt:
            text = f"it is exempt, and is not the first robots.txt of {line.host}, answered"
            yield "R4", f"{text} without a redirect or a retry (T1)"
        need = max(asked_for, line.interval)
        ahead = self._seconds_ahead(run, line, need) if line.visit else None
        exchange = Sent(line, run.process, need, ahead, credit)
        yield from self._check_spacing(exchange)
        # Lines stand in the order of the ends of exchanges, unless the machine was started anew
        # with its clock put right.
        restarted = line.ended < self.exchanges.last_end(line.host) - CLOCK_SET
        if line.started < past.exempt < math.inf and credit is None and not restarted:
            yield (
                "R4",
                f"{line.host} had been requested before the robots.txt that was exempt (T1)",
            )
        self.exchanges.take(exchange)

    # -- T43: hosts of one server -------------------------------------------------------------

    def _judge_server(self, run: Run, line: Line) -> Iterator[tuple[str, str]]:
        """Judge an exchange among those with all hosts of its server.

        Between processes the pace of a server is only as the lines say, because each learns from
        the others' answers through the store.
        """
        key = _server_of(run, line)
        if line.server not in ("", key):
            yield "R5", f"it records that it was paced by {line.server}, which is not of its host"
        if not key or run.has_gaps:
            return
        terms = run.terms
        declared = terms.pace_by != hosts.BY_HOST
        interval = line.server_interval or 0.0
        if declared and is_short(interval, terms.min_interval, ONE_CLOCK):
            yield "R5", f"{key} is paced by {interval:g} s, {terms.min_interval:g} s are due"
        spacing = Spacing(max(interval, terms.min_interval), None, line.ended)
        before = replace(self._shared.get(key, Shared()), declared=declared)
        reply = line.host, line.status if line.answered else None, line.wait or 0.0
        shared = self._shared[key] = share(before, reply, spacing, terms.patience)
        if is_short(line.server_wait or 0.0, shared.wait or 0.0, ONE_CLOCK):
            text = f"the hosts of {key} wait for {line.server_wait or 0.0:.3f} s"
            # Another process may have been answered meanwhile.
            self._report.find(
                line.n,
                "R5",
                f"{text}, {shared.wait:.3f} s are due",
                explained=before.refusal.at > line.started,
            )
        together = structs.replace(
            line, host=key, wait=shared.wait if line.server_wait is None else line.server_wait
        )
        exchange = Sent(together, run.process, interval)
        gap = self.exchanges.gap(exchange)
        hold = self.exchanges.held(exchange)
        if gap is not None and gap.short:
            text = (
                f"{key} was requested {gap.seconds:.3f} s after {gap.since} of line {gap.before.n}"
            )
            yield "R5", f"{text}, {gap.required:g} s were due"
        if hold is not None and hold.until - line.started > hold.slack(run.process):
            yield "R5", f"{key} was requested {hold.until - line.started:.3f} s early: {hold.why}"
        self.exchanges.servers[line.host] = key
        self.exchanges.take(exchange)

    def _check_spacing(self, exchange: Sent) -> Iterator[tuple[str, str]]:
        line = exchange.line
        exchanges = self.exchanges
        busy = exchanges.busy(exchange.process)
        gap = exchanges.gap(exchange)
        hold = exchanges.held(exchange)
        if line.ended < line.started:
            yield "R4", "it ended before it started"
        elif busy is not None and line.started < busy.ended - ONE_CLOCK:
            yield (
                "R4",
                f"two requests at once: that of line {busy.n} had not ended",
            )
        if gap is not None and gap.short:
            text = f"{line.host} was requested {gap.seconds:.3f} s after {gap.since} of line"
            yield "R4", f"{text} {gap.before.n}, {gap.required:g} s were due"
        self.gap = gap
        if hold is None:
            return
        early = hold.until - line.started
        if early > hold.slack(exchange.process):
            yield "R5", f"{line.host} was requested {early:.3f} s early: {hold.why}"
        if gap is not None:
            self.gap = gap._replace(required=max(gap.required, gap.seconds + early))

    def _seconds_ahead(self, run: Run, line: Line, need: float) -> float | None:
        """The seconds that must pass before a target that went ahead (D11); None if it may not."""
        terms = run.terms
        ahead = self.exchanges.ahead(line, need, terms.patience, terms.min_interval)
        if ahead is not None and terms.slow_hosts == SLOW_VISIT:
            return ahead
        run.find(
            line, "R4", f"it went ahead of the {need:g} s of {line.host}, which D11 does not allow"
        )
        if run.has_gaps:
            return terms.min_interval
        return None

    # -- R5, D13, D31: a host that gives no answer --------------------------------------------

    def _judge_silence(self, run: Run, line: Line) -> str | Unanswered:
        """Why no retry may follow, since the host gives no answer; *line* is counted.

        A run with lines missing, or without a start, is not judged by that. Of a fleet's worker
        only deferrals are: it drops what it has counted after some time.
        """
        came = line.status is not None or bool(line.cut)
        silent = line.answered and not came
        robots = line.purpose == _ROBOTS
        judged = not (run.has_gaps or run.terms.shared) and line.purpose in (
            TARGET,
            _ROBOTS,
        )
        host = run.host(line.host)
        now = line.started
        if line.silent:  # claiming silence only costs requests, so it need not be proved
            host.silence.before = True
        spent = host.spent(now, document=robots) if judged else None
        if run.begun:
            self._ask_admit(run, line, spent)
        if judged and line.once:
            return self._judge_trial(run, line, silent=silent)
        if came:
            host.silence.answered(now)
        elif silent and not line.once:
            url, connected = urls.exact_url(line.url), line.unsent not in UNCONNECTED
            host.silence.note(now, url, robots=robots, connected=connected)
        spent = host.spent(now, document=robots)
        if judged and silent and spent is not None:
            return spent.unanswered or ""
        return ""

    def _ask_admit(self, run: Run, line: Line, spent: Verdict | None) -> None:
        """Ask *admit* about the exchange: a request that it does not let go was not to be sent.

        It is given the line's pace. *spent* and the Crawl-delay of the lines before take the place
        of the line's own, if they are stricter. The operator's own documents are asked for again as
        R5 says, also if their host gives no answer.
        """
        if line.pace is None and run.terms.is_held_to(ADMITTED):
            run.find(line, "R4", "its line does not have the pace that it used")
        pace = line.pace or Pace(line.host, 0.0, 0.0)
        interval = pace.interval
        if line.pace is not None and not run.has_gaps:
            interval = max(interval, run.held.crawl_delay(line.host, line.moment))
        if line.purpose in (TARGET, _ROBOTS):
            spent = spent or pace.spent
        step = chain.admit(
            Pace(line.host, pace.wait, interval, spent),
            run.gates,
            line.moment.began,
            document=line.purpose != TARGET,
        )
        if isinstance(step, Verdict):
            self._report.find(
                line.n,
                step.requirement,
                f"{line.url} was requested, although {step.reason}",
            )
        elif step > _EXACT:
            self._report.find(
                line.n,
                "R4",
                f"{line.url} was requested, although it had to wait for {step:.3f} s more",
            )

    def _judge_trial(self, run: Run, line: Line, *, silent: bool) -> str:
        """A trial of https is not counted, so it is one robots.txt and one target at most."""
        origin = line.origin
        if not silent or not line.url.startswith("https://"):
            self._report.find(
                line.n, "R5", f"{line.url} is recorded as a trial of https that got no answer"
            )
            return ""
        run.trials[origin] += 1
        if run.trials[origin] > TRIALS:
            self._report.find(
                line.n,
                "R5",
                f"{line.url} was tried by https again, after {TRIALS} requests without an answer",
            )
        if line.purpose == TARGET:
            return "https is tried once"
        return ""

    # -- D28: what a host teaches -------------------------------------------------------------

    def _learned_before(self, run: Run, line: Line, *, is_partial: bool) -> Learned:
        """The facts that the host had taught before; the interval must keep to them."""
        host = run.host(line.host)
        if run.has_gaps:
            if line.learned is not None or line.taught:
                self._report.missed()
            host.known = False
            return NOTHING
        learned = host.learned
        remains = [remainder for remainder, _ in self._left.get(line.host, {}).values()]
        if line.taught:
            learned = self._taken_from_store(run, line, remains, is_partial=is_partial)
        elif not host.known and any(
            ease(remainder, line.started).calm is not None for remainder in remains
        ):
            self._report.missed(_DROPPED)
        in_force = ease(learned, line.started).in_force
        if is_short(line.interval, in_force, ONE_CLOCK):
            self._report.find(
                line.n,
                "R4",
                f"its interval is {line.interval:g} s, {line.host} has taught {in_force:g} s",
            )
        return learned

    def _taken_from_store(
        self,
        run: Run,
        line: Line,
        remains: list[Learned],
        *,
        is_partial: bool,
    ) -> Learned:
        """The facts that the store had of a host, as *line* has them.

        An earlier line must have left them so, unless the store may have had them otherwise.
        """
        if len(line.taught) not in (len(fields(Learned)), _EARLIER):
            self._report.find(
                line.n, "R4", f"the learned pace of {line.host} has {len(line.taught)} numbers"
            )
            return NOTHING
        interval, accepted, calm, at, *interval_before = line.taught
        stored = Learned(interval, accepted, int(calm), at, *interval_before)
        expected = [ease(remainder, max(remainder.at, at + _EXACT)) for remainder in remains]
        if not interval_before:  # a line of an older form does not say it
            expected = [replace(learned, before=0.0) for learned in expected]
        if any(_is_same(learned, stored) for learned in expected):
            self._report.derived += 1
        else:
            # The lines of another worker, or of a run that was killed, may be missing.
            explained = (
                is_partial
                or self._has_changed_since(run, line)
                # A longer wait than the lines ask for breaks no promise.
                or all(interval > remainder.interval for remainder in remains)
            )
            text = f"it uses {interval:g} s as learned from {line.host}"
            self._report.find(
                line.n, "R4", f"{text}; no earlier line has that", explained=explained
            )
        return stored

    def _has_changed_since(self, run: Run, line: Line) -> bool:
        """Whether an exchange of another run has ended since *line*'s began.

        The store changed at that end, and it was read before.
        """
        return any(
            end > line.started
            for name, (_, end) in self._left.get(line.host, {}).items()
            if name != run.name
        )

    def _learn(self, run: Run, line: Line, learned: Learned, taught: Learned) -> None:
        changed = None if taught.interval == learned.interval else taught.interval
        if not _is_close(changed, line.learned):
            text = f"it records that {_describe(line.learned)}"
            text = f"{text}; by the answers so far {_describe(changed)}"
            self._report.find(line.n, "R4", text)
        elif changed is not None:
            self._report.derived += 1
        run.host(line.host).known = True
        run.host(line.host).learned = taught
        if taught.calm is not None or line.host in self._left:
            self._left.setdefault(line.host, {})[run.name] = taught, line.ended


# -- R5: retries ------------------------------------------------------------------------------


def _server_of(run: Run, line: Line) -> str:
    """The key of the server that the host of *line* is paced with; "" if it is not known.

    Behind a proxy the crawl knows no address, and the line has one only if it is in the URL.
    """
    pace_by = run.terms.pace_by
    if pace_by is None:
        return ""
    try:
        is_literal = line.address in literals_of(line.url)
    except ValueError:  # its host cannot be read, so it has no server
        return ""
    if is_literal and not line.server:
        return ""
    return hosts.server_key(line.host, line.address or "", pace_by)


def _no_retry(line: Line) -> str:
    """Why no retry of a robots.txt may follow; "" if one may.

    Giving up at once makes the run send less, so that rules were known then need not be proved.
    """
    if line.purpose != _ROBOTS or not line.answered:
        return ""
    return robots_fetch.no_retry(line.status, line.attempt, known=line.gives_up)


def _check_wait(
    run: Run, line: Line, shortest: Conclusion, longest: Conclusion
) -> Iterator[tuple[str, str]]:
    """The fault in the ``wait`` and the ``attempt`` of an exchange."""
    failure = shortest.failure
    allowed = run.terms.max_retries
    low = shortest.wait or 0.0
    high = longest.wait or 0.0
    in_seconds = all(value.strip().isdigit() for value in line.retry_after)
    if not (run.terms.is_held_to(RETRY_AFTER) or (failure is not None and in_seconds)):
        low = 0.0
        high = math.inf
    if not 0 <= line.attempt <= allowed:
        yield (
            "R5",
            f"it is retry {line.attempt} of {line.url}, {allowed} are allowed",
        )
    if not line.answered and line.status is not None:
        yield "R5", f"it was cancelled, but answered {line.status}"
    if line.wait is None and (failure is not None or low > _EXACT):
        yield "R5", f"status {line.status} has no wait"
        return
    if not low - _EXACT <= (line.wait or 0.0) <= high + _EXACT:
        due = f"{low:.3f} to {high:.3f} s are right"
        yield "R5", f"its wait is {line.wait or 0.0:.3f} s, {due}"
    if failure is None:
        return
    unknown = line.status is None and (run.has_gaps or run.terms.shared)
    if line.gives_up != isinstance(failure, GiveUp) and not (unknown and line.gives_up):
        yield (
            "R5",
            f"gives_up is {line.gives_up} after retry {line.attempt}: {failure.reason()}",
        )


def _check_unsent(line: Line) -> Iterator[tuple[str, str]]:
    """An exchange with an answer was sent; only a proxy may answer 407 in place of the site."""
    is_proxys = bool(line.proxy) and line.status == _ASKS_FOR_PASSWORD
    if line.unsent and (line.cut or not (line.status is None or is_proxys)):
        yield "R4", "it says that nothing was sent, and it has an answer"


def _check_tries(run: Run, line: Line) -> Iterator[tuple[str, str]]:
    """The fault in the order of tries; *line* is counted."""
    if REDACTED in line.url:
        return
    if line.failed:
        run.failed[urls.exact_url(line.url)] = line
    if line.purpose not in (TARGET, _ROBOTS):
        return
    by_key = line.purpose == TARGET and run.terms.is_held_to(ONE_KEY)
    key = urls.key_of(line.url, line.form) if by_key else line.url
    due = run.due.pop(key, [])
    if line.purpose == TARGET:
        yield from _check_target_tries(run, line, key, max(due, default=0))
        due = []
    elif line.attempt in due:
        due.remove(line.attempt)
    elif due and run.robots_hops:  # other origins' files may redirect to one robots.txt
        run.robots_hops -= 1
    elif (due or line.attempt) and not run.has_gaps:
        yield (
            "R5",
            f"it records retry {line.attempt} of {line.url}, and is {max(due, default=0)}",
        )
    if line.failed and not line.gives_up:
        due.append(line.attempt + 1)
    if due:
        run.due[key] = due


def _check_target_tries(run: Run, line: Line, key: str, retries: int) -> Iterator[tuple[str, str]]:
    """The same for a target, which an earlier run may have tried (R5.6)."""
    if key in run.given_up:
        yield (
            "R5",
            f"{line.url} was given up in line {run.given_up[key]} of this run",
        )
    if line.attempt < retries:
        yield (
            "R5",
            f"it records retry {line.attempt} of {line.url}, and is {retries} at least",
        )
    if line.gives_up:
        run.given_up[key] = line.n


def fault_of_outcome(run: Run, line: Line) -> str | None:
    """The fault in a line ``retried`` or ``given_up``; None if there is none."""
    failed = run.failed.pop(urls.exact_url(line.url), None)
    if failed is None:
        return f"{line.kind}, and no exchange of {line.url} failed before it"
    alike = failed.status == line.status and _is_close(failed.wait, line.wait or 0.0)
    if alike and failed.gives_up == (line.kind == GIVEN_UP):
        return None
    text = f"status {failed.status}, {failed.wait} s, gives_up {failed.gives_up}"
    return f"{line.kind}, but line {failed.n} has another outcome: {text}"


def _is_same(learned: Learned, stored: Learned) -> bool:
    return learned.calm == stored.calm and all(map(_is_close, _numbers(learned), _numbers(stored)))


def _is_close(value: float | None, line_value: float | None) -> bool:
    if value is None or line_value is None:
        return value is line_value
    return abs(value - line_value) <= _EXACT


def _describe(interval: float | None) -> str:
    if interval is None:
        return "nothing new is learned"
    return f"{interval:.3f} s is learned"
