"""D3: a list is in two files, and its row is without its text."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.commands import state_verify
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import files
from scrapy_walsh.state.records import DOCUMENTS, StoredDocument
from scrapy_walsh.state.store import MemoryStore, SqliteStore, Store
from tests.kit import BLOCKLIST_URL, NOW, change, flip, kept_list, kept_robots

if TYPE_CHECKING:
    from pathlib import Path


LIST = kept_list(NOW + 1, b'{"blocked": []}')
OTHER_URL = "https://other.test/blocklist.json"
NAMES = files.COPIES


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = SqliteStore(tmp_path)
    made.put(kept_list(NOW))
    made.put(LIST)
    yield made
    made.close()


def test_d3_a_list_is_in_two_files_and_in_no_row(store: SqliteStore, tmp_path: Path) -> None:
    assert [files.read_copy(tmp_path, name) for name in NAMES] == [LIST, LIST]
    (row,) = change(tmp_path, DOCUMENTS.select, "blocklist", BLOCKLIST_URL)
    assert DOCUMENTS.decode(row) == replace(LIST, body=b"")
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == LIST


def test_d3_a_list_is_listed_with_the_other_documents(store: SqliteStore) -> None:
    store.put(kept_robots("https://h.test"))
    assert list(store.rows(StoredDocument, "blocklist")) == [LIST]
    assert [found.kind for found in store.rows(StoredDocument)] == ["blocklist", "robots"]
    assert [found.key for found in store.rows(StoredDocument, "robots")] == ["https://h.test"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", [lambda octets: flip(octets, 200, 3), lambda octets: None])
def test_d3_either_file_makes_the_other_good(
    store: SqliteStore, tmp_path: Path, name: str, damage: Any
) -> None:
    damaged = damage((tmp_path / name).read_bytes())
    if damaged is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(damaged)
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == LIST
    assert [files.read_copy(tmp_path, each) for each in NAMES] == [LIST, LIST]
    assert len(store.notices) == (damaged is not None)


def test_d3_a_list_outlives_the_database(store: SqliteStore, tmp_path: Path) -> None:
    for path in tmp_path.glob("state.sqlite3*"):
        path.unlink()
    other = SqliteStore(tmp_path)
    assert other.get(StoredDocument, "blocklist", BLOCKLIST_URL) == LIST
    other.close()


def test_r3b_lists_of_two_addresses_are_kept_side_by_side(
    store: SqliteStore, tmp_path: Path
) -> None:
    """A mirror is set, or two bots share a state directory (D39)."""
    other = replace(LIST, key=OTHER_URL, url=OTHER_URL)
    store.put(other)
    names = files.copies_of(tmp_path, OTHER_URL)
    assert [files.read_copy(tmp_path, name) for name in names] == [other, other]
    assert files.list_files(tmp_path) == sorted([*NAMES, *names])
    for _ in range(2):
        assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == LIST
        assert store.get(StoredDocument, "blocklist", OTHER_URL) == other


THIRD_URL = "https://third.test/blocklist.json"
#: Seconds by which the clock may be set before an adoption. Back by less than one second is as if
#: two runs were side by side: then both lists bind.
SET = st.sampled_from([-1e7, -3600.0, -2.0, 0.0, 0.0, 0.01, 0.5, 1.0, 2.0, 3600.0, 1e7])


def binding(store: Store, url: str, now: float) -> set[str]:
    return {each.key for each in store.binding_lists(url, "bot", now)}


def adopt(store: Store, url: str, now: float) -> None:
    made = replace(LIST, key=url, url=url, fetched_at=now - 0.005, tokens="bot")
    store.hold_list(made, now)


@given(st.lists(st.tuples(st.sampled_from([BLOCKLIST_URL, OTHER_URL, THIRD_URL]), SET)))
def test_r3b_no_clock_changes_which_list_was_adopted_later(steps: list[tuple[str, float]]) -> None:
    """Two in one second, or a clock that is set: only a later adoption lifts a list (D39)."""
    store, now, order = MemoryStore(), NOW, list[str]()
    for url, seconds in steps:
        now += seconds + 0.01
        adopt(store, url, now)
        order = [*(each for each in order if each != url), url]
        assert binding(store, url, now) == {url}
        for place, each in enumerate(order):
            assert binding(store, each, now) == set(order[place:])


@pytest.mark.parametrize("since", [0.0, 0.3, 2.0])
def test_r3b_a_list_that_was_lost_just_before_an_adoption_binds_no_longer(
    store: SqliteStore, tmp_path: Path, since: float
) -> None:
    adopt(store, OTHER_URL, NOW + 3)
    for name in files.copies_of(tmp_path, OTHER_URL):
        (tmp_path / name).write_bytes(b"?")
    assert binding(store, THIRD_URL, NOW + 3) == {BLOCKLIST_URL, OTHER_URL}
    adopt(store, THIRD_URL, NOW + 3 + since)
    assert binding(store, THIRD_URL, NOW + 3 + since) == {THIRD_URL}
    assert binding(store, OTHER_URL, NOW + 3 + since) == {OTHER_URL, THIRD_URL}


def test_r3b_of_two_runs_side_by_side_neither_lifts_the_list_of_the_other(
    store: SqliteStore,
) -> None:
    """One fetches its list while that of the other, which it does not know of, is validated."""
    adopt(store, OTHER_URL, NOW + 3.2)
    store.hold_list(replace(LIST, key=THIRD_URL, fetched_at=NOW + 3, tokens="bot"), NOW + 3.3)
    assert binding(store, THIRD_URL, NOW + 4) == {OTHER_URL, THIRD_URL}


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("url", [BLOCKLIST_URL, OTHER_URL])
def test_r3b_of_a_list_whose_text_is_lost_it_is_known_when_it_was_had(
    store: SqliteStore, tmp_path: Path, damage: Any, url: str
) -> None:
    store.put(replace(LIST, key=OTHER_URL, url=OTHER_URL, fetched_at=LIST.fetched_at + 9))
    before = store.list_times("bot")
    for name in files.copies_of(tmp_path, url):
        damage(tmp_path / name)
    found = store.get(StoredDocument, "blocklist", url)
    assert found is not None
    assert (found.body, found.fetched_at) == (b"", before[url])
    assert store.list_times("bot") == before
    left = OTHER_URL if url == BLOCKLIST_URL else BLOCKLIST_URL
    kept = store.get(StoredDocument, "blocklist", left)
    assert kept is not None
    assert kept.body == LIST.body


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_d3_that_a_list_was_held_is_known_without_its_files(
    store: SqliteStore, tmp_path: Path, damage: Any
) -> None:
    for name in NAMES:
        damage(tmp_path / name)
    found = store.get(StoredDocument, "blocklist", BLOCKLIST_URL)
    assert found is not None
    assert found.body == b""
    assert any(
        "was adopted, and no file has its text" in line
        for line in state_verify.problems(tmp_path, lambda body, url: None)
    )


def test_d3_a_full_disk_leaves_what_was_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    store = SqliteStore(tmp_path)
    store.put(kept_list(NOW))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match=r"blocklist\.json .*No space left"):
        store.put(LIST)
    assert store.get(StoredDocument, "blocklist", BLOCKLIST_URL) == kept_list(NOW)
    store.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (files.SECOND, "blocklist-2.json: missing, although a blocklist is cached"),
        (files.COPY, "blocklist.json: missing, although a blocklist is cached"),
    ],
)
def test_d3_verify_looks_at_both_files(
    store: SqliteStore, tmp_path: Path, name: str, said: str
) -> None:
    assert list(state_verify.problems(tmp_path, lambda body, url: None)) == []
    (tmp_path / name).unlink()
    assert list(state_verify.problems(tmp_path, lambda body, url: None)) == [said]
