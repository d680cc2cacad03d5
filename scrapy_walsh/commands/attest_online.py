"""``walsh attest --online``: requests the policy page through the gates (R1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.commands.operator_pages import PagesSpider, ask, is_up
from scrapy_walsh.proof.attest.document import PolicyPage

if TYPE_CHECKING:
    from scrapy.settings import Settings

_REASON: Final = "walsh attest looks at the policy page"


class PolicySpider(PagesSpider):
    """Requests the policy page."""

    name = "walsh_attest"


def look(url: str, settings: Settings, now: str) -> PolicyPage:
    """The policy page at *url*, as its server has it *now* (ISO). ConfigError, StateError."""
    answer = ask(settings, _REASON, PolicySpider, url=url).of(url)
    if isinstance(answer, str):
        return PolicyPage(url, now, None, answer)
    return PolicyPage(url, now, answer, None if is_up(answer) else f"HTTP {answer}")
