"""Makes the plan of a run: judges each target by what is stored, and finds when hosts are due."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request

from scrapy_walsh.adapters.pacing import EARLIER_RUN, restore
from scrapy_walsh.commands.plan_held import HELD, Document, Remembered
from scrapy_walsh.commands.plan_time import HostWork, lower_bound
from scrapy_walsh.config import gates_of
from scrapy_walsh.policy import chain, hosts, recrawl
from scrapy_walsh.policy.agenda import Agenda
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.policy.learned import LEARNED
from scrapy_walsh.policy.scope import MAX_CHILDREN, Scope
from scrapy_walsh.policy.throttle import Throttle
from scrapy_walsh.policy.verdict import NOT_DUE, Verdict
from scrapy_walsh.state.records import ROBOTS, Deferral

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider
    from scrapy_walsh.state.base import Store

ASK: Final = "ask"
SKIP: Final = "skip"
DEFER: Final = "defer"


@dataclass(frozen=True, slots=True)
class Target:
    """A first request of a source. ``verdict`` None: robots.txt must be fetched first.

    ``decision``: ``ask``, ``skip`` or ``defer``. ``robots``: what becomes of its robots.txt (an
    action of :class:`Document`), None where an earlier gate has refused. ``due``: Unix seconds
    before which no run requests it.
    """

    source: str
    url: str
    host: str
    decision: str
    verdict: Verdict | None
    robots: str | None = None
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A host that the run would request ``urls`` from, and ``robots`` robots.txt files.

    ``due``: Unix seconds; ``interval``: seconds, as far as it is known; ``learned``: what its
    answers 429 have taught of that, seconds, None for nothing (D28); ``silent_since``: Unix seconds
    since which it gives no answer, so that it gets one request, after all others (D31).
    """

    host: str
    due: float
    interval: float
    urls: tuple[str, ...]
    robots: int
    learned: float | None = None
    silent_since: float | None = None


@dataclass(slots=True)
class Plan:
    """What the next run would do. ``seconds``: the least that it takes, at ``latency`` each.

    ``requests``: those that are certain; ``more``: those after first answers of no use, at most;
    ``children``: those for the sitemaps of sitemap indexes, at most.
    """

    token: str
    now: float
    latency: float
    documents: list[Document]
    targets: list[Target]
    hosts: list[Host]
    requests: int
    more: int
    children: int
    seconds: float
    notices: list[str] = field(default_factory=list)


def plan(
    spider: WalshMetadataSpider, config: WalshConfig, store: Store, now: float, latency: float
) -> Plan:
    """What a run of *spider* begun at *now* (Unix seconds) would do. Raises StateError."""
    return _Planner(config, store, now, latency).plan(spider)


class _Planner:
    def __init__(self, config: WalshConfig, store: Store, now: float, latency: float) -> None:
        self._config, self._store, self._now, self._latency = config, store, now, latency
        self._scope = Scope(config.follow_links)
        self._gates = gates_of(config)
        self._throttle = Throttle(config.min_interval)
        self._looked_up: set[str] = set()
        self._learned: dict[str, float] = {}
        self._silent: dict[str, float] = {}
        self._held = Remembered(
            store, config, now, lambda origin: self._throttle.interval(self._look_up(origin))
        )

    def plan(self, spider: WalshMetadataSpider) -> Plan:
        requests = asyncio.run(_requests(spider))
        also = {request.url: self._declare(request) for request in requests}
        indexes = {r.url: len(r.meta.get("walsh_children", ())) for r in requests}
        names = [spider.visits[request.meta["walsh_source"]].row.source for request in requests]
        targets = [self._judge(r.url, name) for r, name in zip(requests, names, strict=True)]
        targets = self._one_a_visit(targets)
        documents = self._documents(targets)
        fetched = [document for document in documents if document.action != HELD]
        asked = [target for target in targets if target.decision == ASK]
        hosts_asked = list(self._in_order(targets, fetched))
        return Plan(
            token=self._config.identity.token,
            now=self._now,
            latency=self._latency,
            documents=documents,
            targets=targets,
            hosts=hosts_asked,
            requests=len(asked) + len(fetched),
            more=sum(len(also[target.url]) for target in asked),
            children=sum(MAX_CHILDREN * indexes[target.url] for target in asked),
            seconds=self._seconds(hosts_asked, fetched),
            notices=self._held.notices,
        )

    def _documents(self, targets: list[Target]) -> list[Document]:
        """What the run goes by; the robots.txt of a host that is left alone is not fetched."""
        origins = {
            hosts.origin(t.url) for t in targets if t.robots is not None and t.decision != DEFER
        }
        found = self._held.documents.values()
        return [
            document for document in found if document.kind != ROBOTS or document.key in origins
        ]

    def _declare(self, request: Request) -> set[str]:
        """Declare what a crawl would. Returns what *request* declares beside its own URL."""
        also = {Request(url).url for url in request.meta.get("walsh_also", ())}
        for url in {request.url, *also}:
            self._scope.declare(url)
        return also - {request.url}

    def _judge(self, url: str, source: str) -> Target:
        answer = chain.judge(url, self._scope, self._held, self._gates, self._now)
        verdict = None if isinstance(answer, NeedDocument) else answer
        host = self._host_of(url)
        robots = None
        if verdict is None or verdict.requirement == "R2":
            robots = self._held.documents[ROBOTS, hosts.origin(url)].action
        refused = verdict is not None and not verdict.allowed
        if refused and robots in (None, HELD):
            due = self._next_due(url) if verdict and verdict.name == NOT_DUE else None
            return Target(source, url, host, SKIP, verdict, robots, due)
        wait = self._throttle.wait(host, self._now)
        step = chain.admit(chain.Pace(host, wait, 0.0), self._gates, self._now)
        if isinstance(step, chain.Refuse):
            return Target(source, url, host, DEFER, step.verdict, robots, self._now + wait)
        return Target(source, url, host, SKIP if refused else ASK, verdict, robots)

    def _one_a_visit(self, targets: list[Target]) -> list[Target]:
        """*targets*, of which those of a slow host are deferred but for one, or all (D11)."""
        slow = [t for t in targets if t.decision == ASK and self._slow(t.host)]
        sent: dict[str, Target] = {}
        if not self._gates.skip_slow:
            for target in sorted(slow, key=self._put_off_since):
                sent.setdefault(target.host, target)
        left = {t.url for t in slow if sent.get(t.host) is not t}
        return [self._left(t) if t.url in left else t for t in targets]

    def _slow(self, host: str) -> bool:
        return chain.is_slow(self._throttle.interval(host), self._gates)

    def _put_off_since(self, target: Target) -> float:
        found = self._store.get(Deferral, target.url)
        return math.inf if found is None else found.since or found.due

    def _left(self, target: Target) -> Target:
        """*target*, deferred: it would have to wait for the whole interval of its slow host."""
        interval = self._throttle.interval(target.host)
        step = chain.admit(chain.Pace(target.host, interval, interval), self._gates, self._now)
        verdict = step.verdict if isinstance(step, chain.Refuse) else target.verdict
        return replace(target, decision=DEFER, verdict=verdict, due=self._now + interval)

    def _next_due(self, url: str) -> float | None:
        last = self._held.last_visit(url)
        return None if last is None else recrawl.opens(last, self._config.revisit)

    def _host_of(self, url: str) -> str:
        """The throttle key of *url*; what is stored about its host goes into the throttle."""
        try:
            host, origin = self._look_up(url), hosts.origin(url)
        except ValueError:
            return url
        held = self._held.documents.get((ROBOTS, origin))
        rules = self._held.robots(origin) if held is not None else None
        if rules is not None:
            self._throttle.set_interval(host, rules.crawl_delay or 0.0, source=origin)
        if held is not None and held.action == HELD:
            self._throttle.set_interval(host, 0.0, source=EARLIER_RUN)
        return host

    def _look_up(self, url: str) -> str:
        """The throttle key of *url*, as a run restores it. ValueError without a readable host."""
        host = hosts.host_key(url)
        if host not in self._looked_up:
            self._looked_up.add(host)
            taught, silent = restore(self._throttle, self._store, host, self._now, self._now)
            if silent is not None:
                self._silent[host] = silent
            if taught.interval:
                self._learned[host] = taught.interval
                self._throttle.set_interval(host, taught.interval, source=LEARNED)
        return host

    def _in_order(self, targets: list[Target], fetched: list[Document]) -> Iterator[Host]:
        """The hosts that get any request, in the order of their first ones."""
        robots = Counter(hosts.host_key(d.key) for d in fetched if d.kind == ROBOTS)
        urls: dict[str, list[str]] = {host: [] for host in robots}
        for target in targets:
            if target.decision == ASK:
                urls.setdefault(target.host, []).append(target.url)
        throttle, silent = self._throttle, self._silent
        agenda = Agenda(throttle.due, throttle.interval, throttle.seen, silent.__contains__)
        for host, asked in urls.items():
            agenda.add(host, max(1, len(asked)), now=self._now)
        clock = self._now
        while agenda:
            next_host = agenda.next(clock)
            if next_host is None:
                clock = max(clock, agenda.next_due() or clock)
                continue
            asked = urls[next_host]
            agenda.remove(next_host, max(1, len(asked)))
            due = max(self._now, self._throttle.due(next_host))
            interval = self._throttle.interval(next_host)
            taught = self._learned.get(next_host)
            since = silent.get(next_host)
            yield Host(next_host, due, interval, tuple(asked), robots[next_host], taught, since)
            clock += self._latency

    def _seconds(self, asked: list[Host], fetched: list[Document]) -> float:
        """The least seconds that the run takes; the operator's documents are requested first."""
        count = sum(document.kind != ROBOTS for document in fetched)
        before = count * self._latency + max(0, count - 1) * self._config.min_interval
        work = [
            HostWork(
                requests=len(host.urls),
                robots=host.robots,
                seen=self._throttle.seen(host.host),
                interval=host.interval,
                wait=max(0.0, host.due - self._now - before),
            )
            for host in asked
        ]
        return before + lower_bound(work, self._latency)


async def _requests(spider: WalshMetadataSpider) -> list[Request]:
    """The first requests of *spider*, which its own start makes."""
    found: list[Any] = [request async for request in spider.start()]
    return found
