"""Runs the tests of the Scrapy that is installed, with the add-on, and what fails without it, too.

    python -m tests.scrapy_suite build/scrapy [tests/test_crawl.py ...]

The sdist is unpacked into the folder; its ``scrapy/`` is left out, so what runs is what is
installed. Red is a test that fails with the add-on, passes without it, and is not in
``by_design.toml``: it has failed twice, the second time alone. Red is a file, too, whose tests
cannot be collected: then the environment lacks what they need. Exit code 1 if anything is red, or
if the table has a row for nothing.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from scrapy_walsh.proof.sandbox import blocklist

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
TABLE = HERE / "by_design.toml"
WORKERS = os.environ.get("WORKERS", "4")
SCRAPY = version("scrapy")
#: What pytest says of a file whose tests it cannot collect.
UNCOLLECTED = "collection failure"
#: Seconds after which a test has hung.
HANGS = 300


def main() -> int:
    folder, *chosen = Path(sys.argv[1]).absolute(), *sys.argv[2:]
    root = unpacked(folder, SCRAPY)
    rows = tomllib.loads(TABLE.read_text())["because"]
    with Operator() as operator:
        path = [str(HERE / "path"), str(root), os.environ.get("PYTHONPATH")]
        given = {"WALSH_SUITE": operator.url, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        with_us = results_of(root, "walsh", chosen, given)
        failed = {each for each, error in with_us.items() if error}
        uncollected = {each for each in failed if with_us[each] == UNCOLLECTED}
        failed -= uncollected
        by_design = {each for each in failed if any(is_of(each, row) for row in rows)}
        red = failed - by_design
        if red:  # what does not run alone stays red: these tests have servers, clocks, processes
            again = results_of(root, "again", sorted(red), given, workers="1")
            red = {each for each in red if again.get(each, "it did not run")}
    if red:
        alone = results_of(root, "alone", sorted(red), {}, workers="1")
        red = {each for each in red if not alone.get(each)}
    if by_design:  # many: not one at a time
        plain = results_of(root, "plain", sorted(by_design), {})
        by_design = {each for each in by_design if not plain.get(each)}
    return report(rows, by_design, red | uncollected, with_us, whole=not chosen)


def is_of(test: str, row: dict[str, Any]) -> bool:
    """Whether a pattern of *row*, which the table has for this version, is one of *test*."""
    named = row.get("versions", SCRAPY)
    return SCRAPY in named and any(fnmatch.fnmatchcase(test, each) for each in row["tests"])


def unpacked(folder: Path, wanted: str) -> Path:
    """The sdist of Scrapy in *folder*, without the package itself."""
    root = folder / f"scrapy-{wanted}"
    if root.exists():
        return root
    folder.mkdir(parents=True, exist_ok=True)
    words = ["download", "--quiet", "--disable-pip-version-check", "--no-binary", "scrapy"]
    words += ["--no-deps", "--dest", str(folder), f"scrapy=={wanted}"]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    with tarfile.open(folder / f"scrapy-{wanted}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    shutil.rmtree(root / "scrapy")
    shutil.rmtree(root / "docs", ignore_errors=True)
    return root


def results_of(
    root: Path, name: str, chosen: Iterable[str], more: dict[str, str], workers: str = WORKERS
) -> dict[str, str]:
    """By test, the first line of its error; empty for what does not fail."""
    results = root.parent / f"{name}.xml"
    results.unlink(missing_ok=True)
    words = ["-q", "-p", "no:cacheprovider", f"--timeout={HANGS}"]
    words += ["-n", workers, f"--junit-xml={results}", "--tb=line", "-o", "junit_family=xunit1"]
    words += ["--no-header", "--continue-on-collection-errors"]
    conftest = (root / "conftest.py").read_text()
    if "--reactor" in conftest and "hasplugin" not in conftest:  # 2.13 does without the plugin
        words += ["-p", "no:twisted"]
    environment = {**os.environ, **more}
    with (root.parent / f"{name}.log").open("w") as log:
        command = [sys.executable, "-m", "pytest", *words, *(list(chosen) or ["tests"])]
        subprocess.run(command, cwd=root, env=environment, stdout=log, stderr=log, check=False)
    found: dict[str, str] = {}
    for case in ET.parse(results).iter("testcase"):  # noqa: S314  pytest has just written it
        test = _id(root, case)
        found.setdefault(test, "")
        for wrong in (*case.findall("failure"), *case.findall("error")):
            found[test] = (wrong.get("message") or "fails").partition("\n")[0][:200]
    print(f"{name}: {len(found)} tests, {sum(map(bool, found.values()))} fail", flush=True)
    return found


def _id(root: Path, case: ET.Element) -> str:
    """``tests/test_x.py::TestX::test_y``, by which pytest runs it.

    The file that a case names is that of its function, which its class may only have inherited.
    """
    parts = (case.get("classname") or "").split(".")
    for depth in range(len(parts), 0, -1):
        file = "/".join(parts[:depth]) + ".py"
        if (root / file).exists():
            return "::".join([file, *parts[depth:], case.get("name") or ""])
    return case.get("file") or ""


def report(
    rows: list[dict[str, Any]],
    by_design: set[str],
    red: set[str],
    errors: dict[str, str],
    *,
    whole: bool,
) -> int:
    """Print what failed, by reason. Returns the exit code."""
    left, unused = set(by_design), []
    for row in rows:
        mine = {each for each in left if is_of(each, row)}
        left -= mine
        if SCRAPY in row.get("versions", SCRAPY):
            unused += [
                pattern
                for pattern in row["tests"]
                if fnmatch.filter(errors, pattern) and not fnmatch.filter(by_design, pattern)
            ]
        print(f"{len(mine):5} by design: {row['reason']}")
    for each in sorted(red):
        print(f"RED {each}: {errors[each]}")
    if whole:
        for pattern in unused:
            print(f"NOTHING FAILS AS THE TABLE SAYS: {pattern}")
    print(f"{len(by_design)} fail by design with the add-on alone, and {len(red)} are red")
    return 1 if red or (whole and unused) else 0


class Operator(ThreadingHTTPServer):
    """Serves an empty blocklist, its schema and nothing else, on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Documents)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Operator:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Documents(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = {
            "/blocklist.json": {**blocklist(inline=False), "blocked": []},
            "/blocklist.schema.json": {"type": "object"},
        }.get(self.path)
        body = b"" if found is None else json.dumps(found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


if __name__ == "__main__":
    sys.exit(main())
