"""Packages of other projects that ask for what does not happen here: a table, and who is in it.

``walsh doctor`` and the start of a crawl say the sentence of each that a project's settings name.
docs/compatibility.md has what was tried with the packages themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy.settings import SETTINGS_PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy.settings import BaseSettings

#: Settings that name components, by import path or class.
_COMPONENTS: Final = (
    "ADDONS",
    "DOWNLOADER_MIDDLEWARES",
    "DOWNLOAD_HANDLERS",
    "DOWNLOAD_HANDLERS_BASE",
    "EXTENSIONS",
    "REQUEST_FINGERPRINTER_CLASS",
    "SCHEDULER",
    "SPIDER_MIDDLEWARES",
)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A package, and what does not happen with it.

    ``package``: its import name; a component below it in the settings is the package. ``settings``:
    how the names of its settings begin; one of them is enough too. ``warns``: something that the
    project asked for does not happen. ``requirement``: the one that the sentence is about.
    """

    name: str
    package: str
    requirement: str
    warns: bool
    text: str
    settings: str | None = None

    @property
    def line(self) -> str:
        """The sentence, after the package's name."""
        return f"{self.name}: {self.text}"


_ONE_USER_AGENT: Final = (
    "no User-Agent is picked at random: each request has that of the identity (R1)"
)

PLUGINS: Final[tuple[Plugin, ...]] = (
    Plugin(
        "scrapy-zyte-api",
        "scrapy_zyte_api",
        "R1",
        True,
        "pages come without Zyte API, so without its browser, extraction and sessions; in ADDONS "
        "its number must be lower than that of scrapy_walsh.Addon, else no crawl starts",
        "ZYTE_API_",
    ),
    Plugin(
        "scrapy-playwright",
        "scrapy_playwright",
        "R1",
        True,
        "pages come without a browser: no page method is run, no response has a playwright_page",
        "PLAYWRIGHT_",
    ),
    Plugin(
        "scrapy-impersonate",
        "scrapy_impersonate",
        "R1",
        True,
        "no request imitates a browser: each has the identity's User-Agent and Scrapy's own TLS",
        "IMPERSONATE_",
    ),
    Plugin(
        "scrapy-splash",
        "scrapy_splash",
        "R6",
        True,
        "the page of a SplashRequest is not requested, as Splash would fetch it past the gates; "
        "take SplashMiddleware out, and pages come without a browser",
    ),
    Plugin("scrapy-user-agents", "scrapy_user_agents", "R1", True, _ONE_USER_AGENT),
    Plugin("scrapy-fake-useragent", "scrapy_fake_useragent", "R1", True, _ONE_USER_AGENT),
    Plugin(
        "scrapy-rotating-proxies",
        "rotating_proxies",
        "R4",
        True,
        "no proxy has a pace of its own: a host is spaced as one, whichever proxy a request takes, "
        "and sees one User-Agent (R1)",
    ),
    Plugin(
        "scrapy-deltafetch",
        "scrapy_deltafetch",
        "R8",
        False,
        "it skips followed links alone: when a declared page is requested again, R8 decides",
    ),
    Plugin(
        "scrapy-poet",
        "scrapy_poet",
        "R6",
        False,
        "what a page object requests passes the same gates: what is not declared is refused",
    ),
    Plugin(
        "spidermon",
        "spidermon",
        "R0.6",
        False,
        "a refused or deferred page is no downloader exception, so no monitor of spidermon's own "
        "counts it; scrapy_walsh.monitors has a suite that looks at what does",
    ),
    Plugin(
        "scrapy-redis",
        "scrapy_redis",
        "R4",
        False,
        "its queues do not decide the order: a request is given out when its host is due, by "
        "scrapy_walsh.adapters.redis_queue.DueQueue, without which no crawl starts",
    ),
)
_BY_PACKAGE: Final[Mapping[str, Plugin]] = {each.package: each for each in PLUGINS}
BY_LINE: Final[Mapping[str, Plugin]] = {each.line: each for each in PLUGINS}


def named_in(settings: BaseSettings) -> list[Plugin]:
    """The packages of the table that *settings* name, each once, in the table's order."""
    paths = (path for name in _COMPONENTS for path in _paths_in(settings.get(name)))
    packages = {path.partition(".")[0] for path in paths}
    given = [
        name
        for name in settings
        if (settings.getpriority(name) or 0) >= SETTINGS_PRIORITIES["project"]
    ]
    return [
        plugin
        for plugin in PLUGINS
        if plugin.package in packages
        or (plugin.settings and any(str(name).startswith(plugin.settings) for name in given))
    ]


def covers(value: Any) -> bool:
    """Whether every component in *value*, that of a setting, is of a package of the table."""
    paths = list(_paths_in(value))
    return bool(paths) and all(path.partition(".")[0] in _BY_PACKAGE for path in paths)


def _paths_in(value: Any) -> Iterator[str]:
    """The import paths in a setting's value: a path, a class, or a dict that has them."""
    if hasattr(value, "items"):
        for key, each in value.items():
            if each is not None:  # what is switched off
                yield from _paths_in(key)
                yield from _paths_in(each)
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, str) and "." in value:
        yield value
