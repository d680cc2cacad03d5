"""What will be different for a project's own spiders, seen before their first run.

``walsh init`` and ``walsh doctor`` say it (``doctor_probe``). The modules are imported, and the
classes looked at with the names that their methods use; nothing is run.
"""

from __future__ import annotations

import pkgutil
import traceback
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Final

from scrapy.spiders import CrawlSpider, CSVFeedSpider, SitemapSpider, Spider, XMLFeedSpider
from scrapy.utils.spider import iter_spider_classes

from scrapy_walsh.adapters import compat
from scrapy_walsh.config import follows_links, scrapes
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.proof.findings import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

    #: A finding as JSON data: the outcome's name, the requirement, what it is about, and the text.
    Said = tuple[str, str, str, str]

#: Names that callbacks use to make requests, and to select from pages.
_REQUESTS: Final = frozenset({"follow", "follow_all", "Request", "FormRequest", "from_response"})
_SELECTORS: Final = frozenset({"css", "xpath", "Selector", "ItemLoader", "LinkExtractor"})
#: Methods whose requests are sources.
_STARTS: Final = frozenset({"start", "start_requests"})
#: Files that an error of the project's code may pass through.
_NOT_THEIRS: Final = ("importlib", "site-packages", "scrapy_walsh/commands/")
_LINKS: Final = (
    "follows links ({}), which are refused: WALSH_FOLLOW_LINKS = True follows them, if the bot "
    "may; or yield each page from start()"
)
_HTML: Final = (
    "uses selectors, which are not for HTML: pages are asked for as markdown first, and a page "
    "that is HTML is a warning, or an error under walsh-research; WALSH_SCRAPING = True, if it is "
    "meant"
)


def spider_classes(modules: list[str]) -> tuple[list[type[Spider]], list[dict[str, str]]]:
    """The spiders of *modules* and of all below them, and what cannot be imported."""
    classes: list[type[Spider]] = []
    broken = []
    names = list(modules)
    while names:
        name = names.pop(0)
        try:
            module = import_module(name)
        except (Exception, SystemExit) as error:
            broken.append({"module": name, "error": explained(error)})
            continue
        classes += iter_spider_classes(module)
        below = pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")
        names += [each.name for each in below]
    return classes, broken


def explained(error: BaseException) -> str:
    """*error* in one line, with its place in the project's code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in _NOT_THEIRS)
    ]
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {one_line(error)}{'' if 'line ' in str(error) else place}"


def ways_of(cls: type[Spider], settings: BaseSettings) -> Iterator[Said]:
    """What will be different for the spider *cls*, whose settings are *settings*."""
    if compat.skips_start_requests(cls):
        text = "has start_requests(), which Scrapy 2.19 does not call: write async def start()"
        yield Outcome.WARNING.name, "R6", "spider", text
    callbacks = _names(cls)
    rules = issubclass(cls, CrawlSpider) and bool(cls.rules)
    how = "a CrawlSpider with rules" if rules else ""
    how = how or ("a SitemapSpider" if issubclass(cls, SitemapSpider) else "")
    how = how or ("its callbacks make requests" if callbacks & _REQUESTS else "")
    if how and not follows_links(settings):
        yield Outcome.WARNING.name, "R6", "spider", _LINKS.format(how)
    feeds = issubclass(cls, (XMLFeedSpider, CSVFeedSpider))
    if (rules or (callbacks & _SELECTORS and not feeds)) and not scrapes(settings):
        yield Outcome.WARNING.name, "R9", "spider", _HTML


def _names(cls: type[Spider]) -> set[str]:
    """The names that the methods of *cls* use, those of Scrapy's own classes and ours left out."""
    found: set[str] = set()
    for each in cls.__mro__:
        if each.__module__.partition(".")[0] in ("scrapy", "scrapy_walsh", "builtins"):
            continue
        for name, method in vars(each).items():
            code = getattr(getattr(method, "__func__", method), "__code__", None)
            if isinstance(code, CodeType) and name not in _STARTS:
                found |= _in_code(code)
    return found


def _in_code(code: CodeType) -> set[str]:
    nested = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_in_code, nested))
