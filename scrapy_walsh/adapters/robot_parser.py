"""Our reading of robots.txt by Scrapy's own setting, for a project that uses nothing else of ours.

``ROBOTSTXT_PARSER = "scrapy_walsh.RobotParser"``: Scrapy's RobotsTxtMiddleware fetches the file,
keeps it, and asks this class. Nothing is stored, paced or pinned.
"""

from __future__ import annotations

from functools import lru_cache

from scrapy.robotstxt import RobotParser as ScrapyRobotParser
from scrapy.utils.python import to_unicode

from scrapy_walsh.policy.given import tokens_of
from scrapy_walsh.policy.robots.file import Robots, parse_robots

#: User-Agents of one project whose rules are kept; those of a project that makes them up are many.
_KEPT = 16


class RobotParser(ScrapyRobotParser):
    """The rules of one robots.txt, for each User-Agent that asks (R2; docs/robots.md).

    A User-Agent may have several names (``policy.given.tokens_of``). Those that the file names
    count, and it allows a URL where it allows it for each of them; where it names none, its ``*``
    group counts.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._for = lru_cache(_KEPT)(self._rules)

    @classmethod
    def from_crawler(cls, crawler: object, robotstxt_body: bytes) -> RobotParser:  # noqa: ARG003
        """The parser for *robotstxt_body*, the octets of a robots.txt."""
        return cls(robotstxt_body)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Whether *user_agent* may fetch *url*: no way to read the file denies it. Never raises."""
        text = to_unicode(url, errors="replace")
        return all(rules.decide(text).allowed for rules in self._for(user_agent))

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        """Seconds, the largest; None without one. Scrapy's parsers offer it from 2.18 on."""
        delays = [rules.crawl_delay for rules in self._for(user_agent)]
        return max((delay for delay in delays if delay is not None), default=None)

    def _rules(self, user_agent: str | bytes) -> list[Robots]:
        tokens = tokens_of(to_unicode(user_agent, errors="replace"))
        found = [parse_robots(self._body, token) for token in tokens]
        named = [each for each in found if any(name[:1] != "*" for name in each.group)]
        return named or found[:1]
