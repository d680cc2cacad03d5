"""``walsh doctor --online``: requests the operator's policy page (R1.4) and blocklist once each."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.commands.operator_pages import PagesSpider, ask, is_up
from scrapy_walsh.findings import Finding, Outcome
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.event import Event
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from scrapy.settings import Settings

    from scrapy_walsh.commands.operator_pages import Answers
    from scrapy_walsh.config import WalshConfig

_REASON: Final = "walsh doctor --online looks whether the operator's URLs answer"
#: Nothing is retried, and no wait is long.
_HASTE: Final[Mapping[str, Any]] = {"WALSH_MAX_RETRIES": 0, "WALSH_PATIENCE": 30}


class DoctorSpider(PagesSpider):
    """Requests the operator's URLs."""

    name = "walsh_doctor"

    async def start(self) -> AsyncIterator[Any]:
        """The blocklist comes as in any crawl; it is a target only where it was not yet due."""
        core = Crawl.of(self.crawler)
        url, since = core.config.blocklist_url, time.time()
        with _rejections(url) as reasons:
            await core.documents.operator.bring()
        held = core.store.get(StoredDocument, BLOCKLIST, url)
        if reasons:
            self.answers[url] = reasons[0]
        elif held is not None and held.fetched_at >= since and held.status is not None:
            self.answers[url] = held.status
        else:
            yield self.page(url)
        yield self.page(core.config.identity.policy_url)


@contextmanager
def _rejections(url: str) -> Iterator[list[str]]:
    """Why the document *url* was not adopted meanwhile, as the log has it."""
    reasons: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = getattr(record, "walsh_event", None)  # the text of a record is escaped
            if isinstance(event, Event) and (event.kind, event.url) == (events.REJECTED, url):
                reasons.append(event.reason)

    handler = Keep()
    logger.addHandler(handler)
    try:
        yield reasons
    finally:
        logger.removeHandler(handler)


def findings(config: WalshConfig, settings: Settings) -> list[Finding]:
    """A finding for each of the operator's URLs. StateError when no crawl can start."""
    answers = ask(settings, _REASON, DoctorSpider, **_HASTE)
    return [
        _finding("R1.4", "policy", config.identity.policy_url, answers),
        _finding("R3", "blocklist", config.blocklist_url, answers),
    ]


def _finding(requirement: str, about: str, url: str, answers: Answers) -> Finding:
    answer = answers.of(url)
    if is_up(answer):
        return Finding(Outcome.HELD, requirement, about, f"{url} answers {answer}")
    if isinstance(answer, int):
        what = f"{url} answers {answer}: put it up, or correct its URL"
    else:  # why it was not adopted, or what came in place of an answer
        what = f"{url}: {answer}: put it right, or correct its URL"
    return Finding(Outcome.BROKEN, requirement, about, what)
