"""What happened, as frozen values. The log, the stats and the ledger are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scrapy_walsh.policy.verdict import Verdict

REFUSED: Final = "refused"
HELD: Final = "held"
FETCHED: Final = "fetched"
RETRIED: Final = "retried"
DEFERRED: Final = "deferred"
GIVEN_UP: Final = "given_up"
NOT_MODIFIED: Final = "not_modified"
TOO_MANY_REDIRECTS: Final = "too_many_redirects"
ADOPTED: Final = "adopted"
REJECTED: Final = "rejected"
#: A document that an earlier run, or another process, fetched is in force from now on.
TAKEN_UP: Final = "taken_up"

#: What an exchange was for.
TARGET: Final = "target"


@dataclass(frozen=True, slots=True)
class Event:
    """What was decided about ``url``.

    ``kind``: one of the constants above. ``requirement``, ``verdict``, ``reason``, ``document``,
    ``line``, ``rule``, ``group`` and ``digest``: as in a ``Verdict``. ``host``: the throttle key.
    ``status``: of the answer. ``wait``: seconds. ``due``: Unix seconds. ``schema``: digest of the
    standalone schema that a blocklist was validated with, if it brought none. ``form``: of
    ``recrawl.form_of``. ``proxy``: the host of the proxy that was refused, not the URL's own.
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
    rule: str | None = None
    group: tuple[str, ...] = ()
    digest: str | None = None
    schema: str | None = None
    form: str = ""
    proxy: str | None = None

    @classmethod
    def of(cls, kind: str, url: str, verdict: Verdict, host: str, **more: Any) -> Event:
        """What followed for *url* from *verdict*; *more*: members other than the verdict's."""
        told = {
            "requirement": verdict.requirement,
            "verdict": verdict.name,
            "reason": verdict.reason,
            "document": verdict.document,
            "line": verdict.line,
            "rule": verdict.rule,
            "group": verdict.group,
            "digest": verdict.digest,
        }
        return cls(kind, url, host=host, **{**told, **more})

    def __str__(self) -> str:
        """One line for a person."""
        gate = " ".join(part for part in (self.requirement, self.verdict) if part)
        where = f" [{self.document}{f':{self.line}' if self.line else ''}]" if self.document else ""
        return f"{self.kind} {self.url}{f' ({gate})' if gate else ''}: {self.reason}{where}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request on the wire, and its answer.

    ``purpose``: ``target``, ``robots`` or ``operator``. ``started``, ``ended``: Unix seconds by the
    clock that pacing goes by, which no setting of the wall clock moves. ``status``: None without
    an answer. ``answered``: False where this side broke it off. ``interval``: seconds that the
    host asks for between requests. ``exempt``: T1's first robots.txt. ``verdict``, ``digest``: with
    what the gates let it pass. ``attempt``: retries before this one. ``retry_after``: the header
    values. ``wait``: seconds that R5 leaves the host alone; None where it does not apply.
    ``gives_up``: no retry follows. ``sent``: the URL with R13's tags, if it carried some. ``hops``:
    redirects that led a document's fetch here. ``form``: of ``recrawl.form_of``. ``again``: True
    where this run has had an answer to the same request before. ``visit``: True for the target of
    a slow host that ``throttle.visit_from`` let go ahead of the Crawl-delay.
    ``once``: True for a trial of https that got no answer (``walsh_try_https``): it is not counted
    against the host, and http may follow.
    ``body``: SHA-256 of a robots.txt that came, as it was read, hexadecimal.
    """

    url: str
    host: str
    method: str
    purpose: str
    started: float
    ended: float
    status: int | None
    answered: bool
    interval: float
    exempt: bool
    verdict: str = ""
    digest: str | None = None
    attempt: int = 0
    retry_after: tuple[str, ...] = ()
    wait: float | None = None
    gives_up: bool = False
    sent: str | None = None
    hops: int = 0
    form: str = ""
    again: bool | None = None
    visit: bool | None = None
    once: bool | None = None
    body: str | None = None
