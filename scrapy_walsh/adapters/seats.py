"""What must be in place: tables of settings that are pinned, and of seats for our components.

The add-on sets them: ``ADDONS = {"scrapy_walsh.Addon": 500}`` is the whole installation. Without
it, they are written into the settings by hand (docs/install.md). In both cases each seat that is
made looks whether all the others are in the settings (``check``): one seat alone would let requests
past that no gate has judged. ``not_made`` looks at what is really in place when the spider opens.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, Settings, default_settings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from scrapy_walsh.adapters import compat, disk_lines, plugins
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.config import WalshConfig, unknown_settings
from scrapy_walsh.exceptions import ConfigError, StateError, WalshError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy.crawler import Crawler

_HERE: Final = "scrapy_walsh.adapters"
_SPIDERS: Final = "scrapy_walsh.spiders"
#: Above the command line and the job settings of Scrapy Cloud.
_PRIORITY: Final = 1000

#: The setting with Scrapy's own handlers, of which our handler wraps those of two schemes.
BASE: Final = "DOWNLOAD_HANDLERS_BASE"
SCHEMES: Final = ("http", "https")

#: The only component that a project may leave out: redirects are not followed then.
_REDIRECTS: Final = f"{_HERE}.downloadermiddlewares.RedirectMiddleware"

#: Settings with one permitted value. ``USER_AGENT`` is pinned too, to that of the identity.
PINS: Final[Mapping[str, Any]] = {
    "CONCURRENT_REQUESTS": 1,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "CONCURRENT_REQUESTS_PER_IP": 0,
    compat.JITTER_SETTING[0]: compat.JITTER_SETTING[1],
    "RETRY_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "HTTPCACHE_ENABLED": False,
    "METAREFRESH_ENABLED": False,
    "REDIRECT_MAX_TIMES": 5,
    "COOKIES_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "DOWNLOADER": f"{_HERE}.downloader.Downloader",
    "SCHEDULER_PRIORITY_QUEUE": f"{_HERE}.scheduler_queue.HostQueue",
    "REQUEST_FINGERPRINTER_CLASS": f"{_HERE}.scheduler_queue.Fingerprinter",
    "DOWNLOAD_HANDLERS": {
        **dict.fromkeys(SCHEMES, f"{_HERE}.handler.Handler"),
        **dict.fromkeys(("data", "file", "ftp", "s3")),
    },
}

#: Settings for which we have a better default for a serial job; a value of the project's stays. A
#: host that hangs costs the whole job DOWNLOAD_TIMEOUT for each request (Scrapy's: 180 s). And
#: Scrapy makes CONCURRENT_ITEMS tasks for each response, used or not: its 100 take a fifth of the
#: processor time of a request.
PREFERRED: Final[Mapping[str, Any]] = {"DOWNLOAD_TIMEOUT": 30, "CONCURRENT_ITEMS": 8}

#: Values for what our components do in place of Scrapy's own: they are overridden without a word.
GRANTED: Final[Mapping[str, Any]] = {"ROBOTSTXT_OBEY": True, "RETRY_ENABLED": True}

#: Pinned values that a project must not rely on, though they are ours: what happens instead.
UNHEARD: Final[Mapping[str, str]] = {
    "ROBOTSTXT_OBEY": "robots.txt is obeyed all the same, by the gate of scrapy_walsh"
}
_OVERRIDDEN: Final = "scrapy_walsh overrides it with {}"

#: By setting, our components and their places; None takes one of Scrapy's out.
SEATS: Final[Mapping[str, Mapping[str, int | None]]] = {
    "DOWNLOADER_MIDDLEWARES": {
        f"{_HERE}.downloadermiddlewares.GateMiddleware": 40,
        "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
        _REDIRECTS: 600,
        f"{_HERE}.downloadermiddlewares.BackoffMiddleware": 835,
        f"{_HERE}.downloadermiddlewares.RevalidateMiddleware": 840,
    },
    "SPIDER_MIDDLEWARES": {f"{_HERE}.spidermiddlewares.ScopeMiddleware": 10},
    "EXTENSIONS": {
        "scrapy.extensions.throttle.AutoThrottle": None,
        f"{_HERE}.extensions.AutoThrottle": 0,
    },
}


def wrapped(settings: BaseSettings) -> dict[str, Any]:
    """By scheme, the handlers in *settings* that ours may not wrap (``compat.may_carry``)."""
    base = settings.getdict(BASE)
    return {
        scheme: base.get(scheme) for scheme in SCHEMES if not compat.may_carry(base.get(scheme))
    }


def pinned(config: WalshConfig) -> dict[str, Any]:
    """Name and value of every setting that is pinned in this version of Scrapy."""
    known = {name: value for name, value in PINS.items() if name in compat.KNOWN_SETTINGS}
    return {"USER_AGENT": config.identity.user_agent, **known}


class Addon:
    """Pins the settings that the specification needs, and warns of each value that it overrides.

    It also sets defaults of its own (``PREFERRED``) where a project sets nothing.
    """

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Add ``walsh_metadata`` to the project's spiders; called before those are looked for.

        It comes first: of two spiders of one name, Scrapy takes the last.
        """
        listed = settings.getlist("SPIDER_MODULES")
        if not any(each.startswith(_SPIDERS) for each in listed):
            priority = settings.getpriority("SPIDER_MODULES") or 0
            settings.set("SPIDER_MODULES", [_SPIDERS, *listed], priority=priority)

    def update_settings(self, settings: Settings) -> None:
        """Called by Scrapy before a crawl starts; ConfigError for settings that cannot be used."""
        try:
            config = WalshConfig.from_settings(settings, default_state_dir)
            if (why := disk_lines.why_unusable(settings)) is not None:
                raise StateError(f"{why}: set another, or remove it")
        except WalshError as error:
            compat.refuse_start(error)
        for line in unknown_settings(settings):
            logger.warning("%s", line)
        tell_plugins(settings)  # before components are overridden
        for name, value in PREFERRED.items():
            settings.set(name, value, priority="addon")
        for name, value in pinned(config).items():
            _pin(settings, name, value)
        _keep_handlers(settings)
        for name, components in SEATS.items():
            _seat(settings, name, components)


def tell_plugins(settings: BaseSettings) -> None:
    """Say of each package that *settings* name what does not happen with it."""
    for level, line in plugins.sentences(settings):
        logger.log(min(level, logging.WARNING), "%s", line)


def _pin(settings: BaseSettings, name: str, value: Any) -> None:
    if SETTINGS_PRIORITIES["addon"] <= (settings.getpriority(name) or 0) < _PRIORITY:
        granted = name in GRANTED and _agrees(settings, name, GRANTED[name])
        told = UNHEARD.get(name) if _agrees(settings, name, value) else _OVERRIDDEN.format(value)
        if told and not granted:
            found = settings.get(name)
            text = one_line(dict(found) if hasattr(found, "keys") else repr(found))
            logger.warning("%s is %s: %s", name, text, told)
    settings.set(name, value, priority=_PRIORITY)


def _keep_handlers(settings: BaseSettings) -> None:
    """Put Scrapy's own handlers back where others are set that our handler may not wrap."""
    for scheme, found in wrapped(settings).items():
        own = default_settings.DOWNLOAD_HANDLERS_BASE[scheme]
        logger.warning("%s[%r] is %s: scrapy_walsh overrides it with %s", BASE, scheme, found, own)
        settings.set(BASE, {**settings.getdict(BASE), scheme: own}, priority=_PRIORITY)


def _seat(settings: BaseSettings, name: str, components: Any) -> None:
    """Set the seats on top of the project's own, which stay."""
    merged = settings.getdict(name)
    for path, place in components.items():
        if path in merged and merged[path] != place:
            logger.warning("%s has %s at %s: scrapy_walsh sets %s", name, path, merged[path], place)
        merged[path] = place
    settings.set(name, merged, priority=_PRIORITY)


def check(crawler: Crawler) -> None:
    """Refuse the start of a crawl whose settings lack a pin or a seat (``compat.refuse_start``).

    Every seat calls it before it is made: no request can be on its way by then.
    """
    settings = crawler.settings
    try:
        config = WalshConfig.from_settings(settings, default_state_dir)
        if missing := [*_pins_missing(settings, config), *_seats_missing(settings)]:
            raise ConfigError(incomplete(missing))
    except WalshError as error:
        compat.refuse_start(error)


def incomplete(missing: list[str]) -> str:
    """What is said where parts are *missing*: a line for each, with what to do."""
    return f"scrapy_walsh is not completely installed: {'; '.join(missing)}"


def _pins_missing(settings: BaseSettings, config: WalshConfig) -> Iterator[str]:
    for name, value in pinned(config).items():
        if name != "DOWNLOAD_HANDLERS" and not _agrees(settings, name, value):
            yield f"{name} is {settings.get(name)!r}, set it to {value!r}"


def _agrees(settings: BaseSettings, name: str, value: Any) -> bool:
    """Whether the setting *name*, however it is written, has *value*."""
    found = settings.get(name)
    try:
        if isinstance(value, bool):
            return settings.getbool(name) is value  # the command line's "1", a file's "true"
        if isinstance(value, str):
            return bool(found == value) or _is_at(found, value)
        return bool(found == value) or float(found) == value
    except (TypeError, ValueError):
        return False


def _is_at(found: Any, path: str) -> bool:
    """Whether *found*, a class or where one can be imported from, is the class at *path*."""
    try:
        return load_object(found) is load_object(path)
    except (ImportError, NameError, TypeError, ValueError):
        return False  # another setting's text, or no import path


def _seats_missing(settings: BaseSettings) -> Iterator[str]:
    for setting, components in SEATS.items():
        if setting == "EXTENSIONS" and not settings.getbool("AUTOTHROTTLE_ENABLED"):
            continue  # neither of the two is made
        named = build_component_list(settings.getwithbase(setting))
        for path, place in components.items():
            if path == _REDIRECTS and not settings.getbool("REDIRECT_ENABLED"):
                continue
            is_named = any(_is_at(each, path) for each in named)
            if place is not None and not is_named:
                yield f"{path} is not in {setting}, add it at {place}"
            if place is None and is_named:
                yield f"{path} is in {setting}, set it to None"
    for scheme, found in wrapped(settings).items():
        yield f"{BASE}[{scheme!r}] is {found!r}, leave it as Scrapy has it"
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    for scheme in SCHEMES:
        path = PINS["DOWNLOAD_HANDLERS"][scheme]
        if not _is_at(handlers.get(scheme), path):
            to_do = f"set DOWNLOAD_HANDLERS[{scheme!r}] to {path!r}"
            yield f"the {scheme} handler is not scrapy_walsh's, {to_do}"


def not_made(crawler: Crawler, config: WalshConfig) -> list[str]:
    """A line for each thing that the settings name and that is not in use; empty when all is.

    To be called when the spider opens: the gate and the wire hold back every request by then.
    """
    lacking = [
        f"the {scheme} handler of scrapy_walsh could not be made, see ERROR above"
        for scheme in SCHEMES
        if compat.download_handler(crawler, scheme) is None
    ]
    return [*lacking, *_queue_missing(crawler, config)]


def _queue_missing(crawler: Crawler, config: WalshConfig) -> list[str]:
    scheduler = compat.scheduler(crawler)
    expected = load_object(PINS["SCHEDULER_PRIORITY_QUEUE"])
    if isinstance(getattr(scheduler, "mqs", None), expected):
        return []
    if config.shared_state is not None:  # scrapy-redis's scheduler has its queue in ``queue``
        fleet = load_object(f"{_HERE}.redis_queue.DueQueue")
        if isinstance(getattr(scheduler, "queue", None), fleet):
            return []
    if any(each.__module__.startswith("scrapy_redis.") for each in type(scheduler).__mro__):
        queue = f"{_HERE}.redis_queue.DueQueue"
        also = "" if config.shared_state is not None else ", and WALSH_SHARED_STATE to its Redis"
        return [f"scrapy-redis does not use {queue}: set SCHEDULER_QUEUE_CLASS to it{also}"]
    own = plugins.path_of(expected)
    if crawler.settings.getpriority("SCHEDULER"):
        name = plugins.path_of(crawler.settings["SCHEDULER"])
        return [f"SCHEDULER is {name}, which does not use {own}: remove the setting"]
    return [f"the scheduler does not use {own}"]
