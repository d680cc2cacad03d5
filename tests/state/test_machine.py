"""A state directory is one machine's: neither locks nor the steady clock reach another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state import machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Become = Callable[[str | None], None]

HERE, THERE = "0123456789abcdef0123456789abcdef\n", "f" * 32


@pytest.fixture
def become(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Become:
    """Have this machine say that its id is the text."""

    def become(text: str | None) -> None:
        path = tmp_path / "machine-id"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(machine, "_MACHINE_ID", path)

    return become


def test_the_state_of_another_machine_is_refused(tmp_path: Path, become: Become) -> None:
    directory = tmp_path / "state"
    become(HERE)
    machine.claim(directory)
    machine.claim(directory)
    assert HERE.strip() not in (directory / machine.OWNER).read_text(), "its id is its own"
    become(THERE)
    with pytest.raises(StateError, match="is the state of another machine") as found:
        machine.claim(directory)
    assert len(str(found.value).splitlines()) == 1
    (directory / machine.OWNER).unlink()  # as it says where the state was moved
    machine.claim(directory)
    become(HERE)
    with pytest.raises(StateError):
        machine.claim(directory, may_write=False)


@pytest.mark.parametrize("text", [None, "", "uninitialized"])
def test_without_an_id_nothing_is_noted(text: str | None, tmp_path: Path, become: Become) -> None:
    become(text)
    machine.claim(tmp_path / "state")
    assert not (tmp_path / "state").exists()
    become(HERE)
    machine.claim(tmp_path / "state")
    become(text)
    machine.claim(tmp_path / "state")


def test_who_only_looks_notes_nothing(tmp_path: Path, become: Become) -> None:
    become(HERE)
    machine.claim(tmp_path, may_write=False)
    assert not (tmp_path / machine.OWNER).exists()


def test_a_damaged_note_is_written_anew(tmp_path: Path, become: Become) -> None:
    become(HERE)
    (tmp_path / machine.OWNER).write_bytes(b"\x00damaged")
    machine.claim(tmp_path)
    become(THERE)
    with pytest.raises(StateError):
        machine.claim(tmp_path)
