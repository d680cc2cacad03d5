"""``walsh init --sign``: a key, its directory and settings that a crawl can use as they are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.adapters.wire.signing import signer_of
from scrapy_walsh.commands.main import main
from scrapy_walsh.policy.signing import DIRECTORY_TYPE
from tests.cli.test_init import GIVEN, config_of, settings_of

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY = "https://www.bots.org/.well-known/http-message-signatures-directory"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_key_and_the_settings_can_be_used_as_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *GIVEN, "--sign"]) == 0
    said = capsys.readouterr().out
    block = re.search(r"^ADDONS.*^WALSH_SIGNING_KEY[^\n]*$", said, re.MULTILINE | re.DOTALL)
    assert block is not None
    signer = signer_of(config_of(settings_of(block[0])))
    assert signer is not None
    listed = json.loads((folder / "keys/http-message-signatures-directory").read_text())
    assert [key["kid"] for key in listed["keys"]] == [signer.keyid]
    assert signer.directory == DIRECTORY
    assert DIRECTORY in said.partition("to upload")[2]
    assert DIRECTORY_TYPE in said


def test_a_key_that_is_there_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "keys").mkdir()
    (folder / "keys" / "key.pem").write_text("ours")
    assert main(["init", *GIVEN, "--sign"]) == 0
    assert "kept, as it was: keys/key.pem" in capsys.readouterr().out
    assert [path.read_text() for path in (folder / "keys").iterdir()] == ["ours"]


def test_a_site_without_tls_cannot_have_a_key_directory(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*GIVEN[:3], "http://bots.org", "--sign"]
    assert main(["init", *words]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "is not https" in told
    assert list(folder.iterdir()) == []


def test_without_it_nothing_is_signed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", *GIVEN]) == 0
    assert "SIGN" not in capsys.readouterr().out
    assert not (folder / "keys").exists()
