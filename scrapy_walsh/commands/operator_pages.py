"""Requests the operator's own pages through every gate: the policy page (R1.4), the blocklist.

They are targets of a crawl of their own, with R8 lifted.
"""

from __future__ import annotations

from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider
from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import NotModified
from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.commands.check_online import crawl_apart
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.state.records import Validators

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response
    from scrapy.settings import Settings
    from twisted.python.failure import Failure

#: The most octets of a page that are read: as many as a blocklist may have.
_ENOUGH: Final = 64 << 20
_ACCEPT: Final = "*/*"


class PagesSpider(Spider):
    """Requests ``url``, and puts what came into ``answers``: the status, or why there is none.

    Of each response it keeps the body, the Content-Type, and how far its Date is from our clock.
    """

    url: str
    answers: dict[str, int | str]
    bodies: dict[str, bytes]
    types: dict[str, str]
    ahead: dict[str, float]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """The page, and nothing else."""
        Crawl.of(self.crawler).sources.account.due = False
        yield self.page(self.url)

    def page(self, url: str, *, redirects: bool = True) -> Request:
        """The request for *url*; with *redirects*, those that it answers are followed."""
        return Request(
            url,
            callback=self.answered,
            errback=self.not_answered,
            headers={"Accept": _ACCEPT},
            meta={"download_maxsize": _ENOUGH, "dont_redirect": not redirects},
            cb_kwargs={"url": url},
            dont_filter=True,
        )

    def answered(self, response: Response, url: str) -> None:
        """Callback. No validators stay: a crawl that has the page as a source needs its body."""
        self.answers[url], self.bodies[url] = response.status, response.body
        self._keep_head(url, response)
        core = Crawl.of(self.crawler)
        core.remember(lambda: core.store.delete(Validators, url, _ACCEPT))

    def not_answered(self, failure: Failure) -> None:
        """Errback."""
        url = failure.request.cb_kwargs["url"]  # type: ignore[attr-defined]
        self.answers[url] = _answer(failure.value)
        if isinstance(failure.value, HttpError):
            self._keep_head(url, failure.value.response)

    def _keep_head(self, url: str, response: Response) -> None:
        fields = {name: response.headers.get(name, b"") or b"" for name in ("Content-Type", "Date")}
        self.types[url] = fields["Content-Type"].decode("latin-1")
        with suppress(ValueError, OverflowError):
            date = parsedate_to_datetime(fields["Date"].decode("latin-1"))
            self.ahead[url] = Crawl.of(self.crawler).wall() - date.timestamp()


def _answer(error: BaseException | None) -> int | str:
    if isinstance(error, HttpError):
        return int(error.response.status)
    return 304 if isinstance(error, NotModified) else one_line(error)


class Answers:
    """The answers, and why there are none to the rest. ``bodies``, ``types``: by URL.

    ``ahead``: by URL, the seconds by which our clock was ahead of the answer's Date.
    """

    def __init__(self) -> None:
        self.answers: dict[str, int | str] = {}
        self.bodies: dict[str, bytes] = {}
        self.types: dict[str, str] = {}
        self.ahead: dict[str, float] = {}
        self.problems: list[str] = []

    def of(self, url: str) -> int | str:
        """The status that *url* answered, or why there is none."""
        unasked = "; ".join(self.problems) or "the crawl ended before it was requested"
        return self.answers.get(url, unasked)


def is_up(answer: int | str) -> bool:
    """Whether *answer* says that the page is there: 2xx, or 304."""
    return isinstance(answer, int) and (200 <= answer < 300 or answer == 304)


def ask(
    settings: Settings, reason: str, spider: type[PagesSpider], *, url: str = "", **more: Any
) -> Answers:
    """The answers to the requests of *spider*. *reason*: lifts R8; *more*: settings of the crawl.

    ConfigError or StateError when no crawl can start.
    """
    found = Answers()
    ours = settings.copy()
    for name, value in {"WALSH_REVISIT_REASON": reason, "REDIRECT_ENABLED": True, **more}.items():
        ours.set(name, value, priority="cmdline")
    kept = {name: getattr(found, name) for name in ("answers", "bodies", "types", "ahead")}
    crawl_apart(ours, spider, found.problems, url=url, **kept)
    return found


# ``walsh blocklist check URL``: requests the list at a URL through the gates.

_REASON: Final = "walsh blocklist check looks at the list"


class ListSpider(PagesSpider):
    """Requests the list."""

    name = "walsh_blocklist"


def fetch(url: str, settings: Settings) -> bytes:
    """The octets of the list at *url*. ConfigError, StateError; Misuse if it was not fetched."""
    found = ask(settings, _REASON, ListSpider, url=url)
    if url not in found.bodies:
        why = found.of(url)
        raise Misuse(f"{url} gave no list: {f'HTTP {why}' if isinstance(why, int) else why}")
    return found.bodies[url]
