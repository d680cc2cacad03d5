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

    ``requirement``: the one that ``text``, its sentence, is about. ``settings``: how the names of
    its settings begin; one of them is enough. ``package``: its import name, by default its name's
    in Python; a component below it in the settings is the package. ``warns``: something that the
    project asked for does not happen.
    """

    name: str
    requirement: str
    text: str
    settings: str | None = None
    package: str = ""
    warns: bool = True

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
        "R1",
        "pages come without Zyte API, so without its browser, extraction and sessions; in ADDONS "
        "its number must be lower than that of scrapy_walsh.Addon, else no crawl starts",
        "ZYTE_API_",
    ),
    Plugin(
        "scrapy-playwright",
        "R1",
        "pages come without a browser: no page method is run, no response has a playwright_page",
        "PLAYWRIGHT_",
    ),
    Plugin(
        "scrapy-impersonate",
        "R1",
        "no request imitates a browser: each has the identity's User-Agent and Scrapy's own TLS",
        "IMPERSONATE_",
    ),
    Plugin(
        "scrapy-splash",
        "R6",
        "the page of a SplashRequest is not requested, as Splash would fetch it past the gates; "
        "take SplashMiddleware out, and pages come without a browser",
    ),
    Plugin("scrapy-user-agents", "R1", _ONE_USER_AGENT),
    Plugin("scrapy-fake-useragent", "R1", _ONE_USER_AGENT),
    Plugin(
        "scrapy-rotating-proxies",
        "R4",
        "no proxy has a pace of its own: a host is spaced as one, whichever proxy a request takes, "
        "and sees one User-Agent (R1)",
        package="rotating_proxies",
    ),
    Plugin(
        "scrapy-deltafetch",
        "R8",
        "it skips followed links alone: when a declared page is requested again, R8 decides",
        warns=False,
    ),
    Plugin(
        "scrapy-poet",
        "R6",
        "what a page object requests passes the same gates: what is not declared is refused",
        warns=False,
    ),
    Plugin(
        "spidermon",
        "R0.6",
        "a refused or deferred page is no downloader exception, so no monitor of spidermon's own "
        "counts it; scrapy_walsh.monitors has a suite that looks at what does",
        warns=False,
    ),
    Plugin(
        "scrapy-redis",
        "R4",
        "its queues do not decide the order: a request is given out when its host is due, by "
        "scrapy_walsh.adapters.redis_queue.DueQueue, without which no crawl starts",
        warns=False,
    ),
)
_BY_PACKAGE: Final[Mapping[str, Plugin]] = {
    each.package or each.name.replace("-", "_"): each for each in PLUGINS
}
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
        for package, plugin in _BY_PACKAGE.items()
        if package in packages
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
