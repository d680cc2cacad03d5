"""What a crawl writes into its ledger beside the decisions: its terms, and each exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_walsh import SPEC_VERSION, __version__
from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.asked import form_of
from scrapy_walsh.adapters.events import logger, process_name
from scrapy_walsh.config import LEDGER_OFF, LEDGER_REDACTED
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.policy.backoff import GiveUp
from scrapy_walsh.policy.event import TARGET, Exchange
from scrapy_walsh.policy.silence import granted

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_walsh.adapters.crawl import Crawl
    from scrapy_walsh.policy.chain import Answer, Conclusion


def open_ledger(crawl: Crawl) -> Ledger | None:
    """Where each decision is written down; a crawl goes on without, and says so."""
    config = crawl.config
    if config.state_dir is None or config.ledger == LEDGER_OFF:
        return None
    try:
        ledger = Ledger(config.state_dir, crawl.wall, redact=config.ledger == LEDGER_REDACTED)
    except StateError as error:
        logger.error("%s", error)
        return None
    for notice in ledger.notices:
        logger.warning("%s", notice)
    return ledger


def terms(crawl: Crawl) -> dict[str, Any]:
    """What the decisions of this run go by: for whoever derives them again."""
    config = crawl.config
    return {
        "process": process_name(),
        "version": __version__,
        "spec": SPEC_VERSION,
        "user_agent": config.identity.user_agent,
        "token": config.identity.token,
        "blocklist_url": config.blocklist_url,
        "schema_url": config.schema_url,
        "settings": {
            "min_interval": config.min_interval,
            "max_retries": config.max_retries,
            "backoff_base": config.backoff_base,
            "backoff_cap": config.backoff_cap,
            "silent_attempts": granted(config.max_retries, config.robots_unreachable),
            "patience": config.patience,
            "robots_ttl": config.robots_ttl,
            "robots_unreachable": config.robots_unreachable,
            "blocklist_unreachable": config.blocklist_unreachable,
            "pace_robots": config.pace_robots,
            "excluded_tlds": list(config.excluded_tlds),
            "revisit": config.revisit,
            "revisit_reason": crawl.gates.revisit_reason,
            "follow_links": crawl.scope.follow_links,
            "scraping": config.scraping,
            "slow_hosts": config.slow_hosts,
            "shared": config.shared_state is not None,
            "tag_requests": config.tag_requests or compat.is_shell(crawl.crawler),
        },
    }


def exchange_of(
    crawl: Crawl,
    request: Request,
    host: str,
    answer: Answer,
    concluded: Conclusion,
    *,
    response: Response | None,
    started: float,
    ended: float,
) -> Exchange:
    """One exchange as it was; ``started`` and ``ended``: by the steady clock."""
    purpose, failure = answer.purpose, concluded.failure
    silent = response is None and answer.whole
    passed = crawl.gate.passed(request) if purpose == TARGET else None
    return Exchange(
        request.url,
        host,
        request.method,
        purpose,
        started=round(started, 6),
        ended=round(ended, 6),
        status=answer.status,
        answered=answer.whole,
        interval=crawl.pacing.throttle.interval(host),
        exempt=concluded.exempt,
        verdict="" if passed is None else passed.name,
        digest=None if passed is None else passed.digest,
        attempt=answer.attempt,
        retry_after=tuple(answer.retry_after),
        wait=None if failure is None else concluded.hold,
        gives_up=isinstance(failure, GiveUp),
        sent=crawl.tags.sent.get(request),
        hops=answer.hops,
        form=form_of(request) if purpose == TARGET else "",
        again=(purpose == TARGET and crawl.asked.again(request)) or None,
        visit=(purpose == TARGET and crawl.pacing.throttle.went_ahead(host)) or None,
        once=True if silent and crawl.retries.tries_https(request) else None,
        body=crawl.fetcher.digest(request, response),
    )
