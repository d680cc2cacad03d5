"""The operator's own pages in the sandbox: fixtures, canaries, and R13's tags on the wire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from scrapy_walsh.findings import Finding, Outcome, broken, held, held_if, unseen
from scrapy_walsh.proof.conformance import live
from scrapy_walsh.proof.conformance.check import SHOULD, Row
from scrapy_walsh.proof.conformance.crawl import IMPLEMENTATION
from scrapy_walsh.proof.conformance.evidence import (
    LIST_URL,
    OPERATOR_HOST,
    SCHEMA_URL,
    Evidence,
    asked_for,
    nothing_of,
    target_of,
)
from scrapy_walsh.proof.conformance.part import Scene, operator_site, site, stage
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import Route, Site, blocklist, page
from scrapy_walsh.proof.sandbox.routes import (
    FIXTURES,
    LIST,
    SCHEMA,
    busy,
    missing,
    negotiated,
    text,
)
from scrapy_walsh.spec import SPEC_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.conformance.evidence import Run
    from scrapy_walsh.proof.sandbox import LoggedRequest

_ORIGIN: Final = f"http://{OPERATOR_HOST}"
_CANARIES: Final = f"{_ORIGIN}/research/bots/dogfood"
_UNTAGGED: Final = "/untagged/page"
_FOUND: Final = {
    "robots_allowed_sentinel": f"{_CANARIES}-allow",
    "robots_disallowed": f"{_CANARIES}-disallow",
    "walsh_only_allowed": f"{_CANARIES}-walsh-only",
    "external_positive": "http://external.test/project",
    "operator_blocked_host": "blocked.test",
    "flaky_429_endpoint": "http://flaky.test/page",
}
_ROBOTS: Final = """\
User-agent: *
Disallow: /research/bots/dogfood-walsh-only

User-agent: {token}
Disallow: /research/bots/dogfood-disallow
Allow: /research/bots/dogfood-allow
Allow: /research/bots/dogfood-walsh-only
Disallow: /untagged/*impl=
Crawl-delay: 2
"""


def _sites(token: str) -> list[Site]:
    document = {"contract": "walsh-research-test-fixtures/v1", "fixtures": _FOUND}
    flaky = busy("1")
    routes = {
        **operator_site().routes,
        ROBOTS: text(_ROBOTS.format(token=token)),
        FIXTURES: Route(body=json.dumps(document), content_type="application/json"),
        "*": negotiated(),
    }
    return [
        Site(OPERATOR_HOST, routes),
        site("external.test"),
        site("blocked.test"),
        site("flaky.test", page=Route(sequence=(flaky, flaky, negotiated()))),
    ]


def _play(bot: Bot) -> Evidence:
    url = live.fixtures_url(LIST_URL)
    with stage(bot, _sites(bot.identity.token)) as here:
        here.probe(url, document=url)
        here.probe(*live.targets(_FOUND), f"{_ORIGIN}{_UNTAGGED}")
        return here.evidence()


def _tags(request: LoggedRequest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(target_of(request)).query)


def _tagged(evidence: Evidence) -> Finding:
    implementation, _, commit = IMPLEMENTATION.partition("@")
    expected = {"impl": [implementation], "sha": [commit], "spec": [SPEC_VERSION]}
    asked = [e for e in evidence.log if e.host == OPERATOR_HOST and e.path != _UNTAGGED]
    bare = [each for each in asked if _tags(each) != expected]
    if not asked:
        return unseen("none of its URLs was asked")
    return held_if(not bare, target_of(bare[0]) if bare else f"requests={len(asked)}")


def _others_untagged(evidence: Evidence) -> Finding:
    asked = [each for each in evidence.log if each.host != OPERATOR_HOST]
    if not asked or not any("impl" in _tags(each) for each in evidence.log):
        return unseen("nothing was tagged, or no other host asked")
    tagged = [each for each in asked if _tags(each)]
    return held_if(not tagged, f"{tagged[0].host}" if tagged else f"requests={len(asked)}")


def _sent_untagged(evidence: Evidence) -> Finding:
    asked = evidence.runs[1].get(OPERATOR_HOST, _UNTAGGED)
    if not asked or not any("impl" in _tags(each) for each in evidence.log):
        return unseen("it was not asked, or nothing was tagged")
    return held_if(not _tags(asked[0]), target_of(asked[0]))


def _fixtures_read(evidence: Evidence) -> Finding:
    told = evidence.first.result(f"{_ORIGIN}{FIXTURES}")
    if told is None:
        return unseen("the crawl came to no answer")
    return held_if((told.get("document") or {}).get("fixtures") == _FOUND)


def _canary_never_asked(evidence: Evidence) -> Finding:
    asked = [each.path for each in evidence.runs[1].asked(OPERATOR_HOST)]
    if "/research/bots/dogfood-allow" not in asked:
        return unseen("its allowed sibling was not asked either")
    wrong = [path for path in asked if path.startswith("/research/bots/dogfood-disallow")]
    return held_if(not wrong, wrong[0] if wrong else "")


OPERATOR: Final = Scene(
    "operator",
    ("R2", "R3", "R4", "R5", "R13"),
    _play,
    (
        *live.rows(_FOUND),
        Row("R2", "canary dogfood-disallow never on the wire", _canary_never_asked),
        Row("R2", "the fixtures document is read", _fixtures_read, SHOULD),
        Row("R13", "the operator's URLs carry impl, sha, spec", _tagged, SHOULD),
        Row("R13", "other hosts see no tags", _others_untagged, SHOULD),
        Row("R13", "untagged where the tagged form is disallowed", _sent_untagged, SHOULD),
    ),
)


# The operator's list over nine runs: it fails, it is damaged, its schema comes and goes.
#
# R3b, R3c, R10 and R12. Between two runs the stored documents are made older, so that the next run
# has to request them again.

#: Older than a list (PT6H) and than a schema (seven days) may be.
_AGED: Final = 700_000.0
_ORIGIN_DOCUMENTS: Final = f"http://{OPERATOR_HOST}"
_SCHEMA_PAGE: Final = Route(body=page("blocklist.schema.json"), content_type="application/json")


def _json(document: dict[str, Any]) -> Route:
    return Route(body=json.dumps(document), content_type="application/json")


def _without_schema(*domains: str) -> Route:
    return _json(blocklist(_ORIGIN_DOCUMENTS, *domains, inline=False))


_OTHER: Final = blocklist(_ORIGIN_DOCUMENTS, "other.test")
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


def _play_documents(bot: Bot) -> Evidence:
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
    _play_documents,
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
