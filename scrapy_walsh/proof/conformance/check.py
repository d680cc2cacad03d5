"""The vocabulary of a conformance run: scenes, parts of the lab, their rows, checks; and the
record.

A check is NOT SEEN, never PASS, if its precondition did not occur: it shows nothing. A row is a
line of a scene's or a part's table. It has its requirement, its level unless that is MUST, its
title, and a judge. :mod:`.evidence` makes the judges that several rows share::

    "R2a a prefix of the token is a match": never("prefix.test/no", "prefix.test/page"),
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.strict_json import json_object
from scrapy_walsh.proof.conformance.evidence import look
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.proof.findings import Outcome, unseen
from scrapy_walsh.spec import REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scrapy_walsh.proof.conformance.crawl import Bot, Stage
    from scrapy_walsh.proof.conformance.evidence import Evidence, Judge
    from scrapy_walsh.proof.sandbox import Site

#: The outcomes as the report and the record have them.
WORDS: Final[Mapping[Outcome, str]] = {
    Outcome.HELD: "PASS",
    Outcome.BROKEN: "FAIL",
    Outcome.UNSEEN: "NOT SEEN",
}

#: The first two decide (spec section 3).
MUST: Final = "MUST"
MUST_NOT: Final = "MUST NOT"
SHOULD: Final = "SHOULD"

#: Promises beyond the requirements, by a decision such as D38, come last.
_ORDER: Final = {row.id: place for place, row in enumerate(REQUIREMENTS)}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report, and how it is judged.

    ``id``: of the spec's section 15, as R2a; or of a decision of ours that goes beyond it, as D38.
    """

    id: str
    title: str
    judge: Judge
    level: str = MUST

    @property
    def requirement(self) -> str:
        """R1 to R13, or the decision: the id without its letter."""
        return self.id.rstrip("abcd")


def rows_of(table: Mapping[str, Judge]) -> tuple[Row, ...]:
    """A row for each heading: its id, its level unless that is MUST, and its title."""
    return tuple(_row(*heading.partition(" ")[::2], judge) for heading, judge in table.items())


def _row(identity: str, title: str, judge: Judge) -> Row:
    level = next(
        (word for word in (MUST_NOT, SHOULD) if title.startswith(f"{word} ")),
        MUST,
    )
    return Row(identity, title.removeprefix(f"{level} "), judge, level)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """``sites``: makes the hosts, for a token. ``table``: judges, by the headings of their rows."""

    name: str
    sites: Callable[[str], list[Site]]
    table: Mapping[str, Judge]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        return rows_of(self.table)


@dataclass(frozen=True, kw_only=True)
class Part(_Judged):
    """A part of the lab: hosts, and targets that any bot is given, by spaces.

    ``urls``: those of the first run. ``later``: those of the second run, if it shows more.
    ``foreign``: rows of other crawlers alone, since for ours a scene has such rows.
    """

    urls: str
    later: str = ""
    foreign: Mapping[str, Judge] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Those of any other crawler."""
        return rows_of({**self.foreign, **self.table})


@dataclass(frozen=True, kw_only=True)
class Scene(_Judged):
    """Hosts and a project of our own, and the runs that ``play`` makes of it.

    ``settings``: the project's. ``bot``: who crawls, made of who would.
    """

    play: Callable[[Stage], None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    bot: Callable[[Bot], Bot] = lambda bot: bot


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
    """Every one of *rows*, judged by *evidence*. No check holds if a run was cut off."""
    return [_judge_row(row, evidence) for row in rows]


def _judge_row(row: Row, evidence: Evidence) -> Check:
    finding = look(row.judge, evidence)
    if finding.outcome is Outcome.HELD and evidence.cut_off:
        finding = unseen(evidence.cut_off)
    return Check(
        row.id,
        row.requirement,
        row.level,
        row.title,
        finding.outcome,
        finding.text,
    )


def in_order(checks: Iterable[Check]) -> list[Check]:
    """*checks* by requirement, then by id, else as they came."""
    return sorted(
        checks,
        key=lambda check: (
            _ORDER.get(check.requirement, len(_ORDER)),
            check.id,
        ),
    )


def holds(checks: Sequence[Check]) -> bool:
    """Whether every MUST and MUST NOT among *checks* passed; if there is none, every check."""
    deciding = [check for check in checks if check.level != SHOULD] or checks
    return bool(deciding) and all(check.outcome is Outcome.HELD for check in deciding)


# The record of a run, contract ``walsh-conformance/v1``: what an attestation rests on.
#
# It has the digest of the code that ran, and a digest of itself. So a reader notices if it is of
# another version, or if it was edited.

CONTRACT: Final = "walsh-conformance/v1"
FILE: Final = "conformance.json"

_PACKAGE: Final = Path(__file__).resolve().parents[2]


def code_digest() -> str:
    """SHA-256, in hex, over the package's own files: the build that a record speaks of.

    The files in the order of their paths (relative to the package, ``/`` between the parts); of
    each the path, NUL, its octets, NUL.
    """
    paths = (path for path in _PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    files = {path.relative_to(_PACKAGE).as_posix(): path for path in paths}
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes() + b"\0")
    return digest.hexdigest()


def record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of *record* without its ``digest``, as JSON with sorted keys, no spaces."""
    members = {name: value for name, value in record.items() if name != "digest"}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write *record*, its ``digest`` set, to *path*; the old file stays until the new one is whole.

    Raises OSError.
    """
    complete = {**record, "digest": record_digest(record)}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(complete, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode())


def read_record(path: Path) -> dict[str, Any]:
    """The record in *path*, its contract and its digest checked: so it is as it was written.

    Raises OSError when it cannot be read, DocumentInvalid (one line) when it is not a record.
    """
    try:
        record: dict[str, Any] = json_object(path.read_bytes())
        if record.get("contract") != CONTRACT:
            raise DocumentInvalid(f"contract is {record.get('contract')!r}, not {CONTRACT!r}")
        if record.get("digest") != record_digest(record):
            raise DocumentInvalid("its digest is not that of its content: it was edited or damaged")
    except DocumentInvalid as error:
        raise DocumentInvalid(f"{path}: {error}; run walsh conformance again") from None
    return record
