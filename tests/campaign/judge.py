"""The small site that campaigns crawl, and the promises, as questions to its server's log.

Each answer is a list of what broke a promise.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import version_info

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import Route, Site, blocklist, exchanged, requests
from tests.crawl.harness import LIST, LIST_SPIDER, RULES, TOLERANCE, Runs, served, site

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy_walsh.proof.exchanges import Gap
    from scrapy_walsh.proof.sandbox import LoggedRequest
    from tests.crawl.harness import Crawl, Kill

PAUSED, BUSY, BLOCKED = "paused.test", "busy.test", "blocked.test"
PLAIN = tuple(f"plain{number}.test" for number in range(4))
#: Seconds for which a busy host asks to be left alone.
RETRY_AFTER = 1.0
#: Seconds between requests, where a host asks for more than one.
INTERVALS: Mapping[str, float] = {PAUSED: 1.5}
#: What no run may ask: an opt-out, and a path that robots.txt disallows.
REFUSED = [f"http://www.{BLOCKED}/a", f"http://{PLAIN[0]}/private/a"]
#: Notes each answer at once: what is killed later has it.
_SPIDER = f"""{LIST_SPIDER}
    def parse(self, response):
        with open("parsed.txt", "a") as file:
            file.write(response.url + "\\n")
"""
#: Seconds from the end of an answer for which its reader may not yet have taken it.
_IN_FLIGHT = 0.25
#: Before 2.14 Scrapy hands an answer over a tenth of a second late: the next request may be out.
_HANDED_OVER_LATE = version_info < (2, 14)


def urls(*pages: str) -> list[str]:
    """*pages* of every host that may be asked."""
    return [f"http://{host}/{page}" for page in pages for host in (*PLAIN, PAUSED, BUSY)]


def place(directory: Path, **settings: Any) -> Runs:
    """A project, and the hosts with their answers from the beginning."""
    page = Route(body="<p>page</p>", delay=0.05)
    busy = Route(sequence=(Route(503, headers={"Retry-After": f"{RETRY_AFTER:g}"}), page))
    listed = served(blocklist("http://operator.test", BLOCKED), delay=0.1)
    quick = {"LOG_LEVEL": "INFO", "WALSH_BACKOFF_BASE": 0.1}
    quiet = {"EXTENSIONS": {"statsfile.StatsFile": None}}
    return Runs(
        directory,
        Site("operator.test", {LIST: listed}),
        *(site(host, {"*": page}, RULES) for host in PLAIN),
        site(PAUSED, {"*": page}, f"{RULES}Crawl-delay: {INTERVALS[PAUSED]}\n"),
        site(BUSY, {"*": page, "/a": busy}, RULES),
        site(BLOCKED),
        site(f"www.{BLOCKED}"),
        settings={**quick, **quiet, **settings},
        spider=_SPIDER,
    )


@dataclass
class Report:
    """What a campaign did, and every promise that it saw broken."""

    name: str
    figures: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def broken(self, where: str, found: Sequence[str]) -> None:
        """Note each of *found* as a violation seen in *where*."""
        self.violations += [f"{where}: {each}" for each in found]

    def lines(self) -> list[str]:
        """The summary."""
        figures = {**self.figures, "violations": len(self.violations)}
        width = max(len(name) for name in figures)
        table = [f"  {name:<{width}}  {count:>6}" for name, count in figures.items()]
        return [f"{self.name}:", *table, *(f"  BROKEN {each}" for each in self.violations)]


def rounds(most: int, seconds: float) -> Iterator[tuple[int, Path]]:
    """The numbers of *most* rounds, each with a new folder; none begins after *seconds*."""
    end = time.monotonic() + seconds
    for number in range(most):
        if time.monotonic() >= end:
            return
        with tempfile.TemporaryDirectory() as directory:
            yield number, Path(directory)


# -- the promises ---------------------------------------------------------------------------------


def refused(log: Iterable[LoggedRequest]) -> list[str]:
    """Requests that an opt-out or a robots.txt forbids."""
    return [
        f"asked {each.host}{each.path}"
        for each in requests(log)
        if each.host.endswith(BLOCKED)
        or (each.host == PLAIN[0] and each.path.startswith("/private/"))
    ]


def too_soon(log: Sequence[LoggedRequest], cuts: Sequence[float] = ()) -> list[str]:
    """Requests before their host's time.

    *cuts*: when one process had ended and another went on (monotonic).
    """
    asked = [each._replace(by=sum(cut <= each.start for cut in cuts)) for each in exchanged(log)]
    return [
        f"{gap} {'within a run' if gap.before.by == gap.after.by else 'across a restart'}"
        for gap in exchanges.too_soon(asked, _interval, TOLERANCE)
    ]


def _interval(gap: Gap[LoggedRequest]) -> float:
    return 1.0 if gap.after.path == ROBOTS else INTERVALS.get(gap.after.host, 1.0)


def cut_short(log: Iterable[LoggedRequest]) -> list[str]:
    """Requests to the host that said "in a second", before that second was over."""
    asked = exchanged(log, BUSY)
    told = (each._replace(hold=RETRY_AFTER if each.status == 503 else 0.0) for each in asked)
    return [
        f"{each.host}{each.path} {left:.3f} s before the end of a Retry-After"
        for each, left in exchanges.held(told, TOLERANCE)
    ]


def asked_again(log: Sequence[LoggedRequest], kills: Sequence[Kill]) -> tuple[int, list[str]]:
    """How often a request was made again because a kill met it in flight; and what was repeated
    without that reason."""
    count, found = 0, []
    asked = requests(log)
    for number, earlier in enumerate(asked):
        later = next((each for each in asked[number + 1 :] if _same(each, earlier)), None)
        if later is None or earlier.status not in (200, None):
            continue
        if any(_met(at, number, asked) for at in kills):
            count += 1
        else:
            before = min((kill.ordered - (earlier.completed or 0.0) for kill in kills), key=abs)
            asked_for = f"{earlier.host}{earlier.path}"
            found.append(f"{asked_for} was asked again, answered {before:.3f} s before a kill")
    return count, found


def _same(one: LoggedRequest, other: LoggedRequest) -> bool:
    return (one.host, one.target) == (other.host, other.target)


def _met(kill: Kill, number: int, asked: Sequence[LoggedRequest]) -> bool:
    """Whether the kill met request *number*: the last one before it, and not yet taken."""
    last = _HANDED_OVER_LATE or number + 1 == len(asked) or asked[number + 1].arrived > kill.over
    completed = asked[number].completed
    return (
        last
        and asked[number].arrived <= kill.over
        and (completed is None or completed >= kill.ordered - _IN_FLIGHT)
    )


def lost(targets: Iterable[str], runs: Runs) -> list[str]:
    """Targets that no spider was ever given a response for, in any run so far."""
    file = runs.project / "parsed.txt"
    parsed = file.read_text().split() if file.exists() else []
    return [f"{url} was lost" for url in targets if url not in parsed]


def unclean(run: Crawl, returncode: int = 0) -> list[str]:
    """A traceback, or another return code than the one expected."""
    found = []
    if "Traceback" in run.output:
        found.append("a traceback: " + run.output[run.output.index("Traceback") :][-600:])
    if run.returncode != returncode:
        found.append(f"return code {run.returncode}: {run.output[-300:]}")
    return found
