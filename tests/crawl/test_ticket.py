"""What a request's ticket says goes along with no other Request than those that it is to go with.

Each way in which a request becomes another object is in ``WAYS``: retries, redirects, copies that
middlewares and spiders make, queues. What lasts goes along where the request is still the same to
its site; that a gate has let it pass goes along with none.
"""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING

import pytest
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.utils.request import request_from_dict

from scrapy_walsh.adapters.crawl import Crawl as Walsh
from scrapy_walsh.adapters.scheduler_queue import HostQueue
from scrapy_walsh.adapters.spidermiddlewares import ScopeMiddleware
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, Verdict
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import idle_crawler, site, solo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URL, NEXT = "http://one.test/page", "http://one.test/next"
SOURCE, OWN = "http://one.test/source", "http://one.test/own"


@pytest.fixture
def crawl() -> Walsh:
    return Walsh.of(idle_crawler(Spider("probe")))


def on_its_way(crawl: Walsh) -> Request:
    """A request that has been given out, and that the gate has let pass."""
    request = Request(URL, meta={"own": 1})
    ticket = crawl.tickets.of(request)
    crawl.tickets.keep(request, ticket, {"source": OWN, "via": [SOURCE]})
    ticket.queue, ticket.first, ticket.late = HostQueue(crawl), True, True
    ticket.verdict = Verdict(True, ALLOWED_IMPLICIT, "R2", "no rule")
    ticket.basis, ticket.cleared, ticket.sent = (1, 1), True, f"{URL}?impl=x"
    return request


def spiders(crawl: Walsh, request: Request) -> Request:
    """What a spider makes of the meta of a response, and yields."""
    made = Request(URL, meta=request.meta)
    seat = ScopeMiddleware(crawl)
    response = type("Answer", (), {"request": None})()
    (entry,) = seat.process_spider_output(response, [made])
    assert isinstance(entry, Request)
    return entry


def spiders_own(crawl: Walsh, request: Request) -> Request:
    """The request itself, which a spider yields again."""
    seat = ScopeMiddleware(crawl)
    response = type("Answer", (), {"request": None})()
    (entry,) = seat.process_spider_output(response, [request])
    assert entry is request
    return request


def past_the_spider_middlewares(crawl: Walsh, request: Request) -> Request:
    """A copy of an answer's meta, which an extension gives to the engine."""
    crawl.gate.over(request, Response(URL))
    return Request(URL, meta=request.meta)


def redirected(crawl: Walsh, request: Request) -> Request:
    crawl.scope.declare(URL)
    hop = request.replace(url=NEXT)
    crawl.intake.declare_hop(hop, request)
    return hop


def through_json(crawl: Walsh, request: Request) -> Request:
    kept = json.loads(json.dumps(crawl.intake.kept(request)["meta"]))
    return Request(URL, meta=kept)


def through_a_file(crawl: Walsh, request: Request) -> Request:
    kept = pickle.dumps(crawl.intake.kept(request))
    return request_from_dict(pickle.loads(kept))  # noqa: S301


#: How the other Request is made; which sources its answer counts for; whether its outcome is that
#: of the declared source.
WAYS: dict[str, tuple[Callable[[Walsh, Request], Request], list[str], bool]] = {
    "sent again": (lambda crawl, request: crawl.tickets.again(request), [SOURCE], True),
    "given back to a slow host": (
        lambda crawl, request: crawl.tickets.again(request, first=False),
        [SOURCE],
        True,
    ),
    "redirected": (redirected, [SOURCE, URL], True),
    "copied by a middleware": (lambda _, request: request.copy(), [SOURCE], True),
    "another URL by a middleware": (lambda _, request: request.replace(url=NEXT), [SOURCE], True),
    "meta copied by a middleware": (lambda _, each: Request(URL, meta=each.meta), [SOURCE], True),
    "meta copied deep": (
        lambda _, request: Request(URL, meta=copy.deepcopy(request.meta)),
        [SOURCE],
        True,
    ),
    "meta copied by a spider": (spiders, [], False),
    "yielded again by a spider": (spiders_own, [], False),
    "meta of an answer, past the spider middlewares": (past_the_spider_middlewares, [], False),
    "through a JOBDIR": (through_a_file, [SOURCE], True),
    "through Redis": (through_json, [SOURCE], True),
}
#: The ways in which the Request is the same object: its ticket is a new one.
SAME = ("sent again", "given back to a slow host", "yielded again by a spider")


@pytest.mark.parametrize("name", WAYS)
def test_another_request_takes_over_what_lasts_and_nothing_else(crawl: Walsh, name: str) -> None:
    way, via, is_source = WAYS[name]
    request = on_its_way(crawl)
    before = crawl.tickets.of(request)
    other = way(crawl, request)
    ticket = crawl.tickets.of(other)
    assert (sorted(ticket.via), ticket.source) == (sorted(via), OWN if is_source else None)
    assert (ticket.verdict, ticket.basis, ticket.cleared) == (None, None, False)
    assert (ticket.popped, ticket.late, ticket.sent) == (False, False, None)
    assert (other is request) == (name in SAME)
    assert before.cleared  # its own ticket is as it was
    assert other.dont_filter == request.dont_filter


@pytest.mark.parametrize("name", WAYS)
def test_the_meta_of_a_request_has_what_json_and_pickle_have(crawl: Walsh, name: str) -> None:
    request = WAYS[name][0](crawl, on_its_way(crawl))
    crawl.tickets.of(request)
    assert json.loads(json.dumps(request.meta)) == request.meta
    assert pickle.loads(pickle.dumps(request.meta)) == request.meta  # noqa: S301


def test_the_meta_of_an_answer_has_nothing_of_a_ticket(crawl: Walsh) -> None:
    request = on_its_way(crawl)
    crawl.gate.over(request, Response(URL))
    assert request.meta == {"own": 1}


def test_a_queue_keeps_no_ticket_of_which_nothing_lasts(crawl: Walsh) -> None:
    request = Request(URL)
    crawl.tickets.of(request)
    assert crawl.intake.kept(request)["meta"] == {}


def test_what_redis_says_of_a_ticket_is_text_or_nothing(crawl: Walsh) -> None:
    for said in ({"via": SOURCE, "source": 1}, {"via": [1, None]}, [SOURCE], "x", object()):
        ticket = crawl.tickets.of(Request(URL, meta={"walsh_ticket": said}))
        assert (ticket.via, ticket.source, ticket.cleared) == ([], None, False)


def test_a_ticket_is_of_one_crawl(crawl: Walsh) -> None:
    request = on_its_way(crawl)
    assert not Walsh.of(idle_crawler(Spider("other"))).tickets.of(request).cleared


def test_r6_another_url_in_the_same_request_was_let_pass_by_no_gate(crawl: Walsh) -> None:
    request = on_its_way(crawl)
    request._set_url(NEXT)
    ticket = crawl.tickets.of(request)
    assert (ticket.url, ticket.before, ticket.cleared) == (NEXT, URL, False)


def test_r8_another_body_in_the_same_request_is_another_form(crawl: Walsh) -> None:
    request = on_its_way(crawl)
    assert crawl.tickets.of(request).key == URL
    request.method = "POST"
    request._set_body(b"x")
    assert crawl.tickets.of(request).key.startswith(f"{URL} POST ")


LOOKS_AGAIN = """
import scrapy
from scrapy.utils.defer import maybe_deferred_to_future

class Again:
    # Downloads a copy of each request before its spider has the answer.
    def __init__(self, crawler):
        self.crawler, self.copies = crawler, 0

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_response(self, request, response, spider=None):
        if "copy" not in request.meta and "walsh_document" not in request.meta:
            engine = self.crawler.engine
            copy = request.replace(meta={**request.meta, "copy": True})
            if hasattr(engine, "download_async"):
                second = await engine.download_async(copy)
            else:
                second = await maybe_deferred_to_future(engine.download(copy))
            self.crawler.stats.inc_value("again", int(second.status == 200))
        return response

class Probe(scrapy.Spider):
    name = "probe"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"spiders.Again": 500}}

    async def start(self):
        yield scrapy.Request("http://one.test/page")

    def parse(self, response):
        yield {"url": response.url}
"""


def test_r4_a_copy_of_a_request_from_the_queue_waits_for_its_turn_at_the_wire(
    tmp_path: Path,
) -> None:
    """Only what the queue gave out may go back to it: the engine would try a copy in a circle."""
    pages = {"/page": Route(body="page")}
    done = solo(tmp_path, sites=(site("one.test", pages),), spider=LOOKS_AGAIN)
    sent = [each.target.rpartition("/")[2] for each in done.requests("one.test")]
    assert sent == ["robots.txt", "page", "page"]
    assert done.stats["again"] == 1
    assert done.stats["downloader/request_count"] < 20
