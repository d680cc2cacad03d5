"""What a crawl writes into its ledger beside the decisions: its terms, and each exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_walsh import SPEC_VERSION, __version__
from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.asked import form_of
from scrapy_walsh.adapters.events import logger, process_name
from scrapy_walsh.adapters.retries import hold_of, retry_after
from scrapy_walsh.config import LEDGER_OFF, LEDGER_REDACTED
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.policy.backoff import GiveUp
from scrapy_walsh.policy.event import TARGET, Exchange
from scrapy_walsh.policy.silence import granted

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_walsh.adapters.core import Core
    from scrapy_walsh.policy.backoff import Retry


def open_ledger(core: Core) -> Ledger | None:
    """Where each decision is written down; a crawl goes on without, and says so."""
    config = core.config
    if config.state_dir is None or config.ledger == LEDGER_OFF:
        return None
    try:
        ledger = Ledger(config.state_dir, core.wall, redact=config.ledger == LEDGER_REDACTED)
    except StateError as error:
        logger.error("%s", error)
        return None
    for notice in ledger.notices:
        logger.warning("%s", notice)
    return ledger


def terms(core: Core) -> dict[str, Any]:
    """What the decisions of this run go by: for whoever derives them again."""
    config = core.config
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
            "revisit_reason": core.gates.revisit_reason,
            "follow_links": core.scope.follow_links,
            "scraping": config.scraping,
            "slow_hosts": config.slow_hosts,
            "shared": config.shared_state is not None,
            "tag_requests": config.tag_requests or compat.is_shell(core.crawler),
        },
    }


def exchange_of(
    core: Core,
    request: Request,
    host: str,
    response: Response | None,
    failure: Retry | GiveUp | None,
    *,
    started: float,
    ended: float,
    exempt: bool,
    counts: bool,
) -> Exchange:
    """One exchange as it was; ``started`` and ``ended``: by the steady clock."""
    purpose = core.fetcher.purpose(request)
    passed = core.passed(request) if purpose == TARGET else None
    return Exchange(
        request.url,
        host,
        request.method,
        purpose,
        started=round(started, 6),
        ended=round(ended, 6),
        status=None if response is None else response.status,
        answered=counts,
        interval=core.throttle.interval(host),
        exempt=exempt,
        verdict="" if passed is None else passed.name,
        digest=None if passed is None else passed.digest,
        attempt=core.retries.attempt(request),
        retry_after=() if response is None else tuple(retry_after(response)),
        wait=None if failure is None else hold_of(failure),
        gives_up=isinstance(failure, GiveUp),
        sent=core.tags.sent.get(request),
        hops=core.fetcher.hops(request),
        form=form_of(request) if purpose == TARGET else "",
        again=(purpose == TARGET and core.asked.again(request)) or None,
        visit=(purpose == TARGET and core.throttle.went_ahead(host)) or None,
        once=True if response is None and counts and core.retries.tries_https(request) else None,
        body=core.fetcher.digest(request, response),
    )
