"""The documents and records that the gates look at: an implementation of ``chain.Held``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_walsh.adapters.documents.operator_list import OperatorList
from scrapy_walsh.adapters.documents.robots_txt import RobotsTxt
from scrapy_walsh.policy import chain, hosts
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.robots import usage
from scrapy_walsh.policy.robots.file import Robots

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.fetcher import Fetcher
    from scrapy_walsh.adapters.pacing import Pacing
    from scrapy_walsh.adapters.sources import Sources
    from scrapy_walsh.policy.chain import Rules
    from scrapy_walsh.policy.robots.usage import Statement


class Documents:
    """``chain.Held`` for one crawl."""

    def __init__(
        self, context: Context, fetcher: Fetcher, pacing: Pacing, sources: Sources
    ) -> None:
        self._context = context
        self._token = context.config.identity.token
        self.operator = OperatorList(context, fetcher, pacing)
        #: The list, or the verdict in its place; None where it must be fetched first (R12).
        self.blocklist = self.operator.current
        self.robots_txt = RobotsTxt(context, fetcher, pacing, self)
        #: When an earlier run last sent the source *key* and was answered (R8).
        self.last_visit = sources.last_visit
        #: The rules of an origin; None where they must be fetched or refreshed first (R12).
        self.robots = self.robots_txt.current

    def basis(self, url: str) -> tuple[int, int] | None:
        """Numbers of the list and the rules that decide about *url*; None where one is missing."""
        rules = self.robots_txt.serial(url)
        if rules is None or self.blocklist() is None:
            return None
        return self.operator.state.serial, rules

    def sitemaps(self, url: str) -> list[str]:
        """The sitemaps that the robots.txt of *url*'s origin names, if it is in memory."""
        rules = self.rules_of(url)
        named = rules.sitemaps if isinstance(rules, Robots) else ()
        return formats.suggested_sitemaps(named, f"{hosts.origin(url)}/robots.txt")

    def rules_of(self, url: str) -> Rules | None:
        """The robots.txt of *url*'s origin, if it is in memory, fresh or not."""
        return self.robots_txt.last(hosts.origin(url))

    async def bring(self, needed: chain.NeedDocument) -> None:
        """Make one step towards the document that a gate needs."""
        if needed.kind == chain.BLOCKLIST:
            await self.operator.bring()
        else:
            await self.robots_txt.step(needed.origin)

    def read_usage(self, response: Response, rules: Rules | None) -> tuple[Statement, ...]:
        """What a site says about the use of *response*, whose request *rules* let through."""
        url = response.url
        in_robots = () if rules is None else rules.said(url)
        fields = {
            name.decode("latin-1").lower(): [value.decode("latin-1") for value in values]
            for name, values in response.headers.items()
        }
        return (*in_robots, *usage.of_response(fields, url, self._token))
