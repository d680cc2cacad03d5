"""What holds for every subcommand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from scrapy_walsh.cli import main as commands

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest


def test_own_a_file_that_is_not_there_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "none" / "file"
    for name, *options in (
        ("state", "import", "--dir", str(tmp_path), str(there)),
        ("attest", "--identity", "walsh-research", "--sign", str(there)),
    ):
        assert commands.main([name, *options]) == 2
        assert capsys.readouterr().err == f"walsh {name}: {there}: No such file or directory\n"


def test_own_ctrl_c_ends_a_command_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(argv: Sequence[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "import_module", lambda _: SimpleNamespace(main=interrupted))
    for name in commands.SUBCOMMANDS:
        assert commands.main([name]) == 2
        assert capsys.readouterr() == ("", f"walsh {name}: stopped\n")
