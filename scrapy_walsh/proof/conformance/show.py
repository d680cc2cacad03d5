"""The report for a person, in the style of the reference bot's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Outcome
from scrapy_walsh.policy.words import visible
from scrapy_walsh.proof.conformance.check import BINDING, WORDS, holds
from scrapy_walsh.terminal import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.conformance.check import Check

_RULE: Final = "-" * 80
_LEAST: Final = (10, 4, 58)


def lines(title: str, checks: Sequence[Check], seconds: float) -> Iterator[str]:
    """The table, a row for each of *checks*, and the totals as its last line."""
    yield visible(title)
    yield _RULE
    yield from table(map(_cells, checks), least=_LEAST, indent=2, gap=1)
    yield _RULE
    yield "  " + totals(checks, seconds)


def _cells(check: Check) -> tuple[str, str, str, str]:
    level = "" if check.level in BINDING else f" [{check.level}]"
    detail = f"({check.detail})" if check.detail else ""
    return f"[{WORDS[check.outcome]}]", check.id, check.title + level, detail


def totals(checks: Sequence[Check], seconds: float) -> str:
    """One line: how many passed, and whether every MUST holds."""
    found = Counter(check.outcome for check in checks)
    parts = [f"{found[Outcome.HELD]}/{len(checks)} checks passed"]
    others = ((Outcome.BROKEN, "failed"), (Outcome.UNSEEN, "not seen"))
    parts += [f"{found[outcome]} {word}" for outcome, word in others if found[outcome]]
    must = "every MUST holds" if holds(checks) else "not every MUST was shown to hold"
    return f"{', '.join(parts)}; {must} ({seconds:.1f} s)"
