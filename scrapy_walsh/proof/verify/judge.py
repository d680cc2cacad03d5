"""Passes each line of a ledger, in order, to the part of the check that it is for.

Pure: lines and a look-up of documents in, findings out. The memory that it takes grows with hosts
and targets, never with lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from scrapy_walsh.config import SLOW_SKIP, SLOW_VISIT
from scrapy_walsh.ledger import reading
from scrapy_walsh.ledger.lines import ASKED, REDACTED
from scrapy_walsh.ledger.reading import Malformed, line_of
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.tagging import is_operator_url, tag_url
from scrapy_walsh.policy.urls import REDIRECTS
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR, BY_SETTING, DEFERRED, UNKNOWN_PARSE_ERROR
from scrapy_walsh.proof.spacing import ONE_CLOCK, is_short
from scrapy_walsh.proof.verify import pacing
from scrapy_walsh.proof.verify.adoptions import Adoptions
from scrapy_walsh.proof.verify.decisions import Decisions
from scrapy_walsh.proof.verify.pacing import Asked, Lessons, Pacing
from scrapy_walsh.proof.verify.run import CLOCK_SET, Run
from scrapy_walsh.proof.verify.silence import wait_faults
from scrapy_walsh.proof.verify.terms import Terms, broken_terms, terms_of
from scrapy_walsh.spec import SPEC_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_walsh.ledger.reading import Line
    from scrapy_walsh.proof.verify.report import Report
    from scrapy_walsh.proof.verify.run import LookUp

# R13: is the URL that was sent the one that was judged, with the tags and nothing else added?

_TAGS: Final = re.compile(r"[?&]impl=([^&#]+)(?:&sha=([^&#]+))?&spec=[^&#]+(?:#|\Z)")


def sent_fault(line: Line, terms: Terms) -> str | None:
    """What is wrong with the tagged URL that was sent; None where nothing is, or it had no tags."""
    if line.sent is None or REDACTED in line.sent:
        return None
    found = _TAGS.search(line.sent)
    impl, sha = (None, None) if found is None else found.groups()
    tagged = tag_url(line.url, unquote(impl or ""), sha and unquote(sha), terms.spec)
    if not impl or tagged != line.sent:
        return f"{line.sent} was sent, which is not {line.url} with its tags"
    if not (terms.tag_requests or terms.in_shell):
        return f"{line.sent} carries tags, and this run sends none"
    if not is_operator_url(line.url, terms.operator_urls):
        return f"{line.sent} carries tags, and is not of the operator"
    return None


#: Seconds that a deferral's wait may seem short by: it was computed before its line was written.
_RECKONED: Final = 0.1
#: Seconds that a wait may seem long by: a later run does not know exactly when the last request of
#: an earlier one reached the server.
_RESTORED: Final = 0.5


class Judge:
    """Takes the members of each line, in order."""

    def __init__(self, report: Report, documents: LookUp) -> None:
        self._report = report
        self._runs: dict[str, Run] = {}
        self._pacing = Pacing(report)
        self._adoptions = Adoptions(report, documents)
        self._decisions = Decisions(report, self._adoptions)
        self._lessons = Lessons(report)
        self._holed = False
        #: Whether the wall clock was set at some time, so that times of lines say less.
        self._clock_set = False
        self._take: Mapping[str, Callable[[Run, Line], None]] = {
            reading.ENDED: self._ended,
            reading.DECLARED: self._decisions.declared,
            events.ADOPTED: self._adoptions.take,
            events.TAKEN_UP: self._adoptions.take,
            events.REJECTED: self._rejected,
            ASKED: self._asked,
            events.FETCHED: self._decisions.told,
            events.NOT_MODIFIED: self._decisions.told,
            events.TOO_MANY_REDIRECTS: self._decisions.redirected_out,
            events.REFUSED: self._decisions.refused,
            events.HELD: self._held,
            events.DEFERRED: self._deferred,
            events.RETRIED: self._retried,
            events.GIVEN_UP: self._retried,
        }

    @property
    def partial(self) -> bool:
        """Whether the ledger begins after its first line."""
        return self._decisions.partial

    @partial.setter
    def partial(self, value: bool) -> None:
        self._decisions.partial = value

    @property
    def running(self) -> bool:
        """Whether a run has no end."""
        return any(run.begun and not run.ended for run in self._runs.values())

    def hole(self) -> None:
        """Lines are missing here, or were not judged: what rests on them is not derived."""
        self._holed = True
        for run in self._runs.values():
            run.holes = True

    def take(self, members: dict[str, Any]) -> None:
        """Judge one line, whose form and place in the chain are right."""
        try:
            line = line_of(members)
            if line.kind == reading.STARTED:
                self._started(line, terms_of(members))
                return
        except Malformed as error:
            self._report.find(members["n"], "run", str(error))
            self.hole()
            return
        if line.kind == reading.GAP:
            self._report.find(line.n, "chain", f"lines are missing here: {line.reason[:200]}")
            self.hole()
        elif line.kind != reading.LEDGER:
            self._of_run(line)

    def end(self) -> None:
        """Count what the end of the ledger leaves open."""
        self._decisions.end()

    # -- runs -----------------------------------------------------------------------------

    def _started(self, line: Line, terms: Terms) -> None:
        if line.run in self._runs:
            self._report.find(line.n, "run", f"run {line.run} had started before")
            return
        for rule, text in broken_terms(terms):
            self._report.find(line.n, rule, text)
        if terms.spec != SPEC_VERSION:
            self._report.note(f"run {line.run} goes by {terms.spec}; judged by {SPEC_VERSION}")
        self._report.runs += 1
        scope = Scope(terms.follow_links)
        self._runs[line.run] = Run(
            line.run, terms, line.process, begun=True, line=line.n, scope=scope
        )

    def _of_run(self, line: Line) -> None:
        run = self._runs.get(line.run)
        if run is None:
            run = self._runs[line.run] = self._unknown_run(line)
        elif run.ended:
            self._report.find(line.n, "run", f"a line of run {line.run} after its end")
            return
        judge = self._take.get(line.kind)
        if judge is not None:
            judge(run, line)

    def _unknown_run(self, line: Line) -> Run:
        """A run whose start is not here: its exchanges are judged, its decisions are not."""
        if not (self.partial or self._holed):
            text = f"a line of run {line.run!r}, which no line has started"
            self._report.find(line.n, "run", text)
        self._report.runs += 1
        return Run(line.run, Terms(), f"of run {line.run}", begun=False, holes=True)

    def _ended(self, run: Run, line: Line) -> None:
        self._decisions.over(line.run)
        self._runs[line.run] = Run(run.name, run.terms, run.process, begun=run.begun, ended=True)

    # -- exchanges ------------------------------------------------------------------------

    def _asked(self, run: Run, line: Line) -> None:
        self._report.requests += 1
        run.note_clocks(line)
        self._clock_set = self._clock_set or abs(run.ahead or 0.0) > CLOCK_SET
        host = hosts.host_or_url(line.url)
        if line.host != host:
            self._report.find(line.n, "R4", f"{line.url} is of the host {host}, not {line.host}")
        self._pace(run, line, host)
        for fault in self._lessons.asked(run, line, rests=self._rests(line)):
            self._report.find(line.n, "R4", fault)
        faults = [*wait_faults(line, run.terms)]
        order = [] if REDACTED in line.url else [*run.retries.asked(line)]
        if line.purpose == events.TARGET or not run.holes:
            faults += order
        silence = [*run.silence.asked(line)]
        faults += [] if run.holes else silence
        for fault in faults:
            self._report.find(line.n, "R5", fault)
        tagged = sent_fault(line, run.terms) if run.begun else None
        if tagged is not None:
            self._report.find(line.n, "R13", tagged)
        if line.purpose == events.TARGET:
            self._decisions.asked(run, line)
        elif line.purpose == "robots":
            self._asked_robots(run, line)
        elif line.purpose == "operator":
            self._asked_operator(run, line)
        else:
            self._report.find(line.n, "run", f"{line.purpose!r} is no purpose of a request")

    def _rests(self, line: Line) -> bool:
        """Whether a run has begun with what lines have left that are not here (learned.py)."""
        if self.partial or self._holed:
            return True
        others = (run for run in self._runs.values() if run.name != line.run)
        return bool(line.taught) and any(not run.ended for run in others)

    def _pace(self, run: Run, line: Line, host: str) -> None:
        terms = run.terms
        crawl_delay = 0.0 if run.holes else run.held.crawl_delay(host, line.moment)
        asked_for = max(terms.min_interval, crawl_delay)
        if is_short(line.interval, asked_for, ONE_CLOCK):
            text = f"its interval is {line.interval:g} s, {host} asks for {asked_for:g} s"
            self._report.find(line.n, "R4", text)
        spacing = None
        if line.exempt and self._exempt(line):
            spacing = terms.min_interval if terms.pace_robots else 0.0
        target = line.purpose == events.TARGET
        need = max(asked_for, line.interval)
        ahead = terms.min_interval if line.visit and self._visits(run, line, need) else None
        self._pacing.asked(
            Asked(line.n, run.process, host, target, line.started, line.ended, need, spacing, ahead)
        )
        if line.wait is not None and line.wait > 0:
            why = f"line {line.n} had it left alone for {line.wait:.3f} s"
            self._pacing.hold(host, line.ended, line.wait, run.process, why)

    def _exempt(self, line: Line) -> bool:
        """Whether T1 exempts the robots.txt of *line*, which says that it does."""
        fault = pacing.exempt_fault(line, first=self._pacing.is_first(line))
        if fault is not None:
            self._report.find(line.n, "R4", fault)
        elif self.partial or self._holed:
            self._report.missed("whether a host had been asked before: earlier lines are not here")
        return fault is None

    def _visits(self, run: Run, line: Line, need: float) -> bool:
        """Whether this target of a slow host may go ahead, as it says."""
        terms = run.terms
        fault = self._pacing.visit_fault(line, need, terms.patience)
        if fault is not None and run.holes:
            self._report.missed("visits of slow hosts that rest on lines which are not here")
            return True
        if fault is None and terms.slow_hosts != SLOW_VISIT:
            fault = f"it went ahead of the Crawl-delay, and slow_hosts is {terms.slow_hosts[:40]!r}"
        if fault is not None:
            self._report.find(line.n, "R4", fault)
        return fault is None

    def _asked_robots(self, run: Run, line: Line) -> None:
        if not (_is_robots(line.url) or line.url in run.robots_asked or run.holes):
            if run.robots_hops > 0:
                run.robots_hops -= 1
            else:
                text = f"{line.url} is no robots.txt, and none redirected to it"
                self._report.find(line.n, "R2", text)
        run.robots_hops += line.status in REDIRECTS
        run.robots_asked[line.url] = line
        if not run.begun:
            return
        held = run.held.blocklist(line.moment)
        if held is None:
            if not run.holes:
                text = f"{line.url} was asked before the blocklist was in force"
                self._report.find(line.n, "R3", text)
        elif held.verdict is not None:
            text = f"{line.url} was asked, though {held.verdict.name}: {held.verdict.reason}"
            self._report.find(line.n, "R3", text)
        elif held.blocklist is None:
            self._report.missed("the blocklist is not among the documents")
        else:
            self._not_blocked(run, line, held.blocklist.blocks)

    def _not_blocked(self, run: Run, line: Line, blocks: Callable[[str], Any]) -> None:
        suffixes = run.terms.excluded_tlds
        try:
            verdict = blocks(line.url)
            excluded = hosts.excluded_suffix(hosts.host_of(line.url), suffixes)
        except ValueError as error:
            self._report.find(line.n, "R3", f"no readable host: {error}")
            return
        if verdict is not None:
            text = f"{line.url} was asked, though {BLOCKED_OPERATOR}: {verdict.reason}"
            self._report.find(line.n, "R3", text)
        elif excluded is not None:
            self._report.find(
                line.n,
                BY_SETTING,
                f"{line.url} was asked, though {excluded!r} is excluded",
            )
        else:
            self._report.derived += 1

    def _asked_operator(self, run: Run, line: Line) -> None:
        terms = run.terms
        known = [url for url in (terms.blocklist_url, terms.schema_url) if url]
        if run.begun and hosts.origin_or_url(line.url) not in map(hosts.origin_or_url, known):
            self._report.find(line.n, "R3", f"{line.url} is not of the operator")
        elif run.begun and line.url not in known and not (run.operator_hop or run.holes):
            text = f"{line.url} is neither blocklist nor schema, and neither redirected to it"
            self._report.find(line.n, "R3", text)
        run.operator_hop = line.status in REDIRECTS
        if line.status in (200, 304) and line.url != terms.schema_url:
            run.operator_answer = line

    # -- what follows ---------------------------------------------------------------------

    def _retried(self, run: Run, line: Line) -> None:
        if run.holes or REDACTED in line.url:
            return
        for fault in run.retries.told(line):
            self._report.find(line.n, "R5", fault)

    def _rejected(self, run: Run, line: Line) -> None:
        self._adoptions.take(run, line)
        if line.requirement == "R2" and not (line.verdict or line.digest or line.status):
            host, why = (
                hosts.host_or_url(line.url),
                f"line {line.n} leaves it to a later run (429, D7)",
            )
            since = self._pacing.last_end(host)
            self._pacing.hold(host, since, robots_fetch.REASK, run.process, why)

    def _held(self, run: Run, line: Line) -> None:
        host = hosts.host_or_url(line.url)
        if line.host != host:
            self._report.find(line.n, "R4", f"{line.url} is of the host {host}, not {line.host}")
        elif self._steady(run, line) + (line.wait or 0.0) <= self._due(run, host, line) + _RESTORED:
            self._report.derived += 1
        else:  # AutoThrottle, or another process, made it longer: that is allowed
            self._report.missed("holds that rest on what is not in this ledger")

    def _deferred(self, run: Run, line: Line) -> None:
        if line.requirement == "R3" or (line.requirement, line.verdict) == ("R2", DEFERRED):
            self._decisions.refused(run, line)  # by what stands for a document that is not known
            return
        if line.verdict != DEFERRED:
            self._unreachable(run, line)
            return
        if not run.begun:
            self._report.missed("decisions of a run whose start is not here")
            return
        names = {line.host, line.reason.partition(" ")[0]}
        if line.requirement == "R5":
            self._silent(run, line, names)
            return
        delay = max(run.held.crawl_delay(name, line.moment) for name in names)
        if run.terms.slow_hosts == SLOW_SKIP and delay > run.terms.patience:
            self._report.derived += 1
            return
        due = max(self._due(run, name, line) for name in names)
        if due - self._steady(run, line) > run.terms.patience - _RECKONED:
            self._report.derived += 1
        elif self.partial or run.holes or run.terms.shared or self._unknown_clock(run):
            self._report.missed("deferrals that rest on what is not in this ledger")
        else:
            text = f"deferred, though nothing here holds {line.host} for more than"
            self._report.find(line.n, "R4", f"{text} {run.terms.patience:g} s")

    def _silent(self, run: Run, line: Line, names: set[str]) -> None:
        if any(run.silence.is_silent(name, line.at) for name in names):
            self._report.derived += 1
        elif self.partial or run.holes:
            self._report.missed("deferrals that rest on what is not in this ledger")
        else:
            text = f"deferred, though {line.host} may be asked: it gave no answer to fewer requests"
            self._report.find(line.n, "R5", f"{text} than a run grants a host")

    def _unknown_clock(self, run: Run) -> bool:
        """Whether the wall clock was set once, and no exchange of this run shows by how much."""
        return run.ahead is None and self._clock_set

    @staticmethod
    def _steady(run: Run, line: Line) -> float:
        """When a line was written, by the steady clock, as far as the run's exchanges show it."""
        return line.at - (run.ahead or 0.0)

    def _due(self, run: Run, host: str, line: Line) -> float:
        return self._pacing.due(host, run.held.crawl_delay(host, line.moment))

    def _unreachable(self, run: Run, line: Line) -> None:
        by_setting = line.verdict != UNKNOWN_PARSE_ERROR
        if run.begun and by_setting and run.terms.robots_unreachable != "defer":
            text = f"{line.verdict} is deferred, and this run's setting is not 'defer'"
            self._report.find(line.n, "R2", text)
        self._decisions.refused(run, line)


def _is_robots(url: str) -> bool:
    try:
        return url == hosts.robots_url(url)
    except ValueError:
        return False
