"""The rows of an audit: how often the bot kept or broke each promise, and at which lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from scrapy_walsh.exceptions import visible
from scrapy_walsh.proof.findings import Finding, Outcome, overall

#: Breaches of a row that are kept with their place; all are counted.
KEPT: Final = 100
#: Characters of a logged text that a line of output has room for.
LONGEST: Final = 100


class Placed(Protocol):
    """A request: its place (``FILE:LINE``), and its raw target."""

    @property
    def place(self) -> str: ...
    @property
    def target(self) -> str: ...


@dataclass(slots=True)
class Row:
    """One promise. ``level``: MUST, SHOULD, or MATCH if two records are compared.

    ``seen``: occasions on which it certainly held. ``undecided``: the requests that the log does
    not tell enough about. ``broken``: those on which it certainly did not hold, the first of them
    in ``findings``. ``detail``: one line. ``within_clock``: see ``outcome``.
    """

    id: str
    level: str
    title: str
    detail: str = ""
    seen: int = 0
    undecided: int = 0
    broken: int = 0
    findings: list[Finding] = field(default_factory=list)
    within_clock: bool = False

    @property
    def outcome(self) -> Outcome:
        """Held, broken or not seen.

        With ``within_clock``, undecided occasions are so only because of the log's clock, and
        count as held; without it, only those that certainly held count.
        """
        has_occasion = self.seen or (self.within_clock and self.undecided)
        outcomes = [Outcome.BROKEN] if self.broken else []
        return overall([*outcomes, Outcome.HELD] if has_occasion else outcomes)

    def tell(self, *parts: object) -> None:
        """Set the detail: those of *parts* that are not empty."""
        self.detail = "; ".join(map(str, filter(None, parts)))

    def breach(self, at: Placed, text: str) -> None:
        """Count one breach, by the request *at*."""
        self.broken += 1
        if len(self.findings) < KEPT:
            about = shown(at.target)
            finding = Finding(Outcome.BROKEN, self.id, text=f"{about}: {text}", place=at.place)
            self.findings.append(finding)

    def members(self) -> dict[str, Any]:
        """The row as a JSON object."""
        return {
            "id": self.id,
            "level": self.level,
            "title": self.title,
            "verdict": self.outcome.value,
            "seen": self.seen,
            "undecided": self.undecided,
            "broken": self.broken,
            "detail": self.detail,
            "findings": [
                {"place": finding.place, "what": finding.text} for finding in self.findings
            ],
        }


def shown(text: str) -> str:
    """A logged text as it can stand in a line."""
    line = visible(text)
    if len(line) <= LONGEST:
        return line
    return f"{line[:LONGEST]}..."
