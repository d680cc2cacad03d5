"""One URL, one key: which spellings are one request, and what else each key leaves out."""

from __future__ import annotations

import pytest

from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.urls import canonical_url, exact_url, key_of
from scrapy_walsh.policy.validators import key_of as validators_key

#: By exact URL, its spellings.
SPELLINGS = {
    "http://h.test/z": [
        "http://h.test/z",
        "http://h.test:80/z",
        "http://h.test:/z",
        "http://h.test:0080/z",
        "HTTP://H.Test/z",
        "http://h.test/z#part",
        "http://h.test/z#",
        "http://user:secret@h.test/z",
        "http://user@H.TEST:80/z#a?b",
        " http://h.test/z\n",
    ],
    "https://h.test/z?a=B&a": ["https://h.test:443/z?a=B&a#x", "https://H.test/z?a=B&a"],
    "http://h.test/": ["http://h.test", "http://h.test/", "http://H.TEST:80#top"],
    "http://h.test/?": ["http://h.test/?", "http://h.test?"],
    "http://h.test/?q": ["http://h.test?q", "http://h.test:80/?q"],
    "http://[::1]/z": ["http://[::1]:80/z", "http://[::1]/z#x"],
    "http://[::1]:8080/z": ["http://[::1]:8080/z"],
    "http://h.test:443/z": ["http://h.test:443/z"],
    "https://h.test:80/z": ["https://h.test:80/z"],
    "http://h.test:8080/z": ["http://h.test:8080/z", "http://h.test:08080/z#x"],
}
#: Each is a request of its own, though a reader may take it for another one here.
DISTINCT = [
    "http://h.test/a",
    "http://h.test/a/",
    "http://h.test/A",
    "http://h.test/a?",
    "http://h.test/a?b=1&a=2",
    "http://h.test/a?a=2&b=1",
    "http://h.test/%61",
    "http://h.test//a",
    "http://h.test/./a",
    "http://h.test/a;v",
    "https://h.test/a",
    "http://www.h.test/a",
    "http://h.test.:81/a",
]


@pytest.mark.parametrize(
    ("exact", "spelling"), [(exact, each) for exact, some in SPELLINGS.items() for each in some]
)
def test_r8_each_spelling_of_a_request_has_one_key(exact: str, spelling: str) -> None:
    assert exact_url(spelling) == exact
    assert exact_url(exact) == exact, "a key is its own key"
    assert key_of(spelling) == exact
    assert key_of(spelling, "POST 00") == f"{exact} POST 00"
    assert validators_key(spelling, None) == (exact, "*/*")
    assert canonical_url(spelling) == canonical_url(exact)
    scope = Scope()
    scope.declare(spelling, 7200.0)
    assert scope.is_source(exact)
    assert scope.cadence(key_of(spelling, "POST 00")) == 7200.0


def test_r8_what_is_another_request_has_another_key() -> None:
    assert len({key_of(url) for url in DISTINCT}) == len(DISTINCT)
    assert len({exact for exact in SPELLINGS if exact_url(exact) == exact}) == len(SPELLINGS)
    # De-duplication alone takes the slash off, and an empty query (T19, T20).
    assert canonical_url("http://h.test/a/") == canonical_url("http://h.test/a?")


@pytest.mark.parametrize(
    "odd", ["", "a", "mailto:x@y.test", "http:/h.test/a", "http:\\\\h.test\\a", "http://", "//h/a"]
)
def test_what_has_no_authority_loses_its_fragment_alone(odd: str) -> None:
    assert exact_url(f"{odd}#x") == exact_url(odd)
    assert exact_url(exact_url(odd)) == exact_url(odd)
