"""Ledgers written by hand: entry by entry, or a whole one that is honest until a test breaks it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from scrapy_walsh.commands.common import read_blocklist
from scrapy_walsh.commands.verify import _members
from scrapy_walsh.ledger.files import CONTRACT, DOCUMENTS, FILE, GENESIS, HEAD, Documents, chained
from scrapy_walsh.policy.backoff import granted
from scrapy_walsh.policy.throttle import LONGEST
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.proof.verify import Report, files_of, verify
from tests import golden
from tests.crawl.harness import OPERATOR, USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

T = 1_800_000_000.0
LIST = json.dumps(blocklist()).encode()
ROBOTS = b"User-agent: *\nDisallow: /private/\nAllow: /\nCrawl-delay: 2\n"
LIST_URL = f"{OPERATOR}/blocklist.json"
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
    "follow_links": False,
    "scraping": False,
    "slow_hosts": "skip",
    "usage": {},
    "shared": False,
    "tag_requests": False,
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
    return {
        "url": url,
        "host": url.split("/")[2],
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
        **more,
    }


def lines_of(*entries: dict[str, Any], first: int = 1, previous: str = GENESIS) -> list[bytes]:
    """The lines of *entries*, chained, without their line ends."""
    lines = []
    for number, entry in enumerate(entries, first):
        line, previous = chained(entry, number, previous)
        lines.append(line[:-1])
    return lines


# -- the entries that a report shows --------------------------------------------------------------

ONE = "h.test"


def header(file: int = 1) -> dict[str, Any]:
    """The first line of a file."""
    return {"at": T, "kind": "ledger", "contract": CONTRACT, "file": file}


def terms_of(process: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The members of a line ``started``; what the rules grant goes by the settings."""
    given = {**SETTINGS, **settings}
    grant = granted(given["max_retries"], given["robots_unreachable"])
    longest = min(given["patience"], LONGEST)
    return {
        "process": process, "version": "0", "spec": "walsh-research-compliance/v1.3",
        "user_agent": USER_AGENT, "token": "Walsh-Research", "blocklist_url": LIST_URL,
        "schema_url": None,
        "settings": {"silent_attempts": grant, "longest_learned": longest, **given},
    }  # fmt: skip


def began(run: str = "r1", at: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"at": T + at, "run": run, "kind": "started", **terms_of(f"p-{run}", {}), **more}


def ended(run: str = "r1", at: float = 99.0) -> dict[str, Any]:
    return {"at": T + at, "run": run, "kind": "ended", "reason": "finished"}


def asked(
    start: float, end: float | None = None, host: str = ONE, run: str = "r1", **more: Any
) -> dict[str, Any]:
    """A target asked from *start* to *end*, seconds since the first line, and answered with 200."""
    end = start + 0.01 if end is None else end
    members = exchange(f"http://{host}/{start:g}", start, end)
    return {"at": T + end, "run": run, "kind": "asked", **members, **more}


def robots(start: float, **more: Any) -> dict[str, Any]:
    """A host's first robots.txt."""
    url = f"http://{more.get('host', ONE)}/robots.txt"
    return asked(start, **{"purpose": "robots", "exempt": True, "url": url, **more})


def decided(kind: str, at: float = 1.0, run: str = "r1", **more: Any) -> dict[str, Any]:
    return {
        "at": T + at,
        "run": run,
        "kind": kind,
        "host": ONE,
        "url": f"http://{ONE}/x",
        **more,
    }


# -- a whole one ----------------------------------------------------------------------------------


class Forge:
    """Entries in the order of their lines; ``run`` is the one that the next entries are of."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.run = ""
        self.add(T, "ledger", contract=CONTRACT, file=1)

    def add(self, at: float, kind: str, **members: Any) -> dict[str, Any]:
        """One more entry, *at* seconds after the start of the ledger."""
        at = at if at >= T else T + at
        entry = {"at": at, **({"run": self.run} if self.run else {}), "kind": kind, **members}
        self.entries.append(entry)
        return entry

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
