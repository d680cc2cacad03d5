"""R2's document: robots.txt per origin, fetched step by step, kept parsed and stored.

One call of ``step`` makes at most one request. A caller that comes from the queue gives its
request back between steps, so that a robots.txt that backs off holds its host alone (R5).

A robots.txt may redirect to a page of another origin. Before that is requested, the other origin's
robots.txt is read (D37): its fetch is *nested* in the first one, unless a target of that origin
wants it, too. ``_Progress.waits`` says for which origin a fetch waits. So a step for the first
origin makes the next request of the last fetch in that row. A fetch that would wait for itself ends
with its hop refused.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.adapters.outcomes import NotYet, Refused
from scrapy_walsh.adapters.wire.pacing import EARLIER_RUN, Pacing
from scrapy_walsh.exceptions import OwnFault
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.addresses import NO_LEAD, Led
from scrapy_walsh.policy.backoff import Retry
from scrapy_walsh.policy.chain import Held, NeedDocument, Rules, judge_robots_hop
from scrapy_walsh.policy.event import ADOPTED, REJECTED, TAKEN_UP, Event, EventKind
from scrapy_walsh.policy.formats.representation import header
from scrapy_walsh.policy.freshness import is_fresh
from scrapy_walsh.policy.robots import fetch as robots_fetch
from scrapy_walsh.policy.robots.file import Robots, no_rules, parse_robots
from scrapy_walsh.policy.robots.groups import has_field
from scrapy_walsh.policy.verdict import PRIVATE_ADDRESS, Verdict
from scrapy_walsh.state.records import ROBOTS, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.documents.fetcher import Document, Fetched, Fetcher
    from scrapy_walsh.policy.host import Host

#: Octets of a robots.txt that are fetched: what is read of it, and a little more, so that the
#: parser sees that there was more.
_LIMIT: Final = robots_fetch.MAX_OCTETS + 1024
#: The most seconds that a robots.txt may take. With Scrapy's 180 s, a server that never ends its
#: answer would hold the one wire for half an hour, retries included.
_TIMEOUT: Final = 30.0
#: What counts as an answer about the rules.
_ANSWERS: Final = (robots_fetch.PARSE, robots_fetch.NO_RULES, robots_fetch.UNREADABLE)


#: Seconds by which this process may take a host that it booked itself for another's.
_ROUNDING: Final = 0.05
_SERIALS: Final = itertools.count(1)


@dataclass(slots=True)
class _Entry:
    """Rules that targets go by from ``since`` on, before ``until``; Unix seconds."""

    rules: Rules
    since: float
    until: float
    serial: int = field(default_factory=_SERIALS.__next__)


@dataclass(slots=True)
class _Progress:
    """How far the fetch for one origin has come.

    ``url``: what is requested next, and ``led``: how the crawl came to it (D38). ``own``: a target
    of the origin wants it; else a redirect of another robots.txt does, and it must not leave its
    authority (D37). ``waits``: the origin whose robots.txt is being read for it. ``taken``: another
    process has booked the host that it was to request.
    """

    url: str
    hops: int = 0
    attempt: int = 0
    led: Led = NO_LEAD
    own: bool = False
    waits: str = ""
    taken: bool = False


class RobotsTxt:
    """The robots.txt files of one crawl."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing, documents: Held) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        self._documents = documents
        self._held: OrderedDict[str, _Entry] = OrderedDict()
        #: What goes in place of a file that cannot be had: no store would bring it back.
        self._standing: dict[str, _Entry] = {}
        #: The fetches that have begun, by origin.
        self._progress: dict[str, _Progress] = {}
        of_targets = context.crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
        self._timeout = min(of_targets or _TIMEOUT, _TIMEOUT)
        #: Decisions by a file that was cached (``hits``) or fetched for it (``misses``); requests
        #: for files (``asked``), those that told the rules (``answered``); files ``evicted``.
        self.counts: Counter[str] = Counter()

    def current(self, origin: str) -> Rules | None:
        """The rules to go by now, or None when a request must be made first."""
        entry = self._fresh(origin) or self._stored(origin)
        return None if entry is None else entry.rules

    def _in_memory(self, origin: str) -> _Entry | None:
        return self._standing.get(origin) or self._held.get(origin)

    def _fresh(self, origin: str) -> _Entry | None:
        entry = self._in_memory(origin)
        known = entry is not None and entry.since <= self._context.wall() < entry.until
        return entry if known else None

    def last(self, origin: str) -> Rules | None:
        """The rules in memory for *origin*, fresh or not; those of the store are not taken up."""
        entry = self._in_memory(origin)
        return None if entry is None else entry.rules

    def serial(self, url: str) -> int | None:
        """The number of the fresh rules for *url*; None where they are not in memory."""
        try:
            entry = self._fresh(hosts.origin(url))
        except ValueError:
            return None
        return None if entry is None else entry.serial

    def next_host(self, origin: str) -> Host:
        """The host that the next step will ask."""
        met: set[str] = set()
        while origin not in met:
            met.add(origin)
            needed = self._against(origin, self._begun(origin))
            if not isinstance(needed, NeedDocument) or needed.kind != ROBOTS:
                break
            origin = needed.origin
        return self._pacing.host_of(self._begun(origin).url)

    def _begun(self, origin: str) -> _Progress:
        return self._progress.setdefault(origin, _Progress(f"{origin}/robots.txt"))

    def step(self, origin: str, *, trial: bool = False, led: Led = NO_LEAD) -> Awaitable[None]:
        """Make the next request for *origin*'s robots.txt, or wait for the one under way.

        ``trial``: for a target that only tries whether its host speaks https. ``led``: how the
        crawl came to the target that needs it. Raises Refused where the robots.txt itself may not
        be requested at its host's address (D38).
        """
        self._begun(origin).own = True
        return self._fetcher.alone(origin, lambda: self._ask(origin, led, trial=trial))

    def may_go(self, document: Document) -> bool:
        """Whether *document*, a robots.txt whose turn it is, may still be requested."""
        progress = self._progress.get(document.origin)
        if progress is None or not document.hops:
            return True
        return self._against(document.origin, progress) is None

    def _against(self, origin: str, progress: _Progress) -> Verdict | NeedDocument | None:
        """What is against the next request for *origin*, if a redirect has led to it (D5)."""
        if not progress.hops:
            return None
        scope, gates = self._context.scope, self._context.gates
        return judge_robots_hop(
            progress.url, origin, scope, self._documents, gates, led=progress.led
        )

    def no_retry(self, document: Document, status: int | None) -> str:
        """As ``robots_fetch.no_retry``, for the answer to *document*."""
        known = robots_fetch.is_broken(status) and (
            document.origin in self._held or self._kept(document.origin) is not None
        )
        return robots_fetch.no_retry(status, document.attempt, known=known)

    def _kept(self, origin: str) -> StoredDocument | None:
        """What the store has of *origin*; None also where the disk fails."""
        context = self._context
        return context.recall(lambda: context.store.get(StoredDocument, ROBOTS, origin))

    def count(self) -> None:
        """Put the counts into the stats, at the end of a crawl: SPYDER's list, and the cache."""
        tell, counts = self._context.recorder.set, self.counts
        tell("robots/cached", len(self._held))
        tell("robots/evicted", counts["evicted"])
        tell("robots/cache_hits", counts["hits"])
        tell("robots/cache_misses", counts["misses"])
        if used := counts["hits"] + counts["misses"]:
            tell("robots/cache_hit_rate", counts["hits"] / used)
        if counts["asked"]:
            tell("robots/fetch_success_rate", counts["answered"] / counts["asked"])

    async def _ask(self, origin: str, led: Led, *, trial: bool) -> None:
        progress = self._begun(origin)
        progress.taken = False
        if not progress.hops:
            progress.led = led
        against = self._against(origin, progress)
        if isinstance(against, Verdict):
            self._refuse_hop(origin, progress, against.reason, against.address)
        elif against is None:
            await self._request(origin, progress, trial=trial)
        elif against.kind == ROBOTS:
            await self._read_for(origin, progress, against.origin)

    async def _read_for(self, origin: str, progress: _Progress, other: str) -> None:
        """Make the next request for the robots.txt of *other*, whose page *origin*'s leads to.

        Where that cannot be had, the hop is refused (D37).
        """
        if self._would_wait(other, origin):
            self._refuse_hop(origin, progress, f"the robots.txt of {other} waits for this one")
            return
        progress.waits = other
        try:
            await self._fetcher.alone(other, lambda: self._ask(other, progress.led, trial=False))
        except Refused as error:
            self._refuse_hop(origin, progress, error.verdict.reason, error.verdict.address)
            return
        finally:
            progress.waits = ""
        nested = self._progress.get(other)
        if nested is None:
            if self._documents.robots(other) is None:
                self._refuse_hop(origin, progress, f"{other}/robots.txt is not to be had for now")
        elif nested.taken:
            why = f"another process requests {hosts.host_or_url(nested.url)}"
            self._refuse_hop(origin, progress, why)
        elif not nested.own and _leaves(other, nested.url):
            del self._progress[other]  # it is no answer of that authority
            why = f"{other}/robots.txt, which decides about that, leads to {nested.url}"
            self._refuse_hop(origin, progress, why)

    def _would_wait(self, origin: str, other: str) -> bool:
        """Whether the fetch for *origin* waits for that of *other*, maybe by a third one."""
        met: set[str] = set()
        while origin != other and origin not in met:
            met.add(origin)
            progress = self._progress.get(origin)
            if progress is None or not progress.waits:
                return False
            origin = progress.waits
        return origin == other

    async def _request(self, origin: str, progress: _Progress, *, trial: bool) -> None:
        try:
            fetched = await self._fetcher.fetch(
                progress.url,
                ROBOTS,
                {"Accept": "text/plain, */*;q=0.1"},
                timeout=self._timeout,
                limit=_LIMIT,
                attempt=progress.attempt,
                hops=progress.hops,
                led=progress.led,
                origin=origin,
                trial=trial and not progress.hops and origin.startswith("https://"),
            )
            with faults.ours("a robots.txt could not be read"):
                self._take(origin, progress, fetched)
        except NotYet as error:  # another process asks this host now, may bring its robots.txt
            progress.taken = error.wait > _ROUNDING
        except OwnFault as fault:
            host = hosts.host_key(origin)
            line = f"nothing is requested of {host}: its robots.txt is not known because of us: "
            self._context.recorder.own_fault(f"{line}{fault}", fault.cause or str(fault), host)
            self._do_without(origin, robots_fetch.OURS, str(fault))
        except Refused as error:
            # Of the address that it has (D38). Beyond the patience, it is the target that waits.
            if not progress.hops or error.verdict.name != PRIVATE_ADDRESS:
                raise
            self._refuse_hop(origin, progress, error.verdict.reason, error.verdict.address)

    def _take(self, origin: str, progress: _Progress, fetched: Fetched) -> None:
        meaning = robots_fetch.meaning(
            fetched.status,
            location=bool(fetched.location),
            hops=progress.hops,
            failure=fetched.failure,
            readable=fetched.encoding is None,
        )
        self.counts["asked"] += 1
        self.counts["answered"] += meaning in _ANSWERS
        if isinstance(fetched.failure, Retry):
            progress.attempt += 1
            if robots_fetch.is_broken(fetched.status):
                self._pacing.host_of(origin).robots_failed = True
            _hold_origin(self._pacing, origin, progress.url)
            self._pacing.tell_failure(progress.url, fetched.failure, fetched.status, fetched.error)
        elif meaning == robots_fetch.FOLLOW:
            self._follow(origin, progress, fetched)
        elif meaning == robots_fetch.PARSE and self._is_doubted(origin, fetched):
            self._do_without(origin, robots_fetch.PAGE, f"{fetched.why}, no robots.txt but a page")
        elif meaning in (robots_fetch.PARSE, robots_fetch.NO_RULES):
            self._adopt(origin, meaning, fetched)
        else:
            packed = meaning == robots_fetch.UNREADABLE
            self._do_without(origin, meaning, (fetched.encoding or "") if packed else fetched.why)

    def _is_doubted(self, origin: str, fetched: Fetched) -> bool:
        """Whether *fetched* is a page in place of known rules, and not believed yet (D44).

        The store keeps how often one has come.
        """
        media_type = (header(fetched, "Content-Type") or "").partition(";")[0].strip().lower()
        if not robots_fetch.is_page(fetched.status, media_type, fetched.body):
            return False
        # What is stored and cannot be read is not known because of us.
        stored = self._context.store.get(StoredDocument, ROBOTS, origin)
        if stored is None or not has_field(stored.body):
            return False
        pages, at = robots_fetch.seen_page(stored.pages, stored.page_at, self._context.wall())
        if pages >= robots_fetch.PAGES:
            return False
        counted = replace(stored, pages=pages, page_at=at)
        if counted != stored:
            self._context.remember(lambda: self._context.store.put(counted))
        return True

    def _follow(self, origin: str, progress: _Progress, fetched: Fetched) -> None:
        """Take the next hop, unless something is against it (D5); a new host is a new start."""
        progress.url = fetched.location
        progress.hops += 1
        progress.attempt = 0
        progress.led = fetched.leads
        if not progress.own and _leaves(origin, progress.url):
            return  # whoever reads it for a hop of another file refuses that one
        against = self._against(origin, progress)
        if isinstance(against, Verdict):
            self._refuse_hop(origin, progress, against.reason, against.address)
        else:
            _hold_origin(self._pacing, origin, progress.url)

    def _refuse_hop(
        self, origin: str, progress: _Progress, reason: str, address: str | None = None
    ) -> None:
        """Go by the rules of *origin* that are known, or by none: its hop is not followed (D37)."""
        why = f"{progress.url}, which is refused: {reason}"
        cause = robots_fetch.HOP_REFUSED
        self._do_without(origin, cause, why, hop=progress.url, address=address)

    def _do_without(self, origin: str, cause: str, why: str, **more: Any) -> None:
        """Go by what ``robots_fetch.without`` says, since there are no new rules of *origin*.

        *more*: members of the event that says so.
        """
        config, url = self._context.config, f"{origin}/robots.txt"
        self._progress.pop(origin, None)
        fleet = config.shared_state is not None
        found = robots_fetch.without(cause, why, url, config.robots_unreachable, fleet=fleet)
        if isinstance(found, robots_fetch.Keep):
            # Rules that are stored and cannot be read are not known because of us.
            if (stored := self._context.store.get(StoredDocument, ROBOTS, origin)) is not None:
                rules = self._parsed(origin, stored)
                pages = stored.pages if cause == robots_fetch.PAGE else None
                self._record(REJECTED, origin, stored, rules, found.reason, pages=pages, **more)
                self._put_in_place(origin, rules, robots_fetch.REASK)
                return
            found = found.otherwise
        if isinstance(found, robots_fetch.Leave):
            self._pacing.hold(self._pacing.host_of(origin), robots_fetch.REASK)
            self._tell(REJECTED, origin, found.reason)
        else:
            self._tell(REJECTED, origin, found.verdict.reason, verdict=found.verdict.name, **more)
            self._put_in_place(origin, found, found.ttl)

    def _put_in_place(self, origin: str, found: Rules, ttl: float) -> None:
        now = self._context.wall()
        self._standing[origin] = _Entry(found, now, now + ttl)
        _judge_again(self._context, self._pacing.host_of(origin))

    def _tell(self, kind: EventKind, origin: str, reason: str, **more: Any) -> None:
        """Record what became of the robots.txt of *origin*; *more*: members of the event."""
        url, host = f"{origin}/robots.txt", hosts.host_key(origin)
        self._context.recorder.record(Event(kind, url, "R2", reason=reason, host=host, **more))

    def _record(
        self,
        kind: EventKind,
        origin: str,
        document: StoredDocument,
        rules: Robots,
        reason: str,
        **members: Any,
    ) -> None:
        """Record which rules are in force for *origin* now, and keep what they were read from.

        *members*: further ones of the event.
        """
        if rules.digest is not None:
            self._context.recorder.keep(ROBOTS, document.body, rules.digest)
        elsewhere = None if document.url == f"{origin}/robots.txt" else document.url
        more = {"document": elsewhere, "status": document.status, "digest": rules.digest}
        line = f"{reason}, group {' '.join(rules.group) or 'none'}"
        self._tell(kind, origin, line, group=rules.group, **more, **members)

    def _adopt(self, origin: str, meaning: str, fetched: Fetched) -> None:
        body = fetched.body if meaning == robots_fetch.PARSE else b""
        document = fetched.record(ROBOTS, origin, body, meaning, self._context.wall())
        rules = self._parsed(origin, document)
        self._progress.pop(origin, None)
        # Before another process can take it up: its line must not come first.
        self._record(ADOPTED, origin, document, rules, f"{fetched.why}, {meaning}")
        self._context.remember(lambda: self._context.store.put(document))
        self._hold(origin, rules, document.fetched_at, self._ttl(origin))
        self._pacing.host_of(origin).traffic.visit(self._context.config.patience)

    def _ttl(self, origin: str) -> float:
        """Seconds that rules of *origin* are held."""
        interval = self._pacing.host_of(origin).traffic.interval
        return robots_fetch.robots_ttl(self._context.config.robots_ttl, interval)

    def _stored(self, origin: str) -> _Entry | None:
        # One that cannot be read is fetched anew: what the site says now counts.
        document, ttl = self._kept(origin), self._ttl(origin)
        if document is None or not is_fresh(document.fetched_at, self._context.wall(), ttl):
            return None
        rules = self._parsed(origin, document)
        self._record(TAKEN_UP, origin, document, rules, "held from an earlier fetch")
        return self._hold(origin, rules, document.fetched_at, ttl)

    def _parsed(self, origin: str, document: StoredDocument) -> Robots:
        if document.outcome == robots_fetch.NO_RULES:
            rules = no_rules(document.url)
        else:
            token = self._context.config.identity.token
            rules = parse_robots(document.body, token, document.url)
        traffic = self._pacing.host_of(origin).traffic
        traffic.set_interval(rules.crawl_delay or 0.0, source=origin)
        traffic.set_interval(0.0, source=EARLIER_RUN)
        return rules

    def _hold(self, origin: str, rules: Rules, fetched_at: float, ttl: float) -> _Entry:
        host = self._pacing.host_of(origin)
        host.robots_failed = False
        self._standing.pop(origin, None)
        entry = self._held[origin] = _Entry(rules, fetched_at, fetched_at + ttl)
        self._held.move_to_end(origin)
        while len(self._held) > self._context.config.robots_cache_size:
            self._held.popitem(last=False)
            self.counts["evicted"] += 1
        _judge_again(self._context, host)
        return entry


def _judge_again(context: Context, host: Host) -> None:
    """Have the queues look again at what waits for *host*: other rules are in force."""
    for queue in context.queues:
        queue.judge_again(host.key)


def _leaves(origin: str, url: str) -> bool:
    """Whether *url* is of another authority than *origin*; http and https of one host are one."""
    return hosts.host_or_url(url) != hosts.host_or_url(origin)


def _hold_origin(pacing: Pacing, origin: str, url: str) -> None:
    """Targets of *origin* wait for the host that its robots.txt comes from, if another."""
    host, asked = pacing.host_of(origin), pacing.host_of(url)
    due = asked.traffic.document_due
    if host.key != asked.key and due < math.inf:  # else a request to it is under way
        host.traffic.hold(due)
