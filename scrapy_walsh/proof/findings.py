"""The result of a look at one promise: the vocabulary that all judges share.

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
    """A promise that was not seen is never held: a check shows nothing if its occasion did not
    occur.
    """

    HELD = "held"
    BROKEN = "broken"
    UNSEEN = "not seen"
    #: Nothing is broken, but a person should look.
    WARNING = "warning"
    #: Worth a line, and nothing has to be done.
    NOTE = "note"
    #: The package leaves it to its operator, and says so.
    OPERATOR = "left to the operator"


@dataclass(frozen=True, slots=True)
class Finding:
    """One outcome, and why.

    ``rule``: R1 to R13 or a part such as ``R1.4``, or ``chain`` or ``run`` of a ledger; empty if
    the caller's heading says it. ``about``: the promise, or what was looked at, in a few words.
    ``text``: one line. ``place``: ``FILE:LINE`` of a log; ``line``: the number of a ledger's line,
    from 1; 0 if it is about none.
    """

    outcome: Outcome
    rule: str = ""
    about: str = ""
    text: str = ""
    place: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Place, rule, subject and reason; empty parts are left out."""
        place = self.place or (f"line {self.line}" if self.line else "")
        return ": ".join(filter(None, (place, self.rule, self.about, self.text)))


def held(text: str = "") -> Finding:
    """It was seen to hold."""
    return Finding(Outcome.HELD, text=text)


def broken(text: str = "") -> Finding:
    """It was seen not to hold."""
    return Finding(Outcome.BROKEN, text=text)


def unseen(reason: str) -> Finding:
    """Nothing was shown; *why*: what was missing."""
    return Finding(Outcome.UNSEEN, text=reason)


def held_if(holds: bool, text: str = "") -> Finding:
    """Held or broken."""
    if holds:
        return held(text)
    return broken(text)


def overall(outcomes: Iterable[Outcome]) -> Outcome:
    """``BROKEN`` when one is; else ``HELD`` when one is; else ``UNSEEN``."""
    results = set(outcomes)
    if Outcome.BROKEN in results:
        return Outcome.BROKEN
    if Outcome.HELD in results:
        return Outcome.HELD
    return Outcome.UNSEEN
