"""The pinned settings and the seats of our components, and checks that all are in place.

The add-on sets them, so the whole installation is one setting:

    ADDONS = {"scrapy_walsh.Addon": 500}

Without the add-on, the settings are written by hand (docs/install.md). In both cases each seat
checks that all other seats are in the settings (``check``), because a missing seat would let
requests bypass the gates. When the spider opens, ``not_made`` checks which components exist.
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
from scrapy_walsh.config import WalshConfig, unknown_settings, unknown_uses
from scrapy_walsh.exceptions import ConfigError, StateError, WalshError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy.crawler import Crawler

_HERE: Final = "scrapy_walsh.adapters"
_SPIDERS: Final = "scrapy_walsh.spiders"
#: Higher than the priorities of the command line and of Scrapy Cloud's job settings.
_PRIORITY: Final = 1000

#: The setting with Scrapy's own handlers. Our handler wraps those for two schemes.
BASE: Final = "DOWNLOAD_HANDLERS_BASE"
SCHEMES: Final = ("http", "https")

#: The only component that a project may leave out. Without it, redirects are not followed.
_REDIRECTS: Final = f"{_HERE}.downloadermiddlewares.RedirectMiddleware"

#: Settings with one permitted value. ``USER_AGENT`` is pinned, too, to the identity's.
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

#: Better defaults for a serial job. A value of the project stays. Because requests are serial, a
#: host that hangs blocks the job for DOWNLOAD_TIMEOUT (Scrapy's default: 180 s) for each request.
#: For each response, Scrapy creates CONCURRENT_ITEMS tasks, used or not. Its default of 100 tasks
#: needs a fifth of a request's processor time.
PREFERRED: Final[Mapping[str, Any]] = {"DOWNLOAD_TIMEOUT": 30, "CONCURRENT_ITEMS": 8}

#: Values that our components fulfil instead of Scrapy's. They are overridden without a warning.
GRANTED: Final[Mapping[str, Any]] = {"ROBOTSTXT_OBEY": True, "RETRY_ENABLED": True}

#: Pinned values that are the same in the project, but have another effect: the explanation.
UNHEARD: Final[Mapping[str, str]] = {
    "ROBOTSTXT_OBEY": "robots.txt is obeyed all the same, by the gate of scrapy_walsh"
}
_OVERRIDDEN: Final = "scrapy_walsh overrides it with {}"

#: By setting, our components and their places. None removes a component of Scrapy.
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
    """Return, by scheme, handlers in *settings* that we may not wrap (``compat.may_carry``)."""
    base = settings.getdict(BASE)
    return {
        scheme: base.get(scheme) for scheme in SCHEMES if not compat.may_carry(base.get(scheme))
    }


def pinned(config: WalshConfig) -> dict[str, Any]:
    """Return the pinned settings of this version of Scrapy, with their values."""
    supported = {name: value for name, value in PINS.items() if name in compat.KNOWN_SETTINGS}
    return {"USER_AGENT": config.identity.user_agent, **supported}


class Addon:
    """Pins the settings that the specification needs, and warns if it overrides a value.

    It also sets our own defaults (``PREFERRED``) if the project does not set them.
    """

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Add ``walsh_metadata`` to the project's spiders, before Scrapy looks for spiders.

        It comes first, because of two spiders with the same name Scrapy takes the last.
        """
        modules = settings.getlist("SPIDER_MODULES")
        if not any(module.startswith(_SPIDERS) for module in modules):
            priority = settings.getpriority("SPIDER_MODULES") or 0
            settings.set("SPIDER_MODULES", [_SPIDERS, *modules], priority=priority)

    def update_settings(self, settings: Settings) -> None:
        """Set all settings before a crawl starts. Refuses the start if settings are unusable."""
        try:
            config = WalshConfig.from_settings(settings, default_state_dir)
            reason = disk_lines.why_unusable(settings)
            if reason is not None:
                raise StateError(f"{reason}: set another, or remove it")
            for name in compat.without_process_start(settings):
                raise ConfigError(
                    f"{name} has process_start_requests() alone, with which this version of Scrapy "
                    "cannot combine scrapy_walsh: add process_start() to it (SPIDER_MIDDLEWARES)"
                )
        except WalshError as error:
            compat.refuse_start(error)
        for line in (*unknown_settings(settings), *unknown_uses(config)):
            logger.warning("%s", line)
        tell_plugins(settings)  # must come before components are overridden
        for name, value in PREFERRED.items():
            settings.set(name, value, priority="addon")
        for name, value in pinned(config).items():
            _pin(settings, name, value)
        _keep_handlers(settings)
        for name, components in SEATS.items():
            _seat(settings, name, components)


def tell_plugins(settings: BaseSettings) -> None:
    """Log a sentence for each package in *settings* that has no full effect.

    And for each setting of Scrapy that paces several hosts together elsewhere (T43).
    """
    for name in ("DOWNLOAD_SLOTS", "CONCURRENT_REQUESTS_PER_IP"):
        if settings.get(name) and str(settings[name]) != "0":
            logger.warning("%s does not pace hosts together here: use WALSH_PACE_BY", name)
    for level, line in plugins.sentences(settings):
        logger.log(min(level, logging.WARNING), "%s", line)


def _pin(settings: BaseSettings, name: str, value: Any) -> None:
    if SETTINGS_PRIORITIES["addon"] <= (settings.getpriority(name) or 0) < _PRIORITY:
        granted = name in GRANTED and _agrees(settings, name, GRANTED[name])
        explanation = (
            UNHEARD.get(name) if _agrees(settings, name, value) else _OVERRIDDEN.format(value)
        )
        if explanation and not granted:
            current = settings.get(name)
            text = one_line(dict(current) if hasattr(current, "keys") else repr(current))
            logger.warning("%s is %s: %s", name, text, explanation)
    settings.set(name, value, priority=_PRIORITY)


def _keep_handlers(settings: BaseSettings) -> None:
    """Restore Scrapy's own handlers if the project has set others that we may not wrap."""
    for scheme, handler in wrapped(settings).items():
        default = default_settings.DOWNLOAD_HANDLERS_BASE[scheme]
        logger.warning(
            "%s[%r] is %s: scrapy_walsh overrides it with %s", BASE, scheme, handler, default
        )
        settings.set(BASE, {**settings.getdict(BASE), scheme: default}, priority=_PRIORITY)


def _seat(settings: BaseSettings, name: str, components: Any) -> None:
    """Add our seats to the project's components, which stay."""
    merged = settings.getdict(name)
    for path, place in components.items():
        if path in merged and merged[path] != place:
            logger.warning("%s has %s at %s: scrapy_walsh sets %s", name, path, merged[path], place)
        merged[path] = place
    settings.set(name, merged, priority=_PRIORITY)


def check(crawler: Crawler) -> None:
    """Refuse the start of a crawl if its settings lack a pin or a seat.

    Every seat calls it before its creation, when no request can be under way.
    """
    settings = crawler.settings
    try:
        config = WalshConfig.from_settings(settings, default_state_dir)
        problems = [*_missing_pins(settings, config), *_missing_seats(settings)]
        if problems:
            raise ConfigError(incomplete(problems))
    except WalshError as error:
        compat.refuse_start(error)


def incomplete(problems: list[str]) -> str:
    """Return the message for an incomplete installation, with all *problems* in one line."""
    return f"scrapy_walsh is not fully installed: {'; '.join(problems)}"


def _missing_pins(settings: BaseSettings, config: WalshConfig) -> Iterator[str]:
    for name, value in pinned(config).items():
        if name != "DOWNLOAD_HANDLERS" and not _agrees(settings, name, value):
            yield f"{name} is {settings.get(name)!r}, set it to {value!r}"


def _agrees(settings: BaseSettings, name: str, value: Any) -> bool:
    """Whether the setting *name* has *value*, in any way of writing it."""
    current = settings.get(name)
    try:
        if isinstance(value, bool):
            return settings.getbool(name) is value  # for example "1" or "true"
        if isinstance(value, str):
            return bool(current == value) or _is_at(current, value)
        return bool(current == value) or float(current) == value
    except (TypeError, ValueError):
        return False


def _is_at(component: Any, path: str) -> bool:
    """Whether *component*, a class or its import path, is the class at *path*."""
    try:
        return load_object(component) is load_object(path)
    except (ImportError, NameError, TypeError, ValueError):
        return False  # it is no import path


def _missing_seats(settings: BaseSettings) -> Iterator[str]:
    for setting, components in SEATS.items():
        if setting == "EXTENSIONS" and not settings.getbool("AUTOTHROTTLE_ENABLED"):
            continue  # Scrapy creates neither of the two
        installed = build_component_list(settings.getwithbase(setting))
        for path, place in components.items():
            if path == _REDIRECTS and not settings.getbool("REDIRECT_ENABLED"):
                continue
            is_named = any(_is_at(component, path) for component in installed)
            if place is not None and not is_named:
                yield f"{path} is not in {setting}, add it at {place}"
            if place is None and is_named:
                yield f"{path} is in {setting}, set it to None"
    for scheme, handler in wrapped(settings).items():
        yield f"{BASE}[{scheme!r}] is {handler!r}, leave it as Scrapy has it"
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    for scheme in SCHEMES:
        path = PINS["DOWNLOAD_HANDLERS"][scheme]
        if not _is_at(handlers.get(scheme), path):
            to_do = f"set DOWNLOAD_HANDLERS[{scheme!r}] to {path!r}"
            yield f"the {scheme} handler is not scrapy_walsh's, {to_do}"


def not_made(crawler: Crawler, config: WalshConfig) -> list[str]:
    """Return a line for each component in the settings that was not created.

    It is called when the spider opens. Until then the gate and the wire hold every request back.
    """
    lacking = [
        f"the {scheme} handler of scrapy_walsh could not be made, see ERROR above"
        for scheme in SCHEMES
        if compat.download_handler(crawler, scheme) is None
    ]
    return [*lacking, *_missing_queue(crawler, config)]


def _missing_queue(crawler: Crawler, config: WalshConfig) -> list[str]:
    scheduler = compat.scheduler(crawler)
    expected = load_object(PINS["SCHEDULER_PRIORITY_QUEUE"])
    if isinstance(getattr(scheduler, "mqs", None), expected):
        return []
    if config.shared_state is not None:  # scrapy-redis's scheduler has its queue in ``queue``
        fleet = load_object(f"{_HERE}.redis_queue.DueQueue")
        if isinstance(getattr(scheduler, "queue", None), fleet):
            return []
    if any(cls.__module__.startswith("scrapy_redis.") for cls in type(scheduler).__mro__):
        queue = f"{_HERE}.redis_queue.DueQueue"
        also = "" if config.shared_state is not None else ", and WALSH_SHARED_STATE to its Redis"
        return [f"scrapy-redis does not use {queue}: set SCHEDULER_QUEUE_CLASS to it{also}"]
    queue = plugins.path_of(expected)
    if crawler.settings.getpriority("SCHEDULER"):
        name = plugins.path_of(crawler.settings["SCHEDULER"])
        return [f"SCHEDULER is {name}, which does not use {queue}: remove the setting"]
    return [f"the scheduler does not use {queue}"]
