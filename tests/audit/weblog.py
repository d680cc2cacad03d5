"""Access logs for tests: of what the sandbox saw, and of requests that a test makes up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.proof.audit.judge import Terms, judge
from scrapy_walsh.proof.audit.reading import Bot, Log, read_logs
from scrapy_walsh.proof.audit.robots_rows import Version
from tests import golden
from tests.crawl.harness import USER_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scrapy_walsh.proof.audit.rows import Row
    from scrapy_walsh.proof.sandbox import LoggedRequest

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


def nginx(log: Iterable[LoggedRequest], host: str) -> list[str]:
    """What nginx would have logged of *host*: at the end of each request, at its end's second."""
    done = [
        (record.wall + (record.completed or record.arrived) - record.arrived, record)
        for record in log
        if record.host == host and record.method != "CONNECT"
    ]
    return [
        line(
            ended,
            record.target.removeprefix(f"http://{host}"),  # the sandbox is a proxy, nginx is not
            record.status or 499,
            agent=", ".join(record.values("User-Agent")) or "-",
            address="127.0.0.1",
            method=record.method,
            referer=", ".join(record.values("Referer")) or "-",
        )
        for ended, record in sorted(done, key=lambda pair: pair[0])
    ]


def written(path: Path, lines: Iterable[str]) -> str:
    """The path of a log with these lines."""
    path.write_bytes("".join(f"{each}\n" for each in lines).encode("latin-1"))
    return str(path)


def rules(*bodies: tuple[float, str]) -> tuple[Version, ...]:
    """robots.txt files, each with the time from which it was served."""
    parsed = ((at, parse_robots(body.encode(), "Walsh-Research")) for at, body in bodies)
    return tuple(Version(*each) for each in parsed)


def audited(tmp_path: Path, lines: Iterable[str], **terms: Any) -> dict[str, Row]:
    """The rows of a log of *lines*, by the first words of their titles."""
    log = read_logs([written(tmp_path / "access.log", lines)], BOT)
    return rows_of(log, **terms)


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
