"""R3 at the wire: the list may have changed, or expired, while a request waited for its turn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from scrapy import Request, Spider

from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.documents.fetcher import OPERATOR, Document
from scrapy_walsh.adapters.outcomes import NotYet, Refused
from scrapy_walsh.policy.chain import BLOCKLIST, NeedDocument
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots.fetch import NO_RULES
from scrapy_walsh.state.records import ROBOTS, StoredDocument
from tests.crawl.harness import idle_crawler

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.policy.list.operator import State

ORIGIN = "http://www.late.test"
PAGE, RULES = f"{ORIGIN}/p", f"{ORIGIN}/robots.txt"
NOW = time.time()
OPEN, CLOSED = (Blocklist(domains=frozenset({name})) for name in ("other.test", "late.test"))

#: What has happened to the list, in force and open, since a request was judged; and whether the
#: request may still go: "yes", "wait" for the list, or "no".
CHANGES: dict[str, tuple[Callable[[State], State], str]] = {
    "none": (lambda state: state, "yes"),
    "another adopted": (lambda state: state.adopt(OPEN, NOW), "yes"),
    "answered, not read": (lambda state: state.answered(), "wait"),
    "answered, adopted, not over": (lambda state: state.answered().adopt(CLOSED, NOW), "wait"),
    "adopted": (lambda state: state.answered().adopt(CLOSED, NOW).succeeded().over(), "no"),
    "rejected": (lambda state: state.answered().over(), "yes"),
    "expired": (lambda state: state.adopt(OPEN, NOW - 7 * 3600), "wait"),
    "lost": (lambda state: state.lose("the disk"), "no"),
}


@pytest.fixture(scope="module")
def crawl() -> Crawl:
    crawl = Crawl.of(idle_crawler(Spider("probe")))
    for url in (PAGE, f"{PAGE}?2"):
        crawl.scope.declare(url)
    crawl.scope.growing = False
    crawl.store.put(StoredDocument(ROBOTS, ORIGIN, RULES, b"", time.time(), 404, NO_RULES))
    return crawl


def fresh(crawl: Crawl) -> None:
    operator = crawl.documents.operator
    operator._set_state(operator.state.begin().adopt(OPEN, NOW).over())


@pytest.mark.parametrize("change", CHANGES)
def test_r3_a_target_is_judged_by_the_list_once_more(crawl: Crawl, change: str) -> None:
    fresh(crawl)
    request = Request(PAGE)
    ticket = crawl.tickets.of(request)
    verdict = crawl.gate.at_queue(ticket)
    assert not isinstance(verdict, NeedDocument)
    assert verdict.allowed
    ticket.cleared = True
    happens, answer = CHANGES[change]
    crawl.documents.operator._set_state(happens(crawl.documents.operator.state))
    if answer == "no":
        with pytest.raises(Refused):
            crawl.gate.at_wire(request, ticket)
    else:
        need = crawl.gate.at_wire(request, ticket)
        assert (need is not None and need.kind == BLOCKLIST) == (answer == "wait")
    crawl.sources.let_go(ticket.key)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("purpose", [ROBOTS, OPERATOR])
def test_r3_no_robots_txt_is_requested_of_a_host_that_the_list_names_by_now(
    crawl: Crawl, purpose: str, change: str
) -> None:
    fresh(crawl)
    request = Request(RULES)
    host = crawl.tickets.host_of(RULES)
    origin = ORIGIN if purpose == ROBOTS else ""
    document = Document(
        crawl.tickets,
        RULES,
        host,
        key=RULES,
        purpose=purpose,
        made=request,
        limit=9,
        origin=origin,
    )
    happens, answer = CHANGES[change]
    crawl.documents.operator._set_state(happens(crawl.documents.operator.state))
    if answer == "yes" or purpose == OPERATOR:
        assert crawl.gate.at_wire(request, document) is None
    else:  # the gate judges the target again, which brings the list or refuses it
        with pytest.raises(NotYet):
            crawl.gate.at_wire(request, document)
