"""The rows of an audit: how often one promise was seen to be kept or broken, and where."""

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
    """A request: where it is written (``FILE:LINE``), and its raw target."""

    @property
    def place(self) -> str: ...
    @property
    def target(self) -> str: ...


@dataclass(slots=True)
class Row:
    """One promise. ``level``: MUST, SHOULD, or MATCH where two records are compared.

    ``seen``: occasions on which it certainly held. ``undecided``: those of which the log does
    not tell enough. ``broken``: those on which it certainly did not hold, the first of them in
    ``findings``. ``detail``: one line. ``within_clock``: see ``outcome``.
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
        kept = self.seen or (self.within_clock and self.undecided)
        found = [Outcome.BROKEN] if self.broken else []
        return overall([*found, Outcome.HELD] if kept else found)

    def tell(self, *parts: object) -> None:
        """Set the detail: those of *parts* that are not empty."""
        self.detail = "; ".join(map(str, filter(None, parts)))

    def breach(self, at: Placed, what: str) -> None:
        """Count one breach, by the request *at*."""
        self.broken += 1
        if len(self.findings) < KEPT:
            about = shown(at.target)
            found = Finding(Outcome.BROKEN, self.id, text=f"{about}: {what}", place=at.place)
            self.findings.append(found)

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
            "findings": [{"place": each.place, "what": each.text} for each in self.findings],
        }


def shown(text: str) -> str:
    """A logged text as it can stand in a line."""
    line = visible(text)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
