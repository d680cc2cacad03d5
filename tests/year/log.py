"""All that the judge reads: what the servers wrote down, what the operator knows of the runs."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_walsh.proof.exchanges import ROBOTS, Exchange
from tests.year.clock import Shift, off_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.year.world import World


@dataclass(frozen=True)
class Sent:
    """One request. ``start``, ``end``: the server's time, which is true; ``wall``: the machine's.

    ``sent``: its body. ``status`` None: no answer. ``asked``, ``told``: headers, names in lower
    case. ``cut``: its process was killed.
    """

    run: int
    start: float
    wall: float
    method: str
    url: str
    host: str
    path: str
    end: float
    status: int | None
    sent: str = ""
    asked: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    cut: bool = False

    @property
    def key(self) -> str:
        """What R8 counts: method, URL and body."""
        return f"{self.method} {self.url} {self.sent}"

    @property
    def is_robots(self) -> bool:
        """Whether it is for a robots.txt."""
        return self.path == ROBOTS

    @property
    def location(self) -> str:
        """Where a redirect leads; empty for any other answer."""
        return self.told.get("location", "")

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.start, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return f"run {self.run}, {moment}: {self.key.strip()} -> {self.status}"


@dataclass
class Ran:
    """A run as its operator knows it. Times are true ones, ``wall`` is the machine's; Unix seconds.

    ``declared``: ``method url body`` of the sources, in the file's order. ``startup``: seconds of
    the processor until the first request. ``seconds``: real ones, of all of it. ``rows``: of each
    table afterwards; ``octets``: of the database, the ledger and the rest; ``promised``: of
    each URL the time (the machine's) before which the source report says that no run asks it. All
    three are empty after a kill.
    """

    number: int
    spider: str
    why: str
    start: float
    wall: float
    end: float = 0.0
    killed: bool = False
    code: int = 0
    declared: list[str] = field(default_factory=list)
    startup: float = 0.0
    seconds: float = 0.0
    rows: dict[str, int] = field(default_factory=dict)
    octets: dict[str, int] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)


def exchange(each: Sent) -> Exchange[Sent]:
    """*each* as the tracker has it. A Retry-After of a 429 or 503 holds its host."""
    told = each.told.get("retry-after", 0.0) if each.status in (429, 503) else 0.0
    of = (each.host, each.path, each.start, each.end, each.status, each)
    return Exchange(*of, by=each.run, hold=float(told))


class Violation(NamedTuple):
    """A promise that was broken, and what shows it."""

    rule: str
    text: str


class Book:
    """The log of *world*, by run and by host. *shifts*: how the machine's clock was set."""

    def __init__(
        self,
        world: World,
        log: Iterable[Sent],
        runs: Sequence[Ran],
        shifts: Sequence[Shift] = (),
    ) -> None:
        self.world = world
        self.log = sorted(log, key=lambda each: each.start)
        self.runs = list(runs)
        self.shifts = shifts
        self.by_run: dict[int, list[Sent]] = defaultdict(list)
        self.by_host: dict[str, list[Sent]] = defaultdict(list)
        self.exchanges = [exchange(each) for each in self.log]
        for each in self.log:
            self.by_run[each.run].append(each)
            self.by_host[each.host].append(each)

    def wall(self, now: float) -> float:
        """The machine's clock at the true time *now*."""
        return now + off_by(self.shifts, now)

    def slack(self, begin: float, end: float) -> float:
        """Seconds by which the machine's clock was set between two true times."""
        return sum(abs(each.seconds) for each in self.shifts if begin < each.at <= end)

    def killed(self, run: int) -> bool:
        """Whether run number *run* was killed."""
        return next(ran.killed for ran in self.runs if ran.number == run)


def read_log(path: Path) -> list[Sent]:
    """The servers' log."""
    return [Sent(**json.loads(line)) for line in path.read_text().splitlines()]


def write_runs(path: Path, runs: Iterable[Ran]) -> None:
    """Keep what is known of *runs* as JSON lines."""
    path.write_text("".join(json.dumps(asdict(ran)) + "\n" for ran in runs))


def read_runs(path: Path) -> list[Ran]:
    """What :func:`write_runs` kept."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return [Ran(**line) for line in lines]
