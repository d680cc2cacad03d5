"""Large documents are read in another process: the loop goes on, and time and depth have limits."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
import pytest_twisted
from twisted.internet import reactor, task
from twisted.internet.defer import Deferred, gatherResults

from scrapy_walsh.adapters.documents import apart
from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly
from scrapy_walsh.policy.formats import links
from scrapy_walsh.policy.formats import representation as formats
from tests.sources.hostile import DOCUMENTS, MEGABYTES, Hostile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

JSON = "application/feed+json"
URL = "http://site.test/feed"
BEAT = 0.005  # seconds


class Heart:
    """Beats in the loop; ``longest``: the longest pause between two beats.

    In seconds of this process's processor time: while another process has the processor, nobody
    is at fault.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.process_time()
        self._call = task.LoopingCall(self._beat)

    def _beat(self) -> None:
        now = time.process_time()
        self.longest, self._last = max(self.longest, now - self._last), now

    def __enter__(self) -> Heart:
        self._call.clock = reactor
        self._call.start(BEAT)
        return self

    def __exit__(self, *_: object) -> None:
        self._call.stop()


async def outcome(work: Awaitable[links.Links]) -> links.Links | DocumentInvalid:
    try:
        return await work
    except DocumentInvalid as error:
        return error


@pytest.mark.parametrize("hostile", DOCUMENTS, ids=lambda each: each.name)
@pytest_twisted.ensureDeferred
async def test_the_loop_goes_on_while_a_document_is_read(hostile: Hostile) -> None:
    """As long as the child works, the loop beats: no pause is a share of that work."""
    body, content_type = hostile.body(), hostile.content_type
    began = time.perf_counter()
    with Heart() as heart:
        found = await outcome(
            apart.links_of(
                hostile.kind, body, content_type, URL, timeout=0.5 if hostile.slow else 600.0
            )
        )
    took = time.perf_counter() - began
    assert heart.longest < max(took / 4, 0.25), (heart.longest, took)
    if hostile.refusal is None:
        assert isinstance(found, links.Links), found
        assert len(found.entries) >= hostile.entries
    else:
        assert hostile.refusal in str(found)
        assert "\n" not in str(found)
        assert isinstance(found, DocumentTooCostly) is hostile.costly


@pytest_twisted.ensureDeferred
async def test_a_document_over_the_limit_of_time_is_costly() -> None:
    body = MEGABYTES["plain feed"]()
    with Heart() as heart, pytest.raises(DocumentTooCostly, match=r"read within 0.5 s and"):
        await apart.links_of(formats.FEED, body, "application/rss+xml", URL, timeout=0.5)
    assert heart.longest < 0.5


@pytest_twisted.ensureDeferred
async def test_two_are_read_at_once_and_others_wait_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hostile document leaves a place to the others, and there are never more than two."""
    running: list[int] = []
    real = apart.ask_child

    def counted(*arguments: object, **more: object) -> object:
        running.append(running[-1] + 1 if running else 1)
        try:
            return real(*arguments, **more)  # type: ignore[arg-type]
        finally:
            running.append(running[-1] - 1)

    monkeypatch.setattr(apart, "ask_child", counted)
    body = json.dumps({"items": [{"url": f"http://a.test/{n}"} for n in range(1000)]}).encode()
    reads = [
        Deferred.fromCoroutine(apart.links_of(formats.JSON_FEED, body, JSON, URL)) for _ in range(5)
    ]
    found = await gatherResults(reads)
    assert [len(each.entries) for each in found] == [1000] * 5
    assert max(running) == 2


@pytest_twisted.ensureDeferred
async def test_what_a_child_reads_is_what_the_crawl_would_read() -> None:
    text = "# One\n\n[a](http://a.test/) \n\n## Two\n\n- [b *c*](http://b.test/)\n" + "x\n" * 9000
    assert len(text) > apart.SMALL
    child = await apart.links_of(formats.MARKDOWN, text.encode(), None, URL)
    assert child == links.links_of(formats.MARKDOWN, text.encode(), None, URL)
    assert [heading.title for heading in child.headings] == ["One", "Two"]


@pytest_twisted.ensureDeferred
async def test_a_small_document_costs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "ask_child", None)
    found = await apart.links_of(formats.MARKDOWN, b"[a](http://a.test/)", None, URL)
    assert [entry.url for entry in found.entries] == ["http://a.test/"]


@pytest.mark.parametrize("make", [lambda n: b"<a>" * n, lambda n: b"<a><br>" * n])
def test_elements_nested_too_deep_are_said(make: Callable[[int], bytes]) -> None:
    body = b"<rss version='2.0'><channel><item>" + make(600)
    with pytest.raises(DocumentTooCostly, match=r"elements nested over 500 deep"):
        links.links_of(formats.FEED, body, None, URL)


def test_what_malformed_feeds_leave_open_is_not_deep() -> None:
    """HTML that nobody escaped: an item's end closes what was left open within it."""
    item = "<item><link>http://a.test/{}</link><description>a<br>b<p>c</description></item>"
    hidden = "<!--" + "<b>" * 600 + "--><![CDATA[" + "<b>" * 600 + "]]>"
    body = "".join(item.format(number) for number in range(400)) + hidden
    text = f"<rss version='2.0'><channel>{body}</channel></rss>"
    found = links.links_of(formats.FEED, text.encode(), None, URL)
    assert len(found.entries) == 400
