"""The example project in an egg, as ``scrapyd-deploy`` and ``shub deploy`` pack it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs/deploy.md").read_text()
#: What the identity in the example project's settings sends.
EXAMPLE_AGENT = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/policy.html)"
DAILY = (ROOT / "docs/daily.md").read_text()


def copy_project(target: Path) -> Path:
    """A copy of ``example_project/``, without what runs and builds left in it."""
    left = shutil.ignore_patterns(".scrapy", "build", "*.egg-info", "__pycache__", "*.jsonl")
    shutil.copytree(ROOT / "example_project", target, ignore=left)
    return target


def build_egg(project: Path, egg: Path) -> Path:
    """Pack *project*."""
    pytest.importorskip("scrapyd_client", reason="in a clone: pip install -e '.[deploy-test]'")
    subprocess.run(
        [str(Path(sys.executable).parent / "scrapyd-deploy"), "--build-egg", str(egg)],
        cwd=project,
        check=True,
        capture_output=True,
        timeout=60,
    )
    return egg


@pytest.fixture(scope="session")
def egg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("egg")
    return build_egg(copy_project(folder / "project"), folder / "project.egg")


def snippet(text: str, name: str) -> str:
    """The code block of *text* that a comment names."""
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)```", text, re.DOTALL)
    assert found is not None, name
    return found[1]
