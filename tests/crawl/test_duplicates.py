"""R7.6: what one crawl declares twice is asked once, by canonical URL (dp)."""

from __future__ import annotations

import pytest

from tests.crawl.harness import Crawl, site, solo

#: First URL, second URL, how many of the two are asked.
PAIRS = {
    "dp-1": ("http://dp1.test/a", "http://dp1.test/a/", 1),
    "dp-2": ("http://dp2.test/a?b=2&a=1", "http://dp2.test/a?a=1&b=2", 2),
    "dp-3": ("http://dp3.test/a#one", "http://dp3.test/a#two", 1),
    "dp-5": ("http://DP5.test:80/a", "http://dp5.test/a", 1),
    "dp-6": ("http://dp6.test/A", "http://dp6.test/a", 2),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    return solo(
        tmp_path_factory.mktemp("pairs"),
        *(url for pair in PAIRS.values() for url in pair[:2]),
        sites=tuple(site(f"{name.replace('-', '')}.test") for name in PAIRS),
    )


@pytest.mark.parametrize("name", PAIRS)
def test_r7_6_duplicates_go_by_the_canonical_url(pairs: Crawl, name: str) -> None:
    asked = [path for path in pairs.asked(f"{name.replace('-', '')}.test") if "robots" not in path]
    assert len(asked) == PAIRS[name][2]
