"""Passes each line of a ledger, in order, to the part of the check that it is for.

Lines and a look-up of documents in, findings out; only :func:`verify` reads a disk. The memory that
it takes grows with hosts and targets, never with lines.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

from msgspec.structs import replace

from scrapy_walsh.ledger.files import HEAD, Bodies, parse_line, read_head
from scrapy_walsh.policy import chain, hosts
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.backoff import REDIRECTS
from scrapy_walsh.policy.event import ASKED, Pace
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.tagging import is_operator_url, tag_url
from scrapy_walsh.policy.urls import REDACTED
from scrapy_walsh.policy.verdict import DEFERRED, UNKNOWN_PARSE_ERROR, Verdict
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof import ledger
from scrapy_walsh.proof.ledger import (
    Chain,
    Head,
    Malformed,
    line_of,
    lines_in,
)
from scrapy_walsh.proof.ledgered import Hold
from scrapy_walsh.proof.verify.adoptions import Adoptions
from scrapy_walsh.proof.verify.decisions import Decisions
from scrapy_walsh.proof.verify.replay import Replay, fault_of_outcome
from scrapy_walsh.proof.verify.run import (
    CLOCK_SET,
    NO_START,
    Report,
    Run,
    Snapshot,
)
from scrapy_walsh.proof.verify.terms import (
    ADMITTED,
    REDIRECTS_NAMED,
    SINCE,
    Terms,
    broken_terms,
    terms_of,
)
from scrapy_walsh.spec import SPEC_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scrapy_walsh.proof.ledger import Files, Line
    from scrapy_walsh.proof.ledgered import Gap
    from scrapy_walsh.proof.verify.adoptions import Parse

    #: Is told of each line of a run, and of the gap before it on its host, if it is a request.
    Watch: TypeAlias = Callable[[Line, Gap | None], None]

#: Seconds that a deferral's wait may seem short by: it was computed before its line was written.
_RECKONED: Final = 0.1
#: Seconds that a hold may seem long by: a later run does not know exactly when the last request of
#: an earlier one reached the server.
_RESTORED: Final = 0.5
#: The kinds of lines that are judged even if the start of their run is missing.
_WITHOUT_START: Final = (ASKED, ledger.ENDED, events.ADOPTED, events.TAKEN_UP)
#: Verdicts that are deferred whatever the setting is.
_WITHOUT_SETTING: Final = (DEFERRED, UNKNOWN_PARSE_ERROR)
_TAGS: Final = re.compile(r"[?&]impl=([^&#]+)(?:&sha=([^&#]+))?&spec=[^&#]+(?:#|\Z)")


class Judge:
    """Takes the members of each line, in order."""

    def __init__(
        self,
        report: Report,
        documents: Bodies,
        parse: Parse,
        watch: Watch | None = None,
    ) -> None:
        self._report = report
        self._watch = watch
        self._runs: dict[str, Run] = {}
        self._replay = Replay(report)
        self._adoptions = Adoptions(report, documents, parse)
        self._decisions = Decisions(report, self._adoptions)
        self._has_gaps = False
        #: How many runs have lines of each form.
        self._forms = Counter[int]()
        #: Whether the wall clock was set at some time, so that times of lines say less.
        self._clock_set = report.excerpt
        self._take: Mapping[str, Callable[[Run, Line], None]] = {
            ledger.ENDED: self._end_run,
            ledger.DECLARED: self._decisions.take_declaration,
            events.ADOPTED: self._adoptions.take,
            events.TAKEN_UP: self._adoptions.take,
            events.REJECTED: self._judge_rejection,
            ASKED: self._judge_exchange,
            events.FETCHED: self._decisions.judge_answer,
            events.NOT_MODIFIED: self._decisions.judge_answer,
            events.ANSWERED: self._decisions.judge_middleware_answer,
            events.TOO_MANY_REDIRECTS: self._decisions.judge_last_redirect,
            events.REFUSED: self._decisions.judge_refusal,
            events.HELD: self._judge_wait,
            events.DEFERRED: self._judge_deferral,
            events.RETRIED: self._judge_retry,
            events.GIVEN_UP: self._judge_retry,
        }

    @property
    def running(self) -> bool:
        """Whether a run has no end."""
        return any(run.begun and not run.ended for run in self._runs.values())

    def note_gap(self) -> None:
        """Lines are missing here, or were not judged: what rests on them is not derived."""
        self._has_gaps = True
        for run in self._runs.values():
            run.has_gaps = True

    def take(self, members: dict[str, Any]) -> None:
        """Judge one line; its form and its place in the chain are right."""
        try:
            line = line_of(members)
            if line.kind == ledger.STARTED:
                self._start_run(line, terms_of(members))
                return
        except Malformed as error:
            self._report.find(members["n"], "run", str(error))
            self.note_gap()
            return
        if line.kind == ledger.GAP:
            self._report.find(line.n, "chain", f"lines are missing here: {line.reason[:200]}")
            self.note_gap()
        elif line.kind == events.LIFTED:
            self._replay.exchanges.lift(line.host)
            self._report.note(
                f"line {line.n}: a person lifted a hold of {line.host}: {line.reason}"
            )
        elif line.kind != ledger.LEDGER:
            self._replay.gap = None
            self._take_line_of_run(line)
            if self._watch is not None:
                self._watch(line, self._replay.gap)

    def end(self) -> None:
        """Judge what could not be judged before."""
        self._decisions.end({name for name, run in self._runs.items() if run.ended})
        for form, runs in sorted(self._forms.items()):
            newer = [rule for rule, since in SINCE.items() if since > form]
            if newer:
                text = f"{plural(runs, 'run')} of the stored form {form}"
                self._report.note(f"{text}: not judged by newer rules: {'; '.join(newer)}")

    # -- runs -----------------------------------------------------------------------------

    def _start_run(self, line: Line, terms: Terms) -> None:
        if line.run in self._runs:
            self._report.find(line.n, "run", f"run {line.run} had started before")
            return
        for rule, text in broken_terms(terms):
            self._report.find(line.n, rule, text)
        if terms.spec != SPEC_VERSION:
            self._report.note(f"run {line.run} uses {terms.spec}; judged by {SPEC_VERSION}")
        self._report.runs += 1
        self._forms[terms.stored_form] += 1
        scope = Scope(terms.follow_links, typed=terms.in_shell)
        run = Run(self._report, line.run, terms, line.process, begun=True, line=line.n, scope=scope)
        # In an excerpt, it is not known where a robots.txt was redirected to.
        run.has_gaps = self._report.excerpt and not terms.is_held_to(REDIRECTS_NAMED)
        self._runs[line.run] = run
        self._adoptions.begin(run)

    def _take_line_of_run(self, line: Line) -> None:
        run = self._runs.get(line.run)
        if run is None:
            if not (self._report.partial or self._has_gaps):
                self._report.find(
                    line.n, "run", f"a line of run {line.run!r}, which no line has started"
                )
            self._report.runs += 1
            run = Run(
                self._report, line.run, Terms(), f"of run {line.run}", begun=False, has_gaps=True
            )
            self._runs[line.run] = run
        elif run.ended:
            self._report.find(line.n, "run", f"a line of run {line.run} after its end")
            return
        judge = self._take.get(line.kind)
        if not run.begun and line.kind not in _WITHOUT_START:
            self._report.missed(NO_START)
        elif judge is not None:
            judge(run, self._with_own_host(line) if line.kind == ASKED else line)

    def _end_run(self, run: Run, line: Line) -> None:
        self._runs[line.run] = Run(
            self._report, run.name, run.terms, run.process, begun=run.begun, ended=True
        )

    def _with_own_host(self, line: Line) -> Line:
        """*line*, of the host of its URL; that it names another one is a finding."""
        host = hosts.host_or_url(line.url)
        if line.host == host:
            return line
        self._report.find(line.n, "R4", f"{line.url} is of the host {host}, not {line.host}")
        return replace(line, host=host)

    # -- exchanges ------------------------------------------------------------------------

    def _judge_exchange(self, run: Run, line: Line) -> None:
        self._report.requests += 1
        run.note_clocks(line)
        self._clock_set = self._clock_set or abs(run.ahead or 0.0) > CLOCK_SET
        killed = (
            run_before
            for run_before in self._runs.values()
            if run_before is not run and not run_before.ended
        )
        is_other_killed = bool(line.taught) and any(killed)
        partial = self._report.partial or self._has_gaps
        concluded = self._replay.judge_exchange(run, line, partial=partial, others=is_other_killed)
        if not run.begun:
            self._report.missed(NO_START)
            return
        if (tagged := fault_of_sent_url(line, run.terms)) is not None:
            self._report.find(line.n, "R13", tagged)
        if line.purpose == events.TARGET:
            self._adoptions.settle(run, line)
            self._decisions.judge_exchange(run, line, concluded)
        elif line.purpose == chain.ROBOTS:
            self._judge_robots_request(run, line)
        elif line.purpose == "operator":
            self._judge_operator_request(run, line)
        else:
            self._report.find(line.n, "run", f"{line.purpose!r} is no purpose of a request")

    def _judge_robots_request(self, run: Run, line: Line) -> None:
        if not (line.is_robots or line.url in run.robots_asked or run.has_gaps):
            if run.robots_hops > 0:
                run.robots_hops -= 1
            else:
                self._report.find(
                    line.n, "R2", f"{line.url} is no robots.txt, and none redirected to it"
                )
        run.robots_hops += line.status in REDIRECTS
        run.robots_asked[line.url] = line
        snapshot = Snapshot(run, line.moment)
        origin = line.robots_of or line.origin
        self._check_robots_redirect(run, line, origin)
        run.robots_read[origin] = line
        verdict = self._decisions.robots_hop(run, line, origin, snapshot)
        if not self._decisions.may_go(run, line, verdict):
            return
        if line.origin != origin and not line.is_robots and not run.has_gaps:
            self._decisions.check_freshness(run, line)
        if snapshot.unread:
            self._report.missed(snapshot.unread[0])
        else:
            self._report.derived += 1

    def _check_robots_redirect(self, run: Run, line: Line, origin: str) -> None:
        """Find a robots.txt that *origin*'s is to have redirected to, and has not."""
        if not line.robots_of:
            if line.hops and run.terms.is_held_to(REDIRECTS_NAMED):
                run.find(
                    line,
                    "R2",
                    f"{line.url} is a redirect of a robots.txt, and the line has no robots_of",
                )
            return
        redirect = run.robots_read.get(origin)
        led = (
            redirect is not None and redirect.status in REDIRECTS and redirect.hops + 1 == line.hops
        )
        is_repeated = (
            redirect is not None and redirect.url == line.url and redirect.hops == line.hops
        )
        if not (led or is_repeated):
            run.find(line, "R2", f"the robots.txt of {origin} did not redirect to {line.url}")

    def _judge_operator_request(self, run: Run, line: Line) -> None:
        terms = run.terms
        documents = [url for url in (terms.blocklist_url, terms.schema_url) if url]
        if line.origin not in map(hosts.origin_or_url, documents):
            self._report.find(line.n, "R3", f"{line.url} is not of the operator")
        elif line.url not in documents and not (run.operator_hop or run.has_gaps):
            self._report.find(
                line.n,
                "R3",
                f"{line.url} is neither blocklist nor schema, and neither redirected to it",
            )
        run.operator_hop = line.status in REDIRECTS
        if line.status in (200, 304) and line.url != terms.schema_url:
            run.operator_answer = line

    # -- what follows ---------------------------------------------------------------------

    def _judge_retry(self, run: Run, line: Line) -> None:
        if run.has_gaps or REDACTED in line.url:
            return
        if (fault := fault_of_outcome(run, line)) is not None:
            self._report.find(line.n, "R5", fault)

    def _judge_rejection(self, run: Run, line: Line) -> None:
        self._adoptions.take(run, line)
        if line.requirement == "R2" and not (line.verdict or line.digest or line.status):
            exchanges = self._replay.exchanges
            host = hosts.host_or_url(line.url)
            since = exchanges.last_end(host)
            reason = f"line {line.n} leaves it to a later run (429, D7)"
            exchanges.hold(
                host,
                Hold(since + robots_fetch.REASK, since, run.process, reason),
            )

    def _judge_wait(self, run: Run, line: Line) -> None:
        if self._with_own_host(line) is not line:
            return
        if (line.wait or 0.0) <= self._seconds_until_due(run, line.host, line) + _RESTORED:
            self._report.derived += 1
        else:  # AutoThrottle, or another process, made it longer: that is allowed
            self._report.missed()

    def _seconds_until_due(self, run: Run, host: str, line: Line) -> float:
        """Seconds until *host* was due when *line* was written, as far as exchanges show it."""
        due = self._replay.exchanges.due(host, run.held.crawl_delay(host, line.moment))
        return due - (line.at - (run.ahead or 0.0))

    def _judge_deferral(self, run: Run, line: Line) -> None:
        """Judge a deferral: ``chain.admit`` refuses it, or a verdict in place of a document."""
        if line.requirement in ("R2", "R3") or line.verdict != DEFERRED:
            setting = line.requirement != "R3" and line.verdict not in _WITHOUT_SETTING
            if setting and run.terms.robots_unreachable != "defer":
                self._report.find(
                    line.n,
                    "R2",
                    f"{line.verdict} is deferred, but this run's setting is not 'defer'",
                )
            self._decisions.judge_refusal(run, line)
            return
        if line.unanswered is not None and line.unanswered.dead:
            self._decisions.fail_visit(run, line)
        self._decisions.end_visit(run, line)
        if line.requirement in self._refusing_requirements(
            run, line.robots_host or line.host, line
        ):
            self._report.derived += 1
            return
        # Of an older form, the line may not name the host that was not due.
        unknown = self._report.partial or run.has_gaps or not run.terms.is_held_to(ADMITTED)
        if line.requirement != "R5":
            # Another worker may have held the host, or the clock may have been set.
            unknown = unknown or run.terms.shared or (run.ahead is None and self._clock_set)
        rule = "R5" if line.requirement == "R5" else "R4"
        self._report.find(
            line.n,
            rule,
            f"deferred by {line.requirement}, although {line.host} may be requested",
            explained=unknown,
        )

    def _refusing_requirements(self, run: Run, host: str, line: Line) -> set[str]:
        """The requirements that were to refuse a request to *host*, or to its robots.txt."""
        gates = run.gates
        requirements = set()
        interval = run.held.crawl_delay(host, line.moment)
        wait = self._seconds_until_due(run, host, line) + _RECKONED
        for document in (False, True):
            spent = run.host(host).spent(line.at, document=document)
            step = chain.admit(
                Pace(host, wait, interval, spent),
                gates,
                line.at,
                document=document,
            )
            if isinstance(step, Verdict):
                requirements.add(step.requirement)
        return requirements


def fault_of_sent_url(line: Line, terms: Terms) -> str | None:
    """R13: the reason why the sent URL is not the judged URL with its tags; None if it is.

    A request without tags has none that could be wrong.
    """
    if line.sent is None or REDACTED in line.sent:
        return None
    tags_found = _TAGS.search(line.sent)
    impl, sha = (None, None) if tags_found is None else tags_found.groups()
    tagged = tag_url(line.url, unquote(impl or ""), sha and unquote(sha), terms.spec)
    tags = terms.tag_requests or terms.in_shell
    if impl and tagged == line.sent and tags and is_operator_url(line.url, terms.operator_urls):
        return None
    return f"{line.sent} was sent, which is not {line.url} with the tags that it may carry"


# -- the files of a ledger ---------------------------------------------------------------------


def verify(
    files: Files,
    heads: Sequence[Head],
    parse: Parse,
    watch: Watch | None = None,
    wanted: Callable[[bytes], bool] | None = None,
) -> Report:
    """Check a ledger. *heads*: known from elsewhere. *parse*: reads a list. *watch*: is called with
    each line of a run that has begun, and the gap before it, if it is a request. *wanted*: whether
    a line is judged; of the others only the place in the chain is checked, and the first and the
    last are given to *watch*. Raises OSError, and StateError if a later version wrote a run.
    """
    report = Report(excerpt=bool(files.begin or wanted))
    head = read_head(files.head) if files.head is not None else None  # before lines are added
    own_heads = [Head(*head, said_by=HEAD)] if head is not None else []
    chained = Chain(
        lambda line, text: report.find(line, "chain", text),
        report.note,
        [*own_heads, *heads],
        files.parts[0].name if files.begin else "",
    )
    documents = Bodies(files.documents)
    judge = Judge(report, documents, parse, watch)
    skipped: list[bytes] = []
    for name, raw in lines_in(files.parts, files.begin):
        if wanted is not None and not wanted(raw) and chained.skip(name, raw):
            skipped[1:] = [raw]
            continue
        members = chained.take(name, raw)
        if chained.has_gap:
            chained.has_gap = False
            judge.note_gap()
        report.partial = chained.partial
        if members is not None and (wanted is None or wanted(raw)):
            judge.take(members)
    judge.end()
    documents.close()
    for raw in skipped:
        with suppress(Malformed):
            (watch or _nothing)(line_of(parse_line(raw[:-1])), None)
    _note_what_is_missing(report, chained, files, documents)
    report.headed = bool(own_heads or heads)
    chained.end(headed=report.headed, running=judge.running, later=files.later)
    report.lines = chained.count
    report.head = chained.head
    report.findings.sort(key=attrgetter("line", "rule", "text"))
    return report


def _nothing(line: Line, gap: Gap | None) -> None:
    """Nobody watches."""


def _note_what_is_missing(report: Report, chained: Chain, files: Files, documents: Bodies) -> None:
    if files.begin:
        report.note(f"lines before {chained.first} are not judged here: walsh verify judges all")
    elif report.partial:
        report.note("earlier lines are missing: decisions that depend on them are not derived")
    if not files.documents.exists():
        report.note(f"{files.documents.name} is missing: no document can be read again")
    if documents.fault is not None:
        report.note(f"{files.documents.name} cannot be read: {documents.fault}")
