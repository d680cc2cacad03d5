"""The picture of a host: each request, and how long the host was left alone after it."""

from __future__ import annotations

import pytest

from scrapy_walsh.proof.report.html import page
from scrapy_walsh.proof.report.timeline import DRAWN, MOST, Shape, shapes
from tests.kit import ONE, Read, Shown, T, asked, began, ended, lines_of, robots, tally_of


def made(*entries: dict[str, object]) -> Shown:
    return tally_of(lines_of(began(), *entries, ended()))


def drawn(*entries: dict[str, object], span: float = 10.0) -> list[Shape]:
    (host,) = made(*entries).report.drawn
    return list(shapes(host.marks, T, span))


def test_r4_the_spacing_after_each_request_is_drawn_until_the_next():
    found = drawn(asked(0, 1), asked(1.5, 2, interval=3.0), asked(8, 9))
    spaced = [(each.at, each.wide) for each in found if each.kind == "spaced"]
    assert spaced == [pytest.approx(pair) for pair in ((10, 5), (20, 30), (90, 10))]


def test_r5_a_hold_is_drawn_for_as_long_as_it_lasts():
    found = drawn(asked(0, 1, status=429, wait=4.0), asked(6, 7))
    (held,) = [each for each in found if each.kind == "held"]
    assert (held.at, held.wide) == pytest.approx((10, 40))
    assert [each.text for each in found if each.text] == ["429"]


def test_r4_a_request_that_came_too_early_is_named():
    found = drawn(asked(0, 1), asked(1.2, 2))
    assert [each.text for each in found if each.text] == ["too early"]


def test_each_purpose_has_its_class_and_t1s_pair_no_spacing_between():
    found = drawn(robots(0, ended=T + 1), asked(1, 2))
    assert [each.kind for each in found if each.kind != "label"] == ["robots", "spaced", "target"]


def test_a_short_request_is_still_seen_and_nothing_leaves_the_picture():
    found = drawn(asked(0, 0.001), asked(9.999, 12, status=None))
    assert all(each.at + each.wide <= 100.0 + 1e-9 for each in found)
    assert all(each.wide > 0.4 for each in found if each.kind == "target")


def test_of_many_hosts_those_are_drawn_that_were_held_or_came_too_early():
    many = [asked(at, host=f"h{at}.test") for at in range(DRAWN + 10)]
    late = [asked(50, host="held.test", status=503, wait=9.0)]
    early = [asked(60, host="early.test"), asked(60.1, host="early.test")]
    names = [host.name for host in made(*many, *late, *early).report.drawn]
    assert len(names) == DRAWN
    assert names[-2:] == ["held.test", "early.test"]


def test_a_host_with_too_many_requests_has_its_row_alone():
    shown = made(*(asked(at) for at in range(MOST + 1)))
    assert shown.report.drawn == []
    assert ONE in Read(page(*shown)).text


def test_r7_what_a_304_saved_is_what_the_last_answer_before_it_had():
    url = f"http://{ONE}/page"
    entries = asked(0, url=url, octets=700), asked(9, url=url, status=304), asked(19, status=304)
    assert made(*entries).report.saved == 700
