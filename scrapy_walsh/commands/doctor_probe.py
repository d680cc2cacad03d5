"""How ``walsh doctor`` and ``init`` look at every spider of a project, in a process of its own.

``python -m scrapy_walsh.commands.doctor_probe SETTINGS`` prints one JSON object; SETTINGS, one as
well, are those of the command line. For each spider an empty crawl is started with the settings
that it would have: what its start says, by the crawl's own code, is what is found, and what will
be different for it (:mod:`scrapy_walsh.commands.spiders`). The spider itself is not made, nor are
pipelines, feeds and extensions. State is kept in memory, and this process can open no connection,
whatever the project's code tries.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from scrapy import Spider, signals
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.settings import SETTINGS_PRIORITIES, default_settings
from scrapy.utils.misc import load_object
from twisted.internet.defer import inlineCallbacks

from scrapy_walsh.adapters import compat, disk_lines, plugins, seats
from scrapy_walsh.commands import own_process
from scrapy_walsh.commands.common import project_settings
from scrapy_walsh.commands.spiders import classes_of, fetchers_in, ways_of
from scrapy_walsh.config import follows_links, is_shared
from scrapy_walsh.exceptions import WalshError, one_line
from scrapy_walsh.proof.findings import Outcome

if TYPE_CHECKING:
    from collections.abc import Generator

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from twisted.internet.defer import Deferred

    #: A note about a spider: the outcome's name, and the text.
    Said = tuple[str, str]

_APART: Final[dict[str, Any]] = {
    **own_process.APART,
    "WALSH_SHARED_STATE": None,
    "WALSH_STATE_DIR": "memory",
    **{
        name: getattr(default_settings, name)
        for name in ("DUPEFILTER_CLASS", "STATS_CLASS", "TWISTED_REACTOR")
    },
}
#: By the level at which the start of a crawl says it.
_OUTCOMES: Final = {
    logging.INFO: Outcome.NOTE.name,
    logging.WARNING: Outcome.WARNING.name,
    logging.ERROR: Outcome.BROKEN.name,
}
_FLEET_QUEUE: Final = "scrapy_walsh.adapters.redis_queue.DueQueue"
_BARE: Final = (
    'it crawls without scrapy_walsh: set ADDONS to {"scrapy_walsh.Addon": 500}, in the project and '
    "in custom_settings that set ADDONS"
)


def look(arguments: dict[str, Any]) -> dict[str, Any]:
    """Look at the project with the settings *arguments* of the command line; the report is JSON.

    ``spiders``: by name what is said of each. ``broken``: a line for each module that cannot be
    imported. ``follows``: whether links are followed for any of them. ``settings``: what the
    project's settings have, as Scrapy loads them (:func:`_loaded`).
    """
    own_process.shut_network()
    broken: list[str] = []
    try:
        settings = project_settings(arguments)
        loaded = _loaded(settings)
        classes = classes_of(settings, broken)
        settings_of_all = [settings, *(_own(settings, cls) for cls in classes)]
        is_following = any(map(follows_links, settings_of_all))
        settings.set("SPIDER_MODULES", [], priority="cmdline")  # no crawl of these loads them all
        process = CrawlerProcess(settings, install_root_handler=False)
    except (
        Exception,
        SystemExit,
    ) as error:  # whatever a project's code may raise
        line = f"they cannot be loaded: {_of_error(error)}"
        return {"spiders": {}, "broken": [line], "settings": {}}
    classes = classes or [type("AnySpider", (Spider,), {"name": own_process.NO_SPIDER})]
    spiders = {str(cls.name): [_broken("its crawl could not start")] for cls in classes}
    _start_each(process, classes, spiders)
    process.start(install_signal_handlers=False)
    return {
        "spiders": spiders,
        "broken": broken,
        "follows": is_following,
        "settings": loaded,
    }


def _loaded(settings: BaseSettings) -> dict[str, list[str]]:
    """The names that the project sets, its modules of spiders, and the paths of its add-ons."""
    project = SETTINGS_PRIORITIES["project"]
    return {
        "names": [name for name in settings if (settings.getpriority(name) or 0) >= project],
        "SPIDER_MODULES": settings.getlist("SPIDER_MODULES"),
        "ADDONS": [plugins.path_of(addon) for addon in settings.getdict("ADDONS")],
    }


def _own(settings: BaseSettings, cls: type[Spider]) -> BaseSettings:
    """The *settings* with those of the spider *cls*."""
    own_settings = settings.copy()
    cls.update_settings(own_settings)
    return own_settings


@inlineCallbacks
def _start_each(
    process: CrawlerProcess,
    classes: list[type[Spider]],
    spiders: dict[str, list[Said]],
) -> Generator[Deferred[Any], Any, None]:
    """Start and end an empty crawl for each of *classes*, one at a time; fill *spiders*."""
    for cls in classes:
        notes: list[Said] = []
        stand_in = _stand_in(cls, notes)
        with own_process.heard() as records:
            try:
                yield process.crawl(stand_in)
            except compat.NotSwallowed as error:
                notes.append(_broken(_of_error(error.__cause__ or error)))
            except (Exception, SystemExit) as error:
                notes.append(_broken(_of_error(error)))
        for record in records:
            text = one_line(record.getMessage())
            if record.levelno >= logging.WARNING:
                failed = record.levelno >= logging.ERROR
                outcome = Outcome.BROKEN if failed else Outcome.WARNING
                note = outcome.name, text
                notes += [] if note in notes else [note]
        if notes or stand_in.opened:
            spiders[str(cls.name)] = notes


def _of_error(error: BaseException) -> str:
    is_own = isinstance(error, WalshError)
    if is_own:
        return str(error)
    return f"{type(error).__name__}: {one_line(error)}"


def _broken(text: str) -> Said:
    return Outcome.BROKEN.name, text


def _stand_in(cls: type[Spider], notes: list[Said]) -> Any:
    """A spider with the settings of *cls*, which sends nothing; what is wrong is added to *notes*.

    Further messages of a crawl are logged.
    """

    class StandIn(Spider):
        name = cls.name
        opened = False

        @classmethod
        def update_settings(cls_: type[Spider], settings: BaseSettings) -> None:  # noqa: N804
            cls.update_settings(settings)
            if (reason := disk_lines.why_unusable(settings)) is not None:
                notes.append(_broken(f"{reason}: set another, or remove it"))
            # Some of these components are set apart here, so that the start cannot name them.
            notes.extend((_OUTCOMES[level], line) for level, line in plugins.sentences(settings))
            notes.extend(map(_broken, fetchers_in(settings)))
            notes.extend(map(_broken, _of_other_scheduler(settings)))
            notes.extend((Outcome.WARNING.name, way) for way in ways_of(cls, settings))
            _set_apart(settings)

        @classmethod
        def from_crawler(cls_: type[Spider], crawler: Crawler, *args: Any, **kwargs: Any) -> Any:  # noqa: N804
            crawler.signals.connect(lambda: look_at(crawler), signals.spider_opened, weak=False)
            return super().from_crawler(crawler, *args, **kwargs)  # type: ignore[misc]

    def look_at(crawler: Crawler) -> None:
        StandIn.opened = True
        if hasattr(crawler, "walsh"):
            crawler.walsh.sources.account.due = False  # that there are none is no news
        else:
            notes.append(_broken(_BARE))

    return StandIn


def _set_apart(settings: BaseSettings) -> None:
    settings.setdict(_APART, priority="cmdline")
    seated = seats.SEATS["EXTENSIONS"]
    components = {
        *seated,
        *map(load_object, seated),
    }  # a setting names a component in either way
    for name in ("EXTENSIONS", "EXTENSIONS_BASE"):
        places = settings.getdict(name).items()
        own_places = {component: place for component, place in places if component in components}
        settings.set(name, own_places, priority="cmdline")


def _of_other_scheduler(settings: BaseSettings) -> list[str]:
    """The fault in a scheduler that is not Scrapy's. It is replaced here: opening it writes.

    That of scrapy-redis is right with our queue, in a fleet.
    """
    scheduler = settings.get("SCHEDULER")
    if Scheduler in load_object(scheduler).__mro__:  # issubclass asks for some methods only
        return []
    queue = settings.get("SCHEDULER_QUEUE_CLASS")
    settings.set("SCHEDULER", default_settings.SCHEDULER, priority="cmdline")
    if is_shared(settings) and queue and load_object(queue) is load_object(_FLEET_QUEUE):
        return []
    advice = f"remove it, or set WALSH_SHARED_STATE, and SCHEDULER_QUEUE_CLASS to {_FLEET_QUEUE}"
    return [f"SCHEDULER is {scheduler!r} and uses no HostQueue: {advice}"]


if __name__ == "__main__":
    own_process.answer(look)
