"""The operator's list over nine runs: it fails, it is damaged, its schema comes and goes.

R3b, R3c, R10 and R12. Between two runs the stored documents are made older, so that the next run
has to request them again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.findings import Finding, Outcome, broken, held, held_if, unseen
from scrapy_walsh.proof.conformance.check import SHOULD, Row
from scrapy_walsh.proof.conformance.evidence import (
    LIST_URL,
    OPERATOR_HOST,
    SCHEMA_URL,
    Evidence,
    asked_for,
    nothing_of,
)
from scrapy_walsh.proof.conformance.part import operator_site, site
from scrapy_walsh.proof.conformance.scene import Scene, stage
from scrapy_walsh.proof.sandbox import Route, blocklist, page
from scrapy_walsh.proof.sandbox.routes import LIST, SCHEMA, missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.conformance.evidence import Run

#: Older than a list (PT6H) and than a schema (seven days) may be.
_AGED: Final = 700_000.0
_ORIGIN: Final = f"http://{OPERATOR_HOST}"
_SCHEMA_PAGE: Final = Route(body=page("blocklist.schema.json"), content_type="application/json")


def _json(document: dict[str, Any]) -> Route:
    return Route(body=json.dumps(document), content_type="application/json")


def _without_schema(*domains: str) -> Route:
    return _json(blocklist(_ORIGIN, *domains, inline=False))


_OTHER: Final = blocklist(_ORIGIN, "other.test")
#: What the list and the schema answer in each run after the first, by a name for the run.
_RUNS: Final[dict[str, tuple[Route, Route]]] = {
    "gone": (missing(), missing()),
    "not JSON": (Route(body="User-agent: *\nDisallow: /denied\n"), missing()),
    "invalid": (_json({**_OTHER, "blocked": [{"domain": 7}]}), missing()),
    "unknown major": (
        _json({**_OTHER, "contract": "walsh-research-blocklist/v2", "schema": {}}),
        missing(),
    ),
    "no schema": (_without_schema("other.test"), missing()),
    "schema": (_without_schema("blocked.test", "later.test"), _SCHEMA_PAGE),
    "schema held": (_without_schema("blocked.test", "third.test"), _SCHEMA_PAGE),
    "schema gone": (_without_schema("blocked.test", "fourth.test"), missing()),
}
_NAMES: Final = ("first", *_RUNS)
_LISTED: Final = ("blocked.test", "www.blocked.test")
_HOSTS: Final = (*_LISTED, "open.test", "other.test", "later.test", "third.test", "fourth.test")


def _urls(number: int) -> list[str]:
    """A new page of every host for each run, so that R8 has nothing to say."""
    return [f"http://{host}/{number}" for host in _HOSTS]


def _play(bot: Bot) -> Evidence:
    with stage(bot, [operator_site(), *map(site, _HOSTS)]) as here:
        here.probe(*_urls(0))
        for number, (name, (listed, schema)) in enumerate(_RUNS.items(), 1):
            here.age("blocklist", LIST_URL, _AGED)
            if name != "schema held":
                here.age("schema", SCHEMA_URL, _AGED)
            here.serve(OPERATOR_HOST, LIST, listed)
            here.serve(OPERATOR_HOST, SCHEMA, schema)
            here.probe(*_urls(number))
        return here.evidence()


def _of(evidence: Evidence, name: str) -> tuple[Run, str]:
    """The run called *name*, and the page of ``open.test`` that it was given."""
    number = _NAMES.index(name)
    return evidence.runs[number], f"http://open.test/{number}"


def _retained(name: str) -> Callable[[Evidence], Finding]:
    """The list of the first run is still in force after run *name* requested another."""

    def judge(evidence: Evidence) -> Finding:
        if nothing_of(evidence.first, _LISTED, "http://open.test/0").outcome is not Outcome.HELD:
            return unseen("no list was held before")
        run, control = _of(evidence, name)
        if not run.get(OPERATOR_HOST, LIST):
            return unseen("the list was not asked for again")
        return nothing_of(run, _LISTED, control)

    return judge


def _adopted(name: str, host: str, *, schema_asked: bool) -> Callable[[Evidence], Finding]:
    """The list of run *name*, which has no schema of its own, is adopted: *host* is refused."""

    def judge(evidence: Evidence) -> Finding:
        run, control = _of(evidence, name)
        if not run.get(OPERATOR_HOST, LIST):
            return unseen("the list was not asked for again")
        asked = bool(run.get(OPERATOR_HOST, SCHEMA))
        if asked != schema_asked:
            return broken(f"the schema was {'' if asked else 'not '}asked")
        return nothing_of(run, (*_LISTED, host), control)

    return judge


def _schema_after_list(evidence: Evidence) -> Finding:
    run, control = _of(evidence, "schema")
    paths = run.paths(OPERATOR_HOST)
    if LIST not in paths:
        return unseen("the list was not asked for again")
    if paths != [LIST, SCHEMA]:
        return broken(", ".join(paths))
    return nothing_of(run, (*_LISTED, "later.test"), control)


def _not_adopted(evidence: Evidence) -> Finding:
    """Without any schema the old list stays, and the new one does not come into force."""
    run, _ = _of(evidence, "no schema")
    retained = _retained("no schema")(evidence)
    if retained.outcome is not Outcome.HELD:
        return retained
    asked = asked_for(run, "http://other.test/5")
    return held_if(asked, "" if asked else "the unvalidated list was adopted")


def _refresh_first(evidence: Evidence) -> Finding:
    """In every later run the list was requested, and answered, before any target (R12.1)."""
    seen = 0
    for run in evidence.runs[1:]:
        asked = run.get(OPERATOR_HOST, LIST)
        targets = [each for each in run.log if each.host != OPERATOR_HOST]
        if not asked or not targets:
            continue
        seen += 1
        if (asked[0].completed or targets[0].arrived) > targets[0].arrived:
            return broken(f"{targets[0].host}{targets[0].path} was asked first")
    return held(f"runs={seen}") if seen else unseen("no expired list was asked again")


DOCUMENTS: Final = Scene(
    "documents",
    ("R3", "R10", "R12"),
    _play,
    (
        Row("R3b", "retain last list on a 404", _retained("gone")),
        Row("R3c", "unreadable document rejected; prior list retained", _retained("not JSON")),
        Row("R3c", "schema-invalid document rejected; prior list retained", _retained("invalid")),
        Row("R3c", "unknown contract major rejected", _retained("unknown major")),
        Row("R10", "no schema to be had: the document is not adopted", _not_adopted),
        Row("R10", "no inline schema: the standalone one is asked", _schema_after_list),
        Row(
            "R10",
            "a schema held is not asked again",
            _adopted("schema held", "third.test", schema_asked=False),
            SHOULD,
        ),
        Row(
            "R10",
            "schema refresh failing: the held one is used",
            _adopted("schema gone", "fourth.test", schema_asked=True),
            SHOULD,
        ),
        Row("R12", "expired blocklist: refresh precedes every target", _refresh_first),
    ),
)
