"""The runs of a ledger, by their lines ``started`` and ``ended``; which of them are shown. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.ledger.files import parse_line
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.ledger import ENDED, STARTED, Line, line_of, lines_with
from scrapy_walsh.proof.verify.terms import Terms, terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from scrapy_walsh.proof.ledger import Files

#: The content of the lines of interest. No string inside a line can look like it, since JSON
#: escapes its quotes. So most lines need not be parsed.
_NEEDLES: Final = (b'"kind":"started"', b'"kind":"ended"')
#: Values of ``--run`` beside the name of a run.
LAST: Final = "last"
ALL: Final = "all"


class NoRun(WalshError):
    """The ledger does not have the run that was named, or has none."""


@dataclass(slots=True)
class Run:
    """One run: its lines ``started`` and ``ended``; None if no line says that it ended.

    ``file``, ``octets``: the file of its line ``started``, and the octets before it there.
    """

    began: Line
    terms: Terms
    file: Path
    octets: int
    ended: Line | None = None

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        return self.began.run


def runs_of(parts: Iterable[Path]) -> dict[str, Run]:
    """The runs with a line ``started`` in the files of a ledger, by name, oldest first. OSError."""
    runs: dict[str, Run] = {}
    for path, octets, raw in lines_with(parts, *_NEEDLES):
        with suppress(ValueError, RecursionError):  # a damaged line, of which ``verify`` tells
            members = parse_line(raw.removesuffix(b"\n"))
            line = line_of(members)
            if line.kind == STARTED:
                runs.setdefault(line.run, Run(line, terms_of(members), path, octets))
            elif line.kind == ENDED and line.run in runs:
                runs[line.run].ended = line
    return runs


def excerpt(files: Files, runs: Mapping[str, Run], shown: Iterable[Run]) -> Files:
    """*files* from the beginning of the first of the runs *shown* on.

    They are the whole ledger if that is the first of its *runs*.
    """
    first = min(shown, key=lambda run: (files.parts.index(run.file), run.octets), default=None)
    if first is None or first is next(iter(runs.values())):
        return files
    parts = files.parts[files.parts.index(first.file) :]
    return replace(files, parts=parts, begin=first.octets)


def since(runs: Mapping[str, Run], start: float) -> tuple[Run, ...]:
    """Those that began at *start*, Unix seconds, or later. Raises NoRun."""
    chosen_runs = tuple(run for run in runs.values() if run.began.at >= start)
    if not chosen_runs:
        latest = iso(max((run.began.at for run in runs.values()), default=0.0))
        raise NoRun(f"no run began in these days; the last one of this ledger began at {latest}")
    return chosen_runs


def chosen(runs: Mapping[str, Run], choice: str) -> tuple[Run, ...]:
    """ALL runs, the run of the name *choice*, or the LAST run that has ended. Raises NoRun.

    If no run has ended, LAST is the run that began last.
    """
    if choice == ALL:
        return tuple(runs.values())
    if choice in runs:
        return (runs[choice],)
    ended_runs = [run for run in runs.values() if run.ended is not None]
    latest_run = [*runs.values(), *ended_runs][-1:]
    if choice != LAST or not latest_run:
        names = ", ".join(list(runs)[-5:]) or "none"
        raise NoRun(f"no run {choice!r} begins in this ledger; its last ones: {names}")
    return tuple(latest_run)
