"""The three ways in: the add-on, the settings by hand, and half of them, which is refused."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.seats import GRANTED, PINS, SEATS
from scrapy_walsh.proof.sandbox import max_in_flight, requests, user_agents
from tests.crawl.harness import (
    LIST_SPIDER,
    SETTINGS,
    USER_AGENT,
    Crawl,
    crawl,
    kept,
    make_project,
    side_by_side,
    solo,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

TARGETS = (
    "http://path.test/public",
    "http://path.test/private/x",
    "http://delay.test/a",
    "http://delay.test/b",
    "http://blocked.test/x",
    "http://redirect.test/denied",
    "http://flaky.test/feed.xml",
)
KNOWN_PINS = [name for name in PINS if name in dir(default_settings)]

#: What a user writes instead of ADDONS (docs/install.md).
BY_HAND: dict[str, Any] = {
    "ADDONS": None,
    "USER_AGENT": USER_AGENT,
    **{name: PINS[name] for name in KNOWN_PINS},
    **{name: dict(components) for name, components in SEATS.items()},
}


def assert_polite(result: Crawl) -> None:
    assert result.returncode == 0, result.output
    assert user_agents(result.log) == {USER_AGENT}
    assert max_in_flight(result.log) == 1
    assert result.asked("path.test") == ["/robots.txt", "/public"]
    assert kept(result.gaps("delay.test")[1:], 2.0)
    assert result.asked("blocked.test") == []
    assert result.asked("redirect.test") == ["/robots.txt", "/denied"]
    assert result.asked("flaky.test") == ["/robots.txt", *["/feed.xml"] * 3]
    assert kept(result.gaps("flaky.test")[1:], 1.0)
    assert requests(result.log)[0].host == "operator.test"


#: Import paths that projects write into their settings: none of them may change without a word.
FROZEN = {
    "scrapy_walsh.adapters.downloader.Downloader",
    "scrapy_walsh.adapters.downloadermiddlewares.BackoffMiddleware",
    "scrapy_walsh.adapters.downloadermiddlewares.GateMiddleware",
    "scrapy_walsh.adapters.downloadermiddlewares.RedirectMiddleware",
    "scrapy_walsh.adapters.downloadermiddlewares.RevalidateMiddleware",
    "scrapy_walsh.adapters.extensions.AutoThrottle",
    "scrapy_walsh.adapters.handler.Handler",
    "scrapy_walsh.adapters.scheduler_queue.Fingerprinter",
    "scrapy_walsh.adapters.scheduler_queue.HostQueue",
    "scrapy_walsh.adapters.spidermiddlewares.ScopeMiddleware",
}


def named(value: Any) -> set[str]:
    """Every import path of ours in the value of a setting."""
    if isinstance(value, dict):
        return {path for pair in value.items() for each in pair for path in named(each)}
    return {value} if isinstance(value, str) and value.startswith("scrapy_walsh.") else set()


def test_the_import_paths_of_settings_are_frozen() -> None:
    assert named(dict(PINS)) | named({k: dict(v) for k, v in SEATS.items()}) == FROZEN


def test_the_addon_is_the_whole_installation(run: Callable[..., Crawl]) -> None:
    assert_polite(run(*TARGETS))


def test_the_same_by_hand_is_as_polite(run: Callable[..., Crawl]) -> None:
    assert_polite(run(*TARGETS, settings=BY_HAND))


def changed(name: str) -> dict[str, Any]:
    """The settings by hand, with another value for the pin *name*."""
    value = PINS[name]
    if isinstance(value, bool):
        return {**BY_HAND, name: not value}
    if isinstance(value, (int, float)):
        return {**BY_HAND, name: value + 1}
    if isinstance(value, dict):
        return {
            **BY_HAND,
            name: {**value, "https": default_settings.DOWNLOAD_HANDLERS_BASE["https"]},
        }
    return {**BY_HAND, name: getattr(default_settings, name)}


def without(setting: str, path: str) -> dict[str, Any]:
    """The settings by hand, with one component not in its seat."""
    settings = copy.deepcopy(BY_HAND)
    del settings[setting][path]
    if setting == "EXTENSIONS":
        settings["AUTOTHROTTLE_ENABLED"] = True  # else no AutoThrottle is made at all
    return settings


def test_r1_only_handlers_that_scrapy_uses_by_default_are_wrapped() -> None:
    """By others, also of Scrapy's, it is not known what is sent, and when a connection ends."""
    assert all(
        map(compat.may_carry, map(default_settings.DOWNLOAD_HANDLERS_BASE.get, ("http", "https")))
    )
    for module, name in (("http2", "H2DownloadHandler"), ("_httpx", "HttpxDownloadHandler")):
        assert not compat.may_carry(f"scrapy.core.downloader.handlers.{module}.{name}")


SEATS_TAKEN = [(setting, path) for setting, paths in SEATS.items() for path in paths]


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Crawl]:
    """By hand, with one thing amiss: by the name of the pin, or the path of the component."""
    settings = {
        "USER_AGENT": {**BY_HAND, "USER_AGENT": "Other/1.0"},
        "no handlers": {**BY_HAND, "DOWNLOAD_HANDLERS": None},
        **{name: changed(name) for name in KNOWN_PINS},
        **{path: without(setting, path) for setting, path in SEATS_TAKEN},
    }
    jobs = {name: {"settings": changes} for name, changes in settings.items()}
    return side_by_side(tmp_path_factory.mktemp("incomplete"), jobs, *TARGETS)


def assert_refused(result: Crawl, name: str) -> None:
    assert result.log == [], "a request was made"
    assert result.returncode != 0
    said = result.lines("scrapy_walsh", name)
    assert said, result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", [*KNOWN_PINS, "USER_AGENT"])
def test_a_changed_pin_refuses_the_start_by_name(incomplete: dict[str, Crawl], name: str) -> None:
    assert_refused(incomplete[name], name)


def test_no_wire_for_http_refuses_the_start_by_name(incomplete: dict[str, Crawl]) -> None:
    assert_refused(incomplete["no handlers"], "the http handler is not scrapy_walsh's")


@pytest.mark.parametrize("path", [path for _, path in SEATS_TAKEN])
def test_a_missing_seat_refuses_the_start_by_name(incomplete: dict[str, Crawl], path: str) -> None:
    assert_refused(incomplete[path], path)


OTHER_SCHEDULER = """

from scrapy.core.scheduler import BaseScheduler

class Lists(BaseScheduler):
    def has_pending_requests(self):
        return False
    def enqueue_request(self, request):
        return True
    def next_request(self):
        return None
"""


def test_another_scheduler_refuses_the_crawl_by_the_name_of_the_setting(tmp_path: Path) -> None:
    spider = LIST_SPIDER + OTHER_SCHEDULER
    result = solo(tmp_path, *TARGETS, spider=spider, settings={"SCHEDULER": "spiders.Lists"})
    assert_refused(result, "SCHEDULER is spiders.Lists, which does not use ")
    assert result.lines("HostQueue: remove the setting")


def test_a_crawl_that_has_closed_by_itself_is_not_closed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scrapy's close begins a moment after it is asked for, and raises when nothing is open."""
    asked: list[str] = []

    async def close(*, reason: str) -> None:
        asked.append(reason)

    async def closings(*, soon_over: bool) -> list[str]:
        engine = SimpleNamespace(spider=object(), running=True, close_spider_async=close)
        compat.close_spider(cast("Any", SimpleNamespace(_engine=engine)), "walsh_refused")
        if soon_over:
            engine.spider = None
        await asyncio.sleep(0.01)
        return asked

    monkeypatch.setattr(compat, "deferred_from_coro", asyncio.ensure_future)
    assert asyncio.run(closings(soon_over=True)) == []
    assert asyncio.run(closings(soon_over=False)) == ["walsh_refused"]


def test_r1_5_by_hand_without_an_identity_is_one_line(run: Callable[..., Crawl]) -> None:
    result = run(*TARGETS, settings={**BY_HAND, "WALSH_IDENTITY": None})
    assert (result.returncode, result.log) == (1, [])
    (line,) = result.lines("WALSH_IDENTITY is not set")
    assert line.startswith("scrapy_walsh: ")
    assert "Traceback" not in result.output


WRONG = {name: changed(name)[name] for name in KNOWN_PINS if name != "DOWNLOAD_HANDLERS"} | {
    "USER_AGENT": "Other/1.0"
}
SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    custom_settings = {custom}

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    def parse(self, response):
        pass
"""


@pytest.fixture(scope="module")
def overridden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Crawl]:
    urls = ("http://path.test/public", "http://path.test/private/x")
    command = tuple(word for name, value in WRONG.items() for word in ("-s", f"{name}={value}"))
    jobs: dict[str, dict[str, Any]] = {
        "project": {"settings": WRONG},
        "spider": {"spider": SPIDER.format(custom=repr(WRONG))},
        "command line": {"arguments": command},
    }
    return side_by_side(tmp_path_factory.mktemp("overridden"), jobs, *urls)


@pytest.mark.parametrize("where", ["project", "spider", "command line"])
def test_a_pin_beats_the(overridden: dict[str, Crawl], where: str) -> None:
    result = overridden[where]
    assert result.returncode == 0, result.output
    assert result.asked("path.test") == ["/robots.txt", "/public"]
    assert user_agents(result.log) == {USER_AGENT}


@pytest.mark.parametrize("where", ["project", "spider", "command line"])
@pytest.mark.parametrize("name", [name for name in WRONG if name not in GRANTED])
def test_one_warning_for_each_value_overridden(
    overridden: dict[str, Crawl], where: str, name: str
) -> None:
    lines = overridden[where].lines("WARNING", f" {name} is ", "overrides")
    assert len(lines) == 1, overridden[where].lines(name)


@pytest.mark.parametrize("where", ["project", "spider", "command line"])
def test_what_is_done_anyway_is_no_warning(overridden: dict[str, Crawl], where: str) -> None:
    assert all(WRONG[name] is value for name, value in GRANTED.items())
    assert [each for name in GRANTED for each in overridden[where].lines("WARNING", name)] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"CONCURRENT_REQUESTS": 1},
        {"ROBOTSTXT_OBEY": "1"},
        {**BY_HAND, "ADDONS": SETTINGS["ADDONS"]},
    ],
)
def test_a_value_that_is_the_pinned_one_is_no_warning(
    run: Callable[..., Crawl], settings: dict[str, Any]
) -> None:
    result = run(TARGETS[0], settings=settings)
    told = [] if "ADDONS" not in settings else result.lines("WARNING", "ROBOTSTXT_OBEY is False")
    assert result.lines("WARNING", "ROBOTSTXT_OBEY") == told
    assert result.lines("WARNING", "overrides") == []


@pytest.mark.parametrize("spider", [SPIDER.format(custom={"ROBOTSTXT_OBEY": False}), None])
def test_who_switches_robots_off_is_told_that_it_is_obeyed(
    box: Sandbox, tmp_path: Path, spider: str | None
) -> None:
    settings = {} if spider else {"ROBOTSTXT_OBEY": False}
    project = make_project(tmp_path, spider or SPIDER.format(custom={}), settings)
    result = crawl(project, box, "http://path.test/private/x")
    assert result.asked("path.test") == ["/robots.txt"]
    (line,) = result.lines("WARNING", "ROBOTSTXT_OBEY is False")
    assert line.endswith("robots.txt is obeyed all the same, by the gate of scrapy_walsh")


def test_a_projects_own_components_stay(box: Sandbox, tmp_path: Path) -> None:
    spider = SPIDER.format(custom={}) + "\nclass Mine:\n    pass\n"
    settings = {"DOWNLOADER_MIDDLEWARES": {"spiders.Mine": 123}}
    project = make_project(tmp_path, spider, settings)
    result = crawl(project, box, "http://path.test/public")
    assert result.lines("spiders.Mine")
    assert "/public" in result.asked("path.test")
