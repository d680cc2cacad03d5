"""RFC 9110, 15.5.11: a source that answers 410 is left alone for 30 days; a person is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy import visits
from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state.records import Reading, VisitRecord
from tests.crawl.harness import DAY, Runs, site
from tests.runs.test_revisit import verified

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://gone.test/feed"
FROM = "http://old.test/feed"


def test_a_source_that_is_gone_is_retired_and_told_once(tmp_path: Path) -> None:
    sites = (
        site("gone.test", {"/feed": Route(410), "/away": Route(410)}),
        site("old.test", {"/feed": Route(301, location="http://gone.test/away")}),
    )
    with Runs(tmp_path, *sites) as runs:
        first = runs(URL, FROM)
        assert sorted(first.targets("gone.test")) == ["/away", "/feed"]
        told = first.lines("WARNING", "is gone (410)")
        assert len(told) == 2, told
        assert "needs a person" in first.output.splitlines()[-1] or "need a person" in first.output
        assert verified(runs.project) == 0
        again = runs(URL, FROM)
        assert again.lines("refused", "answered 410 (Gone)"), again.output
        assert verified(runs.project) == 0
        for days in (1, 3, 25.5):
            runs.pass_time(days * DAY)
            later = runs(URL, FROM)
            assert later.targets("gone.test") == later.targets("old.test") == []
            assert not later.lines("WARNING", "is gone (410)")
            assert not later.lines("WARNING", "not been read since")
            assert "person" not in later.output.splitlines()[-1]
        with runs.store() as store:
            assert store.get(VisitRecord, URL).outcome == "410"
            assert store.get(Reading, URL).gone_at is not None
        runs.serve("gone.test", "/feed", Route(body="it is back"))
        runs.pass_time(DAY)
        back = runs(URL)
        assert back.targets("gone.test") == ["/feed"]
        with runs.store() as store:
            assert store.get(Reading, URL).gone_at is None


@pytest.mark.parametrize("revisit", [3600.0, DAY, 45 * DAY])
def test_410_counts_for_thirty_days_or_a_longer_revisit(revisit: float) -> None:
    gone = visits.met(0.0, None, revisit, 410)
    until = max(30 * DAY, revisit)
    assert visits.not_due(gone, until - 1, revisit, None) is not None
    assert visits.not_due(gone, until, revisit, None) is None
    assert visits.not_due(gone, DAY, revisit, "the site is back, they say") is None
    assert visits.met(until, gone, revisit).retired == 0


def test_a_redirect_does_not_lead_back_to_what_is_gone(tmp_path: Path) -> None:
    sites = (
        site("gone.test", {"/feed": Route(410)}),
        site("old.test", {"/feed": Route(302, location=URL)}),
    )
    with Runs(tmp_path, *sites) as runs:
        assert runs(URL).targets("gone.test") == ["/feed"]
        runs.pass_time(2 * DAY)
        led_there = runs(FROM, URL)
        assert led_there.targets("old.test") == ["/feed"]
        assert led_there.targets("gone.test") == []
