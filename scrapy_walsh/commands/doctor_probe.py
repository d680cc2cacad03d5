"""How ``walsh doctor`` and ``init`` look at every spider of a project, in a process of its own.

``python -m scrapy_walsh.commands.doctor_probe SETTINGS`` prints one JSON object; SETTINGS, one as
well, are those of the command line. For each spider the add-on says what it would at the start of a
crawl, and an empty crawl is opened with the settings that it would have: ``seats.missing`` looks at
what is then in place. The spider itself is not made, nor are pipelines, feeds and extensions. State
is kept in memory, and this process can open no connection, whatever the project's code tries.

What will be different for a spider is seen by its class, and by the names that its methods use.
"""

from __future__ import annotations

import pkgutil
import re
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from scrapy import Spider, signals
from scrapy.addons import AddonManager
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.settings import default_settings
from scrapy.spiders import CrawlSpider, CSVFeedSpider, SitemapSpider, XMLFeedSpider
from scrapy.utils.misc import load_object
from scrapy.utils.spider import iter_spider_classes

from scrapy_walsh.adapters import compat, seats
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.seats import Addon
from scrapy_walsh.commands import own_process
from scrapy_walsh.commands.common import project_settings
from scrapy_walsh.commands.own_crawl import has_addon
from scrapy_walsh.config import SETTINGS, follows_links, is_shared, scrapes, unknown_settings
from scrapy_walsh.exceptions import ConfigError, WalshError
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.proof.findings import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings, Settings
    from twisted.python.failure import Failure

    #: A finding as JSON data: the outcome's name, the requirement, what it is about, and the text.
    Said = tuple[str, str, str, str]

_OURS: Final = re.compile(r"WALSH_\w+")
_RULES: Final = {each.name: each.row.requirement for each in SETTINGS}
#: Seconds: a DOWNLOAD_TIMEOUT below this is worth a warning.
_LEAST_TIMEOUT: Final = 5.0
_APART: Final[dict[str, Any]] = {
    **own_process.APART,
    "WALSH_SHARED_STATE": None,
    "WALSH_STATE_DIR": "memory",
    **{
        name: getattr(default_settings, name)
        for name in ("DUPEFILTER_CLASS", "STATS_CLASS", "TWISTED_REACTOR")
    },
}
_FLEET_QUEUE: Final = "scrapy_walsh.adapters.redis_queue.DueQueue"
_BARE: Final = (
    'it crawls without scrapy_walsh: give ADDONS {"scrapy_walsh.Addon": 500}, in the project and '
    "in custom_settings that set ADDONS"
)
#: Names that callbacks use to make requests, and to select from pages.
_REQUESTS: Final = frozenset({"follow", "follow_all", "Request", "FormRequest", "from_response"})
_SELECTORS: Final = frozenset({"css", "xpath", "Selector", "ItemLoader", "LinkExtractor"})
#: Methods whose requests are sources.
_STARTS: Final = frozenset({"start", "start_requests"})
#: Files that an error of the project's code may pass through.
_NOT_THEIRS: Final = ("importlib", "site-packages", "scrapy_walsh/commands/")
_LINKS: Final = (
    "follows links ({}), which are refused: WALSH_FOLLOW_LINKS = True follows them, if the bot "
    "may; or yield each page from start()"
)
_HTML: Final = (
    "uses selectors, which are not for HTML: pages are asked for as markdown first, and a page "
    "that is HTML is a warning, or an error under walsh-research; WALSH_SCRAPING = True, if it is "
    "meant"
)


def look(given: dict[str, Any]) -> dict[str, Any]:
    """What is found with the settings *given* on the command line, as JSON data: ``spiders``, the
    ``project``'s own settings as if they were one, ``broken`` modules, whom the project's code
    ``reached`` for, and whether its settings let links be followed: ``follows``.
    """
    reached = own_process.shut_network()
    settings = project_settings(given)
    with suppress(Exception):  # an add-on that cannot be loaded: each entry says so
        AddonManager.load_pre_crawler_settings(settings)
    classes, broken = spider_classes(settings.getlist("SPIDER_MODULES"))
    classes = classes or [type("AnySpider", (Spider,), {"name": "(no spider yet)"})]
    entries = [entry(each, settings) for each in classes]
    _open_crawls(settings, [(c, e) for c, e in zip(classes, entries, strict=True) if e["starts"]])
    project = entry(Spider, settings)
    found = {"project": project, "spiders": entries, "broken": broken, "reached": reached}
    return {**found, "follows": follows_links(settings)}


def entry(cls: type[Spider], project: Settings) -> dict[str, Any]:
    """What is found in the settings of a spider, without a crawl. ``starts``: one would."""
    said: list[Said] = []
    found = {"name": getattr(cls, "name", None), "said": said, "starts": False, "whole": False}
    settings = project.copy()
    try:
        cls.update_settings(settings)
        load_object(settings.get("TWISTED_REACTOR") or "scrapy.Spider")
        said += _of_settings(settings)
        said += ways_of(cls, settings)
        if not (has_addon(settings) or seats.by_hand(settings)):
            said.append(_said(Outcome.BROKEN, "seats", _BARE))
        found["starts"] = not any(each[0] == "BROKEN" and each[2] != "jobdir" for each in said)
    except (Exception, SystemExit) as error:
        said.append(_unseen(explained(error)))
    return found


def _of_settings(settings: Settings) -> Iterator[Said]:
    """What the start of a crawl would say of *settings*, and what is worth a warning besides."""
    unknown = unknown_settings(settings)
    with own_process.heard() as records:
        try:
            Addon().update_settings(settings.copy())
        except WalshError as error:
            about = "settings" if isinstance(error, ConfigError) else "jobdir"
            yield _said(Outcome.BROKEN, about, str(error))
    for line in unknown:
        yield _said(Outcome.WARNING, "settings", f"{line}: remove it")
    overridden = [record.getMessage() for record in records] if has_addon(settings) else []
    for line in overridden:
        if line not in unknown:
            yield _said(Outcome.WARNING, "pins", f"{line}; it is pinned: remove yours")
    seconds = settings.getfloat("DOWNLOAD_TIMEOUT")
    if 0 < seconds < _LEAST_TIMEOUT:
        text = (
            f"DOWNLOAD_TIMEOUT is {seconds:g} s, give it {_LEAST_TIMEOUT:g} s or more: a "
            "robots.txt that takes longer counts as the site's silence"
        )
        yield Outcome.WARNING.name, "R2", "settings", text


def _said(outcome: Outcome, about: str, text: str) -> Said:
    """A finding about the first of our settings in *text*; pins and seats are for all promises."""
    named = _OURS.search(text)
    return outcome.name, _RULES.get(named[0], "R0.6") if named else "R0.6", about, text


def _unseen(why: str) -> Said:
    todo = "correct the setting or component that fails so"
    return _said(Outcome.BROKEN, "seats", f"cannot be looked at: {why}: {todo}")


# -- the ways of the spiders -----------------------------------------------------------------


def spider_classes(modules: list[str]) -> tuple[list[type[Spider]], list[dict[str, str]]]:
    """The spiders of *modules* and of all below them, and what cannot be imported."""
    classes: list[type[Spider]] = []
    broken = []
    names = list(modules)
    while names:
        name = names.pop(0)
        try:
            module = import_module(name)
        except (Exception, SystemExit) as error:
            broken.append({"module": name, "error": explained(error)})
            continue
        classes += iter_spider_classes(module)
        below = pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")
        names += [each.name for each in below]
    return classes, broken


def explained(error: BaseException) -> str:
    """*error* in one line, with its place in the project's code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in _NOT_THEIRS)
    ]
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {one_line(error)}{'' if 'line ' in str(error) else place}"


def ways_of(cls: type[Spider], settings: BaseSettings) -> Iterator[Said]:
    """What will be different for the spider *cls*, whose settings are *settings*."""
    if compat.skips_start_requests(cls):
        text = "has start_requests(), which Scrapy 2.19 does not call: write async def start()"
        yield Outcome.WARNING.name, "R6", "spider", text
    callbacks = _names(cls)
    rules = issubclass(cls, CrawlSpider) and bool(cls.rules)
    how = "a CrawlSpider with rules" if rules else ""
    how = how or ("a SitemapSpider" if issubclass(cls, SitemapSpider) else "")
    how = how or ("its callbacks make requests" if callbacks & _REQUESTS else "")
    if how and not follows_links(settings):
        yield Outcome.WARNING.name, "R6", "spider", _LINKS.format(how)
    feeds = issubclass(cls, (XMLFeedSpider, CSVFeedSpider))
    if (rules or (callbacks & _SELECTORS and not feeds)) and not scrapes(settings):
        yield Outcome.WARNING.name, "R9", "spider", _HTML


def _names(cls: type[Spider]) -> set[str]:
    """The names that the methods of *cls* use, those of Scrapy's own classes and ours left out."""
    found: set[str] = set()
    for each in cls.__mro__:
        if each.__module__.partition(".")[0] in ("scrapy", "scrapy_walsh", "builtins"):
            continue
        for name, method in vars(each).items():
            code = getattr(getattr(method, "__func__", method), "__code__", None)
            if isinstance(code, CodeType) and name not in _STARTS:
                found |= _in_code(code)
    return found


def _in_code(code: CodeType) -> set[str]:
    nested = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_in_code, nested))


# -- the empty crawls ---------------------------------------------------------------------


def _open_crawls(project: Settings, looks: list[tuple[type[Spider], dict[str, Any]]]) -> None:
    """Open and close a crawl for each, and put what is missing into its entry."""
    if not looks:
        return
    settings = project.copy()
    settings.setdict({"SPIDER_MODULES": [], **_APART}, priority="cmdline")
    process = CrawlerProcess(settings, install_root_handler=False)
    for cls, found in looks:
        try:
            crawl = process.crawl(_stand_in(cls, found))
        except (Exception, SystemExit) as error:
            found["missing"] = [_unseen(explained(error))]
        else:
            crawl.addErrback(_failed, found)
    process.start(install_signal_handlers=False)
    for _, found in looks:
        missing = found.pop("missing", [_unseen("its crawl did not open")])
        found["whole"] = not missing
        found["said"] += missing


def _failed(failure: Failure, found: dict[str, Any]) -> None:
    error: Any = failure.value
    found["missing"] = [_unseen(f"{type(error).__name__}: {one_line(error)}")]


def _stand_in(cls: type[Spider], found: dict[str, Any]) -> type[Spider]:
    """A spider with the settings of *cls*, which sends nothing; what is missing goes to *found*."""
    queue: list[str] = []

    class StandIn(Spider):
        name = cls.name

        @classmethod
        def update_settings(cls_: type[Spider], settings: BaseSettings) -> None:  # noqa: N804
            cls.update_settings(settings)
            queue.extend(_of_other_scheduler(settings))
            _set_apart(settings)

        @classmethod
        def from_crawler(cls_: type[Spider], crawler: Crawler, *args: Any, **kwargs: Any) -> Any:  # noqa: N804
            crawler.signals.connect(lambda: opened(crawler), signals.spider_opened, weak=False)
            return super().from_crawler(crawler, *args, **kwargs)  # type: ignore[misc]

    def opened(crawler: Crawler) -> None:
        try:
            lines = [*seats.missing(crawler, Crawl.of(crawler).config), *queue]
            found["missing"] = [_said(Outcome.BROKEN, "seats", line) for line in lines]
        except Exception as error:  # the signal would swallow it
            found["missing"] = [_unseen(explained(error))]

    return StandIn


def _set_apart(settings: BaseSettings) -> None:
    settings.setdict(_APART, priority="cmdline")
    seated = seats.SEATS["EXTENSIONS"]
    ours = {*seated, *map(load_object, seated)}  # a setting names a component in either way
    for name in ("EXTENSIONS", "EXTENSIONS_BASE"):
        found = settings.getdict(name).items()
        kept = {each: place for each, place in found if each in ours}
        settings.set(name, kept, priority="cmdline")


def _of_other_scheduler(settings: BaseSettings) -> list[str]:
    """What is wrong with a scheduler that is not Scrapy's. It is replaced here: opening it writes.

    That of scrapy-redis is right with our queue, in a fleet.
    """
    scheduler = settings.get("SCHEDULER")
    if Scheduler in load_object(scheduler).__mro__:  # issubclass asks for some methods only
        return []
    queue = settings.get("SCHEDULER_QUEUE_CLASS")
    fleet = is_shared(settings)
    settings.set("SCHEDULER", default_settings.SCHEDULER, priority="cmdline")
    if fleet and queue is not None and issubclass(load_object(queue), load_object(_FLEET_QUEUE)):
        return []
    advice = f"remove it, or set WALSH_SHARED_STATE, and SCHEDULER_QUEUE_CLASS to {_FLEET_QUEUE}"
    return [f"SCHEDULER is {scheduler!r} and uses no HostQueue: {advice}"]


if __name__ == "__main__":
    own_process.answer(look)
