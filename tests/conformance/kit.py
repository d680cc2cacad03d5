"""What the tests of the conformance command share: the command, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scrapy_walsh import SPEC_VERSION, __version__
from scrapy_walsh.proof.attest.document import IDS
from scrapy_walsh.proof.conformance.check import code_digest, write_record
from scrapy_walsh.proof.conformance.evidence import Evidence, Run
from scrapy_walsh.proof.sandbox import LoggedRequest
from tests import zygote
from tests.crawl.harness import USER_AGENT

ROOT = Path(__file__).parents[2]
TOKEN = "Walsh-Research"


@dataclass
class Done:
    """The finished command."""

    code: int
    stdout: str
    stderr: str

    @property
    def found(self) -> dict[str, Any]:
        """What ``--json`` printed."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    def outcomes(self, identity: str) -> dict[str, str]:
        """Outcome by title, of the rows of one id."""
        return {
            check["title"]: check["outcome"]
            for check in self.found["checks"]
            if check["id"] == identity
        }

    def failed(self) -> set[str]:
        """The ids of the rows that failed."""
        return {identity for identity, _ in self.failed_rows()}

    def failed_rows(self) -> set[tuple[str, str]]:
        """The rows that failed: id and title."""
        checks = self.found["checks"]
        return {(each["id"], each["title"]) for each in checks if each["outcome"] == "FAIL"}


def conformance(
    folder: Path, *arguments: str, path: Path | None = None, **environment: str
) -> Done:
    """``walsh conformance ARGUMENTS`` in *folder*; *path* goes to the front of PYTHONPATH."""
    return walsh(folder, "conformance", *arguments, path=path, **environment)


def walsh(folder: Path, *arguments: str, path: Path | None = None, **environment: str) -> Done:
    """``walsh ARGUMENTS`` in *folder*, as :func:`conformance`."""
    paths = [str(path)] if path else []
    done = zygote.run(
        [sys.executable, "-m", "scrapy_walsh", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, str(ROOT), os.environ.get("PYTHONPATH", "")]),
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def request(host: str, path: str, at: float, **fields: Any) -> LoggedRequest:
    """A line of a server's log; *at* in seconds, answered at once."""
    made: dict[str, Any] = {
        "arrived": at,
        "completed": at + 0.001,
        "wall": 1_800_000_000.0 + at,
        "scheme": "http",
        "host": host,
        "method": "GET",
        "target": f"http://{host}{path}",
        "path": path.partition("?")[0],
        "headers": (("User-Agent", USER_AGENT),),
        "connection": 1,
        "in_flight": 1,
        "status": 200,
    }
    return LoggedRequest(**{**made, **fields})


def evidence(*logs: list[LoggedRequest], **fields: Any) -> Evidence:
    """Runs of a bot with these logs."""
    return Evidence(USER_AGENT, [Run(log, **fields) for log in logs])


# -- a record in which all was seen to hold -------------------------------------------------------

DATE = "2026-05-24T10:00:00+00:00"


def check(id_: str, outcome: str = "PASS", **more: str) -> dict[str, str]:
    """A check of the record."""
    given = {"requirement": id_.rstrip("abcd"), "level": "MUST", "title": "title", "detail": ""}
    return {"id": id_, "outcome": outcome, **given, **more}


def record(**more: Any) -> dict[str, Any]:
    """The record of this build as walsh-research, *more* laid over it."""
    return {
        "contract": "walsh-conformance/v1",
        "tool": "scrapy-walsh",
        "tool_version": __version__,
        "code": code_digest(),
        "spec": SPEC_VERSION,
        "user_agent": USER_AGENT,
        "date": DATE,
        "seconds": 61.5,
        "live": False,
        "versions": {name: version(name) for name in ("scrapy", "protego")},
        "settings": {"mirrored": True, "overrides": {}},
        "checks": [check(id_) for id_ in IDS],
        **more,
    }


def put_record(path: Path, **more: Any) -> Path:
    """Write :func:`record` to *path*, its digest right."""
    write_record(path, record(**more))
    return path
