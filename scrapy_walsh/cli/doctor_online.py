"""``walsh doctor --online``: the operator's policy page (R1.4) and blocklist, asked once each.

They are targets of a crawl of their own, so that every gate speaks first; R8 is lifted, and
no target is retried.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider

from scrapy_walsh.adapters.core import Core
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import NotModified
from scrapy_walsh.cli.check_online import crawl_apart
from scrapy_walsh.cli.doctor_findings import FAIL, OK, Finding, one_line
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.event import Event
from scrapy_walsh.state.records import BLOCKLIST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from scrapy.http import Response
    from scrapy.settings import Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.config import WalshConfig

_SETTINGS: Final[Mapping[str, Any]] = {
    "WALSH_REVISIT_REASON": "walsh doctor --online looks whether the operator's URLs answer",
    "WALSH_MAX_RETRIES": 0,
    "WALSH_PATIENCE": 30,
    "REDIRECT_ENABLED": True,
}
#: Octets of a page that are read: it is the status that counts.
_ENOUGH: Final = 64 << 20


class DoctorSpider(Spider):
    """Puts what each of the operator's URLs answered into ``answers``."""

    name = "walsh_doctor"
    answers: dict[str, str]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """The blocklist comes as in any crawl; it is a target only where it was not yet due."""
        core = Core.of(self.crawler)
        url, since = core.config.blocklist_url, time.time()
        with _rejections(url) as reasons:
            await core.documents.operator.bring()
        held = core.store.get_document(BLOCKLIST, url)
        if reasons:
            self.answers[url] = reasons[0]
        elif held is not None and held.fetched_at >= since:
            self.answers[url] = f"{held.status}"
        else:
            yield self._request(url)
        yield self._request(core.config.identity.policy_url)

    def _request(self, url: str) -> Request:
        return Request(
            url,
            callback=self.answered,
            errback=self.not_answered,
            meta={"handle_httpstatus_list": range(400, 600), "download_maxsize": _ENOUGH},
            cb_kwargs={"url": url},
            dont_filter=True,
        )

    def answered(self, response: Response, url: str) -> None:
        """Callback of every request."""
        self.answers[url] = f"{response.status}"

    def not_answered(self, failure: Failure) -> None:
        """Errback of every request."""
        url = failure.request.cb_kwargs["url"]  # type: ignore[attr-defined]
        unchanged = isinstance(failure.value, NotModified)
        self.answers[url] = "304" if unchanged else one_line(failure.value)


@contextmanager
def _rejections(url: str) -> Iterator[list[str]]:
    """Why the document *url* was not adopted meanwhile, as the log has it."""
    reasons: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = record.args[0] if isinstance(record.args, tuple) and record.args else None
            if isinstance(event, Event) and (event.kind, event.url) == (events.REJECTED, url):
                reasons.append(event.reason)

    handler = Keep()
    logger.addHandler(handler)
    try:
        yield reasons
    finally:
        logger.removeHandler(handler)


def ask(config: WalshConfig, settings: Settings) -> list[Finding]:
    """A finding for each of the operator's URLs. StateError when no crawl can start."""
    answers: dict[str, str] = {}
    problems: list[str] = []
    ours = settings.copy()
    for name, value in _SETTINGS.items():
        ours.set(name, value, priority="cmdline")
    crawl_apart(ours, DoctorSpider, problems, answers=answers)
    unasked = "; ".join(problems) or "the crawl ended before it was asked"
    return [
        _finding("R1.4", "policy", config.identity.policy_url, answers, unasked),
        _finding("R3", "blocklist", config.blocklist_url, answers, unasked),
    ]


def _finding(
    requirement: str, about: str, url: str, answers: Mapping[str, str], unasked: str
) -> Finding:
    answer = answers.get(url, unasked)
    if answer == "304" or (answer.isdigit() and 200 <= int(answer) < 300):
        return Finding(OK, requirement, about, f"{url} answers {answer}")
    return Finding(
        FAIL, requirement, about, f"{url} gives no 2xx: {answer}: put it up, or correct its URL"
    )
