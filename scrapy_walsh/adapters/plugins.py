"""Packages and settings that ask for what does not happen here: a table, and who is in it.

The start of a crawl, and so ``walsh doctor``, says the sentence of each that a project's settings
name. docs/compatibility.md has what was tried with the packages themselves.
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
#: How the names of a package's settings begin; one of them in the project is enough.
_SETTINGS: Final = {
    "ZYTE_API_": "scrapy_zyte_api",
    "PLAYWRIGHT_": "scrapy_playwright",
    "IMPERSONATE_": "scrapy_impersonate",
}
_ONE_USER_AGENT: Final = "no User-Agent is picked at random: all have the identity's (R1)"
_FETCHES: Final = (
    "its middleware fetches pages by itself, with a User-Agent and a pace of its own, so R1 and R4 "
    "do not hold for them: take it out"
)
_PROXY_SERVICE: Final = (
    "the service behind it fetches pages with its own User-Agent and retries, so R1 and R4 do not "
    "hold at the site: take it out"
)
#: By import name, what does not happen with a package.
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
        "no SplashRequest is sent: take SplashMiddleware out, and pages come without a browser"
    ),
    "scrapy_user_agents": _ONE_USER_AGENT,
    "scrapy_fake_useragent": _ONE_USER_AGENT,
    "rotating_proxies": (
        "no proxy has a pace of its own: a host is spaced as one, and sees one User-Agent (R4, R1)"
    ),
    "scrapy_deltafetch": (
        "it skips followed links alone: when a declared page is requested again, R8 decides"
    ),
    "scrapy_poet": (
        "what a page object requests passes the same gates: what is not declared is refused"
    ),
    "spidermon": (
        "its monitors count no refused or deferred page as an error: see scrapy_walsh.monitors"
    ),
    "scrapy_redis": (
        "its queues do not decide the order: a request is given out when its host is due (R4)"
    ),
}
#: Packages that have pages fetched past the gates, and are not tried with the others.
FETCHERS: Final[Mapping[str, str]] = {
    "scrapy_selenium": _FETCHES,
    "scrapeops_scrapy_proxy_sdk": _PROXY_SERVICE,
    "scrapy_crawlera": _PROXY_SERVICE,
    "scrapy_zyte_smartproxy": _PROXY_SERVICE,
}
#: By import name, the fingerprinter that tells requests apart which R7 does not: for one URL, by
#: what is made of its page.
FINGERPRINTERS: Final = {"scrapy_poet": "scrapy_poet.ScrapyPoetRequestFingerprinter"}
_NO_FILTER: Final = (
    "DUPEFILTER_CLASS is scrapy's BaseDupeFilter: what a callback yields twice is requested twice, "
    "though one page should be one request (R7): remove it"
)
_FILES: Final = (
    "requests files, which are no targets: each that start() has not declared is refused (R6); "
    "WALSH_FOLLOW_LINKS = True requests them, if the bot may"
)
#: Settings of Scrapy's that have no effect, since the queue of each host is one of our own.
_QUEUES: Final = tuple(
    f"SCHEDULER_{start}{kind}_QUEUE" for start in ("", "START_") for kind in ("MEMORY", "DISK")
)
#: With these, all that the project asked for happens: their sentences are notes, no warnings.
NOTED: Final = frozenset({"scrapy_deltafetch", "scrapy_poet", "spidermon", "scrapy_redis"})


def sentences(settings: BaseSettings) -> list[tuple[int, str]]:
    """The sentence of each package of the table, and of each setting without an effect, that
    *settings* name; with its level of logging, ERROR for what breaks R1 and R4.
    """
    found = packages(settings)
    own = [
        name
        for name in settings
        if (settings.getpriority(name) or 0) >= SETTINGS_PRIORITIES["project"]
    ]
    for name in own:
        found.update(each for prefix, each in _SETTINGS.items() if name.startswith(prefix))
    told = [
        (logging.INFO if package in NOTED else logging.WARNING, f"{package}: {text}")
        for package, text in PLUGINS.items()
        if package in found
    ]
    told += [(logging.ERROR, f"{name}: {FETCHERS[name]}") for name in FETCHERS if name in found]
    queues = [
        (
            logging.WARNING,
            f"{name} has no effect: the requests of a host go first in, first out, by priority",
        )
        for name in _QUEUES
        if name in own
    ]
    # `scrapy shell` sets it, too.
    is_off = _loaded(settings.get("DUPEFILTER_CLASS")) is BaseDupeFilter
    duplicates = [(logging.WARNING, _NO_FILTER)] if is_off and "DUPEFILTER_CLASS" in own else []
    return told + queues + duplicates + list(_media(settings))


def packages(settings: BaseSettings) -> set[str]:
    """The import names of the packages whose components *settings* name."""
    return {package for name in _COMPONENTS for package in _packages(settings.get(name))}


def _media(settings: BaseSettings) -> Iterator[tuple[int, str]]:
    """A warning for each item pipeline that requests files, which are no targets."""
    if follows_links(settings):
        return
    for component, place in settings.getdict("ITEM_PIPELINES").items():
        bases = getattr(_loaded(component), "__mro__", ()) if place is not None else ()
        if any(path_of(each) == "scrapy.pipelines.media.MediaPipeline" for each in bases):
            yield logging.WARNING, f"{path_of(component)} {_FILES}"


def _loaded(component: Any) -> Any:
    """The class that a setting names; None if it cannot be loaded, which Scrapy says."""
    try:
        return load_object(component)
    except Exception:  # whatever a project's code may raise
        return None


def _packages(value: Any) -> Iterator[str]:
    """The import names in a setting's value: a path, a class, or a dict that has them."""
    pairs = value.items() if hasattr(value, "items") else ((value, ""),)
    for component in (part for pair in pairs if None not in pair for part in pair):
        yield path_of(component).partition(".")[0]


def path_of(component: Any) -> str:
    """The import path of a *component*, which a setting names by its path or has as its class."""
    if isinstance(component, str):
        return component
    module = getattr(component, "__module__", "")
    return f"{module}.{getattr(component, '__qualname__', '')}"
