"""A report as one HTML file that loads nothing: no script, no font, no request. Pure.

All markup is in ``templates/``. URLs, rules and reasons were written by strangers. So each value
that a template writes has its control characters made visible and is then escaped: it stays text.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.robots.fetch import ROBOTS_TTL
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.ledger import DECLARED
from scrapy_walsh.proof.report import history, owner, timeline, words
from scrapy_walsh.spec import REQUIREMENTS, __version__

if TYPE_CHECKING:
    from scrapy_walsh.proof.report.owner import Extract
    from scrapy_walsh.proof.report.sources import SourceTable
    from scrapy_walsh.proof.report.tally import Tally
    from scrapy_walsh.proof.verify import Report as Verified

#: How an outcome is shown to the owner of a site: its CSS class, and its words.
_SIGNS: Final = {
    Outcome.HELD: ("yes", "✓ kept"),
    Outcome.BROKEN: ("no", "✗ not kept"),
    Outcome.UNSEEN: ("unseen", "? not shown"),
}
#: Tiles of the section "In numbers": a name, the kind of lines that are counted, what they are.
_TILES: Final = (
    ("Declared", DECLARED, "targets (R6)"),
    ("Fetched", events.FETCHED, "answers for the spider"),
    ("Not modified", events.NOT_MODIFIED, "304, no new data (R7)"),
    ("Answered", events.ANSWERED, "by a middleware of the project, not requested"),
    ("Refused", events.REFUSED, "never requested (R2, R3, R6, settings)"),
    ("Not due", NOT_DUE, "requested not long before (R8)"),
    ("Waits", events.HELD, "of a target for its host (R4)"),
    ("Backed off", events.RETRIED, "retries scheduled (R5)"),
    ("Given up", events.GIVEN_UP, "retries used up (R5)"),
    ("Deferred", events.DEFERRED, "left for a later run"),
    ("Redirected too often", events.TOO_MANY_REDIRECTS, "not followed further"),
)
_FILTERS: Final = {
    "codes": words.codes, "cut": words.cut, "duration": duration, "instant": words.instant,
    "strip": history.strip, "weeks": history.weeks, "source_name": history.name_of,
}  # fmt: skip
_GLOBALS: Final[dict[str, Any]] = {
    "plural": plural, "signs": _SIGNS, "timeline": timeline, "cells": history.CELLS,
    "version": __version__,
}  # fmt: skip


def page(report: Tally, verified: Verified, sources: SourceTable | None = None) -> str:
    """The HTML of *report*, with the *sources* of the state, if there is one.

    *verified*: the ledger. The page's size is bounded whatever the ledger has: tables are cut, and
    say so.
    """
    run = report.runs[-1] if report.runs else None
    values = {
        "report": report,
        "verified": verified,
        "sources": sources,
        "run": run,
        "title": _title(report),
        "verdict": _verdict(report, verified, sources),
        "requirements": REQUIREMENTS,
        "tiles": _TILES,
    }
    return environment().get_template("page.html").render(values)


def owners_page(
    found: Extract,
    verified: Verified,
    *,
    listed: bool,
    in_force: bool,
    now: float,
    refresh: float,
    contact: str = "",
) -> str:
    """The HTML of *found*, for the owner of the site. It is bounded as :func:`page` is.

    *verified*: the ledger. *listed*: the host is on the operator's list; *in_force*: it is also on
    the copy that crawls use. *now*: Unix seconds. *refresh*: seconds after which crawls read that
    list anew. *contact*: the operator's mail address.
    """
    values = {
        "found": found, "verified": verified, "listed": listed, "in_force": in_force, "now": now,
        "refresh": refresh, "contact": contact, "kept": owner.kept(found, verified),
        "robots_ttl": found.run.terms.robots_ttl if found.run else ROBOTS_TTL,
    }  # fmt: skip
    return environment().get_template("owner.html").render(values)


@cache
def environment() -> Environment:
    """The templates' environment. Each value passes :func:`_shown` and is then escaped.

    A name that a template misspells raises jinja2's UndefinedError instead of showing nothing.
    """
    templates = Environment(
        loader=PackageLoader("scrapy_walsh.proof.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(_FILTERS)
    templates.globals.update(_GLOBALS)
    return templates


def _shown(value: object) -> object:
    """*value* as a template writes it: markup of our own macros as it is, all else as safe text."""
    if value is None or hasattr(value, "__html__"):
        if value is None:
            return ""
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return visible(str(value))


def _title(report: Tally) -> str:
    if report.history is not None:
        return f"{plural(report.history.days, 'day')}, {plural(len(report.runs), 'run')}"
    if len(report.runs) == 1:
        return f"run {report.runs[0].name}"
    return plural(len(report.runs), "run")


def _verdict(report: Tally, verified: Verified, sources: SourceTable | None) -> str:
    """The head of a page in one sentence: first the sources, then the promises to their sites."""
    wrong = plural(len(verified.findings) + verified.more, "finding")
    parts = [
        plural(report.purposes.total(), "request"),
        f"{report.kinds[events.REFUSED]:,} refused",
        f"{report.kinds[NOT_DUE]:,} not due" if report.kinds[NOT_DUE] else "",
        "nothing wrong was found" if verified.holds else f"{wrong} against the ledger",
    ]
    return "; ".join(filter(None, [str(sources or ""), ", ".join(filter(None, parts))]))
