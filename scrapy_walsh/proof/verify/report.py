"""What a check of a ledger found, what it derived, and what it could not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from scrapy_walsh.proof.findings import Finding, Outcome

#: Findings that are kept; beyond them they are only counted.
_KEPT: Final = 1000
_NOTES_KEPT: Final = 100


@dataclass(slots=True)
class Report:
    """The result. ``findings``: what is broken, each with its rule: ``chain``, ``run``, R1 to R13.

    ``underived``: what could not be derived again, by its reason, counted.
    """

    findings: list[Finding] = field(default_factory=list)
    more: int = 0
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    runs: int = 0
    requests: int = 0
    derived: int = 0
    underived: Counter[str] = field(default_factory=Counter)
    head: tuple[int, str] | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing was found; ``underived`` was not seen to hold."""
        return not self.findings

    def find(self, line: int, rule: str, text: str) -> None:
        """Add a finding."""
        if len(self.findings) < _KEPT:
            self.findings.append(Finding(Outcome.BROKEN, rule, text=text, line=line))
        else:
            self.more += 1

    def note(self, text: str) -> None:
        """Add what a reader should know and is not a breach."""
        if len(self.notes) < _NOTES_KEPT:
            self.notes.append(text)

    def missed(self, why: str) -> None:
        """Count what could not be derived again."""
        self.underived[why] += 1
