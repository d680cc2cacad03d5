"""R2.29, R2.30: Crawl-delay in real crawls; what no run can wait for is deferred (D8)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, Site, requests
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import HostRecord
from tests.crawl.harness import Crawl, crawl, kept, make_project, site, state_dir

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 10.0


def rules(*values: str) -> str:
    return "".join(["User-agent: *\n", *(f"Crawl-delay: {value}\n" for value in values)])


#: The interval that each robots.txt leads to, in seconds.
DELAYS = {
    "two.test": (rules("2"), 2.0),
    "fraction.test": (rules("2.5"), 2.5),
    "half.test": (rules("0.5"), 1.0),
    "zero.test": (rules("0"), 1.0),
    "seconds.test": (rules("2s"), 2.0),
    "milliseconds.test": (rules("2500 ms"), 2.5),
    "note.test": (rules("2 # note"), 2.0),
    "largest.test": (rules("1", "2.2", "2"), 2.2),
    "merged.test": (f"{rules('2')}\nUser-agent: x\nDisallow: /\n\n{rules('2.3')}", 2.3),
    "own-group.test": (f"{rules('9')}User-agent: Walsh-Research\nDisallow: /z\n", 1.0),
    "own-delay.test": (f"{rules('1')}User-agent: walsh-research\nCrawl-delay: 2\n", 2.0),
    "other-group.test": (f"User-agent: other\nCrawl-delay: 9\n\n{rules()}Disallow: /z\n", 1.0),
}
#: Not a number in robots.txt: R4's second alone.
IGNORED = {
    "inf.test": "inf",
    "infinity.test": "Infinity",
    "nan.test": "nan",
    "negative.test": "-5",
    "word.test": "abc",
    "empty.test": "",
    "underscore.test": "1_0",
    "arabic.test": "\u0661\u0660",
    "full-width.test": "\uff11\uff10",
    "hex.test": "0xA",
    "other-unit.test": "10 parsecs",
}
#: Longer than WALSH_PATIENCE: one target is fetched, the others are left for a later run.
DEFERRED = {
    "day.test": "86400",
    "over-patience.test": "11",
    "unit.test": "20m",
    "age-of-the-universe.test": "430000000000000000",
    "without-end.test": "9" * 400,
}
BOTH = ("http://both.test/1", "https://both.test/2", "http://both.test/3", "https://both.test/4")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("delays"), settings={"WALSH_PATIENCE": PATIENCE})


@pytest.fixture(scope="module")
def runs(project: Path) -> tuple[Crawl, Crawl]:
    sites: list[Site] = [site(host, {}, body) for host, (body, _) in DELAYS.items()]
    sites += [site(host, {}, rules(value)) for host, value in (IGNORED | DEFERRED).items()]
    paths = [f"http://{each.host}/{number}" for number in range(3) for each in sites]
    sites += [
        site("http://both.test", {}, rules("1.5")),
        site("https://both.test", {}, rules("2")),
    ]
    with Sandbox() as box:
        for each in sites:
            box.put(each)
        first = crawl(project, box, *paths, *BOTH)
        return first, crawl(project, box, *(f"http://{host}/later" for host in DEFERRED))


@pytest.fixture(scope="module")
def intervals(project: Path, runs: tuple[Crawl, Crawl]) -> dict[str, float]:
    """By host, the interval on record after the runs, in seconds."""
    store = open_store(state_dir(project))
    found = {record.host: record.interval for record in store.rows(HostRecord)}
    store.close()
    return found


@pytest.mark.parametrize("host", DELAYS)
def test_r2_29_the_delay_of_the_selected_group_is_the_spacing(
    runs: tuple[Crawl, Crawl], intervals: dict[str, float], host: str
) -> None:
    seconds = DELAYS[host][1]
    assert len(runs[0].targets(host)) == 3
    assert kept(runs[0].gaps(host)[1:], seconds)
    assert intervals[host] == seconds, "another group's delay"


@pytest.mark.parametrize("host", IGNORED)
def test_r2_30_what_is_no_finite_number_is_ignored(
    runs: tuple[Crawl, Crawl], intervals: dict[str, float], host: str
) -> None:
    assert len(runs[0].targets(host)) == 3
    assert kept(runs[0].gaps(host)[1:], 1.0)
    assert intervals[host] == 1.0


def test_r4_4_the_first_target_does_not_wait_for_the_delay(runs: tuple[Crawl, Crawl]) -> None:
    assert runs[0].targets("day.test") == ["/0"]  # within a run that took no day


def test_t17_the_larger_delay_of_http_and_https_spaces_both(runs: tuple[Crawl, Crawl]) -> None:
    asked = [each for each in requests(runs[0].log) if each.host.startswith("both.test")]
    assert sorted(each.path for each in asked) == ["/1", "/2", "/3", "/4", *["/robots.txt"] * 2]
    seen = [each.path == "/robots.txt" and each.scheme == "https" for each in asked].index(True)
    after = asked[seen + 1 :]
    pairs = itertools.pairwise(after)
    assert kept([later.arrived - (earlier.completed or 0) for earlier, later in pairs], 2.0)


@pytest.mark.parametrize("host", DEFERRED)
def test_d8_a_delay_beyond_patience_is_neither_waited_for_nor_shortened(
    runs: tuple[Crawl, Crawl], host: str
) -> None:
    assert runs[0].targets(host) == ["/0"]
    for number in (1, 2):
        assert "R4 deferred" in runs[0].why(f"http://{host}/{number}")
        assert len(runs[0].lines(f": deferred http://{host}/{number}", "WALSH_PATIENCE")) == 1


@pytest.mark.parametrize("host", DEFERRED)
def test_d8_no_later_run_asks_before_the_time(runs: tuple[Crawl, Crawl], host: str) -> None:
    if host != "over-patience.test":  # 11 s may be over by now
        assert runs[1].asked(host) == []
        assert "deferred" in runs[1].why(f"http://{host}/later")
