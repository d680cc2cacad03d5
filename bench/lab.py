"""What three crawlers keep of R1 to R11, by the sandbox's log: a markdown matrix.

Run: ``python bench/lab.py [--json FILE] [--quick] [--bots NAME ...]``. Each bot of ``bench/bots``
is judged by ``walsh conformance --command``; ``--quick`` takes four parts of the lab.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

BOTS_DIR = Path(__file__).resolve().parent / "bots"
STOCK = ["--user-agent", f"Scrapy/{version('scrapy')} (+https://scrapy.org)", "--token", "Scrapy"]
#: The title of the column, the script, and how the bot calls itself.
BOTS: dict[str, tuple[str, str, list[str]]] = {
    "stock": (f"Scrapy {version('scrapy')}", "stock.py", STOCK),
    "requests": (f"requests {version('requests')} + robotparser", "requests_bot.py", []),
    "own": (f"scrapy-walsh {version('scrapy-walsh')}", "own.py", []),
}
CONFORMANCE = [sys.executable, "-m", "scrapy_walsh", "conformance"]
QUICK = ["--only", "robots,blocklist,pacing,again"]


def judge(name: str, extra: list[str]) -> dict[str, Any]:
    """The lab's JSON about one bot."""
    _, script, calls_itself = BOTS[name]
    command = shlex.join([sys.executable, str(BOTS_DIR / script)])
    done = subprocess.run(
        [*CONFORMANCE, "--json", "--command", command, *calls_itself, *extra],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def matrix(found: dict[str, dict[str, Any]]) -> list[str]:
    """Markdown: a row for each check, a column for each bot."""
    columns = [
        {_key(check): check["outcome"] for check in each["checks"]} for each in found.values()
    ]
    first = next(iter(found.values()))["checks"]
    titles = [BOTS[name][0] for name in found]
    lines = [f"| | level | what | {' | '.join(titles)} |", "|---|---|---|" + "---|" * len(titles)]
    for check in first:
        cells = [column[_key(check)] for column in columns]
        shown = " | ".join([check["id"], check["level"], check["title"], *cells])
        lines.append(f"| {shown} |")
    return lines


def _key(check: dict[str, Any]) -> tuple[str, str]:
    return check["id"], check["title"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write what the lab said to this file as well")
    parser.add_argument("--quick", action="store_true", help="four parts of the lab only")
    parser.add_argument("--bots", nargs="+", choices=BOTS, default=list(BOTS))
    options = parser.parse_args()
    found = {name: judge(name, QUICK if options.quick else []) for name in options.bots}
    date = datetime.now(UTC).date().isoformat()
    print(f"{date}, Python {platform.python_version()}\n")
    print("\n".join(matrix(found)))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
