"""D8: what is longer than WALSH_PATIENCE is neither slept through nor shortened, but put off."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, max_in_flight, requests
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import Deferral
from tests.crawl.harness import (
    FAR_OFF,
    Crawl,
    crawl,
    crawl_of,
    make_project,
    rules,
    site,
    state_dir,
    targets,
    too_soon,
    walsh,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


FAR = 4000
PATIENCE = 4
HEADERS = {"Retry-After": str(FAR)}
LATER = Route(503, headers=HEADERS)

#: Hosts, what they answer, and which of their pages 0 to 2 are asked at all.
HOSTS = {
    "retry-after.test": (site("retry-after.test", {"*": LATER}), ["/0"]),
    "delay.test": (site("delay.test", robots=rules(f"Crawl-delay: {FAR}")), ["/0"]),
    "robots-503.test": (site("robots-503.test", robots=LATER), []),
    "robots-429.test": (site("robots-429.test", robots=Route(429, headers=LATER.headers)), []),
    "backoff.test": (site("backoff.test", {"*": Route(503)}), ["/0"]),
    "gone.test": (site("gone.test", {"*": Route(behaviour="close")}), ["/0"]),
}
#: Hosts whose answers are no failures, and the paths of theirs that are requested.
ANSWERS = {
    "robots-404.test": (site("robots-404.test", robots=Route(404, headers=HEADERS)), []),
    "banned.test": (site("banned.test", {"*": Route(403, headers=HEADERS)}), ["/0"]),
    "limited.test": (site("limited.test", {"*": Route(420, headers=HEADERS)}), ["/0"]),
    "read.test": (site("read.test", {"*": Route(headers=HEADERS)}), ["/0"]),
    "moved.test": (
        site("moved.test", {"*": Route(302, location="/elsewhere", headers=HEADERS)}), ["/0"],
    ),
    "missing.test": (site("missing.test", {"*": Route(404, headers=HEADERS)}), ["/0"]),
    "shop.test": (site("shop.test", {"*": Route(430, headers=HEADERS)}), ["/0"]),
    "for-good.test": (
        site("for-good.test", {"*": Route(301, location="/elsewhere", headers=HEADERS)}), ["/0"],
    ),
    "nowhere.test": (site("nowhere.test", {"*": Route(308, headers=HEADERS)}), ["/0"]),
    "closed.test": (site("closed.test", {"*": Route(403)}), ["/0", "/1", "/2"]),
    "words.test": (
        site("words.test", {"*": Route(404, headers={"Retry-After": "soon"})}), ["/0", "/1", "/2"],
    ),
}  # fmt: skip
PAGES = [f"http://{host}/{page}" for page in range(3) for host in HOSTS]
SETTINGS = {
    "WALSH_PATIENCE": PATIENCE,
    **FAR_OFF,  # also beyond PATIENCE
}


class Deferred(Crawl):
    """A crawl, and what its store says of what was put off."""

    kept: dict[str, Deferral]
    findings: list[object]


def deferring(directory: Path) -> Deferred:
    with Sandbox() as box:
        for each, _ in HOSTS.values():
            box.put(each)
        box.put(site("well.test"))
        project = make_project(directory, settings=SETTINGS)
        result = crawl(project, box, *PAGES, *(f"http://well.test/{page}" for page in range(3)))
    deferred = Deferred(**vars(result))
    store = open_store(state_dir(project))
    deferred.kept = {each.url: each for each in store.rows(Deferral)}
    store.close()
    return deferred


def answered(directory: Path) -> Deferred:
    pages = [f"http://{host}/{page}" for page in range(3) for host in ANSWERS]
    with Sandbox() as box:
        for each, _ in ANSWERS.values():
            box.put(each)
        project = make_project(directory, settings=SETTINGS)
        result = Deferred(**vars(crawl(project, box, *pages)))
    with closing(open_store(state_dir(project))) as store:
        result.kept = {each.url: each for each in store.rows(Deferral)}
    verified = walsh(project, "verify", str(state_dir(project)), "--json")
    result.findings = json.loads(verified.stdout)["findings"]
    return result


CRAWLS: dict[str, Callable[[Path], Crawl]] = {
    "deferring": deferring,
    "answered": answered,
    "within": crawl_of(
        "http://soon.test/0",
        "http://soon.test/1",
        sites=[site("soon.test", {"/0": Route(sequence=(
            Route(429, headers={"Retry-After": str(PATIENCE - 1)}), Route(body="now")))})],
        settings=SETTINGS,
    ),
}  # fmt: skip


@pytest.fixture
def deferred(crawls: Callable[[str], Deferred]) -> Deferred:
    return crawls("deferring")


def test_r4_2_serial_and_never_too_soon(deferred: Deferred) -> None:
    assert max_in_flight(deferred.log) == 1
    assert too_soon(deferred.log) == []


@pytest.mark.parametrize("host", HOSTS)
def test_r5_3_nobody_asks_before_the_time(deferred: Deferred, host: str) -> None:
    assert [each.path for each in targets(deferred.log, host)] == HOSTS[host][1]
    assert deferred.asked(host).count("/robots.txt") == 1


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_put_off_is_recorded_with_its_due_time(deferred: Deferred, host: str) -> None:
    put_off = set(PAGES) - set(fetched(deferred))
    expected = {url for url in put_off if url.startswith(f"http://{host}/")}
    found = {url for url, each in deferred.kept.items() if each.host == host}
    assert found == expected
    last = max(each.wall for each in requests(deferred.log, host))
    for url in found:
        due = deferred.kept[url].due
        if host in ("backoff.test", "gone.test"):
            assert due > last + PATIENCE
        else:
            assert last + FAR - 1 <= due <= last + FAR + 10


@pytest.mark.parametrize("host", ANSWERS)
def test_r5_3_a_retry_after_holds_the_host_whatever_the_status(
    crawls: Callable[[str], Deferred], host: str
) -> None:
    """Without one, and where it cannot be read, such an answer holds nothing."""
    result, paths = crawls("answered"), ANSWERS[host][1]
    assert [each.path for each in targets(result.log, host)] == paths
    last = max(each.wall for each in requests(result.log, host))
    due = [each.due for each in result.kept.values() if each.host == host]
    leads_on = host in {"moved.test", "for-good.test"}  # the hop is put off, too
    assert len(due) == 3 - len(paths) + leads_on
    assert all(last + FAR - 1 <= each <= last + FAR + 10 for each in due)


def test_r5_3_verify_derives_such_holds(crawls: Callable[[str], Deferred]) -> None:
    assert crawls("answered").findings == []


def fetched(deferred: Deferred) -> list[str]:
    return [url for url in PAGES if deferred.fetched(url)]


def test_only_what_the_first_answer_allowed_is_fetched(deferred: Deferred) -> None:
    assert fetched(deferred) == ["http://delay.test/0"]
    assert all(deferred.fetched(f"http://well.test/{page}") for page in range(3))


def test_the_log_has_what_is_put_off(deferred: Deferred) -> None:
    told = [line.partition(": deferred ")[2] for line in deferred.lines(": deferred http")]
    listed = [line.split()[0] for line in told]
    assert sorted(listed) == sorted(set(PAGES) - set(fetched(deferred)))
    assert deferred.stats["walsh/deferred"] == len(listed)
    assert all("deferred" in deferred.why(url) for url in listed)


def test_the_crawl_ends_without_sleeping_through_it(deferred: Deferred) -> None:
    assert deferred.returncode == 0
    assert deferred.stats["close_reason"] == "finished"
    assert deferred.stats["elapsed_time_seconds"] < 30


def test_what_is_within_patience_is_waited_for(crawls: Callable[[str], Crawl]) -> None:
    result = crawls("within")
    assert result.asked("soon.test") == ["/robots.txt", "/0", "/0", "/1"]
    assert result.gaps("soon.test")[1] >= PATIENCE - 1 - 0.02
    assert "walsh/deferred" not in result.stats
