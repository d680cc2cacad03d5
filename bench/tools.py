"""The cost of the commands that read a ledger or a state: ``report``, ``verify``, ``state show``.

Run: ``python bench/tools.py [--json FILE] [--quick] [--targets N] [--day N] [--beside PYTHON]``.

The ledger has N old targets (default 100,000), each on a host of its own with its own robots.txt,
in ten daily runs, and then the run of a day (default 500 targets on hosts that are known). Each
command runs in a process of its own. ``cpu s``: its processor time, the least of the rounds.
``MB``: the most memory that it had. ``ratio``: the processor time over that of the row that ``of``
names. With ``--beside`` another interpreter, in which another revision of the package is installed,
runs each command as well, and ``of that`` is our processor time over its.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.ledger.files import (  # noqa: E402
    DOCUMENTS,
    FILE,
    GENESIS,
    HEAD,
    ROTATE_AT,
    Documents,
    chain_line,
)
from scrapy_walsh.state.records import (  # noqa: E402
    Deferral,
    HostRecord,
    Reading,
    SeenItem,
    StoredDocument,
    Validators,
    VisitRecord,
)
from scrapy_walsh.state.store import SqliteStore  # noqa: E402
from tests.crawl.harness import LIST_URL  # noqa: E402
from tests.kit import LIST, RULE, T, digest, exchange, header, terms_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY: Final = 86_400.0
#: Daily runs before the day, and seconds between two targets.
RUNS: Final = 10
STEP: Final = 1.5
RULES: Final = "User-agent: *\n" + "".join(f"Disallow: /private/{rule}/\n" for rule in range(20))
#: Runs a command, and says its processor time in seconds and its most memory in kB.
CHILD: Final = """
import resource, sys, time
from scrapy_walsh.commands.main import main
code = main(sys.argv[1:])
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
COLUMNS: Final = {
    "command": "<20", "state": "<24", "cpu s": ">8.2f", "MB": ">6.0f", "of": "<28",
    "ratio": ">6.2f", "of that": ">7.2f",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="few targets, to see that it works")
    parser.add_argument("--targets", type=int, default=100_000)
    parser.add_argument("--day", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--beside", metavar="PYTHON", help="another interpreter, beside this one")
    options = parser.parse_args()
    if options.quick:
        options.targets, options.day, options.rounds = 60, 10, 1
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        write_ledgers(Path(folder), options.targets, options.day)
        write_state(Path(folder, "hosts"), options.targets)
        rows = show(measured(Path(folder), options), COLUMNS)
    write(options.json, benchmark="tools", rows=rows)


def measured(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """A row of each command, on each of the directories in *folder*."""
    page = str(folder / "page.html")
    day = f"{options.day:,} new"
    both = f"{options.targets:,} old, {day}"
    host = ("report", "--host", host_of(0), "-o", page)
    commands = [
        (("report", "--days", "1", "-o", page), "day", day, ""),
        (("report", "--days", "1", "-o", page), "all", both, f"report --days, {day}"),
        (host, "day", day, ""),
        (host, "all", both, f"report --host, {day}"),
        (("verify",), "all", both, ""),
        (("state", "verify"), "hosts", f"{options.targets:,} hosts", ""),
        (("state", "show"), "hosts", f"{options.targets:,} hosts", "state verify"),
    ]
    base = 0.0
    for words, name, state, of in commands:
        place = ["--dir", str(folder / name)] if words[0] == "state" else [str(folder / name)]
        cost, octets = cost_of(sys.executable, [*words, *place], options.rounds)
        base = base if of else cost
        title = " ".join(words[:2])
        row = {"command": title, "state": state, "cpu s": cost, "MB": octets / 1e6, "of": of}
        if of:
            row["ratio"] = cost / base
        if options.beside is not None:
            row["of that"] = cost / cost_of(options.beside, [*words, *place], options.rounds)[0]
        yield row


def cost_of(python: str, words: list[str], rounds: int) -> tuple[float, float]:
    """The least seconds of processor time of the command, and the most octets of memory."""
    costs, octets = [], []
    for _ in range(rounds):
        # In a directory without a project, so that the settings are the defaults.
        command = [python, "-c", CHILD, *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, f"{words} ends with {done.returncode}: {done.stderr}"
        cost, kilobytes = done.stderr.split()[-2:]
        costs.append(float(cost))
        octets.append(float(kilobytes) * 1024)
    return min(costs), max(octets)


# -- a ledger ---------------------------------------------------------------------------------


def host_of(number: int) -> str:
    return f"h{number}.site.example"


def write_ledgers(folder: Path, targets: int, day: int) -> None:
    """Write ``day``, the ledger of one day, and ``all``: the same after *targets* old targets."""
    midnight = time.time() // DAY * DAY
    (folder / "day").mkdir()
    (folder / "all").mkdir()
    today = [*run("today", midnight + 1, range(day))]
    old = (
        entry
        for number in range(RUNS)
        for entry in run(
            f"run{number}",
            midnight + 1 - (RUNS - number) * DAY,
            range(targets * number // RUNS, targets * (number + 1) // RUNS),
        )
    )
    write_ledger(folder / "day", iter(today), max(day, 1))
    write_ledger(folder / "all", (entry for part in (old, today) for entry in part), targets)


def write_ledger(directory: Path, entries: Iterator[dict[str, Any]], hosts: int) -> None:
    """Write the chained *entries*, and the documents of *hosts*."""
    previous, number, parts = GENESIS, 0, 0
    lines: list[bytes] = []
    size = ROTATE_AT
    for entry in entries:
        if size >= ROTATE_AT:
            if lines:
                (directory / f"ledger-{parts:06}.jsonl").write_bytes(b"".join(lines))
            lines, size, parts = [], 0, parts + 1
            line, previous = chain_line({**header(parts), "at": entry["at"]}, number + 1, previous)
            number += 1
            lines.append(line)
        line, previous = chain_line(entry, number + 1, previous)
        number += 1
        size += len(line)
        lines.append(line)
    (directory / FILE).write_bytes(b"".join(lines))
    (directory / HEAD).write_bytes(b"%012d %s\n" % (number, previous.encode()))
    documents = Documents(directory / DOCUMENTS)
    documents.put("blocklist", LIST, digest(LIST), parts)
    bodies = map(robots_of, range(hosts))
    rows = ((digest(body), "robots", parts, zlib.compress(body, 1)) for body in bodies)
    with closing(sqlite3.connect(directory / DOCUMENTS)) as connection, connection:
        connection.executemany("INSERT INTO documents VALUES (?, ?, ?, ?)", rows)


def robots_of(number: int) -> bytes:
    return f"{RULES}Disallow: /{number}/\nAllow: /\n".encode()


def run(name: str, began: float, numbers: range) -> Iterator[dict[str, Any]]:
    """The lines of one run: of each host its robots.txt and one target."""
    yield entry(began, name, "started", **terms_of(f"process-{name}", {}))
    for number in numbers:
        yield entry(began + 0.1, name, "declared", url=url_of(number))
    yield asked(began + 0.2, name, LIST_URL, purpose="operator", body=digest(LIST))
    listed = {"url": LIST_URL, "requirement": "R3", "digest": digest(LIST), "status": 200}
    yield entry(began + 0.3, name, "adopted", **listed)
    for number in numbers:
        yield from target(name, number, began + 1 + STEP * (number - numbers.start))
    yield entry(began + 2 + STEP * len(numbers), name, "ended", reason="finished")


def target(name: str, number: int, at: float) -> Iterator[dict[str, Any]]:
    """The lines of a host's robots.txt and of its target, which T1 lets follow at once."""
    url = url_of(number)
    host = host_of(number)
    robots = f"https://{host}/robots.txt"
    body = digest(robots_of(number))
    rule = {**RULE, "digest": body, "document": robots, "line": 23}
    is_new = name != "today"
    delay = 0.1 if is_new else 1.1
    more = {"exempt": is_new, "body": body, "octets": 500, "whole": True}
    yield asked(at, name, robots, purpose="robots", **more)
    members = {"url": robots, "host": host, "requirement": "R2", "digest": body, "status": 200}
    yield entry(at + 0.02, name, "adopted", group=["*"], **members)
    yield asked(at + delay, name, url, verdict=rule["verdict"], digest=body, octets=20_000)
    yield entry(at + delay + 0.02, name, "fetched", url=url, host=host, status=200, **rule)


def asked(at: float, name: str, url: str, **more: Any) -> dict[str, Any]:
    members = exchange(url, at - T, at - T + 0.01, address="192.0.2.1", **more)
    return entry(at + 0.0101, name, "asked", **members)


def entry(at: float, name: str, kind: str, **members: Any) -> dict[str, Any]:
    return {"at": at, "run": name, "kind": kind, **members}


def url_of(number: int) -> str:
    return f"https://{host_of(number)}/feed.xml"


# -- a state ----------------------------------------------------------------------------------


def write_state(directory: Path, hosts: int) -> None:
    """Write what daily runs over *hosts* leave: of each host all kinds of records."""
    now = time.time()
    store = SqliteStore(directory)
    for start in range(0, hosts, 1000):
        numbers = range(start, min(start + 1000, hosts))
        urls = [(number, host_of(number), url_of(number)) for number in numbers]
        store.put(*[HostRecord(host, now - DAY + number, 1.0) for number, host, _ in urls])
        store.put(*[VisitRecord(url, now - DAY + number, "200") for number, _, url in urls])
        store.put(*[Reading(url, now - DAY, now - DAY + number, 1) for number, _, url in urls])
        store.put(*[Validators(url, "feed", '"abc"', None, now - DAY) for _, _, url in urls])
        store.put(*[document_of(number, host, now - DAY) for number, host, _ in urls])
        items = [f"{url}/{item}" for _, _, url in urls for item in range(3)]
        store.put(*[SeenItem(item, now - DAY) for item in items])
        late = [(url, host, now + number) for number, host, url in urls if number % 20 == 0]
        store.put(*[Deferral(url, host, due, "Retry-After") for url, host, due in late])
    store.close()


def document_of(number: int, host: str, at: float) -> StoredDocument:
    origin = f"https://{host}"
    url = f"{origin}/robots.txt"
    return StoredDocument("robots", origin, url, robots_of(number), at, 200, "parse")


if __name__ == "__main__":
    main()
