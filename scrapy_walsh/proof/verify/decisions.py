"""R2, R3, R6, R7, R8: each decision derived again, by ``policy/chain.py``, as the crawl did.

``chain.judge`` is called with the documents in force when an exchange began (``Snapshot``), and its
verdict is compared with what the line says. If lines or documents are missing, a decision is not
derived and is counted as such, which is not a finding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import chain, urls, visits
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.addresses import PUBLIC, kind_of
from scrapy_walsh.policy.backoff import BACKOFF_STATUSES, REDIRECTS, is_failure
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.policy.robots.groups import LICENSE
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.policy.urls import REDACTED
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, OUT_OF_SCOPE, Verdict
from scrapy_walsh.proof.verify.run import LIST, Snapshot
from scrapy_walsh.proof.verify.terms import ANY_ANSWER, DOORS, GIVES_UP, LICENSES

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from scrapy_walsh.policy.chain import Conclusion
    from scrapy_walsh.policy.hints import Hints
    from scrapy_walsh.policy.visits import Visit
    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.verify.adoptions import Adoptions
    from scrapy_walsh.proof.verify.run import Report, Run

#: Seconds between the moment that a gate looks at a document's age, and the request.
_CLEARED: Final = 2.0
_REDACTED: Final = "decisions about URLs whose query is redacted"
_ANSWER: Final = "answers to exchanges whose decision was not derived"
_KILLED: Final = "R8 after a run that has no end, which may have lost its answers"
_NAMES: Final = {
    chain.BLOCKLIST: ("R3", "the blocklist"),
    chain.ROBOTS: ("R2", "robots.txt"),
}
#: The members of a line about a verdict, and the same fields of the verdict.
_FACTS: Final = (
    "requirement",
    "name",
    "document",
    "digest",
    "group",
    "rule",
    "line",
    "address",
)
_facts: Final = attrgetter(*_FACTS)
_shown: Final = attrgetter("requirement", "verdict", *_FACTS[2:])


@dataclass(frozen=True, slots=True)
class _Answered:
    """The last request for a source that was answered, and its run and line."""

    visit: Visit
    run: str
    line: int


class Decisions:
    """Judges targets, and keeps for all runs when each source was answered."""

    def __init__(self, report: Report, adoptions: Adoptions) -> None:
        self._report = report
        self._adoptions = adoptions
        self._answered: dict[str, _Answered] = {}
        #: Sources sent again too soon: the run that had the answer, the line, and what is wrong.
        self._too_soon: list[tuple[str, int, str]] = []
        #: Targets that answered with a redirect, and the form of the last such request: a run that
        #: is resumed goes on with its hop.
        self._redirected: dict[str, str] = {}

    # -- R6 -------------------------------------------------------------------------------

    def take_declaration(self, run: Run, line: Line) -> None:
        """Take into the scope a declared target, or the hop that a target was redirected to."""
        if line.via:
            self._note_followed_redirect(run, line)
        if line.by:
            self._take_listed_sitemap(run, line)
        elif not line.via:
            self._take_declared(run, line)
        elif line.via in self._redirected and run.scope.source_of(line.via) is not None:
            run.scope.declare_hop(line.url, line.via)
            self._note_hop(run, line, line.via)
        else:
            explained = run.has_gaps or (
                self._report.partial and run.scope.source_of(line.via) is not None
            )
            if explained:
                run.scope.declare_hop(line.url, line.via)
            self._report.find(
                line.n,
                "R6",
                f"{line.via} did not redirect there, or is no target itself",
                explained=explained,
            )

    def _take_declared(self, run: Run, line: Line) -> None:
        """Take what ``Spider.start`` has declared; an index of it may declare sitemaps."""
        run.scope.declare(line.url, line.revisit)
        if line.children:
            run.scope.allow_children(line.url)
            if run.terms.token.lower() == WALSH_RESEARCH.token.lower():
                text = f"{line.url} may declare the sitemaps that it lists (children = true)"
                self._report.note(f"line {line.n}: {text}: an attestation says R6 false for that")

    def _take_listed_sitemap(self, run: Run, line: Line) -> None:
        """Take a sitemap that an index lists, as ``Scope.declare_child`` lets the crawl do."""
        answered = urls.key_of(line.by, "") in run.answered
        if answered and run.scope.declare_child(line.url, line.by):
            return
        explained = run.has_gaps or self._report.partial
        if explained:
            run.scope.declare(line.url)
        text = f"{line.by} could not declare {line.url}: it was not declared with children = true"
        reasons = f"has not answered, is on another host, or has declared {MAX_CHILDREN} before"
        self._report.find(line.n, "R6", f"{text}, {reasons}", explained=explained)

    def _note_hop(self, run: Run, line: Line, via: str) -> None:
        """Note the sources that an answer to the hop of *line* counts for (R8)."""
        sources = _sources_of_answer(run, via, urls.key_of(via, self._redirected[via]))
        run.hops.setdefault(urls.key_of(line.url, line.form), {}).update(sources)

    def _note_followed_redirect(self, run: Run, line: Line) -> None:
        """Note that a redirect was followed, so that it is not an answer for a spider."""
        run.passed.pop(line.via, None)
        if (line_number := run.redirects_told.pop(line.via, None)) is not None:
            self._report.find(
                line_number,
                "run",
                f"{line.via} is recorded as fetched, but line {line.n} follows its redirect",
            )

    # -- an exchange ----------------------------------------------------------------------

    def judge_exchange(self, run: Run, line: Line, concluded: Conclusion) -> None:
        """Judge an exchange with a target."""
        verdict = self._derive(run, line)
        run.passed[line.url] = (line, verdict)
        run.redirects_told.pop(line.url, None)
        if line.status in REDIRECTS:
            self._redirected[line.url] = line.form
        if REDACTED not in line.url:
            self._check_earlier_refusal(run, line)
            self._judge_visit(run, line, visits.FAILED if line.gives_up else concluded.visit)

    def _derive(self, run: Run, line: Line) -> Verdict | None:
        """The verdict that let the request pass, derived again; None if that is not possible."""
        snapshot = Snapshot(run, line.moment)
        verdict = self._judge(run, line, snapshot)
        if not self.may_go(run, line, verdict) or isinstance(verdict, NeedDocument):
            return None
        if not run.has_gaps:
            self.check_freshness(run, line)
            self._check_tagged_form(run, line)
        if snapshot.unread or REDACTED in line.url:
            self._report.missed(snapshot.unread[0] if snapshot.unread else _REDACTED)
            return None
        if line.verdict and (line.verdict, line.digest) != (
            verdict.name,
            verdict.digest,
        ):
            run.find(
                line,
                verdict.requirement,
                f"{line.url} passed as {line.verdict} by {line.digest}; it is {_describe(verdict)}",
            )
            return None
        self._report.derived += 1
        return verdict

    def may_go(self, run: Run, line: Line, verdict: Verdict | NeedDocument | None) -> bool:
        """Whether nothing stands against a request that was sent; else that is a finding."""
        if isinstance(verdict, NeedDocument):
            rule, name = _NAMES[verdict.kind]
            run.find(line, rule, f"{line.url} was requested before {name} was in force")
        elif verdict is not None and not verdict.allowed:
            text = f"{line.url} was requested, although {verdict.name}: {verdict.reason}"
            explained = run.has_gaps and verdict.name == OUT_OF_SCOPE
            self._report.find(line.n, verdict.requirement, text, explained=explained)
        else:
            return True
        return False

    def _judge(self, run: Run, line: Line, snapshot: Snapshot) -> Verdict | NeedDocument:
        now = snapshot.moment.began
        gates = run.gates
        runs = snapshot.last is not None
        try:
            verdict = chain.judge(
                line.url,
                run.scope,
                snapshot,
                gates,
                now,
                runs=runs,
                led=run.led(line),
            )
        except ValueError as error:
            return Verdict(False, OUT_OF_SCOPE, "R6", str(error))
        if isinstance(verdict, NeedDocument) or verdict.allowed:
            return self.at_private_address(run, line) or verdict
        return verdict

    def robots_hop(
        self, run: Run, line: Line, origin: str, snapshot: Snapshot
    ) -> Verdict | NeedDocument | None:
        """The verdict against the request of *line*, for the robots.txt of *origin* (D37)."""
        led = run.led(line)
        try:
            verdict = chain.judge_robots_hop(
                line.url, origin, run.scope, snapshot, run.gates, led=led
            )
        except ValueError as error:
            return Verdict(False, OUT_OF_SCOPE, "R6", str(error))
        return self.at_private_address(run, line) or verdict

    def at_private_address(self, run: Run, line: Line) -> Verdict | None:
        """D38: the verdict against the address that *line* has, or None; it is kept for its hops.

        An address that is none cannot be judged, and is a finding.
        """
        address = line.address
        if address is None:
            run.reached.pop(line.url, None)
            return None
        try:
            kind = kind_of(address)
        except ValueError:
            self._report.find(
                line.n,
                "run",
                f"{line.url} has the address {address[:40]!r}, which is not an address",
            )
            return None
        if kind == PUBLIC:
            run.reached.pop(line.url, None)
            return None
        led = run.led(line)
        if line.kind == events.ASKED:
            run.reached[line.url] = address
        return chain.judge_addresses(line.url, (address,), run.scope, run.gates, led)

    def check_freshness(self, run: Run, line: Line) -> None:
        """R12: no request is let through by a document that is older than it may be."""
        start = line.moment.began
        origin = line.origin
        for of, key in ((LIST, run.terms.blocklist_url), (origin, origin)):
            document = run.held.at(of, line.moment)
            if document is None or document.ttl == math.inf:
                continue
            at = self._adoptions.fetched_at(key, document)
            at = document.since if at is None and of else at
            if at is not None and _is_stale(run, at, start, document.ttl):
                text = f"the document of line {document.serial} was {start - at:.0f} s old"
                self._report.find(line.n, "R12", f"{text}, {document.ttl:g} s are allowed")

    def _check_tagged_form(self, run: Run, line: Line) -> None:
        """N3: if robots.txt denies the tagged form, the request is sent without tags."""
        document = run.held.at(line.origin, line.moment)
        if line.sent is None or document is None or document.what is None:
            return
        verdict = document.what.decide(line.sent)
        if not verdict.allowed:
            self._report.find(line.n, "R2", f"{line.sent} was sent, although {verdict.reason}")

    def _check_earlier_refusal(self, run: Run, line: Line) -> None:
        """Without ``chain``: what was refused is not requested while no document has changed."""
        refused, requirement, basis = run.refused.get(line.url, (0, "", None))
        same = basis == run.basis(line.origin, line.moment)
        if requirement in ("R2", "R3") and same:
            self._report.find(
                line.n, requirement, f"{line.url} was requested, although line {refused} refused it"
            )

    # -- R8 -------------------------------------------------------------------------------

    def _judge_visit(self, run: Run, line: Line, meaning: str) -> None:
        """Judge by R8 what was sent, and note what its answer means (``Conclusion.visit``)."""
        key = urls.key_of(line.url, line.form)
        answer = self._answered.get(key) if run.scope.is_source(line.url) else None
        is_again = bool(line.again)
        if is_again != (key in run.answered):
            run.find(line, "R8", f"again is {is_again}; by the lines before, {not is_again}")
        if answer is not None and answer.run != run.name and key not in run.hops:
            self._check_visit_time(run, line, answer)
        sources = _sources_of_answer(run, line.url, key)
        if meaning == visits.ANSWERED:
            self._note_visit(run, line, line.moment.began, sources)
        elif meaning == visits.FAILED:
            if line.gives_up or run.terms.is_held_to(ANY_ANSWER):
                self._note_failure(run, line, sources)
        elif line.answered and run.terms.is_held_to(
            ANY_ANSWER
        ):  # by a redirect, or R5 has it sent again
            run.visiting.update(sources)

    def _note_visit(self, run: Run, line: Line, start: float, sources: Iterable[str]) -> None:
        """Note that *sources* were answered; *began*: when the request was sent, Unix seconds."""
        for source in sources:
            answer = self._answered.get(source)
            before_that = None if answer is None else _visit_of(run, answer, source)
            retired = visits.retirement(line.status, line.words)
            if retired in visits.CLOSED and not run.terms.is_held_to(DOORS):
                retired = 0
            visit = visits.met(start, before_that, run.terms.revisit, retired)
            run.answered.add(source)
            self._note_answer(run, line, source, visit)
            run.visiting.discard(source)

    def _note_answer(self, run: Run, line: Line, source: str, visit: Visit) -> None:
        """Note the *visit* of *source* for later runs; a look is none (D46)."""
        if run.terms.look is None:
            self._answered[source] = _Answered(visit, run.name, line.n)

    def _note_hints(self, run: Run, exchange: Line, hints: Hints) -> None:
        """Note the *hints* of the answer to *exchange* for the sources that it counts for."""
        key = urls.key_of(exchange.url, exchange.form)
        for source in _sources_of_answer(run, exchange.url, key):
            answer = self._answered.get(source)
            if answer is not None and answer.line == exchange.n:
                visit = answer.visit._replace(hints=hints)
                self._answered[source] = replace(answer, visit=visit)

    def _note_failure(self, run: Run, line: Line, sources: Iterable[str]) -> None:
        """Note that the visit of *sources* has failed."""
        for source in sources:
            answer = self._answered.get(source)
            has_failed = source in run.failing and not run.terms.shared
            has_failed = has_failed or not run.terms.is_held_to(ANY_ANSWER)
            visit_before = None if answer is None else answer.visit
            visit = visits.failed(visit_before, line.moment.began, again=has_failed)
            self._note_answer(run, line, source, visit)
            run.failing.add(source)
            run.visiting.discard(source)

    def fail_visit(self, run: Run, line: Line) -> None:
        """Note that the host of *line* could not be connected to, so its sources have failed."""
        key = urls.key_of(line.url, line.form)
        if key not in run.failing:
            self._note_failure(run, line, _sources_of_answer(run, line.url, key))

    def end_visit(self, run: Run, line: Line) -> bool:
        """Note that nothing follows the request of *line*; whether a visit has failed by that."""
        sources = _sources_of_answer(run, line.url, urls.key_of(line.url, line.form))
        under_way = [source for source in sources if source in run.visiting]
        self._note_failure(run, line, under_way)
        return bool(under_way)

    def _check_visit_time(self, run: Run, line: Line, answer: _Answered) -> None:
        start = line.moment.began
        visit = _visit_of(run, answer, line.url)
        soon = visits.not_due(visit, start, run.terms.revisit, run.terms.revisit_reason)
        since = max(visit.sent_at, visit.gave_up_at or 0.0)
        if soon is None or since > start:
            return
        text = f"{line.url} was requested again {start - since:.0f} s after line {answer.line}"
        self._too_soon.append((answer.run, line.n, text))

    def end(self, ended_runs: Container[str]) -> None:
        """Judge what was sent again too soon: by the answers of runs that have *ended_runs*."""
        for run, number, text in self._too_soon:
            if run in ended_runs:
                self._report.find(number, "R8", text)
            else:
                self._report.missed(_KILLED)

    # -- how a request ended for its spider -----------------------------------------------

    def judge_answer(self, run: Run, line: Line) -> None:
        """Judge a line ``fetched`` or ``not_modified``: it must agree with its exchange."""
        exchange, verdict = run.passed.pop(line.url, (None, None))
        if exchange is not None and line.hints is not None:
            self._note_hints(run, exchange, line.hints)
        if line.status in REDIRECTS:
            run.redirects_told[line.url] = line.n
        wrong_end = self._end_of_visit(run, line)
        never = line.status in BACKOFF_STATUSES or run.terms.is_held_to(GIVES_UP)
        if line.status is not None and is_failure(line.status) and never:
            self._report.find(line.n, "R5", f"status {line.status} is never an answer")
        elif not _is_right_kind(line, exchange):
            self._report.find(line.n, "R7", f"status {line.status} is recorded as {line.kind}")
        elif exchange is None:
            self._find_no_exchange(run, line)
        elif exchange.status != line.status:
            run.find(
                line, "run", f"line {exchange.n} answered {exchange.status}, not {line.status}"
            )
        elif verdict is None or not line.verdict:
            self._report.missed(_ANSWER)
        elif _shown(line) != _facts(verdict):
            self._report.find(
                line.n, verdict.requirement, _describe_difference(line, _describe(verdict))
            )
        elif fault := wrong_end or _usage_fault(run, exchange, line):
            run.find(line, "R8" if wrong_end else "R2", fault)
        else:
            self._report.derived += 1

    def judge_middleware_answer(self, run: Run, line: Line) -> None:
        """Judge a line ``answered``: a middleware answered without a request."""
        if fault := self._end_of_visit(run, line):
            run.find(line, "R8", fault)
        else:
            self._report.derived += 1

    def _end_of_visit(self, run: Run, line: Line) -> str:
        """Note what a line ``fetched`` says of R8: a redirect may have been what was wanted.

        Returns what is wrong about that; empty if nothing is.
        """
        if not run.terms.is_held_to(ANY_ANSWER):
            return ""
        if line.status in REDIRECTS and not line.unfollowed:
            sources = _sources_of_answer(run, line.url, urls.key_of(line.url, line.form))
            under_way = [source for source in sources if source in run.visiting]
            self._note_visit(run, line, line.at, under_way)
            return ""
        if self.end_visit(run, line) != bool(line.unfollowed):
            is_unfollowed = bool(line.unfollowed)
            return f"unfollowed is {is_unfollowed}; by the lines before, {not is_unfollowed}"
        return ""

    def judge_last_redirect(self, run: Run, line: Line) -> None:
        """Judge a line ``too_many_redirects``: an answer did redirect, and nothing follows it."""
        exchange, _ = run.passed.pop(line.url, (None, None))
        if exchange is None:
            self._find_no_exchange(run, line)
        elif exchange.status != line.status or line.status not in REDIRECTS:
            text = f"line {exchange.n} answered {exchange.status}"
            run.find(line, "D5", f"{text}: no redirect of status {line.status}")
        else:
            self.end_visit(run, line)
            self._report.derived += 1

    def _find_no_exchange(self, run: Run, line: Line) -> None:
        if REDACTED in line.url and not run.has_gaps:
            self._report.missed(_REDACTED)
        else:
            run.find(line, "run", f"no exchange brought {line.url}")

    # -- a refusal ------------------------------------------------------------------------

    def judge_refusal(self, run: Run, line: Line) -> None:
        """Judge a line ``refused``, or ``deferred`` for want of a robots.txt."""
        by_time = line.requirement == "R8"
        answer = self._answered.get(urls.key_of(line.url, line.form))
        visit = _visit_of(run, answer, line.url) if by_time and answer else None
        snapshot = Snapshot(run, line.moment, visit)
        if line.proxy is None:
            verdict = self._judge(run, line, snapshot)
        else:
            refusal = chain.judge_proxy(line.proxy, snapshot, run.gates)
            nothing = Verdict(True, ALLOWED_IMPLICIT, "R3", "no rule refuses its proxy")
            verdict = refusal or nothing
        self._compare(run, line, verdict, snapshot)
        self.end_visit(run, line)
        if not isinstance(verdict, NeedDocument) and REDACTED not in line.url and not line.proxy:
            basis = run.basis(line.origin, line.moment)
            run.refused[line.url] = (line.n, line.requirement, basis)

    def _compare(
        self,
        run: Run,
        line: Line,
        derived: Verdict | NeedDocument,
        snapshot: Snapshot,
    ) -> None:
        verdict = None if isinstance(derived, NeedDocument) else derived
        r8 = line.requirement == "R8"
        if verdict is not None and _shown(line) == _facts(verdict):
            self._report.derived += 1
        elif snapshot.unread:
            self._report.missed(snapshot.unread[0])
        elif line.requirement == "R2" and REDACTED in line.url:
            self._report.missed(_REDACTED)
        elif r8 and verdict is not None and verdict.requirement == "R8":
            self._report.derived += 1
        elif r8:
            self._report.missed()
        else:
            decision = "undecided" if verdict is None else _describe(verdict)
            self._report.find(
                line.n,
                line.requirement,
                _describe_difference(line, decision),
                explained=run.has_gaps,
            )


def _is_right_kind(line: Line, exchange: Line | None) -> bool:
    """Whether a line ``not_modified`` is of a 304 to a conditional request, and no other is."""
    unasked = exchange is not None and bool(exchange.unasked)
    return (line.kind == events.NOT_MODIFIED) == (line.status == 304 and not unasked)


def _visit_of(run: Run, answered: _Answered, source: str) -> Visit:
    """The visit of *source*, with the cadence that *run* has declared for it."""
    terms = run.terms
    cadence = run.scope.cadence(source)
    visit = answered.visit
    own = visits.own_interval(cadence, visit, terms.revisit, auto=terms.auto_revisit)
    return visit._replace(revisit=own, hints_hold=terms.hints)


def _sources_of_answer(run: Run, url: str, key: str) -> dict[str, None]:
    """The sources that an answer to *key*, a request for *url*, counts for in *run*."""
    return visits.counts_for(key, url, run.scope, (), run.hops)


def _describe_difference(line: Line, decision: str) -> str:
    line_text = f"{line.url} is {line.kind} as {_name_rule(line.verdict, line.rule, line.line)}"
    return f"{line_text}; by the documents it is {decision}"


def _name_rule(name: str, rule: str | None, line: int | None) -> str:
    return f"{name}{f' by {rule!r}' if rule else ''}{f' in line {line}' if line else ''}"


def _describe(verdict: Verdict) -> str:
    where = f" of {verdict.document}" if verdict.document else ""
    group = f", group {' '.join(verdict.group)}" if verdict.group else ""
    return f"{_name_rule(verdict.name, verdict.rule, verdict.line)}{where}{group}"


def _is_stale(run: Run, fetched_at: float, start: float, ttl: float) -> bool:
    """Whether a document was too old when an exchange began, also by a clock that was put back."""
    ages = [moment - fetched_at for moment in {start, start + run.put_back}]
    return not any(-_CLEARED <= age <= ttl + _CLEARED for age in ages)


def _usage_fault(run: Run, exchange: Line, line: Line) -> str | None:
    """Why what *line* says of its robots.txt and the use of its answer cannot be so, or None."""
    rules = run.held.at(line.origin, exchange.moment)
    if line.kind != events.FETCHED or rules is None or rules.what is None or REDACTED in line.url:
        return None
    said = rules.what.said(line.url)
    if not run.terms.is_held_to(LICENSES):
        said = tuple(statement for statement in said if statement.field != LICENSE)
    expected = tuple(map(str, said))
    # A line of an older version does not say which statements are of the robots.txt.
    statements = line.usage[: len(expected) if line.in_robots is None else line.in_robots]
    if statements == expected:
        return None
    return f"robots.txt said of its use: {'; '.join(expected) or 'nothing'}; the line has " + (
        "; ".join(statements) or "nothing"
    )
