"""A report as one HTML file that loads nothing: no script, no font, no request. Pure.

All markup is in ``templates/``. URLs, rules and reasons were written by strangers. So each value
that a template writes has its control characters made visible and is then escaped: it stays text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.robots.fetch import ROBOTS_TTL
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural, visible
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.report import owner, pictures, words
from scrapy_walsh.proof.report.entries import text
from scrapy_walsh.proof.report.findings import findings, verdict
from scrapy_walsh.spec import REQUIREMENTS, __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy_walsh.proof.report.entries import Run
    from scrapy_walsh.proof.report.lanes import Report
    from scrapy_walsh.proof.report.owner import Extract, OptOut
    from scrapy_walsh.proof.report.sources import Sources
    from scrapy_walsh.proof.verify import Report as Verified

#: Octets that a page may have. One that would have more is rendered again with shorter tables.
LARGEST: Final = 4_500_000
#: How an outcome is shown: its CSS class, and its words.
_SIGNS: Final = {
    Outcome.HELD: ("yes", "✓ holds"),
    Outcome.BROKEN: ("no", "✗ broken"),
    Outcome.UNSEEN: ("unseen", "? not seen"),
}
_PURPOSES: Final = (("target", "targets"), ("robots", "robots.txt"), ("operator", "operator's"))
#: By what the lengths of all tables are divided, in turn, until the page is small enough.
_DIVISORS: Final = (1, 4, 16, 64)
_FILTERS: Final = {
    "codes": words.codes, "cut": words.cut, "instant": words.instant, "octets": words.octets,
    "percent": pictures.percent, "duration": duration, "word": words.word,
}  # fmt: skip
_GLOBALS: Final[dict[str, Any]] = {
    "pictures": pictures, "plural": plural, "signs": _SIGNS, "text": text,
    "version": __version__, "words": words,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much a page may show: rows of a table, and characters of a URL shown on hovering."""

    rows: int
    title: int


def page(report: Report, sources: Sources | None = None) -> str:
    """The HTML of *report*, with the *sources* of the state, if there is one.

    Its size is bounded whatever the ledger has, normally by LARGEST octets: tables are cut, and say
    so.
    """
    return _bounded("page.html", _values(report, sources))


def owners_page(
    found: Extract, verified: Verified, optout: OptOut | None, now: float, refresh: float
) -> str:
    """The HTML of *found*, for the owner of the site. It is bounded as :func:`page` is.

    *verified*: the ledger. *optout*: how the host is on the operator's list. *now*: Unix seconds.
    *refresh*: seconds after which crawls read that list anew.
    """
    least = found.run.number("robots_ttl") if found.run else None
    values = {
        "found": found, "verified": verified, "optout": optout, "now": now, "refresh": refresh,
        "kept": owner.kept(found, holds=verified.holds), "robots_ttl": least or ROBOTS_TTL,
        "pauses": owner.PAUSES,
    }  # fmt: skip
    return _bounded("owner.html", values)


def _bounded(name: str, values: Mapping[str, object]) -> str:
    template = environment().get_template(name)
    for divisor in _DIVISORS:
        limits = _Limits(rows=1200 // divisor, title=600 // divisor)
        found = template.render(values, limits=limits)
        if len(found.encode()) <= LARGEST:
            break
    return found


@cache
def environment() -> Environment:
    """The templates' environment. Each value passes :func:`_shown` and is then escaped.

    A name that a template misspells raises jinja2's UndefinedError instead of showing nothing.
    """
    found = Environment(
        loader=PackageLoader("scrapy_walsh.proof.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(_FILTERS)
    found.globals.update(_GLOBALS)
    return found


def _shown(value: object) -> object:
    """*value* as a template writes it: markup of our own macros as it is, all else as safe text."""
    if value is None or hasattr(value, "__html__"):
        return "" if value is None else value
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return visible(str(value))


def _values(report: Report, sources: Sources | None) -> dict[str, object]:
    """The variables of the templates, beside their filters and globals."""
    found = findings(report)
    run = report.runs[-1] if report.runs else None
    return {
        "report": report,
        "sources": sources,
        "title": _title(report),
        "name": _name(run),
        "verdict": verdict(report, found, sources),
        "ending": _ending(report),
        "titles": _titles(report),
        "requirements": REQUIREMENTS,
        "needs": sources.needs if sources else 0,
        "findings": found,
        "broken": [each for each in found if each.outcome is Outcome.BROKEN],
        "numbers": list(_numbers(report)),
    }


def _name(run: Run | None) -> str:
    """The bot's name, and the name of its spider: of the last run."""
    parts = [text(run.terms, "token"), text(run.terms, "spider")] if run else []
    return ", spider ".join(filter(None, parts)) or "a bot without a name"


def _title(report: Report) -> str:
    if report.history is not None:
        return f"{plural(report.history.days, 'day')}, {plural(len(report.runs), 'run')}"
    if len(report.runs) == 1:
        return f"run {report.runs[0].name}"
    return plural(len(report.runs), "run")


def _titles(report: Report) -> dict[str, str]:
    """The sections of the page, in order: the id of each, and its title."""
    return {
        "sources": "Sources",
        **({"history": "Day by day", "hosts": "Hosts"} if report.history else {}),
        "findings": "What the ledger shows",
        "numbers": "In numbers",
        "refused": "Refused, deferred, given up",
        **({} if report.history else {"timeline": "Host by host"}),
        **({"runs": "Runs"} if len(report.runs) > 1 else {}),
        "codes": "What the codes mean",
    }


def _ending(report: Report) -> str:
    if len(report.runs) != 1 or report.runs[0].ended is None:
        return ""
    reason = report.runs[0].reason
    return f" It {'ended well (finished)' if reason == 'finished' else f'ended with {reason!r}'}."


def _numbers(report: Report) -> Iterator[tuple[str, object, str]]:
    """The tiles of the section "In numbers": (name, number or text, explanation)."""
    kinds, purposes = report.kinds, report.purposes
    asked = sum(host.requests > 0 for host in report.hosts)
    received = words.octets(sum(host.octets for host in report.hosts))
    saved = sum(host.saved for host in report.hosts)
    split = ", ".join(f"{called} {purposes.get(name, 0):,}" for name, called in _PURPOSES)
    yield "Requests", sum(purposes.values()), split
    yield "Received", received, f"{words.octets(saved)} saved by 304 (R7)"
    yield "Hosts requested", asked, f"of {len(report.hosts):,} in the run"
    for name, kind, more in (
        ("Declared", "declared", "targets (R6)"),
        ("Fetched", events.FETCHED, "answers for the spider"),
        ("Not modified", events.NOT_MODIFIED, "304, no new data (R7)"),
        ("Refused", events.REFUSED, "never requested (R2, R3, R6, R8, settings)"),
        ("Held", events.HELD, "times that a target waited for its host (R4)"),
        ("Backed off", events.RETRIED, "retries scheduled (R5)"),
        ("Given up", events.GIVEN_UP, "retries used up (R5)"),
        ("Deferred", events.DEFERRED, "left for a later run"),
    ):
        yield name, kinds.get(kind, 0), more
    if redirected := kinds.get(events.TOO_MANY_REDIRECTS, 0):
        yield "Redirected too often", redirected, "not followed further"
