"""What the tests of the documents share: answers, sites, and questions to a whole log."""

from __future__ import annotations

import json
import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.sandbox import Route, Site, blocklist, gaps, hosts, requests
from tests.crawl.harness import LIST_SPIDER, TOLERANCE, Crawl, site

if TYPE_CHECKING:
    from collections.abc import Iterator

LIST = "/.well-known/walsh-research/blocklist.json"
SCHEMA = "/.well-known/walsh-research/blocklist.schema.json"
RULES = "User-agent: *\nDisallow: /private/\n"

#: Reaches ports of this machine without the sandbox, which is the proxy for all else.
DIRECT_SPIDER = f'import os\n\nos.environ["no_proxy"] = "127.0.0.1"\n{LIST_SPIDER}'


def answer(body: str | bytes = RULES, status: int = 200, **fields: Any) -> Route:
    """An answer to a request for robots.txt."""
    return Route(status, body, **{"content_type": "text/plain", **fields})


def served(document: object, **fields: Any) -> Route:
    """A JSON document."""
    return Route(body=json.dumps(document), content_type="application/json", **fields)


def listing(*domains: str, **changes: Any) -> Route:
    """A blocklist of *domains* with its schema inline, members replaced by *changes*."""
    return served({**blocklist("http://operator.test", *domains), **changes})


def operator(route: Any, robots: str | Route = RULES, **routes: Any) -> Site:
    """The operator's origin with *route* as its blocklist."""
    return site("operator.test", {LIST: route, **routes}, robots)


def targets(run: Crawl, host: str) -> list[str]:
    """What was asked of *host* beside robots.txt."""
    return [path for path in run.asked(host) if path != "/robots.txt"]


def robots_asked(run: Crawl, host: str) -> int:
    """How often *host* was asked for robots.txt."""
    return run.asked(host).count("/robots.txt")


def too_fast(run: Crawl, exempt: bool = True) -> dict[str, float]:
    """Hosts with a gap below one second; T1 exempts the one after a first robots.txt."""
    found = {}
    for host in hosts(run.log):
        spaced = gaps(run.log, host)
        first = requests(run.log, host)[:1]
        if exempt and first and first[0].path == "/robots.txt":
            spaced = spaced[1:]
        if spaced and min(spaced) < 1.0 - TOLERANCE:
            found[host] = min(spaced)
    return found


def final_stats(run: Crawl) -> dict[str, float]:
    """The ``walsh/`` counters that Scrapy prints at the end, those that are set last included."""
    printed = run.output.rpartition("Dumping Scrapy stats")[2]
    found = re.findall(r"'walsh/([^']+)': ([0-9.]+)", printed)
    return {name: float(value) for name, value in found}


@contextmanager
def closed_port() -> Iterator[int]:
    """A port of this machine where every connection is refused while it is kept."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]
