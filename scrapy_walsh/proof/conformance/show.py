"""The report for a person, in the style of the reference bot's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Outcome
from scrapy_walsh.proof.conformance.check import BINDING, WORDS, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.conformance.check import Check

_RULE: Final = "-" * 100
_TITLE: Final = 58


def lines(title: str, checks: Sequence[Check], seconds: float) -> Iterator[str]:
    """The table, a line for each of *checks*, and the totals as its last line."""
    yield title
    yield _RULE
    for check in checks:
        yield _line(check)
    yield _RULE
    yield "  " + totals(checks, seconds)


def _line(check: Check) -> str:
    detail = f"({check.detail})" if check.detail else ""
    level = "" if check.level in BINDING else f" [{check.level}]"
    outcome = f"[{WORDS[check.outcome]}]"
    return f"  {outcome:<10} {check.id:<4} {check.title + level:<{_TITLE}} {detail}".rstrip()


def totals(checks: Sequence[Check], seconds: float) -> str:
    """One line: how many passed, and whether every MUST holds."""
    found = Counter(check.outcome for check in checks)
    parts = [f"{found[Outcome.HELD]}/{len(checks)} checks passed"]
    others = ((Outcome.BROKEN, "failed"), (Outcome.UNSEEN, "not seen"))
    parts += [f"{found[outcome]} {word}" for outcome, word in others if found[outcome]]
    must = "every MUST holds" if holds(checks) else "not every MUST was shown to hold"
    return f"{', '.join(parts)}; {must} ({seconds:.1f} s)"
