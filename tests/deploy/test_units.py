"""The systemd units of docs/deploy.md, as systemd itself reads them, where it is installed."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.deploy.conftest import DOCS, snippet

if TYPE_CHECKING:
    from pathlib import Path

ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")
@pytest.mark.parametrize(("typing", "code"), [("OnCalendar", 0), ("OnCalender", 1)])
def test_systemd_takes_the_units_of_the_docs(typing: str, code: int, tmp_path: Path) -> None:
    service = snippet(DOCS, "systemd service").replace("=/srv/example_project\n", f"={tmp_path}\n")
    service = service.replace("/srv/example_project/.venv/bin/scrapy", sys.executable)
    service = service.replace("User=walsh", f"User={getpass.getuser()}")
    timer = snippet(DOCS, "systemd timer").replace("OnCalendar", typing)
    for kind, text in (("service", service), ("timer", timer)):
        (tmp_path / f"walsh.{kind}").write_text(text)
    command = [str(ANALYZE), "verify", "--man=no", "./walsh.service", "./walsh.timer"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
