"""Runs one row: a project, its servers, the crawl with the fault, and a healthy one after it."""

from __future__ import annotations

import gzip
import json
import os
import py_compile
import shutil
import socket
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scrapy_walsh.proof.sandbox import Request, Route, Sandbox, Site, blocklist
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import HostRecord, StoredDocument
from tests import zygote
from tests.crawl.harness import (
    LIST,
    SCHEMA,
    Run,
    closed_port,
    environment,
    fill_disk,
    forget_pacing,
    mount,
    put_records,
    state_dir,
    unmount,
    write_settings,
)
from tests.faults import judge
from tests.faults import row as rows
from tests.faults.inside import spoil_files
from tests.faults.judge import HELD, REMEMBERING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.crawl.harness import Crawl
    from tests.faults.row import Row, Variant

INSIDE = Path(__file__).with_name("inside.py")
#: Stale for the list and for each robots.txt.
_LONG_AGO = 700_000.0
#: What a robots.txt says; longer than a thousand octets.
RULES = "# rules\n" * 200 + "User-agent: *\nDisallow: /private/\n"
_PAGE = Route(body="<title>page</title><p>page</p>" * 50)
#: What a project had deployed before: a callback that it no longer has.
_BEFORE = """
from scrapy import Request
from scrapy.exceptions import CloseSpider
import faults

class Probe(faults.Probe):
    name = "probe"

    async def start(self):
        for url in (*self.urls[-1:], *self.urls):
            for number in ("1", "2"):
                yield Request(url + "/" + number, callback=self.parse_old, errback=self.failed)

    def parse_old(self, response):
        raise CloseSpider("paused")
"""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a row in one variant; nothing where ``faults`` is empty."""

    row: Row
    variant: Variant
    faults: list[str]
    ran: list[Crawl]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.faults

    def line(self) -> str:
        """One line for ``python -m tests.faults``."""
        word = "PASS" if self.passed else "FAIL"
        where = f"{self.row.kind}: {self.row.name} [{', '.join(self.variant)}]"
        return f"{word} {where} {'; '.join(self.faults)}".rstrip()


class World:
    """The servers that rows share, one row after the other."""

    def __init__(self) -> None:
        self.box = Sandbox([])
        self._directory = tempfile.TemporaryDirectory(prefix="faults", ignore_cleanup_errors=True)
        self._open = ExitStack()
        self._known: dict[str, Path] = {}
        self._listeners: list[socket.socket] = []
        self._kept: list[socket.socket] = []
        self.ports: dict[str, int] = {}
        #: A process that runs beside the crawl of a row.
        self._other: Run | None = None

    def __enter__(self) -> Self:
        self._open.enter_context(self.box)
        self.ports = {"refusing": self._open.enter_context(closed_port()), "box": self.box.port}
        for name, answer in PROXIES.items():
            self.ports[name] = self._listen(answer)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._listeners, *self._kept):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.close()
        self._directory.cleanup()

    def _listen(self, answer: bytes | None) -> int:
        """A port that says *answer* to whoever connects, and closes; None: it never answers."""
        server = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(server)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                if answer is None:
                    self._kept.append(connection)
                    continue
                with suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return int(server.getsockname()[1])

    # -- one row --------------------------------------------------------------------------

    def play(self, row: Row, variant: Variant) -> Verdict:
        """Run *row* with *variant*: the fault, and a healthy run after it."""
        began = time.monotonic()
        listed, known = variant
        project = Path(tempfile.mkdtemp(dir=self._directory.name, prefix="row"))
        try:
            if known != rows.UNKNOWN:
                shutil.copytree(self._held(listed, row), state_dir(project))
                _age(project, _LONG_AGO if known == rows.STALE else 0.0)
            if row.kind in REMEMBERING:
                _put_hold(project)
            self._serve(listed, row.sites)
            _prepare(project, row, self)
            faulty = self.crawl(project, row, "a", row)
            self._end_other()
            lost = judge.lost(project, row, faulty)
            undo(project, row)
            self._serve(listed, "")
            with suppress(Exception):  # a state that cannot be read: the hosts wait for a second
                forget_pacing(project)
            healthy = self.crawl(project, row, "b", None)
        finally:
            undo(project, row)
            shutil.rmtree(project, ignore_errors=True)
        found = [*judge.judge(row, faulty), *lost, *judge.judge_after(row, faulty, healthy)]
        return Verdict(row, variant, found, [faulty, healthy], time.monotonic() - began)

    def _end_other(self) -> None:
        if self._other is not None:
            self._other.kill()
            self._other = None

    def _held(self, listed: str, row: Row) -> Path:
        """The state that a healthy run leaves; it is made once for each list."""
        key = f"{listed} {row.proxied} {row.https}"
        if key not in self._known:
            project = Path(tempfile.mkdtemp(dir=self._directory.name, prefix="held"))
            self._serve(listed, "", "1")
            whole = replace(_HEALTHY, proxied=row.proxied, https=row.https)
            ran = self.crawl(project, whole, "held", None)
            assert not (found := judge.judge(whole, ran)), f"{found}: {ran.output[-3000:]}"
            forget_pacing(project)
            self._known[key] = state_dir(project)
        return self._known[key]

    def _serve(self, listed: str, sites: str, version: str = "2") -> None:
        """Serve the documents; what earlier runs had was of another *version*: no 304."""
        other = SITES.get(sites, {})
        document = answering(list_of(listed), "application/json", version)
        schema = Route(404)
        self.box.put(Site("operator.test", {LIST: other.get("list", document), SCHEMA: schema}))
        for host in ("forbidden.test", "www.blocked.test", "healthy.test"):
            rules = RULES if host == "forbidden.test" else RULES.replace("Disallow", "Allow")
            robots = other.get(host, answering(rules, "text/plain", version))
            self.box.put(Site(host, {"/robots.txt": robots, "*": other.get("pages", _PAGE)}))

    def urls(self, row: Row, page: str) -> list[str]:
        """The three targets of a run."""
        scheme = "https" if row.https else "http"
        port = "" if row.proxied else f":{self.box.port}"
        targets = ("www.blocked.test/", "forbidden.test/private/", "healthy.test/")
        hosts = [each.partition("/") for each in targets]
        return [f"{scheme}://{host}{port}/{path}{page}" for host, _, path in hosts]

    def crawl(self, project: Path, row: Row, page: str, fault: Row | None) -> Crawl:
        """A crawl of *project*, with the fault of *fault* if any."""
        self.box.clear()
        return self._begin(project, row, page, fault).finish(judge.PATIENCE)

    def _begin(self, project: Path, row: Row, page: str, fault: Row | None) -> Run:
        write_settings(project, self._settings(row, fault))
        (project / "faults.pyc").write_bytes(_inside())
        (project / "faults_before.py").write_text(_BEFORE)
        urls = f"urls={' '.join(self.urls(row, page))}"
        words: tuple[str, ...] = ("-m", "scrapy", "crawl", "probe", "-a", urls)
        if fault is not None:
            given = fault.arguments or urls
            words = fault.command or (*words[:3], fault.spider, "-a", given)
        filled = {"<port>": str(self.box.port), "<urls>": urls.removeprefix("urls=")}
        command = [sys.executable, *words]
        for name, value in filled.items():
            command = [each.replace(name, value) for each in command]
        proxies = ("http_proxy", "https_proxy") if row.proxied else ()
        # Here the sandbox, where it is a proxy, is one that can fail.
        env = {
            name: value
            for name, value in environment(project, self.box).items()
            if name in proxies or not (name.endswith("_proxy") or name == "WALSH_LAB_PROXY")
        }
        (project / "ca.pem").write_text(self.box.ca_pem or "")  # of the system, for the list (R3)
        env |= {
            "SSL_CERT_FILE": str(project / "ca.pem"),
            "PYTHONPATH": os.pathsep.join([str(project), str(zygote.ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if fault is not None:
            env |= _filled(fault.environment, self.ports)
        return Run(command, project, self.box, env)

    def hold_job(self, project: Path, row: Row) -> None:
        """Another process that uses the JOBDIR: it waits for the healthy host's answer."""
        self._serve(rows.SHORT, "healthy slow")
        self.box.clear()
        self._other = self._begin(project, row, "old", replace(_HEALTHY, settings=row.settings))
        begun = self._other.comes_to(lambda log: any(e.host.startswith("healthy") for e in log))
        assert begun, self._other.output

    def _settings(self, row: Row, fault: Row | None) -> dict[str, Any]:
        scheme = "https" if row.https else "http"
        origin = f"{scheme}://operator.test" + ("" if row.proxied else f":{self.box.port}")
        settings: dict[str, Any] = {
            "BOT_NAME": "probe",
            "SPIDER_MODULES": ["faults"],
            "ADDONS": {"scrapy_walsh.Addon": 500},
            "LOG_LEVEL": "INFO",
            "TELNETCONSOLE_ENABLED": False,
            "WALSH_IDENTITY": "walsh-research",
            "WALSH_BLOCKLIST_URL": f"{origin}{LIST}",
            "WALSH_BLOCKLIST_SCHEMA_URL": f"{origin}{SCHEMA}",
            "WALSH_REVISIT_REASON": "one run after another",
            # What fails is unreachable at once: a gate that opens then opens in a short crawl.
            "WALSH_MAX_RETRIES": 0,
            "WALSH_BACKOFF_BASE": 0.01,
        }
        if fault is not None:
            given = _filled({"fault": fault.fault, "settings": fault.settings}, self.ports)
            if fault.fault:
                settings["FAULT"] = given["fault"]
                settings["DOWNLOADER_MIDDLEWARES"] = {"faults.Middleware": 543}
                settings["EXTENSIONS"] = {"faults.Extension": 0}
            settings |= given["settings"]
        return {name: value for name, value in settings.items() if value is not None}


@cache
def _inside() -> bytes:
    """The module of faults, compiled: each row has a project of its own, which would do it anew."""
    with tempfile.TemporaryDirectory() as folder:
        return Path(
            py_compile.compile(str(INSIDE), str(Path(folder, "c")), doraise=True)
        ).read_bytes()


_HEALTHY = rows.Row("healthy", "none", "Nothing is wrong.", rows.AS_USUAL)


def _filled(value: Any, ports: Mapping[str, int]) -> Any:
    """*value* with ports in place of their names in angle brackets."""
    text = json.dumps(value)
    for name, port in ports.items():
        text = text.replace(f"<{name}>", str(port))
    return json.loads(text)


# -- the project and its state ------------------------------------------------------------------


def _prepare(project: Path, row: Row, world: World) -> None:
    for name, text in row.files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = text.replace("<python>", sys.executable)
        path.write_text(whole.replace("<port>", str(world.box.port)))
        if path.parent.name == "bin":
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
    if row.before == "read-only":
        state = state_dir(project)
        state.mkdir(parents=True, exist_ok=True)
        mount("--bind", state, state)
        mount("-o", "remount,bind,ro", state)
    elif row.before == "full":
        state = state_dir(project)
        kept = project / "kept"
        if state.exists():
            shutil.move(state, kept)
        state.mkdir(parents=True)
        mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", state)
        for each in kept.iterdir() if kept.exists() else ():
            shutil.copy(each, state)
        fill_disk(state / "filler")
    elif row.before.startswith("job"):
        _pause_job(project, row, world)
    elif row.before == "state is a file":
        shutil.rmtree(project / ".scrapy", ignore_errors=True)
        (project / ".scrapy").mkdir()
        (state_dir(project)).write_text("")
    elif row.before:
        spoil_files(state_dir(project), row.before)


def undo(project: Path, row: Row) -> None:
    """Remove the fault, for the healthy run; what it has done to files stays."""
    state = state_dir(project)
    kept = project / "kept-after"
    if row.before == "full" and (state / "filler").exists():
        (state / "filler").unlink()
        shutil.copytree(state, kept)
    for each in _mounted(project):
        unmount(each)
    if kept.exists():
        shutil.rmtree(state)
        shutil.move(kept, state)
    if row.before == "job full":
        shutil.rmtree(project / "job", ignore_errors=True)
    if state.is_file():
        state.unlink()
    for name in ("ledger.jsonl", "state.sqlite3"):
        if (state / name).is_dir():
            (state / name).rmdir()


def _mounted(below: Path) -> list[Path]:
    """What is mounted somewhere below a folder, the last one first."""
    table = Path("/proc/self/mounts")
    lines = table.read_text().splitlines() if table.exists() else []
    places = [Path(line.split()[1]) for line in lines]
    return [each for each in reversed(places) if each.is_relative_to(below)]


def _pause_job(project: Path, row: Row, world: World) -> None:
    """A job that an earlier deployment has paused; then what the row names happens to it."""
    job = project / "job"
    if row.before in ("job renamed", "job damaged row", "job is text", "job read-only"):
        settings = {"SPIDER_MODULES": ["faults_before"], "JOBDIR": "job"}
        whole = replace(_HEALTHY, settings=settings)
        ran = world.crawl(project, whole, "old", whole)
        assert ran.returncode == 0, ran.output[-3000:]
        forget_pacing(project)
        _spoil_job(next(job.rglob("requests.sqlite3")), row.before)
    job.mkdir(exist_ok=True)
    if row.before == "job read-only":
        mount("--bind", job, job)
        mount("-o", "remount,bind,ro", job)
    if row.before == "job full":
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", job)
        fill_disk(job / "filler")
    if row.before == "job second":
        world.hold_job(project, row)


def _spoil_job(job: Path, how: str) -> None:
    with sqlite3.connect(job) as database:
        left = database.execute("SELECT count(*) FROM line").fetchone()[0]
        assert left, "nothing was left in the JOBDIR"
        if how == "job damaged row":
            database.execute("UPDATE line SET request = x'80046e6f7065'")
    database.close()
    if how == "job is text":
        job.write_text("Dear diary,\n" * 100)


def _put_hold(project: Path) -> None:
    """An earlier run was told by a host to stay away for a day."""
    now = time.time()
    put_records(state_dir(project), HostRecord(HELD, now - 60, 1.0, now + 86400))


def _age(project: Path, seconds: float) -> None:
    store = open_store(state_dir(project))
    for record in list(store.rows(StoredDocument)):
        whole = store.get(StoredDocument, record.kind, record.key)
        store.put(replace(whole, fetched_at=whole.fetched_at - seconds))
    store.close()


# -- what the servers say -----------------------------------------------------------------------


@cache
def list_of(listed: str) -> str:
    """The operator's list, which blocks ``blocked.test``."""
    many = [f"shop{number}.example.test" for number in range(2600)] if "long" in listed else []
    document = blocklist("http://operator.test", *many, "blocked.test")
    if "wild" in listed:  # only a child process may judge by it: it could take for ever
        domain = document["schema"]["properties"]["blocked"]["items"]["properties"]["domain"]
        domain["pattern"] = "^([a-z0-9-]+[.])*[a-z]+$"
    return json.dumps(document)


def answering(body: str, kind: str, version: str) -> Callable[[Request], Route]:
    """What a server that knows RFC 9110 answers: 304 and 206 to who asks for them."""
    whole = Route(body=body, content_type=kind, etag=f'"{version}"')

    def answer(request: Request) -> Route:
        if request.header("Range"):
            return Route(206, body[:10], kind, {"Content-Range": f"bytes 0-9/{len(body)}"})
        if request.method == "POST":
            return Route(405)
        return whole

    return answer


def _text(body: str = RULES, **named: Any) -> Route:
    return Route(body=body, content_type="text/plain", **named)


_CUT = _text("User-agent: *\n", behaviour="truncate")
_OTHER = json.dumps(blocklist("http://operator.test", "other.test"))


def _feed(entries: int) -> str:
    item = "<item><title>one</title><link>http://healthy.test/{}</link></item>"
    return f"<rss><channel>{''.join(map(item.format, range(entries)))}</channel></rss>"


_URL = "<url><loc>http://healthy.test/one</loc></url>"
_SITEMAP = gzip.compress(
    f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{_URL}</urlset>'.encode()
)
_LINKS = "# one\n\n- [one](http://healthy.test/one)\n"

#: Answers that are not as usual, by the name that a row gives them: of a host, or of the list.
SITES: dict[str, dict[str, Any]] = {
    "forbidden cut off": {"forbidden.test": _CUT},
    "forbidden closes": {"forbidden.test": Route(behaviour="close")},
    "forbidden slow": {"forbidden.test": _text(delay=3.0)},
    "forbidden 407": {"forbidden.test": Route(407)},
    "healthy 407": {"healthy.test": Route(407)},
    "all 407": dict.fromkeys(
        ("forbidden.test", "healthy.test", "www.blocked.test", "list"), Route(407)
    ),
    "long rules": {"forbidden.test": _text("# rules\n" * 30_000 + RULES)},
    "healthy slow": {"healthy.test": _text(delay=6.0)},
    # It is valid as far as it goes, and blocks another host.
    "list cut off": {"list": Route(body=_OTHER, behaviour="truncate")},
    "short feed": {"pages": Route(body=_feed(5), content_type="application/rss+xml")},
    "long feed": {"pages": Route(body=_feed(200), content_type="application/rss+xml")},
    "sitemap.gz": {"pages": Route(body=_SITEMAP, content_type="application/gzip")},
    "links": {"pages": Route(body=_LINKS, content_type="text/markdown")},
    "list fails first": {
        "list": Route(sequence=(Route(503), Route(body=_OTHER))),
        "pages": Route(body="a page that takes its time", delay=4.0),
    },
}
#: What a proxy says that is none of the sandbox's; None: nothing, ever.
PROXIES: dict[str, bytes | None] = {
    "silent": None,
    "demanding": b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
    "forbidding": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
    "failing": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    "babbling": b"220 mail.test ESMTP\r\n",
    "missing": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "closing": b"",
}


def variants(table: tuple[Row, ...]) -> Iterator[tuple[Row, Variant]]:
    """Every row in each of its variants."""
    for each in table:
        for variant in each.variants:
            yield each, variant
