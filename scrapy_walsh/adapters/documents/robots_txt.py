"""Fetches the robots.txt of each origin step by step, and keeps it parsed and stored (R2).

One call of ``step`` makes at most one request. Between two steps, a request from the queue goes
back there. So if a robots.txt backs off, only its own host waits (R5).

A robots.txt may redirect to a page of another origin. Then the robots.txt of that origin is read
first (D37). That fetch is *nested*, unless a target of the other origin needs the file, too. A
fetch may wait for a nested one, which may wait for another (``_Progress.waits_for``). A step makes
the next request of the last fetch in this chain. If a fetch would wait for itself, its hop is
refused.
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
from scrapy_walsh.policy.formats.representation import header, joined
from scrapy_walsh.policy.freshness import is_fresh
from scrapy_walsh.policy.hints import max_age
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

#: Octets of a robots.txt that are fetched. It is a little more than the parser reads, so that the
#: parser notices a longer file.
_LIMIT: Final = robots_fetch.MAX_OCTETS + 1024
#: The longest time for a robots.txt, in seconds. With Scrapy's 180 s, a server that never ends its
#: answer would block the wire for half an hour, with retries.
_TIMEOUT: Final = 30.0
#: Meanings that count as an answer.
_ANSWERS: Final = (robots_fetch.PARSE, robots_fetch.NO_RULES, robots_fetch.UNREADABLE)


#: Seconds. A shorter wait may be a rounding of our own booking, so no other process is assumed.
_ROUNDING: Final = 0.05
_SERIALS: Final = itertools.count(1)


@dataclass(slots=True)
class _Entry:
    """Rules that are in force from ``since`` until ``until`` (Unix seconds).

    ``serial``: a number that no other rules have, so that a changed file is noticed.
    """

    rules: Rules
    since: float
    until: float
    serial: int = field(default_factory=_SERIALS.__next__)


@dataclass(slots=True)
class _Progress:
    """The progress of the fetch for one origin.

    ``url``: the URL to request next. ``led``: the URL that led to it (D38). ``is_wanted``: a target
    of the origin needs the file. Otherwise only a redirect of another robots.txt needs it, and the
    fetch must not leave its authority (D37). ``waits_for``: another origin, if its robots.txt must
    be read first. ``is_taken``: another process has booked the host of the next request.
    """

    url: str
    hops: int = 0
    attempt: int = 0
    led: Led = NO_LEAD
    is_wanted: bool = False
    waits_for: str = ""
    is_taken: bool = False


class RobotsTxt:
    """The robots.txt files of a crawl."""

    def __init__(self, context: Context, fetcher: Fetcher, pacing: Pacing, documents: Held) -> None:
        self._context = context
        self._fetcher = fetcher
        self._pacing = pacing
        self._documents = documents
        #: Parsed files by origin, the latest last. The oldest is removed if there are too many.
        self._cache: OrderedDict[str, _Entry] = OrderedDict()
        #: Rules in force instead of a file that could not be fetched. They are not stored.
        self._substitutes: dict[str, _Entry] = {}
        #: The fetches that have begun, by origin.
        self._progress: dict[str, _Progress] = {}
        of_targets = context.crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
        self._timeout = min(of_targets or _TIMEOUT, _TIMEOUT)
        #: ``hits``, ``misses``: decisions with a cached file, and with one fetched for them.
        #: ``asked``, ``answered``: requests, and those with an answer. ``evicted``: removed files.
        self.counts: Counter[str] = Counter()

    def current(self, origin: str) -> Rules | None:
        """Return the rules in force, or None if a request is needed first."""
        entry = self._fresh_entry(origin) or self._load_stored(origin)
        if entry is None:
            return None
        return entry.rules

    def _in_memory(self, origin: str) -> _Entry | None:
        """Return the entry of *origin*, fresh or not. A substitute replaces a cached file."""
        return self._substitutes.get(origin) or self._cache.get(origin)

    def _fresh_entry(self, origin: str) -> _Entry | None:
        """Return the entry of *origin* if it is in force now.

        If the clock was put back, the entry begins in the future, and is not in force (D9).
        """
        entry = self._in_memory(origin)
        if entry is None or not entry.since <= self._context.wall() < entry.until:
            return None
        return entry

    def last(self, origin: str) -> Rules | None:
        """Return the rules in memory for *origin*, fresh or not."""
        entry = self._in_memory(origin)
        if entry is None:
            return None
        return entry.rules

    def serial(self, url: str) -> int | None:
        """Return the number of the fresh rules for *url*, or None if none are in memory."""
        try:
            entry = self._fresh_entry(hosts.origin(url))
        except ValueError:
            return None
        if entry is None:
            return None
        return entry.serial

    def next_host(self, origin: str) -> Host:
        """Return the host of the next step's request.

        If the fetch for *origin* needs another robots.txt first (D37), that is requested next.
        """
        visited: set[str] = set()
        while origin not in visited:
            visited.add(origin)
            obstacle = self._find_obstacle(origin, self._progress_of(origin))
            if not isinstance(obstacle, NeedDocument) or obstacle.kind != ROBOTS:
                break
            origin = obstacle.origin
        return self._pacing.host_of(self._progress_of(origin).url)

    def _progress_of(self, origin: str) -> _Progress:
        """Return the progress of the fetch for *origin*. It is begun if there is none."""
        return self._progress.setdefault(origin, _Progress(f"{origin}/robots.txt"))

    def step(self, origin: str, *, trial: bool = False, led: Led = NO_LEAD) -> Awaitable[None]:
        """Make the next request for *origin*'s robots.txt, or wait for the current one.

        ``trial``: it is for a trial of https. ``led``: the URL that led to the target. Raises
        Refused if the robots.txt may not be requested from its host's address (D38).
        """
        self._progress_of(origin).is_wanted = True
        return self._fetcher.alone(origin, lambda: self._make_step(origin, led, trial=trial))

    def may_go(self, document: Document) -> bool:
        """Whether *document*, a robots.txt, may still be requested when it has its turn.

        Only a hop is judged again, because a new blocklist or other rules may refuse it.
        """
        progress = self._progress.get(document.origin)
        if progress is None or not document.hops:
            return True
        return self._find_obstacle(document.origin, progress) is None

    def _find_obstacle(self, origin: str, progress: _Progress) -> Verdict | NeedDocument | None:
        """Return a verdict against the next hop, or a document needed first; else None (D5)."""
        if not progress.hops:
            return None
        scope = self._context.scope
        gates = self._context.gates
        return judge_robots_hop(
            progress.url, origin, scope, self._documents, gates, led=progress.led
        )

    def no_retry(self, document: Document, status: int | None) -> str:
        """Return why no retry may follow the answer to *document* in this run; "" if one may."""
        has_rules = robots_fetch.is_broken(status) and (
            document.origin in self._cache or self._stored_document(document.origin) is not None
        )
        return robots_fetch.no_retry(status, document.attempt, known=has_rules)

    def _stored_document(self, origin: str) -> StoredDocument | None:
        """Return the stored record for *origin*; None if there is none, or the disk fails."""
        context = self._context
        return context.recall(lambda: context.store.get(StoredDocument, ROBOTS, origin))

    def count(self) -> None:
        """Write the counts of robots.txt files into the stats, at the end of a crawl."""
        tell = self._context.recorder.set
        counts = self.counts
        tell("robots/cached", len(self._cache))
        tell("robots/evicted", counts["evicted"])
        tell("robots/cache_hits", counts["hits"])
        tell("robots/cache_misses", counts["misses"])
        lookups = counts["hits"] + counts["misses"]
        if lookups:
            tell("robots/cache_hit_rate", counts["hits"] / lookups)
        if counts["asked"]:
            tell("robots/fetch_success_rate", counts["answered"] / counts["asked"])

    async def _make_step(self, origin: str, led: Led, *, trial: bool) -> None:
        """Make one step of the fetch for *origin*: refuse its hop, request it, or read for it.

        If the hop needs the blocklist, nothing is done here. The target needs it first, too, so the
        gate fetches it (R3 comes before R2).
        """
        progress = self._progress_of(origin)
        progress.is_taken = False
        if not progress.hops:  # later hops are led by the redirect before them
            progress.led = led
        obstacle = self._find_obstacle(origin, progress)
        if isinstance(obstacle, Verdict):
            self._refuse_hop(origin, progress, obstacle.reason, obstacle.address)
        elif obstacle is None:
            await self._request(origin, progress, trial=trial)
        elif obstacle.kind == ROBOTS:
            await self._read_for(origin, progress, obstacle.origin)

    async def _read_for(self, origin: str, progress: _Progress, other_origin: str) -> None:
        """Make the next request for the robots.txt of *other_origin*.

        The robots.txt of *origin* redirects to a page there. If the other robots.txt cannot be
        fetched, that hop is refused (D37).
        """
        if self._would_wait(other_origin, origin):
            self._refuse_hop(
                origin, progress, f"the robots.txt of {other_origin} waits for this one"
            )
            return
        progress.waits_for = other_origin
        try:
            await self._fetcher.alone(
                other_origin, lambda: self._make_step(other_origin, progress.led, trial=False)
            )
        except Refused as error:
            self._refuse_hop(origin, progress, error.verdict.reason, error.verdict.address)
            return
        finally:
            progress.waits_for = ""
        nested = self._progress.get(other_origin)
        if nested is None:  # that fetch has ended
            if self._documents.robots(other_origin) is None:
                self._refuse_hop(
                    origin, progress, f"{other_origin}/robots.txt is not available now"
                )
        elif nested.is_taken:
            reason = f"another process requests {hosts.host_or_url(nested.url)}"
            self._refuse_hop(origin, progress, reason)
        elif not nested.is_wanted and _is_elsewhere(other_origin, nested.url):
            del self._progress[other_origin]  # that authority did not answer itself (D37)
            reason = f"{other_origin}/robots.txt, which decides about that, leads to {nested.url}"
            self._refuse_hop(origin, progress, reason)

    def _would_wait(self, origin: str, other_origin: str) -> bool:
        """Whether the fetch for *origin* waits for *other_origin*, directly or through others."""
        visited: set[str] = set()
        while origin != other_origin and origin not in visited:
            visited.add(origin)
            progress = self._progress.get(origin)
            if progress is None or not progress.waits_for:
                return False
            origin = progress.waits_for
        return origin == other_origin

    async def _request(self, origin: str, progress: _Progress, *, trial: bool) -> None:
        """Request the next URL of the fetch for *origin*, and process its answer."""
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
            with faults.as_own_fault("a robots.txt could not be read"):
                self._process_answer(origin, progress, fetched)
        except NotYet as error:  # another process uses this host, and may store its robots.txt
            progress.is_taken = error.wait > _ROUNDING
        except OwnFault as fault:
            host_key = hosts.host_key(origin)
            prefix = (
                f"nothing is requested from {host_key}: could not load its robots.txt (our side): "
            )
            self._context.recorder.own_fault(
                f"{prefix}{fault}", fault.cause or str(fault), host_key
            )
            self._use_fallback(origin, robots_fetch.OURS, str(fault))
        except Refused as error:
            # Refuse the hop only because of its address (D38). If the host is due after the
            # patience, the target is deferred.
            if not progress.hops or error.verdict.name != PRIVATE_ADDRESS:
                raise
            self._refuse_hop(origin, progress, error.verdict.reason, error.verdict.address)

    def _process_answer(self, origin: str, progress: _Progress, fetched: Fetched) -> None:
        """Do what the answer *fetched* means: retry, follow, adopt it, or fall back."""
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
        elif progress.hops and not fetched.is_sent:
            self._refuse_hop(origin, progress, fetched.why)
        elif meaning == robots_fetch.FOLLOW:
            self._follow(origin, progress, fetched)
        elif meaning == robots_fetch.PARSE and self._is_doubted(origin, fetched):
            self._use_fallback(
                origin, robots_fetch.PAGE, f"{fetched.why}, a page and not a robots.txt"
            )
        elif meaning in (robots_fetch.PARSE, robots_fetch.NO_RULES):
            self._adopt(origin, meaning, fetched)
        else:
            is_unreadable = meaning == robots_fetch.UNREADABLE
            self._use_fallback(
                origin, meaning, (fetched.encoding or "") if is_unreadable else fetched.why
            )

    def _is_doubted(self, origin: str, fetched: Fetched) -> bool:
        """Whether *fetched* is a page instead of known rules, and not trusted yet (D44).

        The store counts how often a page has come.
        """
        media_type = (header(fetched, "Content-Type") or "").partition(";")[0].strip().lower()
        if not robots_fetch.is_page(fetched.status, media_type, fetched.body):
            return False
        # If the record is unreadable, StateError shows an error on our side.
        document = self._context.store.get(StoredDocument, ROBOTS, origin)
        # Only known rules are kept against a page. A stored file without fields has none.
        if document is None or not (
            has_field(document.body) or document.outcome == robots_fetch.LOST
        ):
            return False
        pages, page_at = robots_fetch.seen_page(
            document.pages, document.page_at, self._context.wall()
        )
        if pages >= robots_fetch.PAGES:
            return False
        updated = replace(document, pages=pages, page_at=page_at)
        if updated != document:
            self._context.remember(lambda: self._context.store.put(updated))
        return True

    def _follow(self, origin: str, progress: _Progress, fetched: Fetched) -> None:
        """Go on with the next hop, unless it is refused (D5). Its retries begin anew."""
        progress.url = fetched.location
        progress.hops += 1
        progress.attempt = 0
        progress.led = fetched.leads
        if not progress.is_wanted and _is_elsewhere(origin, progress.url):
            return  # the other file, which waits for this, refuses its own hop
        obstacle = self._find_obstacle(origin, progress)
        if isinstance(obstacle, Verdict):
            self._refuse_hop(origin, progress, obstacle.reason, obstacle.address)
        else:
            _hold_origin(self._pacing, origin, progress.url)

    def _refuse_hop(
        self, origin: str, progress: _Progress, reason: str, address: str | None = None
    ) -> None:
        """Do not follow the hop (D37). The stored rules of *origin* stay in force.

        If there are none, its targets are deferred. *reason*, *address*: of the refusal.
        """
        explanation = f"{progress.url}, which is refused: {reason}"
        cause = robots_fetch.HOP_REFUSED
        self._use_fallback(origin, cause, explanation, hop=progress.url, address=address)

    def _use_fallback(self, origin: str, cause: str, reason: str, **members: Any) -> None:
        """End the fetch for *origin* without new rules; ``robots_fetch.without`` decides.

        *cause*, *reason*: as for that function. *members*: further members of the event.
        """
        config = self._context.config
        url = f"{origin}/robots.txt"
        self._progress.pop(origin, None)
        is_fleet = config.shared_state is not None
        fallback = robots_fetch.without(
            cause, reason, url, config.robots_unreachable, fleet=is_fleet
        )
        if isinstance(fallback, robots_fetch.Keep):
            # If the stored rules are unreadable, StateError shows an error on our side.
            document = self._context.store.get(StoredDocument, ROBOTS, origin)
            if document is not None and document.outcome == robots_fetch.LOST:
                lost = f"its last known text is lost, and no new one was fetched ({reason})"
                self._context.recorder.own_fault(
                    f"nothing is requested from {hosts.host_key(origin)}: {lost}",
                    host=hosts.host_key(origin),
                )
                self._use_fallback(origin, robots_fetch.OURS, lost)
                return
            if document is not None:
                rules = self._parse_and_pace(origin, document)
                pages = document.pages if cause == robots_fetch.PAGE else None
                self._record_rules(
                    REJECTED, origin, document, rules, fallback.reason, pages=pages, **members
                )
                self._use_substitute(origin, rules, robots_fetch.REASK)
                return
            fallback = fallback.otherwise
        if isinstance(fallback, robots_fetch.Leave):
            self._pacing.hold(self._pacing.host_of(origin), robots_fetch.REASK)
            self._record_event(REJECTED, origin, fallback.reason, wait=robots_fetch.REASK)
        else:
            self._record_event(
                REJECTED, origin, fallback.verdict.reason, verdict=fallback.verdict.name, **members
            )
            self._use_substitute(origin, fallback, fallback.ttl)

    def _use_substitute(self, origin: str, rules: Rules, ttl: float) -> None:
        """Use *rules* for *origin* in place of a new file, for *ttl* seconds. Do not store them."""
        now = self._context.wall()
        self._substitutes[origin] = _Entry(rules, now, now + ttl)
        _judge_again(self._context, self._pacing.host_of(origin))

    def _record_event(self, kind: EventKind, origin: str, reason: str, **members: Any) -> None:
        """Record an event about the robots.txt of *origin*. *members*: further members of it."""
        url = f"{origin}/robots.txt"
        host = hosts.host_key(origin)
        self._context.recorder.record(Event(kind, url, "R2", reason=reason, host=host, **members))

    def _record_rules(
        self,
        kind: EventKind,
        origin: str,
        document: StoredDocument,
        rules: Robots,
        reason: str,
        **members: Any,
    ) -> None:
        """Record the rules in force for *origin*, and keep their text for the ledger.

        *members*: further members of the event.
        """
        if rules.digest is not None:
            self._context.recorder.keep(ROBOTS, document.body, rules.digest)
        elsewhere = None if document.url == f"{origin}/robots.txt" else document.url
        facts = {
            "document": elsewhere,
            "status": document.status,
            "digest": rules.digest,
            "max_age": document.refresh,
        }
        line = f"{reason}, group {' '.join(rules.group) or 'none'}"
        self._record_event(kind, origin, line, group=rules.group, **facts, **members)

    def _adopt(self, origin: str, meaning: str, fetched: Fetched) -> None:
        """Put the rules of a fetched file into force, record and store them. Ends the fetch."""
        body = fetched.body if meaning == robots_fetch.PARSE else b""
        document = fetched.record(ROBOTS, origin, body, meaning, self._context.wall())
        document = replace(document, refresh=max_age(joined(fetched.headers, "Cache-Control")))
        rules = self._parse_and_pace(origin, document)
        self._progress.pop(origin, None)
        # Record it before another process can take it up, because our line must come first.
        self._record_rules(ADOPTED, origin, document, rules, f"{fetched.why}, {meaning}")
        self._context.remember(lambda: self._context.store.put(document))
        self._keep_rules(origin, rules, document.fetched_at, self._ttl(origin, document))
        # If the host is slow, one target may follow this robots.txt (D11).
        self._pacing.host_of(origin).traffic.visit(self._context.config.patience)

    def _ttl(self, origin: str, document: StoredDocument) -> float:
        """Return the lifetime of the rules in *document*, in seconds."""
        config = self._context.config
        interval = self._pacing.host_of(origin).traffic.interval
        shortest = self._context.scope.shortest(origin, config.revisit)
        return robots_fetch.robots_ttl(config.robots_ttl, interval, document.refresh, shortest)

    def _load_stored(self, origin: str) -> _Entry | None:
        """Put the stored file of *origin* into force if it is fresh. Returns it, or None."""
        # If the record is unreadable, the file is fetched again, because its current text counts.
        document = self._stored_document(origin)
        if document is None:
            return None
        ttl = self._ttl(origin, document)
        if not is_fresh(document.fetched_at, self._context.wall(), ttl):
            return None
        rules = self._parse_and_pace(origin, document)
        self._record_rules(TAKEN_UP, origin, document, rules, "from an earlier fetch")
        return self._keep_rules(origin, rules, document.fetched_at, ttl)

    def _parse_and_pace(self, origin: str, document: StoredDocument) -> Robots:
        """Parse *document*, and give its Crawl-delay to the host of *origin* (R4)."""
        if document.outcome == robots_fetch.NO_RULES:
            rules = no_rules(document.url)
        else:
            token = self._context.config.identity.token
            rules = parse_robots(document.body, token, document.url)
        traffic = self._pacing.host_of(origin).traffic
        traffic.set_interval(rules.crawl_delay or 0.0, source=origin)
        # The stored interval held only until this file was read.
        traffic.set_interval(0.0, source=EARLIER_RUN)
        return rules

    def _keep_rules(self, origin: str, rules: Rules, fetched_at: float, ttl: float) -> _Entry:
        """Put *rules* into force for *ttl* seconds from *fetched_at* (Unix seconds)."""
        host = self._pacing.host_of(origin)
        host.robots_failed = False
        self._substitutes.pop(origin, None)
        entry = self._cache[origin] = _Entry(rules, fetched_at, fetched_at + ttl)
        self._cache.move_to_end(origin)
        while len(self._cache) > self._context.config.robots_cache_size:
            self._cache.popitem(last=False)
            self.counts["evicted"] += 1
        _judge_again(self._context, host)
        return entry


def _judge_again(context: Context, host: Host) -> None:
    """Let the queues judge the requests for *host* again, because its rules have changed."""
    for queue in context.queues:
        queue.judge_again(host.key)


def _is_elsewhere(origin: str, url: str) -> bool:
    """Whether *url* has another host than *origin*. The scheme does not matter."""
    return hosts.host_or_url(url) != hosts.host_or_url(origin)


def _hold_origin(pacing: Pacing, origin: str, url: str) -> None:
    """Let targets of *origin* wait for the host of its robots.txt, if it is another host."""
    host = pacing.host_of(origin)
    server = pacing.host_of(url)
    due = server.traffic.document_due
    if host.key != server.key and due < math.inf:  # infinite while a request is under way
        host.traffic.hold(due)
