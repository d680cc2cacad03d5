"""What a command loads: Scrapy and Twisted where it needs them, and not before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.commands import common
from scrapy_walsh.ledger.recovery import last_line
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.state.store import SqliteStore
from tests.kit import honest, write

ROOT = Path(__file__).parents[2]
#: For each command of a JSON array: its exit code, and which slow packages it has loaded. Each runs
#: in a fork of a process that has imported what ``walsh`` imports, and no more.
_SAY = """
import json
import os
import sys
from scrapy_walsh.commands.main import main

for words in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if os.fork():
        os.wait()
        continue
    try:
        code = main(words)
    except SystemExit as ended:  # argparse, after its help
        code = ended.code
    slow = {"scrapy", "twisted", "jinja2", "jsonschema", "redis"} & sys.modules.keys()
    sys.stdout.flush()
    print("LOADED", code, *sorted(slow), file=sys.stderr, flush=True)
    os._exit(0)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside any project, with documents and the state of a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE", raising=False)
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /private\n")
    (tmp_path / "blocklist.json").write_text(json.dumps(blocklist()))
    state = tmp_path / ".scrapy" / "walsh"
    write(state, honest().entries)
    store = SqliteStore(state)
    store.know(last_line(state))
    store.close()
    return tmp_path


def said(*commands: str) -> dict[str, str]:
    """By command of ``walsh``, its exit code, and which slow packages it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", _SAY, json.dumps([each.split() for each in commands])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("LOADED ")]
    return dict(zip(commands, (line.removeprefix("LOADED ") for line in lines), strict=True))


BOTH = "check http://h.test/ --robots robots.txt --blocklist blocklist.json"


LOADED = {
    "--help": "0",
    "--version": "0",
    "chek": "2",
    "check -h": "0",
    "check http://h.test/private --robots robots.txt": "1",
    "check http://h.test/private --robots robots.txt -s WALSH_EXCLUDED_TLDS=gov": "1",
    BOTH: "0 jsonschema",
    "state show": "0",
    "state show --dir .scrapy/walsh --json": "0",
    "state forget h.test": "1",
    "state verify": "0",
    "verify .scrapy/walsh": "0",
    "report --output run.html": "0 jinja2",
    "audit -h": "0",
    "demo -h": "0",
}


def test_a_command_outside_a_project_loads_neither_scrapy_nor_twisted() -> None:
    assert said(*LOADED) == LOADED


def test_in_a_project_scrapy_reads_the_settings(folder: Path) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = own.settings\n")
    (folder / "own").mkdir()
    (folder / "own" / "settings.py").write_text('WALSH_EXCLUDED_TLDS = ["test"]\n')
    check = "check http://h.test/ --robots robots.txt"
    found = said(check, "--version")
    code, *slow = found[check].split()
    assert (code, "scrapy" in slow) == ("1", True)
    assert found["--version"] == "0"


def test_a_project_is_where_scrapy_would_find_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not common.in_project()
    assert common.default_state_dir() == default_state_dir()
    (folder / "scrapy.cfg").touch()
    (folder / "below" / "it").mkdir(parents=True)
    monkeypatch.chdir(folder / "below" / "it")
    assert common.in_project()
    assert common.default_state_dir() == default_state_dir()
    (folder / "scrapy.cfg").unlink()
    assert not common.in_project()
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "own.settings")
    assert common.in_project()
