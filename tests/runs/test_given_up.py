"""R8.2: what was given up is not sent again within the hour, by any run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy import visits
from scrapy_walsh.policy.visits import Visit
from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state.records import VisitRecord
from tests.crawl.harness import HOUR, Runs, site
from tests.runs.test_revisit import verified

if TYPE_CHECKING:
    from pathlib import Path

#: Ways to be given up.
WAYS = {
    "refused": Route(503),
    "busy": Route(429),
    "broken": Route(500),
    "silent": Route(behaviour="reset"),
    "loops": Route(302, location="/loop"),
    "leads": Route(302, location="http://closed.test/secret"),
}
URLS = {way: f"http://{way}.test/p" for way in WAYS}
LOOP = {"/loop": Route(302, location="/loop2"), "/loop2": Route(302, location="/loop")}
CLOSED = site("closed.test", robots="User-agent: *\nDisallow: /secret\n")
SETTINGS = {"WALSH_MAX_RETRIES": 0}


class Hour:
    """One source of each way: a run, two within the hour, and one after it, when all is well."""

    def __init__(self, directory: Path) -> None:
        pages = {"/other": Route(body="well"), **LOOP}
        sites = [site(f"{way}.test", {"/p": route, **pages}) for way, route in WAYS.items()]
        with Runs(directory, *sites, CLOSED, settings=SETTINGS) as runs:
            self.first = runs(*URLS.values())
            self.within = []
            for _ in range(2):
                runs.pass_time(300.0)
                self.within.append(runs(*URLS.values()))
            self.verified = verified(runs.project)
            runs.pass_time(HOUR - 500.0)
            for way in WAYS:
                runs.serve(f"{way}.test", "/p", Route(body="well again"))
            others = (f"http://{way}.test/other" for way in WAYS)
            self.after = runs(*URLS.values(), *others)
            with runs.store() as store:
                self.records = {way: store.get(VisitRecord, url) for way, url in URLS.items()}


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Hour:
    return Hour(tmp_path_factory.mktemp("hour"))


@pytest.mark.parametrize("way", WAYS)
def test_r8_2_what_was_given_up_is_left_alone_for_an_hour(hour: Hour, way: str) -> None:
    assert "/p" in hour.first.targets(f"{way}.test")
    for again in hour.within:
        assert again.targets(f"{way}.test") == [], again.output
        assert again.lines("refused", URLS[way], "R8 not_due", "given up")
    assert sorted(hour.after.targets(f"{way}.test")) == ["/other", "/p"]
    record = hour.records[way]
    assert (record.outcome, record.gave_up_at) == ("200", None)


def test_r8_2_nor_is_where_it_led_to_and_verify_agrees(hour: Hour) -> None:
    assert [again.targets("closed.test") for again in hour.within] == [[], []]
    assert hour.verified == 0


def test_r8_2_a_written_reason_lifts_the_hour(tmp_path: Path) -> None:
    with Runs(tmp_path, site("some.test", {"/p": Route(500)}), settings=SETTINGS) as runs:
        runs("http://some.test/p")
        reason = ("-s", "WALSH_REVISIT_REASON=the server was repaired")
        assert runs("http://some.test/p", arguments=reason).targets("some.test") == ["/p"]


def test_other_targets_of_its_host_are_sent(tmp_path: Path) -> None:
    some = site("some.test", {"/p": Route(500), "/other": Route(body="well")})
    with Runs(tmp_path, some, settings=SETTINGS) as runs:
        runs("http://some.test/p")
        assert runs("http://some.test/other").targets("some.test") == ["/other"]


def test_r8_2_the_hour_and_the_visit_before_it_both_bind() -> None:
    day = 86400.0
    answered = Visit(0.0, 0.0, gave_up_at=day)
    assert visits.not_due(answered, day + HOUR - 1, day, None) is not None
    assert visits.not_due(answered, day + HOUR, day, None) is None
    assert visits.next_due(answered, 0.0, day + 60, day) == day + HOUR
    # On time for the visit that it was given up at: the rhythm stays.
    assert visits.met(day + HOUR + 60, answered, day).counted_from == day
    # A clock that was put back by more than an hour shuts nothing out (D9).
    assert visits.not_due(Visit(0.0, 0.0, gave_up_at=10 * day), day, day, None) is None
