"""Opens a crawl's ledger, and makes the terms that stand in the run's line ``started``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_walsh.adapters.events import process_name
from scrapy_walsh.config import LEDGER_OFF, LEDGER_REDACTED, SETTINGS
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.policy.backoff import granted
from scrapy_walsh.policy.throttle import LONGEST
from scrapy_walsh.spec import SPEC_VERSION, __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.signing import Signer
    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.policy.gates import Gates


def open_ledger(config: WalshConfig, wall: Callable[[], float]) -> Ledger | None:
    """Open the ledger of a crawl; None where it has none. StateError where it cannot be opened."""
    if config.state_dir is None or config.ledger == LEDGER_OFF:
        return None
    return Ledger(config.state_dir, wall, redact=config.ledger == LEDGER_REDACTED)


def terms(
    config: WalshConfig,
    gates: Gates,
    *,
    spider: str,
    follow_links: bool,
    in_shell: bool,
    signer: Signer | None,
) -> dict[str, Any]:
    """Identity, spider and settings of this run: what ``verify`` needs to decide again.

    Where requests are signed, also with which key, and where that is listed (D25).
    """
    signed = {"keyid": signer.keyid, "directory": signer.directory} if signer else None
    return {
        "process": process_name(),
        "spider": spider,
        "version": __version__,
        "spec": SPEC_VERSION,
        "user_agent": config.identity.user_agent,
        "token": config.identity.token,
        "blocklist_url": config.blocklist_url,
        "schema_url": config.schema_url,
        "signed": signed,
        "settings": {
            **{each.field: getattr(config, each.field) for each in SETTINGS if each.row.terms},
            "silent_attempts": granted(config.max_retries, config.robots_unreachable),
            "longest_learned": min(config.patience, LONGEST),
            "revisit_reason": gates.revisit_reason,
            "follow_links": follow_links,
            "usage": dict(config.usage),
            "shared": config.shared_state is not None,
            "tag_requests": config.tag_requests or in_shell,
        },
    }
