"""R2, R3, R10, R12: may a run use the document that a line has put in force?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy import chain, hosts
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.backoff import REDIRECTS, GiveUp, Retry, is_failure
from scrapy_walsh.policy.list import operator
from scrapy_walsh.policy.list.blocklist import Blocklist, join_lists
from scrapy_walsh.policy.list.schema import read_schema, reread_blocklist
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.robots.fetch import Keep, Leave
from scrapy_walsh.policy.robots.file import Robots, no_rules, parse_robots
from scrapy_walsh.policy.robots.groups import has_field, is_empty
from scrapy_walsh.policy.verdict import (
    DEFERRED,
    UNKNOWN_PARSE_ERROR,
    Verdict,
    not_known,
)
from scrapy_walsh.proof.verify.run import LIST, NO_START, Held, Snapshot
from scrapy_walsh.proof.verify.terms import MOVED_LIST, NO_PAGE

if TYPE_CHECKING:
    from scrapy_walsh.ledger.files import Bodies
    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.verify.run import Report, Run

_ROBOTS = "/robots.txt"
_NO_AGE = "age of a document: its fetch is not in this ledger"
_NOTHING = Blocklist()


#: Reads a blocklist, even if it may be costly to validate; DocumentInvalid.
Parse: TypeAlias = Callable[[bytes, "dict[str, Any] | None", str], Blocklist]


@dataclass(slots=True)
class _ListRecord:
    """The last fetch or confirmation of a list: its line, and its time in Unix seconds.

    ``tokens``: the product tokens, in lower case, of the runs that had it in force (D39).
    """

    line: int = 0
    fetched_at: float = 0.0
    tokens: set[str] = field(default_factory=set)


class Adoptions:
    """The documents of all runs, and when each was fetched.

    Each is looked up by its digest, and parsed once; the latest are kept. *parse* validates a list,
    with the standalone schema that was beside it, and raises DocumentInvalid. One that was held is
    not validated again.
    """

    def __init__(self, report: Report, documents: Bodies, parse: Parse) -> None:
        self._report = report
        self._documents = documents
        self._parse = parse
        self._robots = lru_cache(1024)(self._read_robots)
        self._list = lru_cache(8)(self._read_list)
        #: When each document, by its list's URL or its origin and by its digest, was last fetched,
        #: and the line that says so. The later line counts, not the later time: the clock may have
        #: been put back (D9).
        self._fetched: dict[tuple[str, str | None], tuple[float, int]] = {}
        #: By the same, the line and the digest of the last list that was in force in any run, and
        #: of the last robots.txt that any run adopted.
        self._last: dict[str, tuple[int, str | None]] = {}
        #: The lists that an exchange has brought or confirmed, by URL.
        self._lists: dict[str, _ListRecord] = {}
        #: By origin, how many fetches a day apart have brought a page in place of its rules (D44).
        self._pages: dict[str, int] = {}
        #: The first, by name, of the origins that each robots.txt was adopted for, by any run.
        self._owner: dict[str, str] = {}

    # -- documents; None: it is not there to be read ------------------------------------------

    def _read_list(self, kind: str, digest: str, schema: str | None, url: str) -> Blocklist | None:
        body = self._documents.get(digest)
        if body is None:
            return None
        if kind != events.ADOPTED:
            return reread_blocklist(body, url)
        if schema is None:
            return self._parse(body, None, url)
        beside = self._documents.get(schema)
        if beside is None:
            return None
        return self._parse(body, read_schema(beside), url)

    def _read_robots(self, digest: str, token: str, document: str) -> Robots | None:
        body = self._documents.get(digest)
        if body is None:
            return None
        return parse_robots(body, token, document)

    def _note_unread(self, line: Line, what: str, *digests: str | None) -> None:
        altered = [digest for digest in digests if digest in self._documents.altered]
        if altered:
            self._report.find(
                line.n, "chain", f"the document {altered[0]} was altered, or is damaged"
            )
        else:
            self._report.missed(f"{what} that is not among the documents")

    def take(self, run: Run, line: Line) -> None:
        """Judge a line ``adopted``, ``taken_up`` or ``rejected``; its document is then in force."""
        operator = line.requirement == "R3"
        if not operator and not (line.requirement == "R2" and line.url.endswith(_ROBOTS)):
            self._report.find(line.n, "run", f"{line.url} is not a document that decisions use")
        elif not run.begun:
            self._report.missed(NO_START)
        elif operator:
            self._judge_list(run, line)
        else:
            self._judge_robots(run, line, line.url.removesuffix(_ROBOTS))

    def fetched_at(self, of: str, document: Held) -> float | None:
        """When any run last fetched what is held, Unix seconds; None if no line says so."""
        at, line = self._fetched.get((of, document.digest or ""), (document.fetched_at, 0))
        if line <= document.serial and document.fetched_at is not None:
            return document.fetched_at
        return at

    # -- R3 -------------------------------------------------------------------------------

    def _judge_list(self, run: Run, line: Line) -> None:
        answer = run.operator_answer
        if line.url != run.terms.blocklist_url and line.kind == events.TAKEN_UP and line.digest:
            self._add_list(run, line, line.digest)
            return
        run.operator_answer = None
        if line.url != run.terms.blocklist_url:
            self._report.find(line.n, "R3", f"{line.url} is not the blocklist of this run")
        elif line.kind == events.REJECTED:
            self._keep_list(run, line)
        elif line.digest is None:
            self._report.find(line.n, "R3", "a blocklist without a digest")
        else:
            self._adopt_list(run, line, line.digest, answer)

    def _keep_list(self, run: Run, line: Line) -> None:
        if line.verdict == DEFERRED:
            run.owed = {}  # one of them may be lost, and nothing is requested
        self.settle(run, line)
        # If a list is held, only what failed on our own side defers everything.
        document = run.held.now(LIST)
        if document is not None and line.verdict != DEFERRED:
            run.held.keep_list(document)
            return
        position = run.terms.blocklist_unreachable
        verdict = operator.without_list(position, line.url)
        if line.verdict == DEFERRED:  # always right: what failed on the run's own side is not told
            verdict = not_known("R3", line.reason, line.url)
        elif verdict is None:
            self._check_last_list(run, line, None)
        if line.verdict != (verdict.name if verdict else ""):
            stand_in = line.verdict or "an empty list"
            self._report.find(
                line.n,
                "R3",
                f"uses {stand_in}, but this run's blocklist_unreachable is {position!r}",
            )
        run.held.put(LIST, Held(line.n, line.at, verdict or _NOTHING, None))

    def _adopt_list(self, run: Run, line: Line, digest: str, answer: Line | None) -> None:
        status = 200 if line.kind == events.ADOPTED else 304
        brought = answer is not None and answer.status == status and answer.whole is not False
        if line.kind == events.TAKEN_UP and not brought:
            self._check_last_list(run, line, digest)
        elif line.kind == events.ADOPTED and not brought:
            run.find(line, "R3", f"no exchange of this run brought {line.url}")
        self._last[line.url] = line.n, digest
        if answer is not None and brought:
            self._fetched[line.url, digest] = answer.at, line.n
            record = self._lists.setdefault(line.url, _ListRecord())
            record.line = line.n
            record.fetched_at = answer.at
        fetched_at, _ = self._fetched.get((line.url, digest), (None, 0))
        if line.url in self._lists:
            self._lists[line.url].tokens.add(run.terms.token.lower())
        run.owed = {}
        if not brought and fetched_at is not None and not run.terms.shared:
            run.owed = self._lists_owed(run, line.url)
        if fetched_at is None:
            self._report.missed(_NO_AGE)
        self._put_list(run, line, digest, self._parse_list(line, digest))

    def _put_list(self, run: Run, line: Line, digest: str, blocklist: Blocklist | None) -> None:
        """Put the list of *line* in force; None: it cannot be read."""
        fetched_at, _ = self._fetched.get((line.url, digest), (None, 0))
        ttl = math.inf if blocklist is None else blocklist.refresh
        run.held.put(LIST, Held(line.n, line.at, blocklist, fetched_at, ttl, digest))

    def begin(self, run: Run) -> None:
        """Note which lists bind a run that has just started, beside that of its own address."""
        if run.terms.blocklist_url not in self._last and not run.terms.shared:
            run.owed = self._lists_owed(run, run.terms.blocklist_url)

    def _lists_owed(self, run: Run, own_url: str) -> dict[str, int]:
        """The lists that bind *run* beside the last list from *own_url*: their lines by URL.

        Such a list was in force under the same token before the run, and is newer than its own.
        """
        if not run.terms.is_held_to(MOVED_LIST):
            return {}
        own_record = self._lists.get(own_url, _ListRecord())
        return {
            url: record.line
            for url, record in self._lists.items()
            if url != own_url
            and run.terms.token.lower() in record.tokens
            and own_record.line < record.line < run.line
            and record.fetched_at > own_record.fetched_at
        }

    def settle(self, run: Run, line: Line) -> None:
        """R3b, D39: find lists that bind the run of *line*, and that it goes on without."""
        for url, number in run.owed.items():
            run.find(
                line, "R3", f"the list of line {number}, from {url}, had to stay in force (R3b)"
            )
        run.owed = {}

    def _add_list(self, run: Run, line: Line, digest: str) -> None:
        """A list of another address is in force, too, until one of this run's own is (D39)."""
        self._check_last_list(run, line, digest)
        run.owed.pop(line.url, None)
        blocklist = self._parse_list(line, digest)
        document = run.held.now(LIST)
        if document is None or isinstance(document.what, Verdict):
            self._put_list(run, line, digest, blocklist)
            return
        lists = [document.what, blocklist]
        both = None if None in lists else join_lists(lists)
        run.held.add_list(replace(document, serial=line.n, document=both))

    def _check_last_list(self, run: Run, line: Line, digest: str | None) -> None:
        """R3b, T7: a run begins with the list that was in force before it, if there was one."""
        number, digest_before = self._last.get(line.url, (0, digest))
        if digest == digest_before or number > run.line or run.has_gaps:
            return
        if digest is None or (line.url, digest) in self._fetched:
            self._report.find(line.n, "R3", f"the list of line {number} had to stay in force (R3b)")

    def _parse_list(self, line: Line, digest: str) -> Blocklist | None:
        try:
            blocklist = self._list(line.kind, digest, line.schema, line.url)
        except DocumentInvalid as error:
            self._report.find(
                line.n,
                "R3",
                f"{line.kind}, but its document may not be adopted: {error}"[:300],
            )
            return None
        if blocklist is None:
            self._note_unread(line, "a blocklist", digest, line.schema)
        else:
            self._report.derived += 1
        return blocklist

    # -- R2 -------------------------------------------------------------------------------

    def _judge_robots(self, run: Run, line: Line, origin: str) -> None:
        if not line.is_robots:
            self._report.find(line.n, "R2", f"{line.url} is the robots.txt of no origin")
        elif line.kind == events.REJECTED:
            self._reject(run, line, origin)
        else:
            self._adopt(run, line, origin)

    def _adopt(self, run: Run, line: Line, origin: str) -> None:
        brought = self._find_exchange(run, line) if line.kind == events.ADOPTED else None
        if brought is not None:
            self._check_page(run, line, origin)
            self._fetched[origin, line.digest] = brought.at, line.n
            self._last[origin] = line.n, line.digest
            digest = line.digest or ""
            self._owner[digest] = min(origin, self._owner.get(digest, origin))
        elif line.kind == events.TAKEN_UP:
            self._check_owner(run, line, origin)
        fetched_at, _ = self._fetched.get((origin, line.digest), (None, 0))
        if fetched_at is None and line.kind == events.TAKEN_UP:
            self._report.missed(_NO_AGE)
        self._put(run, line, origin, fetched_at)

    def _check_page(self, run: Run, line: Line, origin: str) -> None:
        """D44: known rules stay until a page has come in their place in three fetches."""
        pages = self._pages.pop(origin, 0)
        number, digest_before = self._last.get(origin, (0, None))
        new = line.digest
        enough = pages >= robots_fetch.PAGES - 1 or not run.terms.is_held_to(NO_PAGE)
        if (
            digest_before is None
            or new is None
            or new == digest_before
            or enough
            or run.terms.shared
        ):
            return
        old_body = self._documents.get(digest_before)
        new_body = self._documents.get(new)
        if old_body is None or new_body is None or not has_field(old_body):
            return
        if not (has_field(new_body) or is_empty(new_body)):
            run.find(line, "R2", f"a page replaced the rules of line {number} (D44)")

    def _check_owner(self, run: Run, line: Line, origin: str) -> None:
        """Find a robots.txt from the store that was adopted for other origins only.

        One that no line adopted at all may come from a run that kept no ledger, or an import.
        """
        owner = self._owner.get(line.digest or "")
        is_own = (origin, line.digest) in self._fetched
        adoption = self._last.get(origin)
        if owner and not is_own and adoption and not run.terms.shared:
            run.find(
                line,
                "R2",
                f"that robots.txt is of {owner}; line {adoption[0]} adopted another",
            )

    def _find_exchange(self, run: Run, line: Line) -> Line | None:
        """The exchange that brought an adopted robots.txt; None, and a finding, without one."""
        answer = run.robots_asked.get(line.document or line.url)
        start = run.robots_asked.get(line.url)
        if answer is None or start is None:
            run.find(line, "R2", f"no exchange of this run brought {line.url}")
            return None
        means = _meaning(answer)
        cut = answer.whole is False and (answer.octets or 0) < robots_fetch.MAX_OCTETS
        if (
            answer.status == line.status
            and (line.document is None or start.status in REDIRECTS)
            and means == (robots_fetch.NO_RULES if line.digest is None else robots_fetch.PARSE)
            and answer.body in (None, line.digest)
            and not cut
        ):
            return answer
        got = f"{answer.status}, {answer.octets} octets{' of more' if cut else ''} of {answer.body}"
        run.find(
            line,
            "R2",
            f"line {answer.n} answered {got}: {line.status} with {line.digest} was adopted",
        )
        return None

    def _put(
        self,
        run: Run,
        line: Line,
        origin: str,
        fetched_at: float | None,
        ttl_of_kept: float | None = None,
    ) -> None:
        """Put the rules of *line* in force.

        *kept*: seconds that rules of an earlier answer stay, because no new ones came.
        """
        document = line.document or line.url
        token = run.terms.token
        rules: Robots | None = no_rules(document)
        if line.digest is not None:
            rules = self._robots(line.digest, token, document)
        if rules is None:
            self._note_unread(line, "a robots.txt", line.digest)
        elif rules.group != line.group:
            group = " ".join(rules.group) or "none"
            self._report.find(line.n, "R2", f"the group of {token!r} is {group}")
        else:
            self._report.derived += 1
        delay = 0.0 if rules is None else rules.crawl_delay or 0.0
        is_file = rules is not None and line.digest is not None
        kept = partial(self._robots, line.digest, token, document) if is_file else rules
        ttl = robots_fetch.robots_ttl(
            run.terms.robots_ttl,
            max(delay, run.terms.min_interval),
            line.max_age,
            run.scope.shortest(origin, run.terms.revisit),
        )
        ttl = ttl if ttl_of_kept is None else ttl_of_kept
        run.held.put(
            origin,
            Held(line.n, line.at, kept, fetched_at, ttl, line.digest, delay),
        )

    def _reject(self, run: Run, line: Line, origin: str) -> None:
        cause = _cause(line)
        position = run.terms.robots_unreachable
        if line.pages is not None:
            self._pages[origin] = line.pages
        if (text := _fault_of_cause(run, line, origin, cause)) is not None:
            run.find(line, "R2", text)
        standing = robots_fetch.without(cause, "", line.url, position, fleet=run.terms.shared)
        number, digest = self._last.get(origin, (0, line.digest))
        if isinstance(standing, Leave):
            run.held.put(origin, None)
            return
        if digest != line.digest and (isinstance(standing, Keep) or not line.verdict):
            self._report.find(line.n, "R2", f"the rules of line {number} had to stay in force (T6)")
        stands = standing.otherwise if isinstance(standing, Keep) else standing
        if not line.verdict:
            self._put(run, line, origin, line.at, stands.ttl)
            return
        if line.verdict != stands.verdict.name:
            self._report.find(line.n, "R2", f"{line.verdict!r} stands for no robots.txt")
        else:
            self._report.derived += 1
        stands = replace(stands, verdict=replace(stands.verdict, reason=line.reason))
        run.held.put(origin, Held(line.n, line.at, stands, line.at, stands.ttl))


def _meaning(answer: Line) -> str:
    """The meaning of an answer to a request for a robots.txt if no redirect is followed."""
    failure: Retry | GiveUp | None = None
    if is_failure(answer.status) and (answer.gives_up or answer.answered):
        failure = GiveUp() if answer.gives_up else Retry()
    return robots_fetch.meaning(answer.status, location=False, hops=0, failure=failure)


def _fault_of_cause(run: Run, line: Line, origin: str, cause: str) -> str | None:
    """Why the host's answer does not allow the run to go on without its robots.txt, or None."""
    if cause == robots_fetch.HOP_REFUSED:
        return _fault_of_refusal(run, line, origin)
    answer = run.robots_asked.get(line.url)
    if cause == robots_fetch.OURS:
        return None  # nothing is sent then, whatever the host has answered
    if answer is None:
        return f"{line.url} was not requested in this run"
    allowed = {
        robots_fetch.UNREACHABLE,
        *(() if line.verdict else (robots_fetch.DEFER,)),
    }
    if cause in {robots_fetch.UNREADABLE, robots_fetch.PAGE}:
        allowed = {robots_fetch.PARSE}
    # After a redirect the fetch ended at a hop, and the hop's line has another URL.
    if answer.status in REDIRECTS or _meaning(answer) in allowed:
        return None
    return f"line {answer.n} answered {answer.status}, which does not lead to this"


def _fault_of_refusal(run: Run, line: Line, origin: str) -> str | None:
    """Why a redirect of a robots.txt need not have been refused, or None (D37).

    It cannot be derived that the other authority's rules could not be read. It need not be: a run
    that says so uses the rules that are known, or sends nothing.
    """
    redirect = run.robots_read.get(origin)
    if redirect is not None and redirect.url == line.hop and redirect.status is None:
        return None  # the hop was tried, and its URL could not be sent
    if redirect is None or redirect.status not in REDIRECTS:
        return f"the robots.txt of {origin} did not redirect to {line.hop}"
    snapshot = Snapshot(run, line.moment)
    led = run.leads(redirect.url)
    gates = run.gates
    scope = run.scope
    try:
        target_origin = hosts.origin(line.hop)
        verdict = chain.judge_robots_hop(line.hop, origin, scope, snapshot, gates, led=led)
    except ValueError as error:
        return str(error)
    if verdict is None and line.address is not None:
        verdict = chain.judge_addresses(line.hop, (line.address,), scope, gates, led)
    if verdict is not None or snapshot.unread:
        return None
    rules = run.held.at(target_origin, line.moment)
    if target_origin != origin and (rules is None or line.at - rules.since > rules.ttl):
        return None
    return f"it records that the redirect to {line.hop} was refused, but no rule refuses it"


def _cause(line: Line) -> str:
    """Why a run has no new rules, as its line ``rejected`` tells."""
    if line.pages is not None:
        return robots_fetch.PAGE
    if line.hop:
        return robots_fetch.HOP_REFUSED
    causes = {
        UNKNOWN_PARSE_ERROR: robots_fetch.UNREADABLE,
        DEFERRED: robots_fetch.OURS,
    }
    has_rules = line.verdict or line.digest is not None or line.status is not None
    return causes.get(
        line.verdict,
        robots_fetch.UNREACHABLE if has_rules else robots_fetch.DEFER,
    )
