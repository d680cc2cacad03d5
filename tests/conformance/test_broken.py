"""A build with one gate broken on purpose: the crawl of the run must show it, and nothing else.

The break is a module that only the crawl's own process loads, so the judge stays whole.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests import zygote
from tests.conformance.kit import Done, conformance, walsh

if TYPE_CHECKING:
    from pathlib import Path

#: By name: what is broken, the part of the run that shows it, the ids of the rows that must fail.
BREAKS: dict[str, tuple[str, str, set[str]]] = {
    "blocklist not asked about": (
        """
        from scrapy_walsh.policy.blocklist import Blocklist
        Blocklist.blocks = lambda self, url: None
        """,
        "blocklist",
        {"R3", "R3a"},
    ),
    "robots.txt not obeyed": (
        """
        from scrapy_walsh.policy.robots import Robots
        from scrapy_walsh.policy.verdict import Verdict
        Robots.decide = lambda self, url: Verdict(True, "allowed_implicit", "R2", "broken")
        """,
        "robots",
        {"R2", "R2a", "R2b", "R2c"},
    ),
    "interval halved": (
        """
        from scrapy_walsh.policy import throttle
        from scrapy_walsh.policy.throttle import Throttle
        whole, due = Throttle.interval, Throttle.due
        Throttle.interval = lambda self, host: whole(self, host) / 2
        def halved(self, host, *, document=False):
            found, record = due(self, host, document=document), self._hosts.get(host)
            spaced = record is not None and not record.in_flight and not record.credit
            return max(found - whole(self, host) / 2, record.not_before) if spaced else found
        Throttle.due = halved
        """,
        "pacing",
        {"R2d", "R4", "R4b"},
    ),
    "Retry-After capped at an hour": (
        """
        from scrapy_walsh.policy import backoff
        backoff.LONGEST = 3600.0
        """,
        "days",
        {"R5b"},
    ),
    "a hold remembered for an hour at most": (
        """
        import time
        from scrapy_walsh.policy.throttle import Throttle
        whole = Throttle.held_until
        Throttle.held_until = lambda self, host: min(whole(self, host), time.monotonic() + 3600.0)
        """,
        "days",
        {"R5b"},
    ),
    "robots.txt used past its TTL within a run": (
        """
        import math
        from scrapy_walsh.adapters.robots_txt import RobotsTxt
        whole = RobotsTxt._hold
        def for_ever(self, origin, rules, fetched_at, ttl):
            return whole(self, origin, rules, fetched_at, math.inf)
        RobotsTxt._hold = for_ever
        """,
        "days",
        {"R2"},
    ),
    "another User-Agent on conditional requests": (
        """
        from scrapy_walsh.adapters import handler
        whole = handler._Handler._dress
        def dress(self, request):
            whole(self, request)
            if b"If-None-Match" in request.headers or b"If-Modified-Since" in request.headers:
                request.headers["User-Agent"] = "Mozilla/5.0"
        handler._Handler._dress = dress
        """,
        "days",
        {"R1"},
    ),
    "the last 429 or 503 handed to the spider": (
        """
        from scrapy_walsh.adapters import downloadermiddlewares, spidermiddlewares
        downloadermiddlewares.reaches_spider = spidermiddlewares.reaches_spider = bool
        """,
        "edges",
        {"R5"},
    ),
    "meta refresh on, and refused": (
        """
        from scrapy_walsh.adapters import seats
        seats.PINS["METAREFRESH_ENABLED"] = True
        """,
        "spider",
        {"R6"},
    ),
    "meta refresh followed": (
        """
        from scrapy_walsh.adapters import seats
        from scrapy_walsh.policy.scope import Scope
        seats.PINS["METAREFRESH_ENABLED"] = True
        whole = Scope.refuses
        Scope.refuses = lambda self, url: None if url.endswith("/by-meta") else whole(self, url)
        """,
        "scope",
        {"R6"},
    ),
    "no back-off": (
        """
        from scrapy_walsh.policy import backoff
        def at_once(status, retry_after, attempt, *, max_retries, **_):
            if not backoff.is_failure(status):
                return None
            if attempt >= max_retries:
                return backoff.GiveUp("broken", 0.0)
            return backoff.Retry(0.0, "broken")
        backoff.after_failure = at_once
        """,
        "backoff",
        {"R5a", "R5b"},
    ),
    "robots.txt not obeyed by https": (
        """
        from scrapy_walsh.policy.robots import Robots
        from scrapy_walsh.policy.verdict import Verdict
        whole = Robots.decide
        def by_http_alone(self, url):
            found = whole(self, url)
            if not url.startswith("https:"):
                return found
            return Verdict(True, "allowed_implicit", "R2", "broken", found.document)
        Robots.decide = by_http_alone
        """,
        "edges",
        {"R2"},
    ),
    "what goes past the scheduler not judged": (
        """
        from scrapy_walsh.adapters.gate import Gate
        from scrapy_walsh.adapters.downloadermiddlewares import GateMiddleware
        Gate.before_wire = lambda self, request: None
        judged = GateMiddleware.process_request
        async def popped_alone(self, request, spider=None):
            if request in self.crawl.pacing.popped:
                return await judged(self, request, spider)
        GateMiddleware.process_request = popped_alone
        """,
        "edges",
        {"R6"},
    ),
    "Crawl-delay capped": (
        """
        from scrapy_walsh.policy import robots
        whole = robots.crawl_delay
        robots.crawl_delay = lambda selections: min(whole(selections) or 0.0, 10.0)
        """,
        "edges",
        {"R2d"},
    ),
    "earlier runs forgotten": (
        """
        from scrapy_walsh.adapters.pacing import Pacing
        from scrapy_walsh.state.records import Booking
        Pacing._restore = lambda self, host: None
        Pacing.reserve = lambda self, host: Booking(0.0, known=False)
        """,
        "edges",
        {"R4"},
    ),
    "Retry-After of a robots.txt not waited for": (
        """
        from dataclasses import replace
        from scrapy_walsh.policy import chain
        whole = chain.conclude
        def targets_alone(answer, *more):
            found = whole(answer, *more)
            return replace(found, hold=0.0) if answer.purpose == "robots" else found
        chain.conclude = targets_alone
        """,
        "edges",
        {"R5b"},
    ),
    "robots.txt retried eight times": (
        """
        from dataclasses import replace
        from scrapy_walsh.policy import chain
        whole = chain.conclude
        def more_often(answer, gates, *more):
            most = 8 if answer.purpose == "robots" else 5
            return whole(answer, replace(gates, max_retries=most), *more)
        chain.conclude = more_often
        """,
        "edges",
        {"R5"},
    ),
    "429 of robots.txt taken for no rules": (
        """
        from scrapy_walsh.policy import robots_fetch
        whole = robots_fetch.meaning
        def never_deferred(status, **more):
            found = whole(status, **more)
            return robots_fetch.NO_RULES if found == robots_fetch.DEFER else found
        robots_fetch.meaning = never_deferred
        """,
        "edges",
        {"R2"},
    ),
    "links followed": (
        """
        from scrapy_walsh.policy.scope import Scope
        Scope.refuses = lambda self, url: None
        """,
        "spider",
        {"R6"},
    ),
    "a spider's headers and word taken for good, a POST sent again": (
        """
        from scrapy_walsh.adapters import handler
        from scrapy_walsh.policy import backoff
        from scrapy_walsh.policy.scope import Scope
        handler.may_send = lambda name: name != b"User-Agent"
        backoff.IDEMPOTENT |= {"POST"}
        whole = Scope.refuses
        Scope.refuses = lambda self, url: None if url.endswith("/also") else whole(self, url)
        """,
        "spider",
        {"R1", "R5", "R6"},
    ),
    "hostile answers taken as they come, list held against the text of a URL": (
        """
        from urllib.parse import urlsplit
        from scrapy_walsh.adapters import compat
        from scrapy_walsh.policy import packing
        from scrapy_walsh.policy.blocklist import Blocklist
        compat.MAX_HEADER_OCTETS = compat.MAX_HEADER_LINES = 1 << 40
        packing.packings = lambda fields: (0, False)
        whole = Blocklist.blocks
        Blocklist.blocks = lambda self, url: None if "written" in url else whole(self, url)
        """,
        "hostile",
        {"R2", "R3a", "R5"},
    ),
    "another User-Agent": (
        """
        from scrapy_walsh.policy.identity import Identity
        Identity.user_agent = property(lambda self: "Mozilla/5.0 (compatible; Walsh-Research/1.3)")
        """,
        "identity",
        {"R1"},
    ),
}
ONLY_THE_CRAWL = "import sys\nif sys.orig_argv[1:3] == ['-m', 'scrapy']:\n"


def broken(folder: Path, patch: str) -> Path:
    """A directory for PYTHONPATH that breaks the crawl's process."""
    lines = [line[4:] for line in patch.splitlines()]
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ONLY_THE_CRAWL + "\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs write their records."""
    return tmp_path_factory.mktemp("broken")


@pytest.fixture(scope="module")
def runs(root: Path) -> dict[str, Done]:
    """Each broken build's run, four at a time."""

    def run(number: int) -> Done:
        patch, part, _ = list(BREAKS.values())[number]
        path = broken(root / str(number), patch)
        record = str(root / f"{list(BREAKS)[number]}.json")
        return conformance(
            root, "--json", "--only", part, "--record", record, path=path, **{zygote.BROKEN: "1"}
        )

    with ThreadPoolExecutor(4) as pool:  # they wait, most of the time
        return dict(zip(BREAKS, pool.map(run, range(len(BREAKS))), strict=True))


@pytest.mark.crawl
@pytest.mark.parametrize("name", BREAKS)
def test_own_a_broken_gate_fails_its_rows_and_no_others(runs: dict[str, Done], name: str) -> None:
    done, expected = runs[name], BREAKS[name][2]
    assert done.code == 1, done.stderr
    assert done.failed() == expected, done.stdout


@pytest.mark.crawl
@pytest.mark.parametrize("name", BREAKS)
def test_r14_1_a_broken_gate_cannot_be_attested(
    root: Path, runs: dict[str, Done], name: str
) -> None:
    assert runs[name].code == 1
    done = walsh(root, "attest", "--identity", "walsh-research", "--record", f"{name}.json")
    assert done.code == 1, done.stderr
    stated = done.found["requirements"]
    failed = BREAKS[name][2] | {each.rstrip("abcd") for each in BREAKS[name][2]}
    assert not any(stated[each] for each in failed & stated.keys())


@pytest.mark.crawl
def test_own_a_crawl_that_cannot_start_shows_nothing(tmp_path: Path) -> None:
    path = broken(tmp_path / "broken", "        raise SystemExit('broken on purpose')")
    done = conformance(tmp_path, "--json", "--only", "blocklist", path=path)
    assert done.code == 1
    assert {check["outcome"] for check in done.found["checks"]} == {"NOT SEEN"}
    assert "ended with code" in done.stderr
