"""How often a real nginx with limit_req refuses a crawl (D28).

Run: ``python bench/limited.py [--json FILE] [--quick]``, where nginx is installed. A server on
loopback allows 30 requests a minute; ``burst`` is that of ``limit_req``, with ``nodelay``. Each row
is a crawl with a state directory of its own, but for the one that is called ``the next run``, which
goes on with that of the crawl before. All figures but ``interval s`` come from nginx's own log.

``refused``: answers 429. ``fetched``: targets that were answered 200 in the end. ``interval s``:
what the host has taught by the end of the crawl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.proof.sandbox import blocklist  # noqa: E402
from scrapy_walsh.state import open_store  # noqa: E402
from scrapy_walsh.state.records import HostRecord  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Burst, targets, and whether the crawl goes on with the state of the one before.
LOADS = ((0, 14, False), (0, 14, True), (0, 27, False), (2, 14, False), (2, 27, False))
QUICK = LOADS[:1]
COLUMNS = {
    "burst": ">5", "run": "<12", "targets": ">7", "fetched": ">7", "requests": ">8",
    "refused": ">7", "seconds": ">7.1f", "interval s": ">10.2f",
}  # fmt: skip
CONF = """
daemon off;
master_process off;
pid nginx.pid;
error_log error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
  uwsgi_temp_path temp; scgi_temp_path temp;
  log_format seen '$status $uri';
  limit_req_zone $binary_remote_addr zone=slow:1m rate=30r/m;
  limit_req_status 429;
  server {{ listen 127.0.0.1:{operator}; root www; }}
  server {{
    listen 127.0.0.1:{limited}; root www; access_log seen.log seen;
    limit_req zone=slow {burst};
  }}
}}
"""
SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for number in range({targets}):
            yield scrapy.Request(f"http://127.0.0.1:{port}/{{number}}.txt")

    def parse(self, response):
        pass
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="the first crawl alone")
    options = parser.parse_args()
    if nginx() is None:
        sys.exit("no nginx here: install it, for instance with apt-get install nginx")
    with tempfile.TemporaryDirectory() as folder:
        loads = QUICK if options.quick else LOADS
        rows = show((measured(Path(folder), n, load) for n, load in enumerate(loads)), COLUMNS)
    write(options.json, benchmark="limited", rows=rows)


def nginx() -> str | None:
    """The path of nginx, also where /usr/sbin is not searched; None where there is none."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def measured(folder: Path, number: int, load: tuple[int, int, bool]) -> Row:
    """One crawl, beside an nginx of its own."""
    burst, targets, again = load
    state = folder / f"state-{number - again}"
    home = folder / str(number)
    (home / "www").mkdir(parents=True)
    for name in range(targets):
        (home / "www" / f"{name}.txt").write_text("a page\n")
    (home / "www" / "robots.txt").write_text("User-agent: *\nAllow: /\n")
    with serving(home, burst, folder / f"ports-{number - again}") as (operator, limited):
        (home / "www" / "blocklist.json").write_text(
            json.dumps(blocklist(f"http://127.0.0.1:{operator}"))
        )
        (home / "probe.py").write_text(SPIDER.format(targets=targets, port=limited))
        begin = time.monotonic()
        crawl(home, operator, state)
        took = time.monotonic() - begin
    seen = [line.split() for line in (home / "seen.log").read_text().splitlines()]
    fetched = {path for status, path in seen if status == "200" and path != "/robots.txt"}
    return {
        "burst": burst,
        "run": "the next run" if again else "the first",
        "targets": targets,
        "fetched": len(fetched),
        "requests": len(seen),
        "refused": sum(status == "429" for status, _ in seen),
        "seconds": round(took, 1),
        "interval s": round(taught(state, f"127.0.0.1:{limited}"), 3),
    }


def crawl(home: Path, operator: int, state: Path) -> None:
    """The crawl, in a process of its own."""
    settings = {
        "ADDONS": '{"scrapy_walsh.Addon": 500}',
        "WALSH_IDENTITY": "walsh-research",
        "WALSH_BLOCKLIST_URL": f"http://127.0.0.1:{operator}/blocklist.json",
        "WALSH_STATE_DIR": str(state),
        "WALSH_REVISIT_REASON": "a benchmark on loopback",
    }
    arguments = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "scrapy", "runspider", "probe.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": sys.path[0]}
    with (home / "crawl.log").open("w") as log:
        subprocess.run(command, cwd=home, env=environment, stderr=log, check=True)


def taught(state: Path, host: str) -> float:
    """The interval, in seconds, that *host* has taught by the state directory *state*."""
    store = open_store(state)
    record = store.get(HostRecord, host)
    store.close()
    return 0.0 if record is None else record.taught.interval


@contextmanager
def serving(home: Path, burst: int, ports: Path) -> Iterator[tuple[int, int]]:
    """Run nginx in *home*; its ports, of which *ports* keeps a copy for the next run."""
    if not ports.exists():
        ports.write_text(json.dumps([free_port(), free_port()]))
    operator, limited = json.loads(ports.read_text())
    how = f"burst={burst} nodelay" if burst else ""
    (home / "nginx.conf").write_text(CONF.format(operator=operator, limited=limited, burst=how))
    command = [str(nginx()), "-p", str(home), "-c", "nginx.conf"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(operator)
        yield operator, limited
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until somebody listens on *port*."""
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nginx does not listen on 127.0.0.1:{port}")


if __name__ == "__main__":
    main()
