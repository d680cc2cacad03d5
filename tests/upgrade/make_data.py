"""Writes the data beside this file, with the version of the package that it is run with.

    PYTHONPATH=$PWD .venv/bin/python FOLDER/make_data.py FOLDER/data-0.1.0

in a checkout of the old revision, with its virtual environment and a ``redis-server``; FOLDER is
the one of this file. Every row, line and key comes from a crawl of the sandbox under that
version. The wall clock of each crawl is moved, so that three days pass within two minutes.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import world  # beside this file: "tests" is the old version's here
from world import BEGINNING, DAILY, DAY, HOUR

from scrapy_walsh.proof.sandbox import Sandbox, requests
from tests.crawl.harness import crawl, state_dir
from tests.fleet.fleet import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: In place of the word for this start of this machine: no test's machine has the same.
OTHER_BOOT = "00000000-0000-4000-8000-000000000000"
#: Octets from which a file is kept compressed.
LARGE = 24 * 1024
#: Octets of blanks in the large list.
PADDING = 300 * 1024
SOURCES = f'[[source]]\nname = "feed"\nurl = "http://feed.test/"\nfeed = "{world.FEED}"\n'


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, make in (("days", days), ("large", large), ("job", job)):
            folder = target / name
            folder.mkdir(parents=True)
            keep(make(Path(directory) / name), folder)
        (target / "redis.json").write_text(json.dumps(fleet(Path(directory)), indent=1) + "\n")


def days(directory: Path) -> Path:
    """Three days of a daily job, and what else happens in them."""
    project = world.project(directory)
    (project / "sources.toml").write_text(SOURCES)
    with served() as box:

        def run(at: float, *urls: str, arguments: tuple[str, ...] = ()) -> None:
            world.move_clocks(project, at - time.time())
            done = crawl(project, box, *urls, arguments=arguments)
            assert done.returncode == 0, done.output
            assert "Traceback" not in done.output, done.output

        run(BEGINNING, *DAILY)
        run(BEGINNING + 3 * HOUR, *DAILY)  # slow.test's second page is due, R8 refuses the others
        run(BEGINNING + DAY + 300, *DAILY)
        run(BEGINNING + 2 * DAY + 600, *DAILY)
        run(BEGINNING + 2 * DAY + 900, world.AGAIN, arguments=("-a", "again=1"))
        reason = ("-s", f"WALSH_REVISIT_REASON={world.REASON}")
        run(BEGINNING + 2 * DAY + 1050, world.BARE, arguments=reason)
        world.move_clocks(project, BEGINNING + 2 * DAY + 1200 - time.time())
        done = crawl(
            project, box, spider_name="walsh_metadata",
            arguments=("-a", "sources=sources.toml"),
        )  # fmt: skip
        assert len(done.items) == 2, done.output
        world.move_clocks(project, world.LAST_RUN - time.time())
        killed(project, box, [world.FAILING], lambda: asked(box, "failing.test") >= 2)
    # What a killed process left open goes into the file, as after any later look at it.
    subprocess.run(
        [sys.executable, "-m", "scrapy_walsh", "state", "show", "--dir", state_dir(project)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return state_dir(project)


def large(directory: Path) -> Path:
    """One run with a list that is kept in two files."""
    project = world.project(directory)
    world.move_clocks(project, BEGINNING - time.time())
    with served(PADDING) as box:
        done = crawl(project, box, world.PAGE, world.OPTED_OUT)
    assert done.returncode == 0, done.output
    return state_dir(project)


def job(directory: Path) -> Path:
    """A job that is killed with requests waiting: its folder, and the state as it was then."""
    project = world.project(directory, {"JOBDIR": "state/jobdir", "WALSH_STATE_DIR": "state"})
    world.move_clocks(project, world.LAST_RUN - time.time())
    with served() as box:
        killed(project, box, world.JOB_PAGES, lambda: asked(box, "job1.test") >= 3)
    return project / "state"


def fleet(directory: Path) -> dict[str, Any]:
    """What a worker that is stopped at its work leaves in Redis; Redis's own time with it."""
    (directory / "redis").mkdir()
    server = Server(directory / "redis")
    server.start()
    settings = {**world.fleet_settings(server.url), "WALSH_SHARED_STATE": server.url}
    project = world.project(directory / "fleet", settings, world.FLEET_SPIDER)
    urls = [world.PAGE, world.BUSY, *world.SLOW, world.CLOSED, world.OPTED_OUT, *world.JOB_PAGES]
    try:
        for url in urls:
            server.client.rpush("probe:start_urls", json.dumps({"url": url}))
        with served() as box:
            process = start(project, box)
            wait(lambda: asked(box, "job1.test") >= 3 and asked(box, "busy.test") >= 2, process)
            process.send_signal(signal.SIGINT)
            process.wait(30)
        server.client.rpush("probe:start_urls", json.dumps({"url": "http://late.test/p"}))
        return dump(server.client)
    finally:
        server.kill()


def dump(client: Any) -> dict[str, Any]:
    """Every key with its type and value, octets as base64; and Redis's time, Unix seconds."""
    read: dict[str, Callable[[bytes], Any]] = {
        "string": lambda key: text(client.get(key)),
        "hash": lambda key: {text(name): text(v) for name, v in client.hgetall(key).items()},
        "list": lambda key: [text(each) for each in client.lrange(key, 0, -1)],
        "set": lambda key: sorted(text(each) for each in client.smembers(key)),
        "zset": lambda key: [[text(v), n] for v, n in client.zrange(key, 0, -1, withscores=True)],
    }
    keys = {}
    for key in sorted(client.keys()):
        kind = client.type(key).decode()
        keys[key.decode()] = {"type": kind, "value": read[kind](key)}
    seconds, micros = client.time()
    return {"now": seconds + micros / 1e6, "keys": keys}


def text(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


@contextmanager
def served(padding: int = 0) -> Iterator[Sandbox]:
    with Sandbox() as box:
        for each in world.sites(padding):
            box.put(each)
        yield box


def asked(box: Sandbox, host: str) -> int:
    return sum(each.completed is not None for each in requests(box.log, host))


def start(project: Path, box: Sandbox, *arguments: str) -> subprocess.Popen[bytes]:
    proxy = {"http_proxy": box.proxy_url, "https_proxy": box.proxy_url, "no_proxy": ""}
    path = os.pathsep.join(filter(None, [str(project), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy", "crawl", "probe", *arguments],
        cwd=project, env={**os.environ, **proxy, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def wait(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the crawl has ended"
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def killed(project: Path, box: Sandbox, urls: list[str], condition: Callable[[], bool]) -> None:
    """A crawl of *urls* that is killed (SIGKILL) as soon as *condition* holds."""
    box.clear()
    base = (
        "-s",
        "WALSH_BACKOFF_BASE=30",
        "-s",
        "WALSH_BACKOFF_CAP=60",
        "-s",
        "WALSH_MAX_RETRIES=3",
    )
    process = start(project, box, "-a", f"urls={' '.join(urls)}", *base)
    wait(condition, process)
    time.sleep(0.5)
    process.kill()
    process.wait()


def keep(state: Path, folder: Path) -> None:
    """Copy the files of *state*, large ones compressed, and without this machine's own word."""
    for file in sorted(each for each in state.rglob("*") if each.is_file()):
        kept = folder / file.relative_to(state)
        kept.parent.mkdir(parents=True, exist_ok=True)
        content = file.read_bytes()
        if file.name == "clock.json":
            content = json.dumps({**json.loads(content), "boot": OTHER_BOOT}).encode()
        if len(content) < LARGE:
            kept.write_bytes(content)
        else:
            kept.with_name(f"{kept.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))


if __name__ == "__main__":
    main()
