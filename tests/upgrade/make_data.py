"""Writes data as beside this file, with the version of the package that it is run with.

    .venv/bin/python -m tests.upgrade.make_data tests/upgrade/data/VERSION

The clock of each crawl of the sandbox is moved, so that three days pass within two minutes. That of
``fleet`` is not: Redis has a clock of its own.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Route, Sandbox, requests
from scrapy_walsh.state.machine import OWNER
from tests.crawl.harness import (
    DAILY,
    DAY,
    HOUR,
    LIST_SPIDER,
    Runs,
    daily_sites,
    listing,
    make_project,
    operator,
    site,
    stop,
    targets,
)
from tests.fleet.fleet import Server, worker

if TYPE_CHECKING:
    from scrapy_walsh.proof.sandbox import LoggedRequest

#: Unix seconds at which the first run of the data begins: 2026-06-01, 06:00 UTC.
BEGINNING = 1780293600.0
#: When the last run of the data begins, and a time at which all of them are over.
LAST_RUN = BEGINNING + 2 * DAY + 1800.0
END = LAST_RUN + 60.0
#: Why R8 was lifted for the last run of bare.test.
REASON = "the operator asked for a second look"
RSS = (
    '<?xml version="1.0"?><rss version="2.0"><channel><title>t</title>'
    "<item><title>one</title><link>http://news.test/one</link></item>"
    "<item><title>two</title><link>http://news.test/two</link></item></channel></rss>"
)
#: Beside those of the daily job.
SITES = (
    site("feed.test", {"/feed": Route(body=RSS, content_type="application/rss+xml")}),
    site("failing.test", {"/p": Route(503)}),
    site("again.test"),
)
SETTINGS = {
    "SPIDER_MODULES": ["spiders", "scrapy_walsh.spiders.walsh_metadata"],
    "WALSH_MAX_RETRIES": 1,
}
#: ``again``: each answered URL is requested once more in the same run.
SPIDER = f"""{LIST_SPIDER}
    again = ""

    def parse(self, response):
        yield {{"url": response.url, "status": response.status, "bytes": len(response.body)}}
        if self.again and not response.meta.get("second"):
            yield scrapy.Request(
                response.request.url, callback=self.parse, errback=self.failed,
                dont_filter=True, meta={{"second": True}},
            )
"""

#: In place of the word for this start of this machine: no test's machine has the same.
OTHER_BOOT = "00000000-0000-4000-8000-000000000000"
#: Octets from which a file is kept compressed.
LARGE = 24 * 1024
#: Of a paused job.
JOB_PAGES = [f"http://{host}.test/{page}" for page in range(4) for host in ("one", "two")]
#: Seconds for which a host of the fleet asks to be left alone: some nine years.
HELD_FOR = 3 * 10**8
FLEET = ("http://held.test/p", "http://page.test/p")
SOURCES = '[[source]]\nname = "feed"\nurl = "http://feed.test/"\nfeed = "http://feed.test/feed"\n'


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, make in (("days", days), ("rules", rules), ("job", job), ("fleet", fleet)):
            folder = target / name
            folder.mkdir(parents=True)
            keep(make(Path(directory) / name), folder)


def days(directory: Path) -> Path:
    """Three days of a daily job, and what else happens in them."""
    with Runs(directory, *daily_sites(), *SITES, settings=SETTINGS, spider=SPIDER) as runs:
        (runs.project / "sources.toml").write_text(SOURCES)

        def run(at: float, *urls: str, arguments: tuple[str, ...] = ()) -> None:
            runs.at(at)
            done = runs(*urls, arguments=arguments)
            assert done.returncode == 0, done.output

        run(BEGINNING, *DAILY)
        run(BEGINNING + 3 * HOUR, *DAILY)  # slow.test's second page is due, R8 refuses the others
        run(BEGINNING + DAY + 300, *DAILY)
        run(BEGINNING + 2 * DAY + 600, *DAILY)
        run(BEGINNING + 2 * DAY + 900, "http://again.test/p", arguments=("-a", "again=1"))
        reason = ("-s", f"WALSH_REVISIT_REASON={REASON}")
        run(BEGINNING + 2 * DAY + 1050, "http://bare.test/p", arguments=reason)
        runs.at(BEGINNING + 2 * DAY + 1200)
        done = runs(spider_name="walsh_metadata", arguments=("-a", "sources=sources.toml"))
        assert len(done.items) == 2, done.output
        runs.at(LAST_RUN)
        runs.box.clear()
        slower = {"BACKOFF_BASE": 30, "BACKOFF_CAP": 60, "MAX_RETRIES": 3}
        words = (each for name, to in slower.items() for each in ("-s", f"WALSH_{name}={to}"))
        killed = runs.start(["http://failing.test/p"], *words).kill_when(failed_twice, 0.5)
        assert killed is not None, "the crawl has ended"
    # What a killed process left open goes into the file, as after any later look at it.
    subprocess.run(
        [sys.executable, "-m", "scrapy_walsh", "state", "show", "--dir", runs.state],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return runs.state


def rules(directory: Path) -> Path:
    """Five runs that meet what later rules decide otherwise; of them the ledger is kept."""
    known = site("known.test", robots="User-agent: *\nDisallow: /private/\n")
    reset = Route(behaviour="reset")
    drops = {"/d1": reset, "/d2": reset}
    pages = {
        "forbidden": Route(403, headers={"Retry-After": "3"}),
        "ok": Route(headers={"Retry-After": "2"}),
        "iso": Route(sequence=(Route(429, headers={"Retry-After": "PT2S"}), Route())),
        "cut": Route(body="x" * 5000, behaviour="truncate"),
        **{f"s{status}": Route(status) for status in (301, 304, 402, 404, 410, 429, 451, 500, 503)},
        "loop": Route(302, location="/p"),
        "inward": Route(302, location="http://10.9.8.7/x"),
    }
    sites = [
        *(site(f"{host}.test", {"/p": page}) for host, page in pages.items()),
        site("drops.test", drops),
        site("silent.test", {"/p": reset}, Route(behaviour="reset")),
        site("away.test", robots=Route(302, location="http://open.test/rules")),
        site("victim.test", robots=Route(302, location="http://known.test/private/rules")),
        site("down.test", robots=Route(503)),
        *map(site, ("10.9.8.7", "open.test", "listed.test")),
        known,
        operator(listing("listed.test")),
    ]
    hosts = [each.host for each in sites if each.host not in ("10.9.8.7", "operator.test")]
    urls = [*(f"http://{host}/p" for host in hosts), "http://known.test/private/x"]
    urls += [f"http://{place}" for place in ("drops.test/d1", "drops.test/d2", "cut.test/z")]
    settings = {"WALSH_MAX_RETRIES": 2, "WALSH_PATIENCE": 20, "WALSH_BLOCKLIST_SCHEMA_URL": None}
    with Runs(directory, *sites, settings=settings) as runs:
        for after in (0.0, 2 * HOUR, DAY + 300):
            runs.at(BEGINNING + after)
            runs(*urls)
            page = Route(body="<!DOCTYPE html><html><body>away</body></html>")
            if after:
                runs.serve("known.test", "/robots.txt", page)
        moved = "WALSH_BLOCKLIST_URL=http://operator.test/other.json"
        runs.serve("operator.test", "/other.json", Route(behaviour="reset"))
        runs.at(BEGINNING + DAY + 3 * HOUR)
        runs("http://listed.test/q", "http://ok.test/q", arguments=("-s", moved))
        runs.at(BEGINNING + 2 * DAY + 600)
        runs(*urls)
    kept = directory / "kept"
    kept.mkdir()
    for file in runs.state.glob("ledger[.-]*"):
        if file.suffix != ".lock":
            shutil.copy(file, kept)
    return kept


def job(directory: Path) -> Path:
    """The JOBDIR of a crawl that was stopped after two of its pages."""
    with Sandbox() as box:
        for name in ("one", "two"):
            box.put(site(f"{name}.test"))
        project = make_project(directory, settings={"JOBDIR": "job"})
        words = ("crawl", "probe", "-a", f"urls={' '.join(JOB_PAGES)}")
        stop(project, box, *words, when=lambda log: len(targets(log)) >= 2, after=0.0)
    return project / "job"


def fleet(directory: Path) -> Path:
    """The Redis of a worker, to which a host has said how long it is to be left alone."""
    folder = directory / "redis"
    folder.mkdir(parents=True)
    server = Server(folder)
    server.start()
    try:
        with Sandbox() as box:
            box.put(site("page.test"))
            held = Route(429, headers={"Retry-After": str(HELD_FOR)})
            box.put(site("held.test", {"/p": held}))
            done = worker(directory / "project", box, server, FLEET).finish()
            assert done.returncode == 0, done.output
        server.snapshot()
    finally:
        server.kill()
    return folder


def failed_twice(log: list[LoggedRequest]) -> bool:
    return sum(each.completed is not None for each in requests(log, "failing.test")) >= 2


def keep(state: Path, folder: Path) -> None:
    """Copy the files of *state*, large ones compressed, and without this machine's own word."""
    for file in sorted(each for each in state.rglob("*") if each.is_file()):
        if file.name == OWNER:
            continue
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
