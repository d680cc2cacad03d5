"""A system without file locks, such as Windows: no crawl has a state directory there."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.proof.sandbox import Sandbox
from scrapy_walsh.state import machine
from tests import zygote
from tests.crawl.harness import LIST_SPIDER, make_project, run_scrapy, site

if TYPE_CHECKING:
    from pathlib import Path

#: Python imports this module first: fcntl is missing, for this package alone.
SITECUSTOMIZE = """
import builtins

found = builtins.__import__

def missing(name, globals=None, *rest, **named):
    if name == "fcntl" and str((globals or {}).get("__name__", "")).startswith("scrapy_walsh"):
        raise ImportError("No module named 'fcntl'")
    return found(name, globals, *rest, **named)

builtins.__import__ = missing
"""


def test_without_locks_a_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "fcntl", None)
    with pytest.raises(StateError, match="has no file locks") as refusal:
        machine.enter(tmp_path)
    assert "\n" not in str(refusal.value)
    machine.enter(None)


@pytest.mark.crawl
def test_without_locks_a_crawl_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(zygote.BROKEN, "1")  # the package is imported anew, without fcntl
    project = make_project(tmp_path / "project", LIST_SPIDER)
    (project / "sitecustomize.py").write_text(textwrap.dedent(SITECUSTOMIZE))
    with Sandbox() as box:
        box.put(site("h.test"))
        refused = run_scrapy(project, box, "crawl", "probe", "-a", "urls=http://h.test/c")
        assert refused.returncode == 1
        assert len([e for e in refused.stdout.splitlines() if "no file locks" in e]) == 1
        assert "Traceback" not in refused.stdout
        assert box.log == []
