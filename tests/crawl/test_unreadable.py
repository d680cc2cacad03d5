"""R5: answers that came, and that nobody can read as HTTP/1.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from twisted.python.failure import Failure
from twisted.web._newclient import BadResponseVersion, ParseError, ResponseFailed

from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import Crawl, site

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = "its answer is not valid HTTP/1.1"


def named(name: str) -> Exception:
    """An error of aiohttp's, by its name alone."""
    error = type(name, (Exception,), {})
    assert issubclass(error, Exception)
    return error("400")


@pytest.mark.parametrize(
    ("cause", "unreadable"),
    [
        (ParseError("wrong number of parts", b"hello"), True),
        (BadResponseVersion("not enough values", b"HTTP/2 200 OK"), True),
        (ValueError("conflicting Content-Length headers"), True),
        (KeyError(b"an unknown transfer coding"), True),
        (named("InvalidHeaderName"), True),
        (named("_MalformedChunkedDataError"), True),
        (named("ConnectionDone"), False),
        (named("ConnectionLost"), False),
        (named("TimeoutError"), False),
    ],
)
def test_an_answer_of_twisted_that_is_no_http_is_no_silence(
    cause: Exception, unreadable: bool
) -> None:
    error = ResponseFailed([Failure(cause)])
    assert faults.is_unreadable(error) is unreadable
    answer = faults.no_answer(error)
    assert (answer.error is None) is unreadable
    assert str(answer) == (WORDS if unreadable else f"no answer: {answer.error}")


@pytest.mark.parametrize("name", ["BadStatusLine", "BadHttpMessage"])
def test_nor_is_one_of_aiohttp(name: str) -> None:
    error = ConnectionError("failed")
    error.__cause__ = named(name)
    assert str(faults.no_answer(error)) == WORDS


def test_an_error_that_only_looks_like_it_is_a_silence() -> None:
    assert not faults.is_unreadable(ConnectionRefusedError())
    error = ConnectionRefusedError()
    error.__context__ = ValueError("not an address")
    assert not faults.is_unreadable(error)


UNREADABLE = Route(headers=[("Content-Length", "2"), ("Content-Length", "3")], body="ok")


@pytest.mark.crawl
def test_r5_an_answer_that_cannot_be_read_is_retried_as_a_5xx(run: Callable[..., Crawl]) -> None:
    routes = {f"/{number}": UNREADABLE for number in range(4)}
    shop = site("shop.test", {**routes, "/name": Route(headers=[("bad name@", "x")])})
    urls = [f"http://shop.test{path}" for path in ("/0", "/1", "/2", "/3", "/name")]
    settings = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.01, "WALSH_BACKOFF_CAP": 0.01}
    result = run(*urls, sites=(shop,), settings=settings)
    assert sorted(result.targets("shop.test")) == sorted(2 * ["/0", "/1", "/2", "/3", "/name"])
    assert "no answer" not in result.output
    assert len(result.lines("ERROR", WORDS)) == 1
    assert all(WORDS in result.why(url) for url in urls)
