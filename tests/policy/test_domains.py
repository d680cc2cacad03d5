"""The set of domain names behind the blocklist: exact however it grew and wherever marks fall."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy_walsh.policy.domains import Domains

from scrapy_walsh.policy import domains as module

if TYPE_CHECKING:
    from collections.abc import Callable

LABEL = st.from_regex(r"[a-z][a-z0-9-]{0,3}", fullmatch=True)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)


def made(*chunks: list[str], reserved: int = 0) -> Domains:
    names = Domains()
    names.reserve(reserved)
    for chunk in chunks:
        names.add(chunk)
    return names


@pytest.mark.slow
@given(st.lists(st.lists(NAME, max_size=8), max_size=8), st.integers(0, 100), NAME)
def test_own_the_longest_name_covers_a_host(
    chunks: list[list[str]], reserved: int, host: str
) -> None:
    listed = [name for chunk in chunks for name in chunk]
    names = made(*chunks, reserved=reserved)
    above = [name for name in listed if host == name or host.endswith("." + name)]
    assert names.covering(host) == max(above, key=len, default=None)
    assert list(names) == list(dict.fromkeys(listed))
    assert len(names) == len(set(listed))
    assert all(names.covering(name) == name for name in listed)


MARKS: dict[str, Callable[[str], int]] = {
    # Not hash(): another in each process, its few bits here are two names' at times.
    "all in one place": lambda name: crc32(name.encode()) << 40,
    "all at the end of the table": lambda name: (crc32(name.encode()) << 40) | (2**40 - 1),
    "of two hashes": module._wide_mark,
}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_own_wherever_the_marks_fall(
    mark: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounded(name: str) -> int:
        return ((mark(name) + 2**63) % 2**64) - 2**63

    monkeypatch.setattr(module, "_mark", bounded)
    names = made([f"h{number}.test" for number in range(300)])
    assert len(names) == 300
    assert all(names.covering(f"www.h{number}.test") == f"h{number}.test" for number in range(300))
    assert not any(names.covering(f"h{number}.test") for number in range(300, 600))


def test_own_a_mark_of_zero_is_no_empty_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_mark", lambda _: 0)
    assert made(["a.test"]).covering("a.test") == "a.test"


def test_own_no_part_is_long() -> None:
    names = made([f"h{number}.test" for number in range(10_000)])
    assert max(map(len, names.parts())) <= 2_000
    assert sum(map(len, names.parts())) == 10_000
