"""R2, R3, R6, R7, R8: each decision derived again, by ``policy/chain.py``, as the crawl did.

``chain.judge`` is called with the documents in force when an exchange began (``Snapshot``), and its
verdict is compared with what the line says. Where lines or documents are missing, a decision is not
derived and is counted as such, which is not a finding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from scrapy_walsh.ledger.files import REDACTED
from scrapy_walsh.policy import chain, urls, visits
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.addresses import PUBLIC, kind_of
from scrapy_walsh.policy.backoff import REDIRECTS, is_failure
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.policy.robots.usage import IN_ROBOTS
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, OUT_OF_SCOPE, Verdict
from scrapy_walsh.proof.verify.run import LIST, Snapshot
from scrapy_walsh.proof.verify.terms import ANY_ANSWER

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from scrapy_walsh.policy.chain import Conclusion
    from scrapy_walsh.policy.visits import Visit
    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.verify.adoptions import Adoptions
    from scrapy_walsh.proof.verify.run import Report, Run

#: Seconds between the moment that a gate looks at a document's age, and the request.
_CLEARED: Final = 2.0
_REDACTED: Final = "decisions about URLs whose query is redacted"
_ANSWER: Final = "answers to exchanges whose decision was not derived"
_KILLED: Final = "R8 after a run that has no end, which may have lost its answers"
_NAMES: Final = {chain.BLOCKLIST: ("R3", "the blocklist"), chain.ROBOTS: ("R2", "robots.txt")}
#: What a line says of a verdict, and what that is of the verdict.
_FACTS: Final = ("requirement", "name", "document", "digest", "group", "rule", "line", "address")
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

    def declared(self, run: Run, line: Line) -> None:
        """Take a declared target into the run's scope, or the hop that one was redirected to."""
        if line.via:
            self._followed(run, line)
        if line.by:
            self._listed(run, line)
        elif not line.via:
            self._declared(run, line)
        elif line.via in self._redirected and run.scope.source_of(line.via) is not None:
            run.scope.declare_hop(line.url, line.via)
            self._hop(run, line, line.via)
        else:
            holes = run.holes or (
                self._report.partial and run.scope.source_of(line.via) is not None
            )
            if holes:
                run.scope.declare_hop(line.url, line.via)
            text = f"{line.via} did not redirect there, or is no target itself"
            self._report.find(line.n, "R6", text, holes=holes)

    def _declared(self, run: Run, line: Line) -> None:
        """Take what ``Spider.start`` has declared; an index of it may declare sitemaps."""
        run.scope.declare(line.url, line.revisit)
        if line.children:
            run.scope.allow_children(line.url)
            if run.terms.token.lower() == WALSH_RESEARCH.token.lower():
                text = f"{line.url} may declare the sitemaps that it lists (children = true)"
                self._report.note(f"line {line.n}: {text}: an attestation says R6 false for that")

    def _listed(self, run: Run, line: Line) -> None:
        """Take a sitemap that an index lists, as ``Scope.declare_child`` lets the crawl do."""
        answered = urls.key_of(line.by, "") in run.answered
        if answered and run.scope.declare_child(line.url, line.by):
            return
        holes = run.holes or self._report.partial
        if holes:
            run.scope.declare(line.url)
        text = f"{line.by} could not declare {line.url}: it was not declared with children = true"
        more = f"has not answered, is on another host, or has declared {MAX_CHILDREN} before"
        self._report.find(line.n, "R6", f"{text}, {more}", holes=holes)

    def _hop(self, run: Run, line: Line, via: str) -> None:
        """Note for which sources an answer to the hop of *line* counts (R8)."""
        sources = _counts_for(run, via, urls.key_of(via, self._redirected[via]))
        run.hops.setdefault(urls.key_of(line.url, line.form), {}).update(sources)

    def _followed(self, run: Run, line: Line) -> None:
        """Note that a redirect was followed, so that it is not an answer for a spider."""
        run.passed.pop(line.via, None)
        if (told := run.redirects_told.pop(line.via, None)) is not None:
            text = f"{line.via} is told as fetched, and line {line.n} follows its redirect"
            self._report.find(told, "run", text)

    # -- an exchange ----------------------------------------------------------------------

    def asked(self, run: Run, line: Line, concluded: Conclusion) -> None:
        """Judge an exchange with a target."""
        verdict = self._derive(run, line)
        run.passed[line.url] = (line, verdict)
        run.redirects_told.pop(line.url, None)
        if line.status in REDIRECTS:
            self._redirected[line.url] = line.form
        if REDACTED not in line.url:
            self._not_refused_before(run, line)
            self._visit(run, line, visits.FAILED if line.gives_up else concluded.visit)

    def _derive(self, run: Run, line: Line) -> Verdict | None:
        """The verdict that let the request pass, derived again; None where that is not possible."""
        snapshot = Snapshot(run, line.moment)
        found = self._judge(run, line, snapshot)
        if not self.may_go(run, line, found) or isinstance(found, NeedDocument):
            return None
        if not run.holes:
            self.fresh(run, line)
            self._tagged(run, line)
        if snapshot.unread or REDACTED in line.url:
            self._report.missed(snapshot.unread[0] if snapshot.unread else _REDACTED)
            return None
        if line.verdict and (line.verdict, line.digest) != (found.name, found.digest):
            text = f"{line.url} passed as {line.verdict} by {line.digest}; it is {_told(found)}"
            self._report.find(line.n, found.requirement, text, holes=run.holes)
            return None
        self._report.derived += 1
        return found

    def may_go(self, run: Run, line: Line, found: Verdict | NeedDocument | None) -> bool:
        """Whether nothing stands against a request that was sent; else that is a finding."""
        if isinstance(found, NeedDocument):
            rule, name = _NAMES[found.kind]
            text = f"{line.url} was asked before {name} was in force"
            self._report.find(line.n, rule, text, holes=run.holes)
        elif found is not None and not found.allowed:
            text = f"{line.url} was asked, though {found.name}: {found.reason}"
            holes = run.holes and found.name == OUT_OF_SCOPE
            self._report.find(line.n, found.requirement, text, holes=holes)
        else:
            return True
        return False

    def _judge(self, run: Run, line: Line, snapshot: Snapshot) -> Verdict | NeedDocument:
        now, gates, runs = snapshot.moment.began, run.terms.gates, snapshot.last is not None
        try:
            found = chain.judge(
                line.url, run.scope, snapshot, gates, now, runs=runs, led=run.led(line)
            )
        except ValueError as error:
            return Verdict(False, OUT_OF_SCOPE, "R6", str(error))
        if isinstance(found, NeedDocument) or found.allowed:
            return self.at_private_address(run, line) or found
        return found

    def robots_hop(
        self, run: Run, line: Line, origin: str, snapshot: Snapshot
    ) -> Verdict | NeedDocument | None:
        """What is against the request of *line*, for the robots.txt of *origin* (D37)."""
        led = run.led(line)
        try:
            found = chain.judge_robots_hop(
                line.url, origin, run.scope, snapshot, run.terms.gates, led=led
            )
        except ValueError as error:
            return Verdict(False, OUT_OF_SCOPE, "R6", str(error))
        return self.at_private_address(run, line) or found

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
            text = f"{line.url} has the address {address[:40]!r}, which is none"
            self._report.find(line.n, "run", text)
            return None
        if kind == PUBLIC:
            run.reached.pop(line.url, None)
            return None
        led = run.led(line)
        if line.kind == events.ASKED:
            run.reached[line.url] = address
        return chain.judge_addresses(line.url, (address,), run.scope, run.terms.gates, led)

    def fresh(self, run: Run, line: Line) -> None:
        """R12: no request is let through by a document that is older than it may be."""
        began, origin = line.moment.began, line.origin
        for of, key in ((LIST, run.terms.blocklist_url), (origin, origin)):
            held = run.held.at(of, line.moment)
            if held is None or held.ttl == math.inf:
                continue
            at = self._adoptions.fetched_at(key, held)
            at = held.since if at is None and of else at
            if at is not None and _stale(run, at, began, held.ttl):
                text = f"the document of line {held.serial} was {began - at:.0f} s old"
                self._report.find(line.n, "R12", f"{text}, {held.ttl:g} s are allowed")

    def _tagged(self, run: Run, line: Line) -> None:
        """N3: where robots.txt denies the tagged form, the request is sent without tags."""
        held = run.held.at(line.origin, line.moment)
        if line.sent is None or held is None or held.what is None:
            return
        verdict = held.what.decide(line.sent)
        if not verdict.allowed:
            self._report.find(line.n, "R2", f"{line.sent} was sent, though {verdict.reason}")

    def _not_refused_before(self, run: Run, line: Line) -> None:
        """Without ``chain``: what was refused is not requested while no document has changed."""
        refused, requirement, basis = run.refused.get(line.url, (0, "", None))
        same = basis == run.basis(line.origin, line.moment)
        if requirement in ("R2", "R3") and same:
            text = f"{line.url} was asked, though line {refused} refused it"
            self._report.find(line.n, requirement, text)

    # -- R8 -------------------------------------------------------------------------------

    def _visit(self, run: Run, line: Line, meaning: str) -> None:
        """Judge by R8 what was sent, and note what its answer means (``Conclusion.visit``)."""
        key = urls.key_of(line.url, line.form)
        last = self._answered.get(key) if run.scope.is_source(line.url) else None
        again = bool(line.again)
        if again != (key in run.answered):
            text = f"again is {again}; by the lines before, {not again}"
            self._report.find(line.n, "R8", text, holes=run.holes)
        if last is not None and last.run != run.name and key not in run.hops:
            self._not_too_soon(run, line, last)
        sources = _counts_for(run, line.url, key)
        if meaning == visits.ANSWERED:
            self._visited(run, line, line.moment.began, sources)
        elif meaning == visits.FAILED:
            if line.gives_up or run.terms.is_held_to(ANY_ANSWER):
                self._failed(run, line, sources)
        elif line.answered and run.terms.is_held_to(
            ANY_ANSWER
        ):  # by a redirect, or R5 has it sent again
            run.visiting.update(sources)

    def _visited(self, run: Run, line: Line, began: float, sources: Iterable[str]) -> None:
        """Note that *sources* were answered; *began*: when the request was sent, Unix seconds."""
        for source in sources:
            before = self._answered.get(source)
            before_that = None if before is None else _visit_of(run, before, source)
            visit = visits.met(began, before_that, run.terms.revisit, line.status)
            run.answered.add(source)
            self._answers(run, line, source, visit)
            run.visiting.discard(source)

    def _answers(self, run: Run, line: Line, source: str, visit: Visit) -> None:
        """Note the *visit* of *source* for later runs; a look is none (D46)."""
        if run.terms.look is None:
            self._answered[source] = _Answered(visit, run.name, line.n)

    def _failed(self, run: Run, line: Line, sources: Iterable[str]) -> None:
        """Note that the visit of *sources* has failed."""
        for source in sources:
            known = self._answered.get(source)
            again = source in run.failing and not run.terms.shared
            again = again or not run.terms.is_held_to(ANY_ANSWER)
            before = None if known is None else known.visit
            visit = visits.failed(before, line.moment.began, again=again)
            self._answers(run, line, source, visit)
            run.failing.add(source)
            run.visiting.discard(source)

    def ends(self, run: Run, line: Line) -> bool:
        """Note that nothing follows the request of *line*; whether a visit has failed by that."""
        sources = _counts_for(run, line.url, urls.key_of(line.url, line.form))
        under_way = [source for source in sources if source in run.visiting]
        self._failed(run, line, under_way)
        return bool(under_way)

    def _not_too_soon(self, run: Run, line: Line, last: _Answered) -> None:
        began, visit = line.moment.began, _visit_of(run, last, line.url)
        soon = visits.not_due(visit, began, run.terms.revisit, run.terms.revisit_reason)
        since = max(visit.sent_at, visit.gave_up_at or 0.0)
        if soon is None or since > began:
            return
        text = f"{line.url} was asked again {began - since:.0f} s after line {last.line}"
        self._too_soon.append((last.run, line.n, text))

    def end(self, ended: Container[str]) -> None:
        """Judge what was sent again too soon: by the answers of runs that have *ended*."""
        for run, number, text in self._too_soon:
            if run in ended:
                self._report.find(number, "R8", text)
            else:
                self._report.missed(_KILLED)

    # -- how a request ended for its spider -----------------------------------------------

    def told(self, run: Run, line: Line) -> None:
        """Judge a line ``fetched`` or ``not_modified``: it must agree with its exchange."""
        asked, verdict = run.passed.pop(line.url, (None, None))
        if line.status in REDIRECTS:
            run.redirects_told[line.url] = line.n
        wrong_end = self._end_of_visit(run, line)
        if line.status is not None and is_failure(line.status):
            self._report.find(line.n, "R5", f"status {line.status} is never an answer")
        elif not _is_told_rightly(line, asked):
            self._report.find(line.n, "R7", f"status {line.status} is told as {line.kind}")
        elif asked is None:
            self._unseen(run, line)
        elif asked.status != line.status:
            text = f"line {asked.n} answered {asked.status}, not {line.status}"
            self._report.find(line.n, "run", text, holes=run.holes)
        elif verdict is None or not line.verdict:
            self._report.missed(_ANSWER)
        elif _shown(line) != _facts(verdict):
            self._report.find(line.n, verdict.requirement, _differing(line, _told(verdict)))
        elif fault := wrong_end or _usage_fault(run, asked, line):
            self._report.find(line.n, "R8" if wrong_end else "R2", fault, holes=run.holes)
        else:
            self._report.derived += 1

    def answered(self, run: Run, line: Line) -> None:
        """Judge a line ``answered``: a middleware of the project has, so there is no exchange."""
        if fault := self._end_of_visit(run, line):
            self._report.find(line.n, "R8", fault, holes=run.holes)
        else:
            self._report.derived += 1

    def _end_of_visit(self, run: Run, line: Line) -> str:
        """Note what a line ``fetched`` says of R8: a redirect may have been what was wanted.

        Returns what is wrong about that; empty where nothing is.
        """
        if not run.terms.is_held_to(ANY_ANSWER):
            return ""
        if line.status in REDIRECTS and not line.unfollowed:
            sources = _counts_for(run, line.url, urls.key_of(line.url, line.form))
            under_way = [source for source in sources if source in run.visiting]
            self._visited(run, line, line.at, under_way)
            return ""
        if self.ends(run, line) != bool(line.unfollowed):
            said = bool(line.unfollowed)
            return f"unfollowed is {said}; by the lines before, {not said}"
        return ""

    def redirected_out(self, run: Run, line: Line) -> None:
        """Judge a line ``too_many_redirects``: an answer did redirect, and nothing follows it."""
        asked, _ = run.passed.pop(line.url, (None, None))
        if asked is None:
            self._unseen(run, line)
        elif asked.status != line.status or line.status not in REDIRECTS:
            text = f"line {asked.n} answered {asked.status}: no redirect of status {line.status}"
            self._report.find(line.n, "D5", text, holes=run.holes)
        else:
            self.ends(run, line)
            self._report.derived += 1

    def _unseen(self, run: Run, line: Line) -> None:
        if REDACTED in line.url and not run.holes:
            self._report.missed(_REDACTED)
        else:
            self._report.find(line.n, "run", f"no exchange brought {line.url}", holes=run.holes)

    # -- a refusal ------------------------------------------------------------------------

    def refused(self, run: Run, line: Line) -> None:
        """Judge a line ``refused``, or ``deferred`` for want of a robots.txt."""
        by_time = line.requirement == "R8"
        last = self._answered.get(urls.key_of(line.url, line.form))
        visit = _visit_of(run, last, line.url) if by_time and last else None
        snapshot = Snapshot(run, line.moment, visit)
        if line.proxy is None:
            found = self._judge(run, line, snapshot)
        else:
            against = chain.judge_proxy(line.proxy, snapshot, run.terms.gates)
            nothing = Verdict(True, ALLOWED_IMPLICIT, "R3", "nothing against its proxy")
            found = against or nothing
        self._compare(run, line, found, snapshot)
        self.ends(run, line)
        if not isinstance(found, NeedDocument) and REDACTED not in line.url and not line.proxy:
            basis = run.basis(line.origin, line.moment)
            run.refused[line.url] = (line.n, line.requirement, basis)

    def _compare(
        self, run: Run, line: Line, found: Verdict | NeedDocument, snapshot: Snapshot
    ) -> None:
        verdict = None if isinstance(found, NeedDocument) else found
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
            told = "undecided" if verdict is None else _told(verdict)
            self._report.find(line.n, line.requirement, _differing(line, told), holes=run.holes)


def _is_told_rightly(line: Line, asked: Line | None) -> bool:
    """Whether a line ``not_modified`` is of a 304 to a conditional request, and no other is."""
    unasked = asked is not None and bool(asked.unasked)
    return (line.kind == events.NOT_MODIFIED) == (line.status == 304 and not unasked)


def _visit_of(run: Run, answered: _Answered, source: str) -> Visit:
    """The visit of *source*, with the cadence that *run* has declared for it."""
    return answered.visit._replace(revisit=run.scope.cadence(source))


def _counts_for(run: Run, url: str, key: str) -> dict[str, None]:
    """The sources for which an answer to *key*, a request for *url*, counts in *run*."""
    return visits.counts_for(key, url, run.scope, (), run.hops)


def _differing(line: Line, told: str) -> str:
    said = f"{line.url} is {line.kind} as {_by(line.verdict, line.rule, line.line)}"
    return f"{said}; by the documents it is {told}"


def _by(name: str, rule: str | None, line: int | None) -> str:
    return f"{name}{f' by {rule!r}' if rule else ''}{f' in line {line}' if line else ''}"


def _told(verdict: Verdict) -> str:
    where = f" of {verdict.document}" if verdict.document else ""
    group = f", group {' '.join(verdict.group)}" if verdict.group else ""
    return f"{_by(verdict.name, verdict.rule, verdict.line)}{where}{group}"


def _stale(run: Run, fetched_at: float, began: float, ttl: float) -> bool:
    """Whether a document was too old when an exchange began, also by a clock that was put back."""
    ages = [moment - fetched_at for moment in {began, began + run.put_back}]
    return not any(-_CLEARED <= age <= ttl + _CLEARED for age in ages)


def _usage_fault(run: Run, asked: Line, line: Line) -> str | None:
    """Why what *line* says of its robots.txt and the use of its answer cannot be so, or None."""
    held = run.held.at(line.origin, asked.moment)
    if line.kind != events.FETCHED or held is None or held.what is None or REDACTED in line.url:
        return None
    expected = tuple(map(str, held.what.said(line.url)))
    written = tuple(text for text in line.usage if text.startswith(IN_ROBOTS))
    if written == expected:
        return None
    return f"robots.txt said of its use: {'; '.join(expected) or 'nothing'}; the line has " + (
        "; ".join(written) or "nothing"
    )
