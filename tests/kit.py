"""What judges read, written by hand, and what they say of it.

Ledgers, entry by entry or a whole one that is honest until a test breaks it; the report on one, and
its page read back; a server's access log; what the sandbox saw of a bot, and the record of its
conformance; a state directory to damage.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_walsh import SPEC_VERSION, __version__
from scrapy_walsh.commands.common import read_blocklist
from scrapy_walsh.commands.verify import _members, judged
from scrapy_walsh.ledger.files import (
    CONTRACT,
    DOCUMENTS,
    FILE,
    GENESIS,
    HEAD,
    Documents,
    chain_line,
)
from scrapy_walsh.policy.backoff import silent_attempts
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.throttle import LONGEST
from scrapy_walsh.proof.attest.document import IDS
from scrapy_walsh.proof.audit.judge import Terms, judge
from scrapy_walsh.proof.audit.reading import Bot, Log
from scrapy_walsh.proof.audit.robots_rows import Version
from scrapy_walsh.proof.conformance.check import code_digest, write_record
from scrapy_walsh.proof.conformance.evidence import Evidence, Run
from scrapy_walsh.proof.report.runs import LAST, chosen, runs_of, since
from scrapy_walsh.proof.report.tally import Tally
from scrapy_walsh.proof.sandbox import LoggedRequest, blocklist
from scrapy_walsh.proof.verify import Report, files_of, verify
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.forms import FORM
from scrapy_walsh.state.records import HostRecord, StoredDocument
from tests import golden, zygote
from tests.crawl.harness import LIST_URL, USER_AGENT, walsh

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.proof.audit.rows import Row
    from scrapy_walsh.proof.report.history import History
    from scrapy_walsh.proof.verify.judge import Watch

# -- ledgers --------------------------------------------------------------------------------------

T = 1_800_000_000.0
LIST = json.dumps(blocklist()).encode()
ROBOTS = b"User-agent: *\nDisallow: /private/\nAllow: /\nCrawl-delay: 2\n"
H, ROBOTS_URL = "http://h.test", "http://h.test/robots.txt"
BLOCKED = "http://www.blocked.test"


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


SETTINGS: dict[str, Any] = {
    "min_interval": 1.0,
    "max_retries": 5,
    "backoff_base": 1.0,
    "backoff_cap": 60.0,
    "patience": 300.0,
    "robots_ttl": 86400.0,
    "robots_unreachable": "allow",
    "blocklist_unreachable": "allow",
    "pace_robots": False,
    "excluded_tlds": [],
    "revisit": 86400.0,
    "revisit_reason": None,
    "hints": 86400.0,
    "auto_revisit": False,
    "follow_links": False,
    "scraping": False,
    "slow_hosts": "skip",
    "usage": {},
    "shared": False,
    "tag_requests": False,
    "private_addresses": "declared",
}
ALLOWED = {"verdict": "allowed_explicit", "digest": digest(ROBOTS)}
RULE = {
    "requirement": "R2",
    **ALLOWED,
    "document": ROBOTS_URL,
    "group": ["*"],
    "rule": "Allow: /",
    "line": 3,
}
DENIED = {
    **RULE,
    "verdict": "disallowed_explicit",
    "rule": "Disallow: /private/",
    "line": 2,
    "reason": "",
}


def exchange(url: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    """The members of a line about a request from *start* to *end*, seconds since the first one."""
    host = url.split("/")[2]
    return {
        "url": url,
        "host": host,
        "method": "GET",
        "purpose": "target",
        "started": T + start,
        "ended": T + end,
        "status": 200,
        "answered": True,
        "interval": 1.0,
        "exempt": False,
        "attempt": 0,
        "gives_up": False,
        "pace": {"host": host, "wait": 0.0, "interval": more.get("interval", 1.0)},
        **more,
    }


def lines_of(*entries: dict[str, Any], first: int = 1, previous: str = GENESIS) -> list[bytes]:
    """The lines of *entries*, chained, without their line ends."""
    lines = []
    for number, entry in enumerate(entries, first):
        line, previous = chain_line(entry, number, previous)
        lines.append(line[:-1])
    return lines


# -- entries --------------------------------------------------------------------------------------

ONE = "h.test"


def entry(kind: str, at: float, run: str = "", **members: Any) -> dict[str, Any]:
    """A line, *at* seconds after the first one."""
    at = at if at >= T else T + at
    return {"at": at, **({"run": run} if run else {}), "kind": kind, **members}


def header(file: int = 1) -> dict[str, Any]:
    """The first line of a file."""
    return entry("ledger", T, contract=CONTRACT, file=file)


def terms_of(process: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The members of a line ``started``; what the rules grant goes by the settings."""
    given = {**SETTINGS, **settings}
    grant = silent_attempts(given["max_retries"], given["robots_unreachable"])
    longest = min(given["patience"], LONGEST)
    return {
        "process": process, "version": "0", "spec": "walsh-research-compliance/v1.3",
        "stored_form": FORM, "user_agent": USER_AGENT, "token": "Walsh-Research",
        "blocklist_url": LIST_URL, "schema_url": None,
        "settings": {"silent_attempts": grant, "longest_learned": longest, **given},
    }  # fmt: skip


def began(run: str = "r1", at: float = 0.0, **more: Any) -> dict[str, Any]:
    return entry("started", at, run, **{**terms_of(f"p-{run}", {}), **more})


def ended(run: str = "r1", at: float = 99.0) -> dict[str, Any]:
    return entry("ended", at, run, reason="finished")


def asked(
    start: float, end: float | None = None, host: str = ONE, run: str = "r1", **more: Any
) -> dict[str, Any]:
    """A target asked from *start* to *end*, seconds since the first line, and answered with 200."""
    end = start + 0.01 if end is None else end
    members = exchange(f"http://{host}/{start:g}", start, end)
    return {**entry("asked", end, run, **members), **more}


def robots(start: float, **more: Any) -> dict[str, Any]:
    """A host's first robots.txt."""
    url = f"http://{more.get('host', ONE)}/robots.txt"
    return asked(start, **{"purpose": "robots", "exempt": True, "url": url, **more})


def decided(kind: str, at: float = 1.0, run: str = "r1", **more: Any) -> dict[str, Any]:
    return entry(kind, at, run, **{"host": ONE, "url": f"http://{ONE}/x", **more})


# -- a whole one ----------------------------------------------------------------------------------


class Forge:
    """Entries in the order of their lines; ``run`` is the one that the next entries are of."""

    def __init__(self) -> None:
        self.entries = [header()]
        self.run = ""

    def add(self, at: float, kind: str, **members: Any) -> dict[str, Any]:
        """One more entry, *at* seconds after the start of the ledger."""
        self.entries.append(entry(kind, at, self.run, **members))
        return self.entries[-1]

    def start(self, at: float, run: str, process: str, **settings: Any) -> dict[str, Any]:
        """A run; what its rules grant goes by its settings, where they do not say it."""
        self.run = run
        return self.add(at, "started", **terms_of(process, settings))

    def declare(self, at: float, *urls: str) -> None:
        for url in urls:
            self.add(at, "declared", url=url)

    def ask(
        self, at: float, url: str, status: int | None = 200, purpose: str = "target", **more: Any
    ) -> dict[str, Any]:
        host = url.split("/")[2]
        interval = 2.0 if host == "h.test" and purpose == "target" else 1.0
        said = {"purpose": purpose, "status": status, "interval": interval}
        verdict = ALLOWED if purpose == "target" else {}
        members = exchange(url, at, at + 0.01, **{**said, **verdict, **more})
        return self.add(at + 0.0101, "asked", **members)

    def get(self, at: float, url: str, status: int = 200, **more: Any) -> dict[str, Any]:
        """A target that is asked and answered: two lines."""
        asked = self.ask(at, url, status, **more)
        kind = "not_modified" if status == 304 else "fetched"
        self.tell(at + 0.0102, kind, url, status)
        return asked

    def tell(self, at: float, kind: str, url: str, status: int) -> dict[str, Any]:
        return self.add(at, kind, url=url, host="h.test", status=status, **RULE)

    def refuse(self, at: float, url: str, **verdict: Any) -> dict[str, Any]:
        return self.add(at, "refused", url=url, host=url.split("/")[2], **verdict)

    def operator_list(self, at: float, body: bytes = LIST) -> dict[str, Any]:
        self.ask(at, LIST_URL, 200, "operator")
        return self.add(
            at + 0.02, "adopted", url=LIST_URL, requirement="R3", reason="", digest=digest(body)
        )

    def robots(self, at: float, body: bytes = ROBOTS, **more: Any) -> dict[str, Any]:
        self.ask(at, ROBOTS_URL, 200, "robots", exempt=True, **more)
        return self.in_force(at + 0.02, "adopted", digest(body))

    def in_force(self, at: float, kind: str, body: str) -> dict[str, Any]:
        return self.add(
            at,
            kind,
            url=ROBOTS_URL,
            requirement="R2",
            reason="",
            host="h.test",
            status=200,
            group=["*"],
            digest=body,
        )

    def number(self, entry: dict[str, Any]) -> int:
        """The line of *entry*."""
        return next(n for n, each in enumerate(self.entries, 1) if each is entry)

    def only(self, kind: str, url: str = "", nth: int = 0) -> dict[str, Any]:
        """The *nth* entry of that kind about *url*."""
        return [e for e in self.entries if e["kind"] == kind and url in (e.get("url"), "")][nth]

    def index(self, entry: dict[str, Any]) -> int:
        return self.number(entry) - 1

    def check(self, directory: Path, *bodies: bytes) -> Report:
        """Write the chain and its documents to *directory*, and verify it."""
        write(directory, self.entries)
        documents = Documents(directory / DOCUMENTS)
        for body in (LIST, ROBOTS, *bodies):
            documents.put("any", body, digest(body), 1)
        return report_of(directory)


def write(directory: Path, entries: Iterable[dict[str, Any]]) -> None:
    lines = lines_of(*entries)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE).write_bytes(b"".join(b"%s\n" % line for line in lines))
    last = json.loads(lines[-1])["hash"] if lines else GENESIS
    (directory / HEAD).write_bytes(b"%012d %s\n" % (len(lines), last.encode()))


def report_of(directory: Path) -> Report:
    report = verify(files_of(directory), [], read_blocklist)
    golden.note(_members(report))
    return report


def told(report: Report) -> Sequence[str]:
    return [str(finding) for finding in report.findings]


def wrong_in(report: Report) -> list[str]:
    """What verify finds, but for the back-off of quick tests, which is shorter than R5's."""
    return [each for each in told(report) if ": R5: backoff_" not in each]


def honest() -> Forge:
    """Two runs of two processes, with most of what a ledger can hold."""
    forge = Forge()
    forge.start(0, "one", "p1")
    forge.declare(0.1, f"{H}/a", f"{H}/private/x", f"{BLOCKED}/x", f"{H}/busy", f"{H}/own")
    forge.operator_list(1)
    forge.robots(1.1)
    forge.get(1.2, f"{H}/a")
    forge.refuse(1.22, f"{H}/private/x", **DENIED)
    forge.refuse(
        1.23,
        f"{BLOCKED}/x",
        requirement="R3",
        verdict="blocked_operator",
        document=LIST_URL,
        digest=digest(LIST),
        rule="blocked.test",
        reason="",
    )
    forge.refuse(1.24, f"{H}/other", requirement="R6", verdict="out_of_scope", reason="")
    forge.ask(3.3, f"{H}/busy", 429, retry_after=["7"], wait=7.0)
    forge.add(3.32, "retried", url=f"{H}/busy", host="h.test", status=429, wait=7.0)
    forge.get(10.4, f"{H}/busy", attempt=1)
    forge.ask(12.5, f"{H}/own", 302)
    forge.add(12.52, "declared", url=f"{H}/target", via=f"{H}/own")
    forge.get(14.6, f"{H}/target")
    forge.add(15, "ended", reason="finished")
    forge.start(100, "two", "p2")
    forge.declare(100.1, f"{H}/a", f"{H}/d", f"{H}/e")
    forge.add(100.2, "taken_up", url=LIST_URL, requirement="R3", reason="", digest=digest(LIST))
    forge.refuse(100.3, f"{H}/a", requirement="R8", verdict="not_due", reason="")
    forge.in_force(100.4, "taken_up", digest(ROBOTS))
    forge.get(101, f"{H}/d", 304, taught=[0.0, 12.5 - 3.31, 3, T + 3.31])
    forge.ask(104, f"{H}/e", 503, retry_after=["900"], wait=900.0)
    forge.add(104.02, "retried", url=f"{H}/e", host="h.test", status=503, wait=900.0)
    forge.add(
        104.03,
        "deferred",
        url=f"{H}/e",
        host="h.test",
        requirement="R4",
        verdict="deferred",
        reason="h.test may not be asked before ...",
        due=T + 1004.01,
    )
    forge.add(105, "ended", reason="finished")
    return forge


# -- the report on one ----------------------------------------------------------------------------

VOID = {"meta", "br"}


class Shown(NamedTuple):
    """What a page is made of."""

    report: Tally
    verified: Report


@contextmanager
def as_file(lines: Sequence[bytes]) -> Iterator[Path]:
    """A file of the lines, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_bytes(b"".join(b"%s\n" % line for line in lines))
        yield path


def verified(lines: Sequence[bytes], watch: Watch) -> Report:
    """What ``verify`` finds in the lines, of which *watch* is told."""
    with as_file(lines) as path:
        return judged(files_of(path), watch=watch)


def tally_of(lines: Sequence[bytes], wanted: str = LAST, history: History | None = None) -> Shown:
    """The report on lines that come from no file."""
    with as_file(lines) as path:
        runs = runs_of([path])
    those = chosen(runs, wanted) if history is None else since(runs, history.began)
    report = Tally(those, len(runs) - len(those), history)
    return Shown(report, verified(lines, report.take))


class Read(HTMLParser):
    """A page as a browser's parser takes it: elements that do not nest are an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += f"{data} "

    def number(self, name: str) -> str:
        """What the tile *name* shows."""
        found = re.search(rf" {name} ([\d,.]+(?: [kM]?B)?) ", self.text)
        assert found, f"no tile {name}"
        return found[1]


# -- access logs ----------------------------------------------------------------------------------

#: 2026-05-23T10:00:00Z
T0 = 1779530400
BOT = Bot(b"walsh-research", host="site.example")


def quoted(text: str) -> str:
    """As nginx writes a variable."""
    return "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\x{ord(c):02X}" for c in text)


def line(
    at: float,
    target: str = "/a",
    status: int = 200,
    *,
    agent: str = USER_AGENT,
    address: str = "192.0.2.7",
    size: int = 512,
    zone: float = 0,
    method: str = "GET",
    referer: str = "-",
    host: str = "",
) -> str:
    """One line, at the Unix second of *at*; *zone*: hours east of Greenwich."""
    stamp = datetime.fromtimestamp(int(at), UTC).astimezone(timezone(timedelta(hours=zone)))
    return (
        f"{f'{host} ' if host else ''}{address} - - [{stamp:%d/%b/%Y:%H:%M:%S %z}] "
        f'"{method} {quoted(target)} HTTP/1.1" {status} {size} "{referer}" "{quoted(agent)}"'
    )


def written(path: Path, lines: Iterable[str]) -> str:
    """The path of a log with these lines."""
    path.write_bytes("".join(f"{each}\n" for each in lines).encode("latin-1"))
    return str(path)


def rules(*bodies: tuple[float, str]) -> tuple[Version, ...]:
    """robots.txt files, each with the time from which it was served."""
    parsed = ((at, parse_robots(body.encode(), "Walsh-Research")) for at, body in bodies)
    return tuple(Version(*each) for each in parsed)


def rows_of(log: Log, **terms: Any) -> dict[str, Row]:
    """The rows of *log*, by what they are about."""
    names = ("agent", "asked", "obeyed", "optout", "spacing", "backoff", "again", "visit")
    rows = judge(log, Terms(USER_AGENT, **terms))
    golden.note([pinned(row) for row in rows])
    return dict(zip(names, rows, strict=True))


def pinned(row: Row) -> list[Any]:
    """What an audit says of one promise, without its title."""
    found = [row.id, row.outcome.value, row.seen, row.undecided, row.broken, row.detail]
    return [*found, *(f"{each.place}: {each.text}" for each in row.findings)]


# -- the conformance command ----------------------------------------------------------------------


@dataclass
class Done:
    """The finished command."""

    code: int
    stdout: str
    stderr: str

    @property
    def found(self) -> dict[str, Any]:
        """What ``--json`` printed."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    def outcomes(self, identity: str) -> dict[str, str]:
        """Outcome by title, of the rows of one id."""
        return {
            check["title"]: check["outcome"]
            for check in self.found["checks"]
            if check["id"] == identity
        }

    def failed(self) -> set[str]:
        """The ids of the rows that failed."""
        return {identity for identity, _ in self.failed_rows()}

    def failed_rows(self) -> set[tuple[str, str]]:
        """The rows that failed: id and title."""
        checks = self.found["checks"]
        return {(each["id"], each["title"]) for each in checks if each["outcome"] == "FAIL"}


def conformance(folder: Path, *arguments: str, path: Path | None = None, **more: str) -> Done:
    """``walsh conformance ARGUMENTS`` in *folder*; *path* goes to the front of PYTHONPATH."""
    given = os.pathsep.join(str(each) for each in (path, zygote.ROOT) if each)
    done = walsh(folder, "conformance", *arguments, timeout=240, PYTHONPATH=given, **more)
    return Done(done.returncode, done.stdout, done.stderr)


def request(host: str, path: str, at: float, **fields: Any) -> LoggedRequest:
    """A line of a server's log; *at* in seconds, answered at once."""
    made: dict[str, Any] = {
        "arrived": at,
        "completed": at + 0.001,
        "wall": 1_800_000_000.0 + at,
        "scheme": "http",
        "host": host,
        "method": "GET",
        "target": f"http://{host}{path}",
        "path": path.partition("?")[0],
        "headers": (("User-Agent", USER_AGENT),),
        "connection": 1,
        "in_flight": 1,
        "status": 200,
    }
    return LoggedRequest(**{**made, **fields})


def evidence(*logs: list[LoggedRequest], **fields: Any) -> Evidence:
    """Runs of a bot with these logs."""
    return Evidence(USER_AGENT, [Run(log, **fields) for log in logs])


# -- a record in which all was seen to hold -------------------------------------------------------

DATE = "2026-05-24T10:00:00+00:00"


def check(id_: str, outcome: str = "PASS", **more: str) -> dict[str, str]:
    """A check of the record."""
    given = {"requirement": id_.rstrip("abcd"), "level": "MUST", "title": "title", "detail": ""}
    return {"id": id_, "outcome": outcome, **given, **more}


def record(**more: Any) -> dict[str, Any]:
    """The record of this build as walsh-research, *more* laid over it."""
    return {
        "contract": "walsh-conformance/v1",
        "tool": "scrapy-walsh",
        "tool_version": __version__,
        "code": code_digest(),
        "spec": SPEC_VERSION,
        "user_agent": USER_AGENT,
        "date": DATE,
        "seconds": 61.5,
        "live": False,
        "versions": {name: version(name) for name in ("scrapy", "protego")},
        "settings": {"mirrored": True, "overrides": {}},
        "checks": [check(id_) for id_ in IDS],
        **more,
    }


def put_record(path: Path, **more: Any) -> Path:
    """Write :func:`record` to *path*, its digest right."""
    write_record(path, record(**more))
    return path


# -- a state directory ----------------------------------------------------------------------------

NOW = 1_700_000_000.0
BLOCKLIST_URL = "https://o.test/blocklist.json"
HOSTS = [HostRecord(f"h{n:03}.test", NOW + n, 1.0, NOW + 7200) for n in range(150)]


def kept_list(fetched_at: float = NOW, body: bytes = b'{"blocked": []}') -> StoredDocument:
    url = BLOCKLIST_URL
    return StoredDocument("blocklist", url, url, body, fetched_at, 200, "ok", '"é"', None, 21600.0)


def kept_robots(key: str, size: int = 480) -> StoredDocument:
    return StoredDocument("robots", key, key, b"#" * size, NOW, 200, "ok")


def take_space(connection: sqlite3.Connection) -> None:
    """From now on the database of *connection* cannot grow: its disk is full."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages}")


def give_space(connection: sqlite3.Connection) -> None:
    """The disk has space again."""
    connection.execute("PRAGMA max_page_count=100000")


def change(directory: Path, sql: str, *values: Any) -> list[Any]:
    """What *sql* answers on the database in *directory*, by a connection of its own."""
    with closing(sqlite3.connect(directory / DATABASE)) as connection, connection:
        return connection.execute(sql, values).fetchall()


def flip(content: bytes, offset: int, bit: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 1 << bit]) + content[offset + 1 :]
