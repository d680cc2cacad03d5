"""``walsh check`` without files: a crawl of its own that fetches documents, and no target.

The operator's blocklist and the host's robots.txt come as in any crawl: R3 first, then R2, each
paced (R4), backed off (R5), and kept in the state directory. The URL in question becomes no
request, so there is nothing that could fetch it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.misc import load_object

from scrapy_walsh.adapters.addon import Addon
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import Refused
from scrapy_walsh.commands.check_answer import Answer, Misuse
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import chain, hosts
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots.file import Robots
from scrapy_walsh.state import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from scrapy.settings import Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.policy.verdict import Verdict

#: Settings of a project that a check does without: its spiders, outputs and logs.
_APART: Final[Mapping[str, Any]] = {
    "SPIDER_MODULES": [],
    "SPIDER_MIDDLEWARES": {},
    "ITEM_PIPELINES": {},
    "EXTENSIONS": {},
    "FEEDS": {},
    "JOBDIR": None,
    "LOG_ENABLED": True,
    "LOG_FILE": None,
    "LOG_FORMAT": "%(levelname)s: %(message)s",
    "LOG_LEVEL": "WARNING",
    "TWISTED_REACTOR_ENABLED": True,
}


class CheckSpider(Spider):
    """Puts the answer about ``url`` into ``answers``; why there is none, into ``problems``."""

    name = "walsh_check"
    url: str
    answers: list[Answer]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """Have the gates judge ``url``, and yield no request."""
        crawl = Crawl.of(self.crawler)
        try:
            verdict = await _verdict(crawl, self.url)
        except IgnoreRequest as error:
            self.problems.append(str(error))
        else:
            listed = crawl.documents.blocklist()
            if isinstance(listed, Blocklist) and listed.document is None:
                said = f"{verdict.reason}; R3 is not judged: no blocklist is known"
                verdict = replace(verdict, reason=said)
            self.answers.append(Answer(self.url, verdict, _crawl_delay(crawl, self.url)))
        nothing: tuple[Request, ...] = ()
        for request in nothing:
            yield request


def ask(url: str, settings: Settings) -> Answer:
    """The gates' answer about *url*. ConfigError, StateError or Misuse when there is none."""
    answers: list[Answer] = []
    problems: list[str] = []
    ours = settings.copy()
    # A check sends no request to the source, so R8 must not refuse it.
    ours.set("WALSH_REVISIT_REASON", "walsh check asks for documents only", priority="cmdline")
    crawl_apart(ours, CheckSpider, problems, url=url, answers=answers)
    if not answers:
        raise Misuse("; ".join(problems) or "the crawl ended before the gates could answer")
    return answers[0]


def crawl_apart(
    settings: Settings, spider: type[Spider], problems: list[str], **arguments: Any
) -> bool:
    """Run *spider* with the gates of *settings*. Why it cannot run is added to *problems*.

    False where something of ours failed meanwhile (``Recorder.own_fault``).
    """
    open_store(WalshConfig.from_settings(settings, default_state_dir).state_dir).close()
    process = CrawlerProcess(_apart(settings))

    def failed(failure: Failure) -> None:
        if not isinstance(failure.value, WalshError):
            failure.raiseException()
        problems.append(str(failure.value))

    crawler = process.create_crawler(spider)
    process.crawl(crawler, problems=problems, **arguments).addErrback(failed)
    process.start()
    return not (crawler.stats and crawler.stats.get_value("walsh/own_faults"))


def _apart(settings: Settings) -> Settings:
    """A copy of *settings* for a crawl of our own; what the command line sets stays."""
    ours: Settings = settings.copy()
    for name, value in _APART.items():
        ours.set(name, value, priority="project")
    addons = dict(ours.getdict("ADDONS"))
    if not any(load_object(addon) is Addon for addon in addons):
        ours.set("ADDONS", {**addons, Addon: 500}, priority="cmdline")
    return ours


async def _verdict(crawl: Crawl, url: str) -> Verdict:
    """The verdict on *url*, for which the documents that the gates need are fetched first."""
    request = Request(url)
    crawl.intake.declare(request)
    try:
        while isinstance(answer := crawl.gate.judge(request.url), NeedDocument):
            crawl.stop_if_halted()
            if answer.kind == chain.ROBOTS:
                host = crawl.pacing.host(crawl.documents.robots_txt.next_host(answer.origin))
                step = host.admit(crawl.monotonic(), document=True)
                if isinstance(step, chain.Refuse):
                    return step.verdict
            await crawl.gate.bring(answer)
    except Refused as error:
        return error.verdict
    if not answer.allowed:
        return answer
    step = crawl.pacing.host_of(request.url).admit(crawl.monotonic())
    return step.verdict if isinstance(step, chain.Refuse) else answer


def _crawl_delay(crawl: Crawl, url: str) -> float | None:
    rules = crawl.documents.robots(hosts.origin(url))
    return rules.crawl_delay if isinstance(rules, Robots) else None
