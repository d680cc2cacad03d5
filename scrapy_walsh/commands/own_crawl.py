"""Crawls of a command's own, through every gate of the project's settings.

``walsh check`` without files has the gates judge a URL: the blocklist and the host's robots.txt
come as in any crawl, R3 first, then R2, each paced (R4), backed off (R5), and kept in the state.
The URL in question becomes no request, so there is nothing that could fetch it.

``doctor --online``, ``attest --online`` and ``blocklist check URL`` request the operator's own
pages: targets of a crawl, with R8 lifted. ``check --fetch`` requests targets, and R8 holds.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.misc import load_object

from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.outcomes import NotModified, Refused
from scrapy_walsh.adapters.seats import Addon
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.own_process import APART
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import WalshError, one_line
from scrapy_walsh.policy import chain, hosts
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.policy.formats.representation import header
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS, Blocklist
from scrapy_walsh.policy.robots.file import Robots
from scrapy_walsh.policy.signing import DIRECTORY_PATH
from scrapy_walsh.policy.verdict import Verdict
from scrapy_walsh.signals import walsh_rejected
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import ROBOTS, StoredDocument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response
    from scrapy.settings import BaseSettings, Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.policy.event import Event

    #: The verdict on a URL, its Crawl-delay in seconds, its robots.txt as kept, empty for none.
    Answer = tuple[Verdict, float | None, bytes]

#: Settings of a project that such a crawl does without: its spiders, outputs and logs.
_APART: Final[dict[str, Any]] = {
    **APART,
    "SPIDER_MODULES": [],
    "SPIDER_MIDDLEWARES": {},
    "EXTENSIONS": {},
    "LOG_ENABLED": True,
    "LOG_FORMAT": "%(levelname)s: %(message)s",
    "LOG_LEVEL": "WARNING",
}
_ACCEPT: Final = "*/*"


def add_addon(settings: BaseSettings) -> None:
    """Have a crawl with *settings* use our add-on, whatever the project says."""
    addons = settings.getdict("ADDONS")
    if not any(
        place is not None and load_object(component) is Addon for component, place in addons.items()
    ):
        settings.set("ADDONS", {**addons, Addon: 500}, priority="cmdline")


def crawl_apart(
    settings: Settings,
    spider: type[Spider],
    problems: list[str],
    **arguments: Any,
) -> bool:
    """Run *spider* with the gates of *settings*. Why it cannot run is added to *problems*.

    False after an internal error (``Recorder.own_fault``).
    """
    open_store(WalshConfig.from_settings(settings, default_state_dir).state_dir).close()
    settings_apart: Settings = settings.copy()
    settings_apart.setdict(_APART, priority="project")  # what the command line sets stays
    add_addon(settings_apart)
    process = CrawlerProcess(settings_apart)

    def failed(failure: Failure) -> None:
        if not isinstance(failure.value, WalshError):
            failure.raiseException()
        problems.append(str(failure.value))

    crawler = process.create_crawler(spider)
    process.crawl(crawler, problems=problems, **arguments).addErrback(failed)
    process.start()
    return not (crawler.stats and crawler.stats.get_value("walsh/own_faults"))


# -- what the gates say of a URL --------------------------------------------------------------


class CheckSpider(Spider):
    """Puts the gates' answer about ``url`` into ``answers``; else why, ``problems``."""

    name = "walsh_check"
    url: str
    answers: list[Answer]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """Have the gates judge ``url``, and yield no request."""
        crawl = Crawl.of(self.crawler)
        crawl.sources.account.due = False
        try:
            verdict = await verdict_on(crawl, self.url)
        except IgnoreRequest as error:
            self.problems.append(str(error))
        else:
            blocklist = crawl.documents.blocklist()
            if isinstance(blocklist, Blocklist) and blocklist.document is None:
                reason = f"{verdict.reason}; R3 is not judged: no blocklist is known"
                verdict = replace(verdict, reason=reason)
            origin = hosts.origin(self.url)
            rules = crawl.documents.robots(origin)
            delay = rules.crawl_delay if isinstance(rules, Robots) else None
            stored = crawl.recall(lambda: crawl.store.get(StoredDocument, ROBOTS, origin))
            self.answers.append((verdict, delay, stored.body if stored else b""))
        async for none in super().start():
            yield none


def ask(url: str, settings: Settings) -> Answer:
    """The answer of the gates about *url*. ConfigError, StateError, Misuse."""
    answers: list[Answer] = []
    problems: list[str] = []
    settings_apart = settings.copy()
    # A check sends no request to the source, so R8 must not refuse it.
    settings_apart.set(
        "WALSH_REVISIT_REASON",
        "walsh check asks for documents only",
        priority="cmdline",
    )
    crawl_apart(settings_apart, CheckSpider, problems, url=url, answers=answers)
    if not answers:
        raise Misuse("; ".join(problems) or "the crawl ended before the gates could answer")
    return answers[0]


async def verdict_on(crawl: Crawl, url: str) -> Verdict:
    """The verdict on *url*; the documents that the gates need are fetched first."""
    request = Request(url)
    crawl.intake.declare(request)
    try:
        while isinstance(answer := crawl.gate.judge(request.url), NeedDocument):
            if answer.kind == chain.ROBOTS:
                host = crawl.documents.robots_txt.next_host(answer.origin)
                step = host.admit(crawl.monotonic(), document=True)
                if isinstance(step, Verdict):
                    return step
            await crawl.documents.bring(answer)
    except Refused as error:
        return error.verdict
    if not answer.allowed:
        return answer
    step = crawl.pacing.host_of(request.url).admit(crawl.monotonic())
    if isinstance(step, Verdict):
        return step
    return answer


# -- pages that are requested -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of a URL. ``answer``: the status, or why there is none; ``kind``: Content-Type.

    ``ahead``: the seconds that our clock was ahead of the answer's Date; None without a Date.
    ``rejected``: the reason why the crawl did not adopt it, if the crawl needs that document
    itself. ``refusal``: the verdict that refused the request, or None.
    """

    answer: int | str
    body: bytes = b""
    kind: str = ""
    ahead: float | None = None
    rejected: str = ""
    refusal: Verdict | None = None

    @property
    def is_up(self) -> bool:
        """Whether it is there: 2xx, or 304."""
        return isinstance(self.answer, int) and (200 <= self.answer < 300 or self.answer == 304)


class PagesSpider(Spider):
    """Requests ``urls``, and puts what came into ``pages``, by URL.

    ``rejected``: by URL, why a document that the crawl needs itself was not adopted.
    """

    name = "walsh_pages"
    urls: tuple[str, ...]
    headers: dict[str, str]
    pages: dict[str, Page]
    rejected: dict[str, str]
    problems: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """The pages, and nothing else."""
        Crawl.of(self.crawler).sources.account.due = False
        self.crawler.signals.connect(self.not_adopted, walsh_rejected)
        for url in self.urls:
            yield self.page(url)

    def not_adopted(self, event: Event) -> None:
        """Signal handler."""
        self.rejected[event.url] = event.reason

    def page(self, url: str) -> Request:
        """The request for *url*. A verifier follows no redirect of a key directory."""
        alone = url.endswith(DIRECTORY_PATH)
        return Request(
            url,
            callback=self.answered,
            errback=self.not_answered,
            headers=self.headers,
            meta={"download_maxsize": MAX_OCTETS, "dont_redirect": alone},
            cb_kwargs={"url": url},
            dont_filter=True,
        )

    def answered(self, response: Response, url: str) -> None:
        """Callback. No validators stay: the next such look needs the body, too."""
        core = Crawl.of(self.crawler)
        kind, date = (header(response, name) or "" for name in ("Content-Type", "Date"))
        ahead = None
        with suppress(ValueError, OverflowError):
            ahead = core.wall() - parsedate_to_datetime(date).timestamp()
        self.pages[url] = Page(response.status, response.body, kind, ahead)
        if response.request is not None:
            core.delivery.forget(response.request)

    def not_answered(self, failure: Failure) -> None:
        """Errback."""
        url = failure.request.cb_kwargs["url"]  # type: ignore[attr-defined]
        error = failure.value
        refusal = error.verdict if isinstance(error, Refused) else None
        answer = 304 if isinstance(error, NotModified) else one_line(error)
        self.pages[url] = Page(answer, refusal=refusal)


def request_pages(settings: Settings, reason: str, *urls: str) -> dict[str, Page]:
    """The answers to the requests of *urls*.

    *reason*: lifts R8, for pages of the operator's own; "" if R8 holds. ConfigError or StateError
    when no crawl can start.
    """
    pages = dict[str, Page]()
    rejected = dict[str, str]()
    problems = list[str]()
    settings_apart = settings.copy()
    required: dict[str, Any] = {"REDIRECT_ENABLED": True, "HTTPERROR_ALLOW_ALL": True}
    if reason:
        required["WALSH_REVISIT_REASON"] = reason
    settings_apart.setdict(required, priority="cmdline")
    crawl_apart(
        settings_apart,
        PagesSpider,
        problems,
        pages=pages,
        rejected=rejected,
        urls=urls,
        headers={"Accept": _ACCEPT} if reason else {},
    )
    none = Page("; ".join(problems) or "the crawl ended before it was requested")
    return {url: replace(pages.get(url, none), rejected=rejected.get(url, "")) for url in urls}
