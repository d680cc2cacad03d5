"""``walsh blocklist check URL``: requests the list at a URL through the gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.commands.operator_pages import PagesSpider, ask

if TYPE_CHECKING:
    from scrapy.settings import Settings

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
