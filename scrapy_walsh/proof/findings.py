"""What a look at one promise showed: the one vocabulary of everything that judges.

``walsh doctor``, ``verify``, ``audit``, ``report``, ``conformance`` and ``attest`` judge in these
terms. Each prints an outcome in the word that its readers and their scripts know, by a table that
stands beside what it prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Outcome(Enum):
    """What was not seen is never held: a check whose occasion did not occur shows nothing."""

    HELD = "held"
    BROKEN = "broken"
    UNSEEN = "not seen"
    #: Nothing is broken, and somebody should look.
    WARNING = "warning"
    #: Worth a line, and nothing has to be done.
    NOTE = "note"
    #: The package leaves it to its operator, and says so.
    OPERATOR = "left to the operator"


@dataclass(frozen=True, slots=True)
class Finding:
    """One outcome, and why.

    ``rule``: R1 to R13 or a part of one (``R1.4``), or ``chain`` or ``run`` of a ledger; empty
    where the caller's heading says it. ``about``: the promise, or what was looked at, in a few
    words. ``text``: one line. ``place``: ``FILE:LINE`` of a log; ``line``: the number of a ledger's
    line, from 1; 0 where it is about none.
    """

    outcome: Outcome
    rule: str = ""
    about: str = ""
    text: str = ""
    place: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Where, by which rule, about what, and why; what is empty is left out."""
        place = self.place or (f"line {self.line}" if self.line else "")
        return ": ".join(filter(None, (place, self.rule, self.about, self.text)))


def held(text: str = "") -> Finding:
    """It was seen to hold."""
    return Finding(Outcome.HELD, text=text)


def broken(text: str = "") -> Finding:
    """It was seen not to hold."""
    return Finding(Outcome.BROKEN, text=text)


def unseen(why: str) -> Finding:
    """Nothing was shown; *why*: what was missing."""
    return Finding(Outcome.UNSEEN, text=why)


def held_if(kept: bool, text: str = "") -> Finding:
    """Held or broken."""
    return held(text) if kept else broken(text)


def overall(outcomes: Iterable[Outcome]) -> Outcome:
    """``BROKEN`` when one is; else ``HELD`` when one is; else ``UNSEEN``."""
    found = set(outcomes)
    if Outcome.BROKEN in found:
        return Outcome.BROKEN
    return Outcome.HELD if Outcome.HELD in found else Outcome.UNSEEN
