"""The name of the next host is looked up while the present one answers, once a crawl."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from scrapy.resolver import CachingThreadedResolver
from scrapy.settings import Settings
from twisted.internet.base import ThreadedResolver

from scrapy_walsh.adapters import compat
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import crawl_of, listing, operator, site

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = tuple(f"h{number}.test" for number in range(6))
#: These hosts are the sandbox, without a proxy; their names are looked up in 50 ms.
SPIDER = f"""
import json, os, socket, time
from pathlib import Path
from urllib.parse import urlsplit
import scrapy

os.environ["no_proxy"] = "{",".join((*HOSTS, "listed.test"))}"
PORT = urlsplit(os.environ["http_proxy"]).port
looked = []
by_name = socket.getaddrinfo

def in_time(name, *more, **named):
    if not str(name).endswith(".test"):
        return by_name(name, *more, **named)
    looked.append((name, time.monotonic()))
    time.sleep(0.05)
    return by_name("127.0.0.1", *more, **named)

socket.getaddrinfo = in_time

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for host in {(*HOSTS, "listed.test")!r}:
            yield scrapy.Request(f"http://{{host}}:{{PORT}}/page")

    def parse(self, response):
        pass

    def closed(self, reason):
        Path("looked.json").write_text(json.dumps(looked))
"""


def test_the_next_name_is_looked_up_while_a_host_answers(tmp_path: Path) -> None:
    slow = Route(body="p", delay=0.2)
    robots = Route(body="User-agent: *\nAllow: /\n", content_type="text/plain", delay=0.2)
    sites = [operator(listing("listed.test")), *(site(host, {"*": slow}, robots) for host in HOSTS)]
    crawled = crawl_of(sites=sites, spider=SPIDER)(tmp_path)
    asked = [each for each in crawled.log if each.host.partition(":")[0] in HOSTS]
    assert len(asked) == 2 * len(HOSTS)
    looked = dict(json.loads((tmp_path / "looked.json").read_text()))
    assert looked.keys() == set(HOSTS), "the list refuses the other one (R3)"
    first = {each.host.partition(":")[0]: each.arrived for each in reversed(asked)}
    early = [host for host in HOSTS if first[host] - looked[host] > 0.2]
    # `start` is asked for its next request only when the one before it has been sent.
    assert len(early) >= len(HOSTS) - 2, (first, looked)


class Chain:
    """Stands in for a resolver that a script has made."""


@pytest.mark.parametrize(
    ("resolver", "is_used"),
    [
        (Chain(), True),
        (ThreadedResolver(None), False),
        (CachingThreadedResolver(SimpleNamespace(), 0, 1.0), False),
        (None, False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_resolver_that_a_script_has_given_the_reactor_is_used(
    monkeypatch: pytest.MonkeyPatch, resolver: object, is_used: bool
) -> None:
    monkeypatch.setattr(compat, "_reactor", lambda: SimpleNamespace(resolver=resolver))
    assert compat.sets_resolver(Settings()) == is_used
    assert compat.sets_resolver(Settings({"DNS_RESOLVER": "x", "TWISTED_DNS_RESOLVER": "x"}))
