"""How ``walsh doctor`` looks at every spider of a project, in a process of its own.

``python -m scrapy_walsh.commands.doctor_probe SETTINGS`` prints one JSON object; SETTINGS, one as
well, are those of the command line. For each spider the add-on says what it would at the start of a
crawl, and an empty crawl is opened with the settings that it would have: ``seats.missing`` looks at
what is then in place. The spider itself is not made, nor are pipelines, feeds and extensions. State
is kept in memory, and this process can open no connection, whatever the project's code tries.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from scrapy import Spider, signals
from scrapy.addons import AddonManager
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

from scrapy_walsh.adapters import plugins, seats
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.seats import Addon
from scrapy_walsh.commands import own_process
from scrapy_walsh.commands.common import project_settings
from scrapy_walsh.commands.own_crawl import has_addon
from scrapy_walsh.commands.spider_ways import explained, spider_classes, ways_of
from scrapy_walsh.config import SETTINGS, follows_links, is_shared, unknown_settings
from scrapy_walsh.exceptions import ConfigError, WalshError
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.proof.findings import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings, Settings
    from twisted.python.failure import Failure

    from scrapy_walsh.commands.spider_ways import Said

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
    named = plugins.named_in(settings)
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
        if line not in unknown and line not in plugins.BY_LINE:
            yield _said(Outcome.WARNING, "pins", f"{line}; it is pinned: remove yours")
    seconds = settings.getfloat("DOWNLOAD_TIMEOUT")
    if 0 < seconds < _LEAST_TIMEOUT:
        text = (
            f"DOWNLOAD_TIMEOUT is {seconds:g} s, give it {_LEAST_TIMEOUT:g} s or more: a "
            "robots.txt that takes longer counts as the site's silence"
        )
        yield Outcome.WARNING.name, "R2", "settings", text
    for each in named:
        outcome = Outcome.WARNING if each.warns else Outcome.NOTE
        yield outcome.name, each.requirement, "plugins", each.line


def _said(outcome: Outcome, about: str, text: str) -> Said:
    """A finding about the first of our settings in *text*; pins and seats are for all promises."""
    named = _OURS.search(text)
    return outcome.name, _RULES.get(named[0], "R0.6") if named else "R0.6", about, text


def _unseen(why: str) -> Said:
    todo = "correct the setting or component that fails so"
    return _said(Outcome.BROKEN, "seats", f"cannot be looked at: {why}: {todo}")


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
