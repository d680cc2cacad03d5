"""Warns of packages and settings that have no effect, or break a rule, together with this add-on.

At the start of a crawl, and in ``walsh doctor``, each such package in the project's settings gets a
sentence. docs/compatibility.md has results of tests with the packages.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from scrapy.dupefilters import BaseDupeFilter
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object

from scrapy_walsh.config import follows_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Settings that name components, by import path or class.
_COMPONENTS: Final = (
    *("ADDONS", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS", "SCHEDULER"),
    *("DOWNLOAD_HANDLERS", "DOWNLOAD_HANDLERS_BASE"),
)
#: Prefixes of a package's settings. If the project has such a setting, it uses the package.
_SETTINGS: Final = {
    "ZYTE_API_": "scrapy_zyte_api",
    "PLAYWRIGHT_": "scrapy_playwright",
    "IMPERSONATE_": "scrapy_impersonate",
}
_ONE_USER_AGENT: Final = "no User-Agent is picked at random: all have the identity's (R1)"
_FETCHES: Final = (
    "its middleware fetches pages by itself, with a User-Agent and a pace of its own, so R1 and R4 "
    "do not hold for them: remove it"
)
_PROXY_SERVICE: Final = (
    "the service behind it fetches pages with its own User-Agent and retries, so R1 and R4 do not "
    "hold at the site: remove it"
)
#: By import name, the part of a package that has no effect.
PLUGINS: Final[Mapping[str, str]] = {
    "scrapy_zyte_api": (
        "pages come without Zyte API; in ADDONS its number must be lower than scrapy_walsh.Addon's"
    ),
    "scrapy_playwright": (
        "pages come without a browser: no page method is run, no response has a playwright_page"
    ),
    "scrapy_impersonate": (
        "no request imitates a browser: each has the identity's User-Agent and Scrapy's own TLS"
    ),
    "scrapy_splash": (
        "no SplashRequest is sent: remove SplashMiddleware, and pages come without a browser"
    ),
    "scrapy_user_agents": _ONE_USER_AGENT,
    "scrapy_fake_useragent": _ONE_USER_AGENT,
    "rotating_proxies": (
        "no proxy has a pace of its own: a host is spaced as one, and sees one User-Agent (R4, R1)"
    ),
    "scrapy_deltafetch": (
        "it skips followed links only; R8 decides when a declared page is requested again"
    ),
    "scrapy_poet": (
        "requests of page objects pass the same checks: a URL that is not declared is refused"
    ),
    "spidermon": (
        "its monitors count no refused or deferred page as an error: see scrapy_walsh.monitors"
    ),
    "scrapy_redis": (
        "its queues do not decide the order: a request is given out when its host is due (R4)"
    ),
}
#: Packages that fetch pages past the gates. There are no tests with them.
FETCHERS: Final[Mapping[str, str]] = {
    "scrapy_selenium": _FETCHES,
    "scrapeops_scrapy_proxy_sdk": _PROXY_SERVICE,
    "scrapy_crawlera": _PROXY_SERVICE,
    "scrapy_zyte_smartproxy": _PROXY_SERVICE,
}
#: Fingerprinters of packages, by import name. They distinguish requests for the same URL, for
#: example by their page objects; R7 does not.
FINGERPRINTERS: Final = {"scrapy_poet": "scrapy_poet.ScrapyPoetRequestFingerprinter"}
_NO_FILTER: Final = (
    "DUPEFILTER_CLASS is scrapy's BaseDupeFilter: a request that a callback yields twice is sent "
    "twice, but R7 wants one request for one page: remove it"
)
_FILES: Final = (
    "requests files, which are no targets: each file that start() has not declared is refused "
    "(R6); WALSH_FOLLOW_LINKS = True requests them, if the bot may"
)
#: Settings of Scrapy without effect, because we have our own queue for each host.
_QUEUES: Final = tuple(
    f"SCHEDULER_{start}{kind}_QUEUE" for start in ("", "START_") for kind in ("MEMORY", "DISK")
)
#: Packages that work fully. Their sentences are notes, not warnings.
NOTED: Final = frozenset({"scrapy_deltafetch", "scrapy_poet", "spidermon", "scrapy_redis"})


def sentences(settings: BaseSettings) -> list[tuple[int, str]]:
    """Return a sentence for each such package and setting in *settings*, with its log level.

    The level is ERROR if a package breaks R1 and R4.
    """
    named_packages = packages(settings)
    project_settings = [
        name
        for name in settings
        if (settings.getpriority(name) or 0) >= SETTINGS_PRIORITIES["project"]
    ]
    for name in project_settings:
        named_packages.update(
            package for prefix, package in _SETTINGS.items() if name.startswith(prefix)
        )
    lines = [
        (logging.INFO if package in NOTED else logging.WARNING, f"{package}: {text}")
        for package, text in PLUGINS.items()
        if package in named_packages
    ]
    lines += [
        (logging.ERROR, f"{name}: {FETCHERS[name]}") for name in FETCHERS if name in named_packages
    ]
    queues = [
        (
            logging.WARNING,
            f"{name} has no effect: the requests of a host go first in, first out, by priority",
        )
        for name in _QUEUES
        if name in project_settings
    ]
    # `scrapy shell` sets it, too.
    is_off = _load(settings.get("DUPEFILTER_CLASS")) is BaseDupeFilter
    duplicates = (
        [(logging.WARNING, _NO_FILTER)] if is_off and "DUPEFILTER_CLASS" in project_settings else []
    )
    return lines + queues + duplicates + list(_media_warnings(settings))


def packages(settings: BaseSettings) -> set[str]:
    """Return the import names of packages with components in *settings*."""
    return {package for name in _COMPONENTS for package in _packages(settings.get(name))}


def _media_warnings(settings: BaseSettings) -> Iterator[tuple[int, str]]:
    """Yield a warning for each item pipeline that requests files, because they are no targets."""
    if follows_links(settings):
        return
    for component, place in settings.getdict("ITEM_PIPELINES").items():
        bases = getattr(_load(component), "__mro__", ()) if place is not None else ()
        if any(path_of(cls) == "scrapy.pipelines.media.MediaPipeline" for cls in bases):
            yield logging.WARNING, f"{path_of(component)} {_FILES}"


def _load(component: Any) -> Any:
    """Return the class in a setting, or None if Scrapy cannot load it. Scrapy reports that."""
    try:
        return load_object(component)
    except Exception:  # the project's code may raise anything
        return None


def _packages(value: Any) -> Iterator[str]:
    """Yield the import names in a setting's value: a path, a class, or a dict with them."""
    pairs = value.items() if hasattr(value, "items") else ((value, ""),)
    for component in (part for pair in pairs if None not in pair for part in pair):
        yield path_of(component).partition(".")[0]


def path_of(component: Any) -> str:
    """Return the import path of *component*, which is a path or a class."""
    if isinstance(component, str):
        return component
    module = getattr(component, "__module__", "")
    return f"{module}.{getattr(component, '__qualname__', '')}"
