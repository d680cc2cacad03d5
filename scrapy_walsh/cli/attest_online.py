"""``walsh attest --online``: the policy page, asked for through the gates (R1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_walsh.adapters.core import Core
from scrapy_walsh.adapters.outcomes import NotModified
from scrapy_walsh.attest.document import PolicyPage
from scrapy_walsh.cli.check_online import crawl_apart
from scrapy_walsh.spiders.answers import MAX_BODY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response
    from scrapy.settings import Settings
    from twisted.python.failure import Failure

_ACCEPT = "*/*"


class PolicySpider(Spider):
    """Puts the status of ``url`` into ``seen``; why there is none, into ``problems``."""

    name = "walsh_attest"
    url: str
    seen: list[int]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """The page, and nothing else."""
        yield Request(
            self.url,
            callback=self.answered,
            errback=self.not_answered,
            headers={"Accept": _ACCEPT},
            meta={"download_maxsize": MAX_BODY},
            dont_filter=True,
        )

    def answered(self, response: Response) -> None:
        """Callback. No validators stay: a crawl that has the page as a source needs its body."""
        self.seen.append(response.status)
        core = Core.of(self.crawler)
        core.remember(lambda: core.store.delete_validators(self.url, _ACCEPT))

    def not_answered(self, failure: Failure) -> None:
        """Errback."""
        error = failure.value
        if isinstance(error, HttpError):
            self.seen.append(error.response.status)
        elif isinstance(error, NotModified):
            self.seen.append(304)
        else:
            self.problems.append(str(error))


def look(url: str, settings: Settings, now: str) -> PolicyPage:
    """The policy page at *url*, as its server has it *now* (ISO). ConfigError, StateError."""
    seen: list[int] = []
    problems: list[str] = []
    ours = settings.copy()
    ours.set("WALSH_REVISIT_REASON", "walsh attest looks at the policy page", priority="cmdline")
    crawl_apart(ours, PolicySpider, problems, url=url, seen=seen)
    if not seen:
        return PolicyPage(url, now, None, "; ".join(problems) or "it was not answered")
    status = seen[-1]
    found = 200 <= status < 300 or status == 304
    return PolicyPage(url, now, status, None if found else f"HTTP {status}")
