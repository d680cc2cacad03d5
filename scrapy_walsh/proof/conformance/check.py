"""What a conformance run says: checks, each held, broken or not seen.

What was not seen is NOT SEEN, never PASS: a check whose precondition did not occur shows nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.findings import Outcome, unseen
from scrapy_walsh.policy.words import visible
from scrapy_walsh.proof.conformance.judges import look
from scrapy_walsh.spec import REQUIREMENTS
from scrapy_walsh.terminal import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy_walsh.proof.conformance.evidence import Evidence
    from scrapy_walsh.proof.conformance.judges import Judge

#: The outcomes as the report and the record have them.
WORDS: Final[Mapping[Outcome, str]] = {
    Outcome.HELD: "PASS",
    Outcome.BROKEN: "FAIL",
    Outcome.UNSEEN: "NOT SEEN",
}

MUST: Final = "MUST"
MUST_NOT: Final = "MUST NOT"
SHOULD: Final = "SHOULD"
#: The levels that decide (spec section 3).
BINDING: Final = frozenset({MUST, MUST_NOT})

_ORDER: Final = {row.id: place for place, row in enumerate(REQUIREMENTS)}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report, and how it is judged. ``id``: of the spec's section 15, as R2a."""

    id: str
    title: str
    judge: Judge
    level: str = MUST

    @property
    def requirement(self) -> str:
        """R1 to R13: the id without its letter."""
        return self.id.rstrip("abcd")


def rows_of(table: Mapping[str, Judge]) -> tuple[Row, ...]:
    """A row for each heading: its id, its level unless that is MUST, and its title."""
    return tuple(_row(*heading.partition(" ")[::2], judge) for heading, judge in table.items())


def _row(identity: str, title: str, judge: Judge) -> Row:
    level = next((each for each in (MUST_NOT, SHOULD) if title.startswith(f"{each} ")), MUST)
    return Row(identity, title.removeprefix(f"{level} "), judge, level)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report, judged."""

    id: str
    requirement: str
    level: str
    title: str
    outcome: Outcome
    detail: str

    def members(self) -> dict[str, Any]:
        """The check as a JSON object."""
        return {**asdict(self), "outcome": WORDS[self.outcome]}


def judged(rows: Iterable[Row], evidence: Evidence) -> list[Check]:
    """Every one of *rows*, judged by *evidence*. None is held where a run was cut off."""
    return [_judged(row, evidence) for row in rows]


def _judged(row: Row, evidence: Evidence) -> Check:
    found = look(row.judge, evidence)
    if found.outcome is Outcome.HELD and evidence.cut_off:
        found = unseen(evidence.cut_off)
    return Check(row.id, row.requirement, row.level, row.title, found.outcome, found.text)


def in_order(checks: Iterable[Check]) -> list[Check]:
    """*checks* by requirement, then by id, else as they came."""
    return sorted(checks, key=lambda check: (_ORDER[check.requirement], check.id))


def holds(checks: Sequence[Check]) -> bool:
    """Whether every MUST and MUST NOT among *checks* passed; where there is none, every check."""
    deciding = [check for check in checks if check.level in BINDING] or checks
    return bool(deciding) and all(check.outcome is Outcome.HELD for check in deciding)


# The report for a person, in the style of the reference bot's.

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
