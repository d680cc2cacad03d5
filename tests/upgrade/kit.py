"""A copy of what an earlier version left behind, in a project whose clocks go on from there."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests import zygote
from tests.crawl.harness import Crawl, crawl, state_dir
from tests.upgrade import world

DATA = Path(__file__).parent / "data"
UNREACHABLE = Route(behaviour="reset")
#: The ``sitecustomize`` of :mod:`tests.upgrade.world` moves clocks, and does nothing else.
CLOCKS = {zygote.BROKEN: "1"}


def copy(name: str, target: Path) -> Path:
    """A copy of folder *name* of the data at *target*."""
    shutil.copytree(DATA / name, target)
    for packed in target.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return target


@dataclass
class Project:
    """A project with a copy of the old state, and the sandbox that it crawls."""

    directory: Path
    box: Sandbox

    @property
    def state(self) -> Path:
        return state_dir(self.directory)

    def at(self, moment: float, jump: float = 0.0) -> None:
        """It is *moment* (Unix seconds) now; the wall clock says *jump* seconds more."""
        world.move_clocks(self.directory, moment - time.time(), jump)

    def crawl(self, *urls: str, arguments: tuple[str, ...] = (), **options: Any) -> Crawl:
        """One run of today's version."""
        done = crawl(self.directory, self.box, *urls, arguments=arguments, **options, **CLOCKS)
        assert "Traceback" not in done.output, done.output
        return done

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``walsh ARGUMENTS`` in the project, under its clocks."""
        path = [str(self.directory), os.environ.get("PYTHONPATH")]
        return zygote.run(
            [sys.executable, "-m", "scrapy_walsh", *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), **CLOCKS},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def project(directory: Path, box: Sandbox, name: str | None = "days", **settings: Any) -> Project:
    """A project in *directory* with folder *name* of the data as its state directory."""
    box.clear()
    for each in world.sites():
        box.put(each)
    made = Project(world.project(directory, settings), box)
    made.at(world.END)
    if name is not None:
        made.state.parent.mkdir(parents=True)
        copy(name, made.state)
    return made
