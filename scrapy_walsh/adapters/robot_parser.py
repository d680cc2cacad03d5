"""Our robots.txt parser for Scrapy's own middleware, without the rest of this package.

To use it, set ``ROBOTSTXT_PARSER = "scrapy_walsh.RobotParser"``. Scrapy's RobotsTxtMiddleware
fetches and keeps the file, and this class decides. Nothing is stored, paced or pinned.

    >>> parser = RobotParser(b"User-agent: *\\nDisallow: /private\\nCrawl-delay: 5\\n")
    >>> parser.allowed("https://site.example/private", "ExampleBot/1.0")
    False
    >>> parser.crawl_delay("ExampleBot/1.0")
    5.0
"""

from __future__ import annotations

from functools import lru_cache

from scrapy.robotstxt import RobotParser as ScrapyRobotParser
from scrapy.utils.python import to_unicode

from scrapy_walsh.policy.given import tokens_of
from scrapy_walsh.policy.robots.file import Robots, parse_robots

#: User-Agents with rules in the cache. Some projects invent very many.
_CACHE_SIZE = 16


class RobotParser(ScrapyRobotParser):
    """The rules of a robots.txt, for any User-Agent (R2; docs/robots.md).

    A User-Agent may have several names (``policy.given.tokens_of``). A URL is allowed if it is
    allowed for each name that the file has. If it has none of them, the group ``*`` counts.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._rules_of = lru_cache(_CACHE_SIZE)(self._parse)

    @classmethod
    def from_crawler(cls, crawler: object, robotstxt_body: bytes) -> RobotParser:  # noqa: ARG003
        """Return the parser for *robotstxt_body*, the octets of a robots.txt."""
        return cls(robotstxt_body)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Whether *user_agent* may fetch *url* by every reading of the file. Never raises."""
        text = to_unicode(url, errors="replace")
        return all(rules.decide(text).allowed for rules in self._rules_of(user_agent))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        """Return the largest Crawl-delay in seconds, or None. Scrapy 2.18 or later calls it."""
        delays = [rules.crawl_delay for rules in self._rules_of(user_agent)]
        return max((delay for delay in delays if delay is not None), default=None)

    def _parse(self, user_agent: str | bytes) -> list[Robots]:
        tokens = tokens_of(to_unicode(user_agent, errors="replace"))
        readings = [parse_robots(self._body, token) for token in tokens]
        matching = [rules for rules in readings if any(name[:1] != "*" for name in rules.group)]
        return matching or readings[:1]
