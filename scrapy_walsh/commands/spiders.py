"""The changes for the spiders of a project, before their first run.

``walsh doctor`` and ``walsh init`` say it. It is seen by a spider's class and settings, and by the
names that its methods use: its module is imported, and nothing of it called.
"""

from __future__ import annotations

import pkgutil
from contextlib import suppress
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from scrapy.addons import AddonManager
from scrapy.spiders import (
    CrawlSpider,
    CSVFeedSpider,
    SitemapSpider,
    XMLFeedSpider,
)
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object
from scrapy.utils.spider import iter_spider_classes

from scrapy_walsh.adapters import compat, plugins
from scrapy_walsh.config import follows_links, scrapes
from scrapy_walsh.exceptions import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy import Spider
    from scrapy.settings import BaseSettings

#: Names that callbacks use to make requests, and to select from pages.
_REQUESTS: Final = frozenset({"follow", "follow_all", "Request", "FormRequest", "from_response"})
_SELECTORS: Final = frozenset({"css", "xpath", "Selector", "ItemLoader", "LinkExtractor"})
#: Methods with requests that are sources.
_STARTS: Final = frozenset({"start", "start_requests"})
#: Names by which a middleware makes an answer.
_RESPONSES: Final = frozenset({"Response", "TextResponse", "HtmlResponse", "XmlResponse"})
_ANSWERS: Final = "answers requests itself: R1 and R4 do not hold for its own requests: remove it"
_LINKS: Final = (
    "follows links (by rules, a sitemap, or requests of its callbacks), which are refused: "
    "WALSH_FOLLOW_LINKS = True follows them, if the bot may; or yield each page from start()"
)
_SHORT: Final = (
    "DOWNLOAD_TIMEOUT is below 5 s: a slower robots.txt counts as no answer, so no page of its "
    "host is requested: raise it"
)
_HTML: Final = (
    "parses HTML: pages are requested as markdown first, and an HTML page is a warning, or an "
    "error under walsh-research; set WALSH_SCRAPING = True if that is meant"
)


def classes_of(settings: BaseSettings, broken: list[str]) -> list[type[Spider]]:
    """The spiders of a project. If a module cannot be imported, it is added to *broken*, and hides
    no other.

    May raise whatever a project's add-ons do.
    """
    AddonManager.load_pre_crawler_settings(settings)  # which may name modules of spiders
    classes = list[type["Spider"]]()
    names = list(settings.getlist("SPIDER_MODULES"))
    for name in names:  # it grows
        try:
            module = import_module(name)
        except (Exception, SystemExit) as error:
            broken.append(f"{name} cannot be imported: {type(error).__name__}: {one_line(error)}")
        else:
            classes += iter_spider_classes(module)
            below = pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")
            names += [spider.name for spider in below]
    return classes


def ways_of(cls: type[Spider], settings: BaseSettings) -> Iterator[str]:
    """The changes for the spider *cls* with these *settings*: a line each."""
    if compat.skips_start_requests(cls):
        yield "has start_requests(), which Scrapy 2.19 does not call: write async def start()"
    names = _names(of for name, of in _methods(cls) if name not in _STARTS)
    rules = issubclass(cls, CrawlSpider) and bool(cls.rules)
    is_following = rules or issubclass(cls, SitemapSpider) or bool(names & _REQUESTS)
    if is_following and not follows_links(settings):
        yield _LINKS
    selects = names & _SELECTORS and not issubclass(cls, (XMLFeedSpider, CSVFeedSpider))
    if (rules or selects) and not scrapes(settings):
        yield _HTML
    if 0 < settings.getfloat("DOWNLOAD_TIMEOUT") < 5:
        yield _SHORT


def fetchers_in(settings: BaseSettings) -> Iterator[str]:
    """A line for each downloader middleware of the project that answers requests by itself."""
    for component in build_component_list(settings.getwithbase("DOWNLOADER_MIDDLEWARES")):
        path = plugins.path_of(component)
        if path.partition(".")[0] in plugins.FETCHERS:
            continue
        with suppress(ImportError, AttributeError, NameError, ValueError):  # the start names it
            methods = _methods(load_object(component))
            names = {"process_request"}
            for _ in methods:  # helpers that it calls, and those that they call
                names |= _names(method for name, method in methods if name in names)
            if names & _RESPONSES:
                yield f"{path} {_ANSWERS}"


def _methods(cls: Any) -> list[tuple[str, object]]:
    """The methods of *cls* and their names, those of Scrapy's own classes and ours left out."""
    libraries = ("scrapy", "scrapy_walsh", "builtins")
    bases = [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in libraries]
    return [method for base in bases for method in vars(base).items()]


def _names(methods: Iterable[object]) -> set[str]:
    """The names that *methods* use."""
    names = set[str]()
    codes: list[object] = [
        getattr(getattr(method, "__func__", method), "__code__", None) for method in methods
    ]
    for code in codes:  # it grows by the functions within
        if isinstance(code, CodeType):
            names.update(code.co_names)
            codes += code.co_consts
    return names
