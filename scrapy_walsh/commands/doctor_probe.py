"""How ``walsh doctor`` looks at every spider of a project, in a process of its own.

``python -m scrapy_walsh.commands.doctor_probe SETTINGS`` prints one JSON object; SETTINGS, one as
well, are those of the command line. For each spider an empty
crawl is opened with the settings that it would have, and ``seats.missing`` looks at what is then in
place. The spider itself is not made, nor are pipelines, feeds and extensions. State is kept in
memory, and this process can open no connection, whatever the project's code tries.
"""

from __future__ import annotations

import logging
import pkgutil
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy import Spider, signals
from scrapy.addons import AddonManager
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.settings import default_settings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings
from scrapy.utils.spider import iter_spider_classes

from scrapy_walsh.adapters import disk_lines, plugins, seats
from scrapy_walsh.adapters.addon import Addon
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.commands import own_process
from scrapy_walsh.config import WalshConfig, is_shared, unknown_settings
from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.policy.words import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings, Settings
    from twisted.python.failure import Failure

#: Seconds: a DOWNLOAD_TIMEOUT below this is worth a warning.
_LEAST_TIMEOUT: Final = 5.0
_APART: Final[dict[str, Any]] = {
    **own_process.APART,
    "WALSH_STATE_DIR": "memory",
    **{
        name: getattr(default_settings, name)
        for name in ("DUPEFILTER_CLASS", "STATS_CLASS", "TWISTED_REACTOR")
    },
}
#: Files that an error of the project's code may pass through.
_NOT_THEIRS: Final = ("importlib", "site-packages", __file__)
_FLEET_QUEUE: Final = "scrapy_walsh.adapters.redis_queue.DueQueue"


def main(given: dict[str, Any]) -> dict[str, Any]:
    """As :func:`look`, with the settings *given* on the command line."""
    reached = own_process.shut_network()
    settings = get_project_settings()
    for name, value in given.items():
        settings.set(name, value, priority="cmdline")
    return {**look(settings), "reached": reached}


def look(settings: Settings) -> dict[str, Any]:
    """What is found, as JSON data: ``spiders``, the ``project``'s own settings as if they were
    one, and ``broken`` modules.
    """
    with suppress(Exception):  # an add-on that cannot be loaded: each entry says so
        AddonManager.load_pre_crawler_settings(settings)
    classes, broken = _spider_classes(settings.getlist("SPIDER_MODULES"))
    if not classes and not broken:
        classes = [type("AnySpider", (Spider,), {"name": "(no spider yet)"})]
    entries = [entry(each, settings) for each in classes]
    _open_crawls(settings, [(c, e) for c, e in zip(classes, entries, strict=True) if _startable(e)])
    return {"project": entry(Spider, settings), "spiders": entries, "broken": broken}


def _startable(entry: dict[str, Any]) -> bool:
    return not entry["config"] and entry["error"] is None


def _spider_classes(modules: list[str]) -> tuple[list[type[Spider]], list[dict[str, str]]]:
    """The spiders of *modules* and of all below them, and what cannot be imported."""
    classes: list[type[Spider]] = []
    broken = []
    names = list(modules)
    while names:
        name = names.pop(0)
        try:
            module = import_module(name)
        except (Exception, SystemExit) as error:
            broken.append({"module": name, "error": _explained(error)})
            continue
        classes += iter_spider_classes(module)
        below = pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")
        names += [each.name for each in below]
    return classes, broken


def _explained(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in _NOT_THEIRS)
    ]
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {one_line(error)}{'' if 'line ' in str(error) else place}"


def entry(cls: type[Spider], project: Settings) -> dict[str, Any]:
    """What is found in the settings of a spider, without a crawl."""
    found: dict[str, Any] = {
        "name": getattr(cls, "name", None), "addon": False, "config": [], "unknown": [],
        "hasty": [], "overridden": [], "plugins": [], "jobdir": [], "missing": None, "bare": False,
        "error": None,
    }  # fmt: skip
    settings = project.copy()
    try:
        cls.update_settings(settings)
        load_object(settings.get("TWISTED_REACTOR") or "scrapy.Spider")
        found["config"] = _refused(settings)
        found["hasty"] = _hasty(settings)
        found["unknown"] = unknown_settings(settings)
        found["jobdir"] = _jobdir(settings)
        found["plugins"] = [plugin.line for plugin in plugins.named_in(settings)]
        found["addon"] = _has_addon(settings)
        if found["addon"] and not found["config"] and not found["jobdir"]:
            found["overridden"] = _overridden(settings, found["unknown"] + found["plugins"])
    except (Exception, SystemExit) as error:
        found["error"] = _explained(error)
    return found


def _refused(settings: Settings) -> list[str]:
    """Why no crawl starts with these settings, in its own words."""
    try:
        WalshConfig.from_settings(settings, default_state_dir)
    except ConfigError as error:
        return [str(error)]
    return []


def _hasty(settings: Settings) -> list[str]:
    """Whether a robots.txt has so little time that a slow site's would not be read."""
    seconds = settings.getfloat("DOWNLOAD_TIMEOUT")
    if not 0 < seconds < _LEAST_TIMEOUT:
        return []
    line = (
        f"DOWNLOAD_TIMEOUT is {seconds:g} s, give it {_LEAST_TIMEOUT:g} s or more: a robots.txt "
        "that takes longer counts as the site's silence"
    )
    return [line]


def _jobdir(settings: Settings) -> list[str]:
    """What is wrong with the JOBDIR, which the empty crawl does not use."""
    why = disk_lines.why_unusable(settings)
    return [] if why is None else [why]


def _has_addon(settings: Settings) -> bool:
    addons = build_component_list(settings.getdict("ADDONS"))
    return any(load_object(each) is Addon for each in addons)


def _overridden(settings: Settings, known: list[str]) -> list[str]:
    """The warnings that the add-on logs about values that it overrides; not those of *known*."""
    with _said() as lines:
        Addon().update_settings(settings.copy())
    return [line for line in lines if line not in known]


@contextmanager
def _said() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


# -- the empty crawls ---------------------------------------------------------------------


def _open_crawls(project: Settings, looks: list[tuple[type[Spider], dict[str, Any]]]) -> None:
    """Open and close a crawl for each, and put what is missing into its entry."""
    if not looks:
        return
    settings = project.copy()
    for name, value in {"SPIDER_MODULES": [], **_APART}.items():
        settings.set(name, value, priority="cmdline")
    process = CrawlerProcess(settings, install_root_handler=False)
    for cls, entry in looks:
        try:
            crawl = process.crawl(_stand_in(cls, entry))
        except (Exception, SystemExit) as error:
            entry["error"] = _explained(error)
        else:
            crawl.addErrback(_note_failure, entry)
    process.start(install_signal_handlers=False)


def _note_failure(failure: Failure, entry: dict[str, Any]) -> None:
    entry["error"] = f"{failure.type.__name__}: {one_line(failure.value)}"  # type: ignore[union-attr]


def _stand_in(cls: type[Spider], entry: dict[str, Any]) -> type[Spider]:
    """A spider with the settings of *cls*, which sends nothing."""
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
            spider = super().from_crawler(crawler, *args, **kwargs)  # type: ignore[misc]
            crawler.signals.connect(
                lambda: _look_at(crawler, entry, queue), signals.spider_opened, weak=False
            )
            return spider

        async def start(self) -> AsyncIterator[Any]:
            nothing: tuple[Any, ...] = ()
            for each in nothing:
                yield each

    return StandIn


def _set_apart(settings: BaseSettings) -> None:
    for name, value in _APART.items():
        settings.set(name, value, priority="cmdline")
    for name in ("EXTENSIONS", "EXTENSIONS_BASE"):
        ours = {
            path: place
            for path, place in settings.getdict(name).items()
            if _path(path) in seats.SEATS["EXTENSIONS"]
        }
        settings.set(name, ours, priority="cmdline")


def _path(component: Any) -> str:
    if isinstance(component, str):
        return component
    return f"{component.__module__}.{component.__qualname__}"


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


def _look_at(crawler: Crawler, entry: dict[str, Any], queue: list[str]) -> None:
    try:
        entry["bare"] = seats.is_bare(crawler)
        entry["missing"] = [*seats.missing(crawler, Crawl.of(crawler).config), *queue]
    except Exception as error:  # the signal would swallow it
        entry["error"] = _explained(error)


if __name__ == "__main__":
    own_process.answer(main)
