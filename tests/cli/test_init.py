"""``walsh init``: what it writes can be used as it is, and what is there stays as it is."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.commands.common import default_state_dir
from scrapy_walsh.commands.main import main
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.policy.list.schema import parse_blocklist
from scrapy_walsh.sources.sources import read_sources
from tests import zygote

ROOT = Path(__file__).parents[2]
GIVEN = ("--product", "OurBot/1.0", "--site", "https://www.bots.org/crawler/")
FILES = ["blocklist.json", "policy.html", "sources.toml"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _read(name: str) -> str:
    return Path(name).read_text()


def settings_of(text: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(text, namespace)  # noqa: S102  our own output
    return {name: value for name, value in namespace.items() if name.isupper()}


def config_of(settings: dict[str, Any]) -> WalshConfig:
    return WalshConfig.from_settings(settings, default_state_dir)


def test_own_the_files_can_be_used_as_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *GIVEN, "--contact", "a&b@bots.org"]) == 0
    said, errors = capsys.readouterr()
    assert errors == ""
    assert sorted(path.name for path in folder.iterdir()) == FILES
    block = re.search(r"^SPIDER_MODULES.*?^}$", said, re.MULTILINE | re.DOTALL)
    assert block is not None
    settings = settings_of(block[0])
    config = config_of(settings)
    assert settings["ADDONS"] == {"scrapy_walsh.Addon": 500}
    assert settings["SPIDER_MODULES"] == ["scrapy_walsh.spiders"]
    document = parse_blocklist(Path("blocklist.json").read_bytes(), None)
    assert (document.inline, list(document), document.refresh) == (True, [], 21600)
    with pytest.raises(SourcesInvalid, match=r"no \[\[source\]\] table; write one"):
        read_sources("sources.toml")  # requests nothing before somebody has said what
    Path("sources.toml").write_text(re.sub(r"(?m)^# (?=\[|\w+ =)", "", _read("sources.toml")))
    assert read_sources("sources.toml")[0][0].name == "An example"
    policy = _read("policy.html")
    for text in (config.identity.user_agent, "User-agent: OurBot", "a&amp;b@bots.org",
                 config.blocklist_url):  # fmt: skip
        assert text in policy
    for url in (config.identity.policy_url, config.blocklist_url):
        assert url.startswith("https://www.bots.org/crawler/")
        assert url in said.partition("to upload")[2]
    line = re.search(
        r"^  \d+ \d+ \* \* \* cd (\S+) && (\S+) -m scrapy crawl walsh_m.*", said, re.MULTILINE
    )
    assert line is not None
    assert line[1] == str(folder)
    assert line[2] == sys.executable
    assert line[0].endswith(" -L WARNING")  # so a good day is silent


def test_own_whom_to_write_to_is_said_where_it_was_not_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["init", *GIVEN, "--dir", "new/folder"]) == 0
    assert "see that opt-out@bots.org reaches you" in capsys.readouterr().out
    assert "mailto:opt-out@bots.org" in Path("new/folder/policy.html").read_text()


@pytest.mark.parametrize("name", FILES)
def test_own_init_overwrites_nothing_and_makes_what_is_missing(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).symlink_to("nowhere")
    assert main(["init", *GIVEN]) == 0
    said = capsys.readouterr().out
    assert f"kept, as it was: {name}" in said
    assert not (folder / "nowhere").exists()
    others = [each for each in FILES if each != name]
    assert all(f"written: {each}" in said and (folder / each).is_file() for each in others)


def files_of(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_own_init_after_init_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "settings.py").write_text("SPIDER_MODULES = ['own']\n")
    asked = ["init", *GIVEN, "--write", "settings.py"]
    assert main(asked) == 0
    before = files_of(folder)
    capsys.readouterr()
    assert main(asked) == 0
    assert capsys.readouterr().out.count("kept, as it was: ") == 4
    assert before == files_of(folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--product", "OurBot", *GIVEN[2:]), "Token/MAJOR.MINOR"),
        (("--product", "Googlebot/2.1", *GIVEN[2:]), "use your own"),
        ((*GIVEN[:2], "--site", "bots.org"), "absolute http or https URL"),
        ((*GIVEN, "--contact", "nobody"), "no mail address"),
        ((*GIVEN, "--write", "none.py"), "none.py: No such file"),
    ],
)
def test_own_misuse_is_one_line_and_writes_nothing(
    words: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *words]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert said in errors
    assert list(folder.iterdir()) == []


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.usefixtures("forked")
def test_own_write_appends_to_the_settings_of_a_new_project(folder: Path) -> None:
    """As `scrapy startproject` makes them; what they set already stays."""
    start = [sys.executable, "-m", "scrapy", "startproject", "ours"]
    zygote.run(start, check=True, capture_output=True, env=environment())
    path = folder / "ours" / "ours" / "settings.py"
    before = path.read_text()
    path.write_text(before + 'ADDONS = {"another.Addon": 1}')
    assert main(["init", *GIVEN, "--dir", "ours", "--write", str(path)]) == 0
    settings = settings_of(path.read_text())
    assert path.read_text().startswith(before)
    assert settings["SPIDER_MODULES"] == ["ours.spiders", "scrapy_walsh.spiders"]
    assert settings["ADDONS"] == {"another.Addon": 1, "scrapy_walsh.Addon": 500}
    assert config_of(settings).identity.product == "OurBot/1.0"


def test_own_an_identity_that_is_there_stays(folder: Path) -> None:
    path = folder / "settings.py"
    before = b'# caf\xe9\nWALSH_IDENTITY = "walsh-research"\n'
    path.write_bytes(before)
    assert main(["init", *GIVEN, "--write", str(path)]) == 0
    assert path.read_bytes() == before
    assert (folder / "blocklist.json").exists()


# -- docs ---------------------------------------------------------------------------------

DOCUMENT = (ROOT / "docs/identity.md").read_text()


def snippet(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_own_docs_commands_run() -> None:
    (init,) = snippet("init").splitlines()
    add, remove, check, online = snippet("opt-out").splitlines()
    for command in (init, add, remove, check):
        name, *words = shlex.split(command)
        assert (name, main(words)) == ("walsh", 0)
    assert shlex.split(online)[:3] == ["walsh", "blocklist", "check"]


def test_own_docs_show_the_shortest_list_that_a_crawl_adopts() -> None:
    document = parse_blocklist(snippet("minimal list").encode(), None)
    assert list(document) == ["opted-out.example"]
    assert (document.refresh, document.warnings) == (21600, ())
