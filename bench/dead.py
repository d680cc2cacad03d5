"""How long a crawl takes beside one written by hand, if its dead hosts swallow packets (D13).

Run: ``python bench/dead.py [--json FILE] [--quick] [--load NAME]``.

The load is one of ``bench/makespan.py`` with dead hosts. They are on a port of this machine that
answers no SYN, because its backlog is full; the time-out is 3 s. The crawlers connect to the hosts
themselves, by names that lead to this machine, since no connection can be seen through a proxy.
``took`` is from the first request to a host of the load to the end of the process: the last
time-outs are in no log.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench import makespan  # noqa: E402
from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.proof.sandbox import read_log, requests  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = {
    "load": "<14", "bot": "<7", "dead": ">4", "requests": ">8", "took s": ">8.2f",
    "of serial": ">9.3f", "violations": ">10", "left": ">4",
}  # fmt: skip
#: In the crawling processes, each name under .test is this machine.
NAMES = """
import socket
addresses = socket.getaddrinfo
def look_up(host, *more, **named):
    name = host.decode() if isinstance(host, bytes) else host
    return addresses("127.0.0.1" if name.endswith(".test") else host, *more, **named)
socket.getaddrinfo = look_up
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="a tiny load, to see that it works")
    parser.add_argument("--load", choices=makespan.LOADS, default="quarter, dead")
    options = parser.parse_args()
    load = makespan.LOADS[options.load]
    if options.quick:
        tiny = makespan.QUICK["tiny"]
        load = replace(tiny, hosts=[*tiny.hosts, "dead0.test"], dead=frozenset(["dead0.test"]))
    took: dict[str, float] = {}
    bots = (makespan.SERIAL, "ours")
    name = "tiny" if options.quick else options.load
    rows = show((measured(name, load, bot, took) for bot in bots), COLUMNS)
    write(options.json, benchmark="dead", rows=rows)


def measured(name: str, load: makespan.Load, bot: str, took: dict[str, float]) -> Row:
    hosts = sorted(set(load.hosts))
    with tempfile.TemporaryDirectory() as directory, swallowing_port() as dead_port:
        folder = Path(directory)
        log = folder / "log.jsonl"
        sites = [makespan.site_of(host, load) for host in hosts]
        with makespan.serving(folder, log, sites) as proxy:
            port = urlsplit(proxy).port
            urls = [
                f"http://{host}:{dead_port if host in load.dead else port}/{number}"
                for number, host in enumerate(load.hosts)
            ]
            run_crawl(folder, bot, urls, f"http://operator.test:{port}")
            end = time.monotonic()
        records = (
            replace(record, host=record.host.partition(":")[0])
            for record in requests(read_log(log))
        )
        seen = [record for record in records if record.host in hosts]
        took[bot] = end - seen[0].arrived
    return {
        "load": name,
        "bot": bot,
        "dead": len(load.dead),
        "requests": len(seen),
        "took s": round(took[bot], 3),
        "of serial": round(took[bot] / took[makespan.SERIAL], 4),
        "violations": makespan.violations(seen, 1.0, load.delays, load.storms),
        "left": makespan.left(load, seen).total(),
    }


@contextmanager
def swallowing_port() -> Iterator[int]:
    """A port of this machine that answers no SYN: its backlog is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port


def run_crawl(folder: Path, bot: str, urls: list[str], operator: str) -> None:
    (folder / "sitecustomize.py").write_text(NAMES)
    command = [sys.executable, str(makespan.SERIAL_BOT)]
    if bot == "ours":
        command = [sys.executable, str(Path(__file__).resolve()), makespan.CRAWL, operator]
    env = makespan.environment(SERIAL_TIMEOUT=str(makespan.DEAD_TIMEOUT))
    env["PYTHONPATH"] = f"{folder}:{env['PYTHONPATH']}"
    subprocess.run(command, input=json.dumps(urls), text=True, cwd=folder, env=env, check=True)


def crawl(operator: str) -> None:
    exec(NAMES, {})  # noqa: S102  another sitecustomize may come first
    settings = makespan.settings("ours", 1.0)
    for name in ("WALSH_BLOCKLIST_URL", "WALSH_BLOCKLIST_SCHEMA_URL"):
        settings[name] = settings[name].replace("http://operator.test", operator)
    more = {"DOWNLOAD_TIMEOUT": makespan.DEAD_TIMEOUT, "HTTPPROXY_ENABLED": False}
    makespan.crawl_with(settings | more)


if __name__ == "__main__":
    if sys.argv[1:2] == [makespan.CRAWL]:
        crawl(sys.argv[2])
    else:
        main()
