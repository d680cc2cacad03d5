"""The public face as a project uses it, for a type checker: `make lint` runs mypy over this file.

``assert_type`` does nothing when it runs. A ``type: ignore`` that mypy does not need is an error
(``strict``), so each one here shows that the checker finds the mistake of its line.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, assert_never, assert_type, get_args

import pytest

import scrapy_walsh
from scrapy_walsh import Addon, GaveUp, NotModified, Refused, Verdict, WalshError, check, signals
from scrapy_walsh.policy.event import Event, EventKind, Exchange
from scrapy_walsh.policy.verdict import NAMES, VerdictName

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.exceptions import IgnoreRequest
    from twisted.python.failure import Failure


def test_types_of_a_verdict() -> None:
    verdict = check("http://h.test/", robots=b"User-agent: *\nDisallow: /", token="ExampleBot")
    assert_type(verdict, Verdict)
    assert_type(verdict.allowed, bool)
    assert_type(verdict.name, VerdictName)
    assert_type(verdict.requirement, str)
    assert_type(verdict.line, int | None)
    assert_type(verdict.readings, tuple[tuple[str, bool], ...])
    assert verdict.name == "disallowed_explicit"
    assert said(verdict) == "no"


def said(verdict: Verdict) -> str:
    """Every name has its case: without one of them, mypy refuses the last line."""
    match verdict.name:
        case "allowed_explicit" | "allowed_implicit":
            return "yes"
        case "disallowed_explicit" | "disallowed_usage" | "blocked_operator":
            return "no"
        case "excluded_tld" | "out_of_scope" | "private_address":
            return "no"
        case "unknown_unreachable" | "unknown_parse_error" | "unknown_blocklist":
            return "unknown"
        case "deferred" | "not_due":
            return "later"
        case _:
            assert_never(verdict.name)


def test_a_name_that_does_not_exist_is_an_error_of_types() -> None:
    verdict = check("http://h.test/", token="ExampleBot")
    assert verdict.name != "disalowed"  # type: ignore[comparison-overlap]
    with pytest.raises(TypeError):
        check("http://h.test/")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        scrapy_walsh.Chek  # type: ignore[attr-defined]  # noqa: B018


def test_types_of_what_an_errback_gets() -> None:
    verdict = check("http://h.test/", token="ExampleBot")
    for error in (
        Refused("http://h.test/", verdict),
        NotModified("http://h.test/"),
        GaveUp("http://h.test/", "503", 503),
    ):
        assert outcome(error) == type(error).__name__


def outcome(error: IgnoreRequest) -> str:
    match error:
        case Refused():
            assert_type(error.verdict, Verdict)
            assert_type(error.due, float | None)
            return "Refused"
        case GaveUp():
            assert_type(error.status, int | None)
            return "GaveUp"
        case NotModified():
            assert_type(error.content_type, str | None)
            return "NotModified"
        case _:
            return ""


class Watch:
    """An extension that listens: docs/api.md."""

    def __init__(self, crawler: Crawler) -> None:
        crawler.signals.connect(self.refused, signals.walsh_refused)
        crawler.signals.connect(self.asked, signals.walsh_asked)

    def refused(self, event: Event, spider: Spider) -> None:
        assert_type(event.kind, EventKind)
        assert_type(event.due, float | None)

    def asked(self, exchange: Exchange) -> None:
        assert_type(exchange.status, int | None)


def errback(failure: Failure) -> Any:
    """As a spider writes it."""
    return failure.value.verdict if isinstance(failure.value, Refused) else None


def test_the_literals_are_the_names_that_are_used() -> None:
    assert set(get_args(VerdictName)) == NAMES
    assert list(get_args(EventKind)) == list(signals.OF_KIND)


def test_the_package_says_that_it_is_typed() -> None:
    assert files("scrapy_walsh").joinpath("py.typed").is_file()
    assert isinstance(Addon, type)
    assert issubclass(WalshError, Exception)
    assert Watch.__doc__
    assert callable(errback)
