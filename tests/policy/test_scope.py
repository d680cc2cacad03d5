"""R6: declared targets only."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy import scope as scope_module
from scrapy_walsh.policy.scope import Scope


def scope_of(*urls: str, **options: bool) -> Scope:
    scope = Scope(**options)
    for url in urls:
        scope.declare(url)
    return scope


def test_r6_2_only_declared_targets_are_in_scope():
    scope = scope_of("http://h.test/a")
    assert scope.refuses("http://h.test/a") is None
    verdict = scope.refuses("http://h.test/b")
    assert verdict is not None
    assert (verdict.allowed, verdict.name, verdict.requirement) == (False, "out_of_scope", "R6")


@pytest.mark.parametrize("url", ["http://h.test/a/", "http://h.test/a?x", "https://h.test/a"])
def test_r6_2_what_is_nearly_declared_is_not(url):
    assert scope_of("http://h.test/a").refuses(url) is not None


def test_fragment_does_not_make_another_target():
    assert scope_of("http://h.test/a#one").refuses("http://h.test/a#two") is None


def test_redirect_of_a_declared_target_is_in_scope_and_keeps_its_source():
    """D5."""
    scope = scope_of("http://h.test/a")
    scope.declare_hop("http://g.test/b", "http://h.test/a")
    scope.declare_hop("http://g.test/c", "http://g.test/b")
    assert scope.refuses("http://g.test/c") is None
    assert scope.source_of("http://g.test/c") == "http://h.test/a"
    assert not scope.is_source("http://g.test/c")


def test_redirect_of_an_undeclared_url_declares_nothing():
    scope = scope_of("http://h.test/a")
    scope.declare_hop("http://g.test/b", "http://h.test/zzz")
    assert scope.refuses("http://g.test/b") is not None


@pytest.mark.parametrize(
    "url", ["ftp://h.test/", "file:///etc/passwd", "s3://b/k", "data:,x", "", "h"]
)
@pytest.mark.parametrize("follow_links", [True, False])
def test_r6_other_schemes_are_refused_declared_or_not(url, follow_links):
    verdict = scope_of(url, follow_links=follow_links).refuses(url)
    assert verdict is not None
    assert "http" in verdict.reason


def test_following_links_lifts_r6_alone():
    assert scope_of(follow_links=True).refuses("http://anywhere.test/") is None


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        ("http://h.test/b?c", False),
        ("https://H.test:443/", False),
        ("http://h.test:8050/render.html", True),
        ("http://www.h.test/a", True),
        ("http://service.test/?url=http://h.test/a", True),
        ("http://[/", True),
        ("http://g.test/declared", True),
    ],
)
def test_r6_no_other_host_takes_the_place_of_one(other, refused):
    scope = scope_of("http://h.test/a", "http://g.test/declared", follow_links=True)
    verdict = scope.refuses_in_place("http://h.test/a", other)
    assert (verdict is not None) == refused
    if verdict is not None:
        assert (verdict.allowed, verdict.requirement) == (False, "R6")
        assert "?" not in verdict.reason


def test_what_is_out_of_scope_is_left_to_its_own_refusal():
    scope = scope_of("http://h.test/a")
    assert scope.refuses("http://service.test/") is not None
    assert scope.refuses_in_place("http://h.test/a", "http://service.test/") is None


def test_r6_2_while_start_goes_on_a_url_that_is_not_declared_is_undecided():
    scope = scope_of("http://h.test/a", growing=True)
    scope.declare_hop("http://g.test/hop", "http://h.test/a")
    assert scope.undecided("http://h.test/b")
    assert not scope.undecided("http://h.test/a")
    assert not scope.undecided("http://g.test/hop")
    assert not scope.undecided("ftp://h.test/b"), "no declaration makes it a target"
    scope.declare("http://h.test/b")
    assert not scope.undecided("http://h.test/b")
    scope.growing = False
    assert not scope.undecided("http://h.test/c")


def test_r6_where_links_are_followed_nothing_is_undecided():
    assert not scope_of(follow_links=True, growing=True).undecided("http://h.test/b")


def test_r6_a_host_that_may_yet_be_declared_takes_no_place_of_another():
    scope = scope_of("http://h.test/a", growing=True)
    assert scope.refuses_in_place("http://h.test/a", "http://service.test/") is not None


@given(st.lists(st.text(max_size=3), max_size=300), st.lists(st.text(max_size=3), max_size=50))
def test_the_scope_knows_what_was_declared_and_nothing_else(declared, others):
    """Digests of different URLs that lie in one bucket, in a row, are not taken for another's."""
    scope = scope_of(*declared)
    known = {url.partition("#")[0] for url in declared}
    for url in {*declared, *others}:
        assert scope.is_source(url) == (url.partition("#")[0] in known)


DAY = 86400.0


@pytest.mark.parametrize(
    ("declared", "holds"),
    [
        ([None], None),
        ([7 * DAY], 7 * DAY),
        ([3600.0], 3600.0),
        ([7 * DAY, 3600.0, 2 * DAY], 7 * DAY),
        ([None, 7 * DAY], 7 * DAY),
        ([7 * DAY, None], 7 * DAY),
        ([3600.0, None], 3600.0),
        ([None, 3600.0], 3600.0),
    ],
)
def test_r8_1_of_several_cadences_for_one_url_the_longest_holds(declared, holds):
    scope = scope_of("http://h.test/other")
    news = [scope.declare("http://h.test/a#x", each) for each in declared]
    for key in ("http://h.test/a", "http://h.test/a#y", "http://h.test/a POST 0123456789abcdef"):
        assert scope.cadence(key) == holds
    assert scope.cadence("http://h.test/other") is None
    assert news[0]
    assert not scope.declare("http://h.test/a", declared[-1]), "that is known"


def test_r8_1_the_sitemaps_of_an_index_have_its_cadence():
    scope = Scope()
    scope.declare("http://h.test/index.xml", 7 * DAY)
    scope.allow_children("http://h.test/index.xml")
    assert scope.declare_child("http://h.test/one.xml", "http://h.test/index.xml")
    assert scope.cadence("http://h.test/one.xml") == 7 * DAY


def test_a_digest_is_not_found_across_two_others(monkeypatch):
    digests = {"a": (b"", bytes(range(14))), "b": (b"", bytes(range(14, 28)))}
    digests["across"] = (b"", bytes(range(5, 19)))
    monkeypatch.setattr(scope_module, "_digest", digests.__getitem__)
    scope = scope_of("a", "b")
    assert not scope.is_source("across")
    scope.declare("across")
    assert all(map(scope.is_source, digests))


def test_a_declared_url_takes_few_octets_whatever_its_length():
    def grown(length: int) -> int:
        tracemalloc.start()
        scope = Scope()
        for number in range(20_000):
            scope.declare(f"http://h.test/{number}/{'x' * length}")
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return held

    assert grown(500) < 1.1 * grown(5)
