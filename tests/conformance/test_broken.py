"""Builds that are broken on purpose: each break must fail the rows that it is named with.

The break is a module that only the crawl's own process loads, so the judge stays whole.
"""

from __future__ import annotations

import json
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests import zygote
from tests.crawl.harness import walsh
from tests.kit import Done, conformance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Break:
    """What is broken, the part of the run that shows it, and the rows that must fail: id, title."""

    patch: str
    part: str
    rows: frozenset[tuple[str, str]]


def broken_so(part: str, rows: Mapping[str, Iterable[str]], patch: str) -> Break:
    """A break that the *rows* of *part* show: titles by id."""
    return Break(patch, part, frozenset((row, title) for row in rows for title in rows[row]))


#: What is broken in each build. No two breaks of one build fail the same row, so each is seen.
BUILDS: dict[str, dict[str, Break]] = {
    "lab": {
        "blocklist not asked about": broken_so(
            "blocklist",
            {
                "R3": ["nothing asked of a listed host, not even robots.txt"],
                "R3a": ["subdomain blocked by the apex entry", "case and port make no difference"],
            },
            """
            from scrapy_walsh.policy.list.blocklist import Blocklist
            Blocklist.blocks = lambda self, url: None
            """,
        ),
        "robots.txt not obeyed": broken_so(
            "robots",
            {
                "R2": ["no request for a disallowed path"],
                "R2a": [
                    "named group disallows where `*` allows",
                    "longest matching name selected",
                    "a prefix of the token is a match",
                    "groups of one name merge",
                ],
                "R2b": ["`*`, `$` and the query in a Disallow"],
                "R2c": ["no under-blocking: none of nine denied URLs asked"],
            },
            """
            from scrapy_walsh.policy.robots.file import Robots
            from scrapy_walsh.policy.verdict import Verdict
            Robots.decide = lambda self, url: Verdict(True, "allowed_implicit", "R2", "broken")
            """,
        ),
        "another User-Agent": broken_so(
            "identity",
            {
                "R1": [
                    "exact UA on targets",
                    "exact UA on robots.txt",
                    "exact UA on the operator's documents",
                ],
            },
            """
            from scrapy_walsh.policy.identity import Identity
            other = "Mozilla/5.0 (compatible; Walsh-Research/1.3)"
            Identity.user_agent = property(lambda self: other)
            """,
        ),
        "meta refresh followed": broken_so(
            "scope",
            {
                "R6": [
                    "neither meta refresh nor a Refresh header followed",
                    "no unexpected URL fetched (no recursion)",
                ],
            },
            """
            from scrapy_walsh.adapters import seats
            from scrapy_walsh.policy.scope import Scope
            seats.PINS["METAREFRESH_ENABLED"] = True
            whole = Scope.refuses
            Scope.refuses = lambda self, url: None if url.endswith("/by-meta") else whole(self, url)
            """,
        ),
    },
    "sitemaps": {
        "a sitemap index followed wherever it leads": broken_so(
            "items",
            {
                "R6": [
                    "a sitemap index is followed only if declared so",
                    "of an index that is followed: its host, one level",
                ],
            },
            """
            from scrapy_walsh.policy.scope import Scope
            from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider
            def declare_child(self, url, index):
                self.declare(url)
                return True
            Scope.declare_child = declare_child
            def children(self, visit, answer):
                declare = self._crawl.intake.declare_child
                listed = answer.links.children or ()
                return [*filter(None, (declare(url, visit.source.sitemap) for url in listed))]
            WalshMetadataSpider._children = children
            """,
        ),
        "what robots.txt says about use not read": broken_so(
            "items",
            {
                "R2": [
                    "a use that robots.txt disallows, if refused",
                    "what robots.txt says about use, by line",
                ],
            },
            """
            from scrapy_walsh.policy.robots.usage import UsageRules
            UsageRules.said = lambda self, url: ()
            """,
        ),
    },
    "backoff": {
        "no back-off": broken_so(
            "backoff",
            {
                "R5a": ["backoff jitter produces variance"],
                "R5b": [
                    "Retry-After in seconds waited for (>=2s)",
                    "Retry-After as a date waited for",
                ],
            },
            """
            from scrapy_walsh.policy import backoff, throttle
            throttle.learn = lambda known, *_: known
            def at_once(answer, gates, *_):
                if not backoff.is_failure(answer.status):
                    return None
                if answer.attempt >= gates.max_retries:
                    return backoff.GiveUp()
                return backoff.Retry()
            backoff.after_failure = at_once
            """,
        ),
    },
    "taught": {
        "a learned interval binds at once": broken_so(
            "backoff",
            {"R5a": ["backoff jitter produces variance"]},
            """
            from scrapy_walsh.policy.throttle import Learned
            Learned.in_force = property(lambda self: self.interval)
            """,
        ),
    },
    "pace": {
        "interval halved": broken_so(
            "pacing",
            {
                "R2d": ["Crawl-delay taken from the named group"],
                "R4": [
                    "never above one request per second per host",
                    "a slow answer does not shorten the spacing (>=1s)",
                ],
                "R4b": ["per-host spacing honors Crawl-delay (>=2s)"],
            },
            """
            from scrapy_walsh.policy.host import Traffic
            whole = Traffic._changed
            def halved(self):
                whole(self)
                self.interval /= 2
                if not self.in_flight:
                    self._document_due = max(self.last_end + self.interval, self.not_before)
                    self._due = self._document_due if self.credit is None else self._due
            Traffic._changed = halved
            """,
        ),
    },
    "hostile": {
        "hostile answers taken as they come, list held against the text of a URL": broken_so(
            "hostile",
            {
                "R2": [
                    "a robots.txt that came compressed is obeyed",
                    "a robots.txt packed without a word of it is obeyed",
                ],
                "R3a": ["a listed host blocked in whatever way its URL is written"],
                "R5": ["header lines without end are cut off"],
            },
            """
            from types import SimpleNamespace
            from urllib.parse import urlsplit
            from scrapy_walsh.adapters import compat, gate
            from scrapy_walsh.adapters.documents import fetcher
            from scrapy_walsh.policy import chain, packing
            from scrapy_walsh.policy.list.blocklist import Blocklist
            def without_end(protocol):  # it reads on; to parse all of it would take 20 s
                take, octets = protocol.dataReceived, [0]
                def received(data):
                    octets[0] += len(data)
                    if octets[0] < 1 << 18:
                        take(data)
                return received
            compat._bounded = without_end
            packing.packings = lambda fields: (0, False)
            packing.unpacked_once_more = lambda body, limit: body
            fetcher.is_readable = lambda body: True
            whole = Blocklist.blocks
            Blocklist.blocks = lambda self, url: None if "written" in url else whole(self, url)
            # Nor at the wire: there, the list would hold a robots.txt back, and its target waits.
            kept = vars(chain) | {"judge_host": lambda *more: None}
            gate.chain = SimpleNamespace(**kept)
            """,
        ),
        "fields of robots.txt read by RFC 9309 alone": broken_so(
            "hostile",
            {"R2": ["a Disallow as any widely used parser reads it is obeyed"]},
            """
            from scrapy_walsh.policy.robots import groups
            groups._lenient = lambda line: []
            """,
        ),
    },
    "lists": {
        "the list of another address forgotten": broken_so(
            "documents",
            {
                "R3b": [
                    "another address brings no list: the last one stays",
                    "a mirror's list lifts nothing of the canonical one",
                ],
            },
            """
            from scrapy_walsh.state.records import StoredDocument
            from scrapy_walsh.state.store import Store
            def own_alone(self, url, token, now):
                kept = self.get(StoredDocument, "blocklist", url)
                return [] if kept is None or "mirror" in str(self.list_times(token)) else [kept]
            Store.binding_lists = own_alone
            """,
        ),
    },
    "days": {
        "a page taken for a robots.txt": broken_so(
            "days",
            {"R2": ["a page in place of a known robots.txt lifts nothing"]},
            """
            from scrapy_walsh.adapters.documents.robots_txt import RobotsTxt
            RobotsTxt._is_doubted = lambda self, origin, fetched: False
            """,
        ),
        "Retry-After capped at an hour": broken_so(
            "days",
            {
                "R5b": ["Retry-After of a day: deferred, with its whole time"],
            },
            """
            from scrapy_walsh.policy import backoff
            backoff.LONGEST = 3600.0
            """,
        ),
        "robots.txt used past its TTL within a run": broken_so(
            "days",
            {
                "R2": ["opt-out in robots.txt honored once its TTL is over within a run"],
            },
            """
            import math
            from scrapy_walsh.adapters.documents.robots_txt import RobotsTxt
            whole = RobotsTxt._keep_rules
            def for_ever(self, origin, rules, fetched_at, ttl):
                return whole(self, origin, rules, fetched_at, math.inf)
            RobotsTxt._keep_rules = for_ever
            """,
        ),
        "another User-Agent on conditional requests": broken_so(
            "days",
            {
                "R1": ["exact UA on conditional requests"],
            },
            """
            from scrapy_walsh.adapters import handler
            whole = handler.Handler._set_headers
            def dress(self, request):
                whole(self, request)
                if b"If-None-Match" in request.headers or b"If-Modified-Since" in request.headers:
                    request.headers["User-Agent"] = "Mozilla/5.0"
            handler.Handler._set_headers = dress
            """,
        ),
        "Last-Modified not replayed": broken_so(
            "days",
            {"R7": ["Last-Modified replayed"]},
            """
            from scrapy_walsh.policy import validators
            whole = validators.conditional_headers
            def tags_alone(*validators):
                found = whole(*validators)
                return {name: found[name] for name in found if name == "If-None-Match"}
            validators.conditional_headers = tags_alone
            """,
        ),
    },
    "neighbour": {
        "a robots.txt kept for a day in any case": broken_so(
            "neighbour",
            {"R2": ["robots.txt asked again once its max-age is over"]},
            """
            from scrapy_walsh.adapters.documents import robots_txt
            robots_txt.max_age = lambda cache_control: None
            """,
        ),
        "a rate limit not read": broken_so(
            "neighbour",
            {"R5": ["a rate limit that is used up is waited for"]},
            """
            from scrapy_walsh.adapters.gate import Sent
            Sent.reset = lambda self, now: None
            """,
        ),
        "hosts that belong together paced alone": broken_so(
            "neighbour",
            {"R5": ["hosts that belong together wait together"]},
            """
            from scrapy_walsh.policy import hosts
            hosts.server_key = lambda key, address, pace_by: ""
            """,
        ),
        "hints not read": broken_so(
            "neighbour",
            {"R8": ["a source's hint not to come yet is kept"]},
            """
            from scrapy_walsh.adapters import sources
            sources.read_hints = lambda *answer, **more: sources.NO_HINTS
            """,
        ),
        "a closed door knocked at again": broken_so(
            "neighbour",
            {"R8": ["a door that asks for payment is left alone"]},
            """
            from scrapy_walsh.policy import visits
            from scrapy_walsh.state import records
            visits.retirement = records.retirement = lambda status, words: 0
            """,
        ),
    },
    "hold": {
        "a hold remembered for an hour at most": broken_so(
            "days",
            {
                "R5b": ["Retry-After of a day: deferred, with its whole time"],
            },
            """
            from dataclasses import replace
            from scrapy_walsh.state.store import Store
            whole = Store.book_host
            def an_hour(self, ended):
                until = min(ended.not_before, ended.last_end + 3600.0)
                return whole(self, replace(ended, not_before=until))
            Store.book_host = an_hour
            """,
        ),
    },
    "edges": {
        "the last 429 or 503 handed to the spider": broken_so(
            "edges",
            {
                "R5": ["503 and 429 to the end: given up, and no response"],
            },
            """
            from scrapy_walsh.adapters import spidermiddlewares
            from scrapy_walsh.adapters.downloadermiddlewares import BackoffMiddleware
            from scrapy_walsh.adapters.outcomes import GaveUp
            whole = BackoffMiddleware.process_response
            def handed_on(self, request, response, **more):
                try:
                    return whole(self, request, response, **more)
                except GaveUp:
                    return response
            BackoffMiddleware.process_response = handed_on
            spidermiddlewares.is_failure = lambda status: False
            """,
        ),
        "robots.txt not obeyed by https": broken_so(
            "edges",
            {
                "R2": ["robots.txt obeyed by https, each scheme by its own"],
            },
            """
            from scrapy_walsh.policy.robots.file import Robots
            from scrapy_walsh.policy.verdict import Verdict
            whole = Robots.decide
            def by_http_alone(self, url):
                found = whole(self, url)
                if not url.startswith("https:"):
                    return found
                return Verdict(True, "allowed_implicit", "R2", "broken", found.document)
            Robots.decide = by_http_alone
            """,
        ),
        "the request target left to the client library": broken_so(
            "edges",
            {
                "R2": ["another path or query sent than was judged"],
            },
            """
            from scrapy_walsh.adapters import compat
            compat.send_as_judged = lambda handler: None
            """,
        ),
        "what goes past the scheduler not judged": broken_so(
            "edges",
            {
                "R6": ["what a callback downloads past the scheduler"],
            },
            """
            from scrapy_walsh.adapters.gate import Gate
            from scrapy_walsh.policy.verdict import Verdict
            whole = Gate.at_queue
            def popped_alone(self, ticket, **more):
                if ticket.popped:
                    return whole(self, ticket, **more)
                return Verdict(True, "allowed_implicit", "R2", "broken")
            Gate.at_queue = popped_alone
            """,
        ),
        "Crawl-delay capped": broken_so(
            "edges",
            {
                "R2d": ["Crawl-delay beyond the run's patience not shortened"],
            },
            """
            from scrapy_walsh.policy.robots import file as robots
            whole = robots.crawl_delay
            robots.crawl_delay = lambda selections: min(whole(selections) or 0.0, 10.0)
            """,
        ),
        "429 of robots.txt taken for no rules": broken_so(
            "edges",
            {
                "R2": ["robots.txt answering 429 to the end is not 'no rules'"],
            },
            """
            from scrapy_walsh.policy.robots import fetch as robots_fetch
            whole = robots_fetch.meaning
            def never_deferred(status, **more):
                found = whole(status, **more)
                return robots_fetch.NO_RULES if found == robots_fetch.DEFER else found
            robots_fetch.meaning = never_deferred
            """,
        ),
    },
    "runs": {
        "earlier runs forgotten": broken_so(
            "edges",
            {
                "R4": [
                    "spacing kept from one run to the next (>=8s)",
                    "a robots.txt asked again is spaced from its target",
                ],
            },
            """
            from scrapy_walsh.adapters.wire import pacing
            from scrapy_walsh.adapters.wire.pacing import Pacing
            from scrapy_walsh.state.records import Booking
            pacing.restore = lambda host, store, now, steady: None
            Pacing.reserve = lambda self, host: Booking(0.0, known=False)
            """,
        ),
        "Retry-After of a robots.txt not waited for": broken_so(
            "edges",
            {
                "R5b": ["Retry-After of a robots.txt waited for (>=2s)"],
            },
            """
            from dataclasses import replace
            from scrapy_walsh.policy import chain
            whole = chain.conclude
            def targets_alone(answer, *more):
                found = whole(answer, *more)
                if answer.purpose != "robots" or found.failure is None:
                    return found
                return replace(found, failure=replace(found.failure, delay=0.0), wait=0.0)
            chain.conclude = targets_alone
            """,
        ),
        "robots.txt retried eight times": broken_so(
            "edges",
            {
                "R5": ["robots.txt answering 429 or 503 asked five times again at most"],
            },
            """
            from dataclasses import replace
            from scrapy_walsh.policy import chain
            whole = chain.conclude
            def more_often(answer, gates, *more):
                most = 8 if answer.purpose == "robots" else 5
                return whole(answer, replace(gates, max_retries=most), *more)
            chain.conclude = more_often
            """,
        ),
    },
    "spider": {
        "meta refresh on, and refused": broken_so(
            "spider",
            {
                "R6": ["a page that refreshes is the answer itself"],
            },
            """
            from scrapy_walsh.adapters import seats
            seats.PINS["METAREFRESH_ENABLED"] = True
            """,
        ),
        "a spider's headers and word taken for good, a POST sent again": broken_so(
            "spider",
            {
                "R1": ["headers that mislead do not reach the wire"],
                "R5": ["a POST that failed is not sent again"],
                "R6": ["a callback that says it declares a URL declares nothing"],
            },
            """
            from scrapy_walsh.adapters import handler
            from scrapy_walsh.policy import backoff
            from scrapy_walsh.policy.scope import Scope
            handler.may_send = lambda name: name != b"User-Agent"
            backoff.IDEMPOTENT |= {"POST"}
            whole = Scope.refuses
            Scope.refuses = lambda self, url: None if url.endswith("/also") else whole(self, url)
            """,
        ),
        "redirects not judged": broken_so(
            "spider",
            {
                "R2": ["redirect to a disallowed path not followed"],
                "R3": [
                    "redirect to a listed host not followed",
                    "robots.txt redirected to a listed host not followed",
                ],
            },
            """
            from types import SimpleNamespace
            from scrapy_walsh.adapters import gate
            from scrapy_walsh.policy import chain
            from scrapy_walsh.policy.list.blocklist import Blocklist
            from scrapy_walsh.policy.robots.file import Robots
            from scrapy_walsh.policy.verdict import Verdict
            listed, judged = Blocklist.blocks, Robots.decide
            def unlisted(self, url):
                return None if url.endswith("/hop") else listed(self, url)
            def allowed(self, url):
                found = judged(self, url)
                if not url.endswith("/hop"):
                    return found
                return Verdict(True, "allowed_implicit", "R2", "broken", found.document)
            Blocklist.blocks, Robots.decide = unlisted, allowed
            # Nor at the wire: there, the list would hold a robots.txt back, and its target waits.
            kept = vars(chain) | {"judge_host": lambda *more: None}
            gate.chain = SimpleNamespace(**kept)
            """,
        ),
    },
    "hops": {
        "a robots.txt followed wherever it leads": broken_so(
            "spider",
            {"R2": ["robots.txt redirected to a page that is disallowed there: not followed"]},
            """
            from scrapy_walsh.adapters.documents import robots_txt
            from scrapy_walsh.policy import chain
            def by_the_list_alone(url, origin, scope, held, gates, *, led):
                return chain.judge_host(url, held, gates)
            robots_txt.judge_robots_hop = by_the_list_alone
            """,
        ),
        "a redirect that is refused taken for an unreachable robots.txt": broken_so(
            "spider",
            {"R2": ["robots.txt whose redirect is refused is not 'no rules'"]},
            """
            from scrapy_walsh.policy.robots import fetch as robots_fetch
            whole = robots_fetch.without
            def unreachable(cause, *more, **named):
                if cause == robots_fetch.HOP_REFUSED:
                    cause = robots_fetch.UNREACHABLE
                return whole(cause, *more, **named)
            robots_fetch.without = unreachable
            """,
        ),
        "every address taken for a public one": broken_so(
            "spider",
            {"D38": ["a redirect into a private network is not followed"]},
            """
            from scrapy_walsh.policy import addresses
            addresses.kind_of = lambda address: addresses.PUBLIC
            """,
        ),
    },
    "admitted": {
        "what admit refuses is sent all the same": broken_so(
            "spider",
            {
                "R4": [
                    "a target that may not go in this run is not sent",
                ],
            },
            """
            from scrapy_walsh.policy.host import Host
            from scrapy_walsh.policy.verdict import Verdict
            whole = Host.admit
            def deaf(self, now, **more):
                step = whole(self, now, **more)
                return 0.0 if isinstance(step, Verdict) else step
            Host.admit = deaf
            """,
        ),
    },
    "links": {
        "links followed": broken_so(
            "spider",
            {
                "R6": [
                    "undeclared requests of a callback refused, by name",
                    "a callback that says it declares a URL declares nothing",
                ],
            },
            """
            from scrapy_walsh.policy.scope import Scope
            Scope.refuses = lambda self, url: None
            """,
        ),
    },
    "operator": {
        "tags without the commit": broken_so(
            "operator",
            {"R13": ["the operator's URLs carry impl, sha, spec"]},
            """
            from scrapy_walsh.adapters.wire import tags
            whole = tags.tag_url
            tags.tag_url = lambda url, impl, sha, spec: whole(url, impl, None, spec)
            """,
        ),
        "tags for every host": broken_so(
            "operator",
            {"R13": ["other hosts see no tags"]},
            """
            from scrapy_walsh.adapters.wire import tags
            tags.is_operator_url = lambda url, operator_urls: True
            """,
        ),
        "tags though robots.txt disallows the tagged form": broken_so(
            "operator",
            {"R13": ["untagged where the tagged form is disallowed"]},
            """
            from scrapy_walsh.adapters.wire.tags import Tags
            whole = Tags.__init__
            def without_robots(self, context, robots, **shell):
                whole(self, context, lambda origin: None, **shell)
            Tags.__init__ = without_robots
            """,
        ),
        "a visit that failed is not on record": broken_so(
            "again",
            {"R8": ["any answer is a visit: a 3xx that leads nowhere, an unasked 304"]},
            """
            from scrapy_walsh.adapters.sources import Sources
            Sources._note_failure = lambda self, key: None
            """,
        ),
        "a source known by the spelling of its URL": broken_so(
            "again",
            {"R8": ["no source asked again within the hour"]},
            """
            from scrapy_walsh.policy import urls
            urls.key_of = lambda url, form="": f"{url} {form}" if form else url
            """,
        ),
    },
    "signing": {
        "robots.txt not signed": broken_so(
            "signing",
            {"R1": ["each request is signed"]},
            """
            from scrapy_walsh.adapters.wire.signing import Signer
            whole = Signer.fields
            def targets_alone(self, target, now):
                return {} if target.path == "/robots.txt" else whole(self, target, now)
            Signer.fields = targets_alone
            """,
        ),
        "a key that is not listed": broken_so(
            "signing",
            {"R1": ["signed by a key of the directory"]},
            """
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from scrapy_walsh.adapters.wire.signing import Signer
            by_listed = Signer.fields
            def by_another(self, target, now):
                if target.path == "/first":
                    self = Signer(Ed25519PrivateKey.generate(), self.directory)
                return by_listed(self, target, now)
            Signer.fields = by_another
            """,
        ),
        "signatures of an hour ago": broken_so(
            "signing",
            {"R1": ["signed for this time"]},
            """
            from scrapy_walsh.adapters.wire.signing import Signer
            in_time = Signer.fields
            def too_late(self, target, now):
                return in_time(self, target, now - 3600 if target.path == "/second" else now)
            Signer.fields = too_late
            """,
        ),
        "signed for whatever host": broken_so(
            "signing",
            {"R1": ["signed for this host, method and path, once"]},
            """
            from scrapy_walsh.adapters.wire.signing import Signer
            for_host = Signer.fields
            def for_any(self, target, now):
                if target.path == "/third":
                    target = target._replace(authority="other.test")
                return for_host(self, target, now)
            Signer.fields = for_any
            """,
        ),
    },
    "replay": {
        "one signature for all requests": broken_so(
            "signing",
            {"R1": ["signed for this host, method and path, once"]},
            """
            from scrapy_walsh.adapters.wire.signing import Signer
            afresh, kept = Signer.fields, {}
            def once(self, target, now):
                return kept.setdefault((target.authority, target.path), afresh(self, target, now))
            Signer.fields = once
            """,
        ),
    },
}
ONLY_THE_CRAWL = "import sys\nif sys.orig_argv[1:3] == ['-m', 'scrapy']:\n"


#: The build that breaks no MUST: its run ends with 0.
SHOULD_ALONE = "operator"
#: The build whose rows ask for a long wait. A machine that stands still for a second waits as
#: long by chance, so a run of it that seems whole is made a second time.
WAITS = "backoff"
BREAKS = {name: (build, each) for build, all_of in BUILDS.items() for name, each in all_of.items()}


def rows_of(build: str) -> frozenset[tuple[str, str]]:
    """Every row that the breaks of *build* must fail."""
    return frozenset().union(*(each.rows for each in BUILDS[build].values()))


def broken(folder: Path, *patches: str) -> Path:
    """A directory for PYTHONPATH that breaks the crawl's process, by each patch in its turn."""
    folder.mkdir()
    lines = [ONLY_THE_CRAWL]
    for number, patch in enumerate(patches):
        (folder / f"broken_{number}.py").write_text(textwrap.dedent(patch))
        lines.append(f"    import broken_{number}\n")
    (folder / "sitecustomize.py").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs write their records."""
    return tmp_path_factory.mktemp("broken")


@pytest.fixture(scope="module")
def runs(root: Path) -> dict[str, Done]:
    """Each broken build's run, four at a time."""

    def run(build: str) -> Done:
        breaks = BUILDS[build].values()
        path = broken(root / build, *(each.patch for each in breaks))
        parts = ",".join(sorted({each.part for each in breaks}))
        record = str(root / f"{build}.json")
        asked = ("--json", "--only", parts, "--record", record)
        done = conformance(root, *asked, path=path, **{zygote.BROKEN: "scrapy"})
        if build == WAITS and not rows_of(build) <= done.failed_rows():
            done = conformance(root, *asked, path=path, **{zygote.BROKEN: "scrapy"})
        return done

    with ThreadPoolExecutor(4) as pool:  # they wait, most of the time
        return dict(zip(BUILDS, pool.map(run, BUILDS), strict=True))


@pytest.mark.crawl
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_gate_fails_its_rows(runs: dict[str, Done], name: str) -> None:
    build, each = BREAKS[name]
    assert each.rows <= runs[build].failed_rows(), runs[build].stdout
    others = [other.rows for other in BUILDS[build].values() if other is not each]
    assert each.rows
    assert not each.rows & frozenset().union(*others)


@pytest.mark.crawl
@pytest.mark.parametrize("build", BUILDS)
def test_a_broken_build_fails_no_other_rows(runs: dict[str, Done], build: str) -> None:
    done = runs[build]
    assert done.code == (build != SHOULD_ALONE), done.stderr
    assert done.failed_rows() == rows_of(build), done.stdout


@pytest.mark.crawl
def test_r14_1_a_broken_gate_cannot_be_attested(root: Path, runs: dict[str, Done]) -> None:
    """One build's record; tests/attest/test_document.py has each row that can fail."""
    assert runs["lab"].code == 1
    done = walsh(root, "attest", "--identity", "walsh-research", "--record", "lab.json")
    assert done.returncode == 1, done.stderr
    stated = json.loads(done.stdout)["requirements"]
    ids = {row for each in BUILDS["lab"].values() for row, _ in each.rows}
    failed = ids | {each.rstrip("abcd") for each in ids}
    assert not any(stated[each] for each in failed & stated.keys())


@pytest.mark.crawl
def test_a_crawl_that_cannot_start_shows_nothing(tmp_path: Path) -> None:
    path = broken(tmp_path / "broken", "raise SystemExit('broken on purpose')\n")
    done = conformance(tmp_path, "--json", "--only", "blocklist", path=path)
    assert done.code == 1
    assert {check["outcome"] for check in done.found["checks"]} == {"NOT SEEN"}
    assert "ended with code" in done.stderr
