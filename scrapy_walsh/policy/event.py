"""One decision, as one frozen value: what the log line, the stats and the account are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REFUSED: Final = "refused"
HELD: Final = "held"
FETCHED: Final = "fetched"
RETRIED: Final = "retried"
DEFERRED: Final = "deferred"
GIVEN_UP: Final = "given_up"
NOT_MODIFIED: Final = "not_modified"
ADOPTED: Final = "adopted"
REJECTED: Final = "rejected"


@dataclass(frozen=True, slots=True)
class Event:
    """What was decided about ``url``.

    ``kind``: one of the constants above. ``requirement`` and ``verdict``: as in a ``Verdict``.
    ``reason``: one readable line. ``document`` and ``line``: what decided it. ``host``: the
    throttle key. ``status``: of the answer. ``wait``: seconds. ``due``: Unix seconds.
    """

    kind: str
    url: str
    requirement: str = ""
    verdict: str = ""
    reason: str = ""
    document: str | None = None
    line: int | None = None
    host: str = ""
    status: int | None = None
    wait: float | None = None
    due: float | None = None

    def __str__(self) -> str:
        """One line for a person."""
        gate = " ".join(part for part in (self.requirement, self.verdict) if part)
        where = f" [{self.document}{f':{self.line}' if self.line else ''}]" if self.document else ""
        return f"{self.kind} {self.url}{f' ({gate})' if gate else ''}: {self.reason}{where}"
