"""``walsh demo``: two real crawls of the sandbox, and what was sent and was not sent in them.

It writes a small project, crawls with it, and leaves it behind as a first project to look at, with
its log, its ledger and a report of the first run.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tomlkit

from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.terminal import show, table
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.conformance.crawl import environment
from scrapy_walsh.proof.sandbox import (
    Sandbox,
    demo_sources,
    gaps,
    hosts,
    max_in_flight,
    requests,
    user_agents,
)
from scrapy_walsh.sources.report import label

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.sandbox import LoggedRequest

_PACKAGE: Final = "walsh_demo"
_CONFIG: Final = f"[settings]\ndefault = {_PACKAGE}.settings\n"
#: The operator of this identity is one of the sandbox's hosts.
_SETTINGS: Final = """\
# The hosts of this project exist in the sandbox of `walsh demo` only.
ADDONS = {"scrapy_walsh.Addon": 500}
WALSH_IDENTITY = {
    "product": "DemoBot/1.0",
    "policy_url": "http://operator.test/bot/",
    "blocklist_url": "http://operator.test/.well-known/walsh-research/blocklist.json",
}
"""
_CRAWL: Final = (
    sys.executable,
    "-m",
    "scrapy",
    "crawl",
    "walsh_metadata",
    "-a",
    "sources=sources.toml",
    "-s",
    "LOG_LEVEL=INFO",
)
_RUNS: Final = (
    ("First run", ()),
    (
        "Second run, the same day: what did not change is not sent again (R7)",
        ("-s", "WALSH_REVISIT_REASON=the demo shows conditional requests"),
    ),
)
_STATE: Final = Path(".scrapy", "walsh")
_PAGE: Final = "report.html"
#: What the words of the outcomes mean.
_LEGEND: Final = """
read       in this format: a feed, a markdown page, or the site's llms.txt
unchanged  the site answered that nothing is new, and sent no content
refused    by the site's robots.txt (R2), or by the bot's list of opt-outs (R3)
left out   it offers only HTML, which is never read, or its page is not there
rule       of the specification: R5 failures, R7 unchanged, R9 formats
"""
_HEADINGS: Final = ("source", "outcome", "rule", "requests", "new links")
_MEMBERS: Final = ("source", "outcome", "requirement", "requests", "new")
_LEAST: Final = (35, 19, 4, 8, 9)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh demo`` takes."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR",
        help="where to make its project, which stays (default: a temporary directory)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Make the project, crawl with it twice, and show what came of it."""
    folder = _make_project(args.dir)
    with Sandbox() as box:
        codes = [_run(number, folder, box) for number in range(len(_RUNS))]
    print(_LEGEND, end="")
    _show_next(folder)
    if any(codes):
        return 1
    return 0


def _make_project(directory: Path | None) -> Path:
    """Make the project in *directory*. Raises OSError; Misuse if that is not empty."""
    folder = Path(tempfile.mkdtemp(prefix="walsh-demo-")) if directory is None else directory
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Misuse(f"{folder} is not empty; give another --dir")
    package = folder / _PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text(_SETTINGS)
    (folder / "scrapy.cfg").write_text(_CONFIG)
    declared = [{"name": s.name, "url": s.url, "feed": s.feed} for s in demo_sources()]
    sources = [{name: value for name, value in source.items() if value} for source in declared]
    (folder / "sources.toml").write_text(tomlkit.dumps({"source": sources}))
    return folder.absolute()


# -- a crawl ------------------------------------------------------------------------------


def _run(number: int, folder: Path, box: Sandbox) -> int:
    title, extra = _RUNS[number]
    print(f"\n== {title} ==\n", flush=True)
    box.clear()
    name = f"run-{number + 1}"
    files = [
        "-a",
        f"report={name}.json",
        "-o",
        f"{name}.jsonl",
        "-s",
        f"LOG_FILE={name}.log",
    ]
    done = subprocess.run(  # noqa: S603  our own command
        [*_CRAWL, *files, *extra],
        cwd=folder,
        env=environment(box.proxy_url),
        check=False,
    )
    if done.returncode:
        print(f"the crawl ended with exit code {done.returncode}: see {folder / name}.log")
        return done.returncode
    rows = json.loads((folder / f"{name}.json").read_text())["sources"]
    show(_table(rows))
    _show_server(box.log)
    print(f"new links: {sum(row['new'] for row in rows)}")
    if number:
        return 0
    from scrapy_walsh.commands.report import write_report  # noqa: PLC0415  slow

    return write_report(folder / _STATE, str(folder / _PAGE))


# -- what is shown ------------------------------------------------------------------------


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each source, and below it why no data came; within 80 columns but for reasons."""
    labels = [label(row["outcome"], only_html=row["only_html"]) for row in rows]
    shown = [{**row, "outcome": text} for row, text in zip(rows, labels, strict=True)]
    cells = [_HEADINGS, *((*(str(row[name]) for name in _MEMBERS),) for row in shown)]
    for cell, row in zip(cells, [{"reason": ""}, *rows], strict=True):
        yield from table([cell], least=_LEAST, right={3, 4}, gap=1)
        yield from table([[row["reason"]]] if row["reason"] else [], indent=4)


def _show_server(log: list[LoggedRequest]) -> None:
    """Print what the server saw: this half of the account does not come from the crawler."""
    counts = Counter(request.status for request in log)
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(counts.items(), key=str))
    targets = [request for request in log if request.path != "/robots.txt"]
    spacing = [gap for host in hosts(log) for gap in gaps(requests(targets, host))]
    seen_hosts = plural(len(hosts(log)), "host")
    print(f"\nthe server saw {plural(len(log), 'request')} to {seen_hosts} ({statuses});")
    print(f"  at most {max_in_flight(log)} at a time, from {len(user_agents(log))} User-Agent")
    if spacing:
        print(f"  and at least {min(spacing):.3f} s between requests to a host, robots.txt aside")


def _show_next(folder: Path) -> None:
    page = folder / _PAGE
    state = shlex.quote(str(folder / _STATE))
    if page.exists():
        print(f"\nthe first run as a page: {page}")
    print("\nwhat to try next:")
    walsh = _command()
    print(f"  {walsh} verify {state}")
    print(f"  {walsh} state show --dir {state}")
    print(f"  {walsh} init -h")


def _command() -> str:
    """How ``walsh`` can be typed here: from an environment that is not active, with its path."""
    script = Path(sys.executable).with_name("walsh")
    on_path = shutil.which("walsh")
    if on_path is not None and (Path(on_path) == script or not script.exists()):
        return "walsh"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m scrapy_walsh"
    if script.is_relative_to(Path.cwd()):
        script = script.relative_to(Path.cwd())
    return shlex.quote(str(script))
