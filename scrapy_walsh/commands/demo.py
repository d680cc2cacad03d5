"""``walsh demo``: two real crawls of the sandbox, and an account of what was and was not asked."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.sandbox import Sandbox, gaps, hosts, max_in_flight, requests, user_agents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.proof.sandbox import LoggedRequest

_OPERATOR: Final = "http://operator.test/.well-known/walsh-research"
_RUNS: Final = (
    ("First run", ()),
    (
        "Second run, the same day: what did not change is not sent again (R7)",
        ("-s", "WALSH_REVISIT_REASON=the demo shows conditional requests"),
    ),
)


def main(argv: Sequence[str]) -> int:
    """Run the demo. Exit codes: 0 both crawls ended well, 1 one did not, 2 misuse."""
    parser = argparse.ArgumentParser(
        prog="walsh demo", description="Two real crawls of the sandbox, and an account."
    )
    parser.add_argument("--project", type=Path, default=Path("example_project"), metavar="DIR")
    project: Path = parser.parse_args(argv).project
    if not (project / "scrapy.cfg").is_file():
        print(f"walsh demo: no Scrapy project in {project}; see --project", file=sys.stderr)
        return 2
    with Sandbox() as box, tempfile.TemporaryDirectory() as folder:
        codes = [_run(title, extra, project, box, Path(folder)) for title, extra in _RUNS]
    return 1 if any(codes) else 0


def _run(title: str, extra: Sequence[str], project: Path, box: Sandbox, folder: Path) -> int:
    print(f"\n== {title} ==\n", flush=True)
    box.clear()
    items, log = folder / "items.jsonl", folder / "crawl.log"
    for old in (items, log):
        old.unlink(missing_ok=True)
    done = subprocess.run(  # noqa: S603  our own command
        _command(items, log, folder / "state", extra),
        cwd=project,
        env={**os.environ, "http_proxy": box.proxy_url, "https_proxy": box.proxy_url},
        check=False,
    )
    _show_account(log.read_text() if log.exists() else "")
    _show_server(box.log)
    print(f"items found: {len(items.read_text().splitlines()) if items.exists() else 0}")
    return done.returncode


def _command(items: Path, log: Path, state: Path, extra: Sequence[str]) -> list[str]:
    settings = {
        "WALSH_BLOCKLIST_URL": f"{_OPERATOR}/blocklist.json",
        "WALSH_BLOCKLIST_SCHEMA_URL": f"{_OPERATOR}/blocklist.schema.json",
        "WALSH_STATE_DIR": str(state),
        "LOG_FILE": str(log),
        "LOG_LEVEL": "INFO",
    }
    options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    crawl = [sys.executable, "-m", "scrapy", "crawl", "walsh_metadata"]
    return [*crawl, "-a", "sources=sources.toml", "-o", f"{items}:jsonl", *options, *extra]


def _show_account(log: str) -> None:
    """The crawl's own account: its sources, and what was refused and why."""
    shown = False
    for line in log.splitlines():
        _, ours, text = line.partition("[walsh_metadata] INFO: ")
        account = "account of the crawl:" in line
        if ours:
            print(text)
        shown = account or (shown and not line[:4].isdigit())
        if shown:
            print("" if account else line)


def _show_server(log: list[LoggedRequest]) -> None:
    """What the server saw: the half of the account that the crawler cannot colour."""
    seen = Counter(request.status for request in log)
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(seen.items(), key=str))
    spacing = [gap for host in hosts(log) for gap in gaps(_targets(log, host))]
    print(f"\nthe server saw {len(log)} requests to {len(hosts(log))} hosts ({statuses});")
    print(f"  at most {max_in_flight(log)} at a time, from {len(user_agents(log))} User-Agent")
    if spacing:
        print(f"  and never two on one host within {min(spacing):.3f} s, its robots.txt apart")


def _targets(log: list[LoggedRequest], host: str) -> list[LoggedRequest]:
    return [request for request in requests(log, host) if request.path != "/robots.txt"]
