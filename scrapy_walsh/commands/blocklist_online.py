"""``walsh blocklist check URL``: requests the list at a URL through the gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.commands.check_online import crawl_apart
from scrapy_walsh.commands.operator_pages import PagesSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response
    from scrapy.settings import Settings

_REASON: Final = "walsh blocklist check looks at the list"


class ListSpider(PagesSpider):
    """Puts the body of ``url`` into ``bodies``."""

    name = "walsh_blocklist"
    url: str
    bodies: list[bytes]

    async def start(self) -> AsyncIterator[Any]:
        """The list, and nothing else."""
        yield self.page(self.url)

    def answered(self, response: Response, url: str) -> None:
        """Callback."""
        super().answered(response, url)
        self.bodies.append(response.body)


def fetch(url: str, settings: Settings) -> bytes:
    """The octets of the list at *url*. ConfigError, StateError; Misuse if it was not fetched."""
    answers: dict[str, int | str] = {}
    problems: list[str] = []
    bodies: list[bytes] = []
    ours = settings.copy()
    for name, value in {"WALSH_REVISIT_REASON": _REASON, "REDIRECT_ENABLED": True}.items():
        ours.set(name, value, priority="cmdline")
    crawl_apart(ours, ListSpider, problems, url=url, answers=answers, bodies=bodies)
    if not bodies:
        why = answers.get(url, "; ".join(problems) or "the crawl ended before it was requested")
        raise Misuse(f"{url} gave no list: {f'HTTP {why}' if isinstance(why, int) else why}")
    return bodies[0]
