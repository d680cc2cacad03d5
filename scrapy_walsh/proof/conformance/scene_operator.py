"""The operator's own pages in the sandbox: fixtures, canaries, and R13's tags on the wire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from msgspec import convert

from scrapy_walsh.proof.conformance import live
from scrapy_walsh.proof.conformance.check import Scene
from scrapy_walsh.proof.conformance.crawl import IMPLEMENTATION
from scrapy_walsh.proof.conformance.evidence import (
    LIST_URL,
    SCHEMA_URL,
    THE_LIST,
    Evidence,
    Judge,
    every,
    list_first,
    none,
    nothing_of,
    only,
    seen,
    target_of,
    was_asked,
    where,
)
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import (
    Route,
    Site,
    blocklist,
    default_sites,
    page,
)
from scrapy_walsh.proof.sandbox.routes import (
    JSON,
    LIST,
    OPERATOR_HOST,
    ORIGIN,
    SCHEMA,
    missing,
    negotiated,
    site,
)
from scrapy_walsh.proof.sandbox.scenario import canary_robots, fixtures
from scrapy_walsh.spec import SPEC_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.conformance.crawl import Stage
    from scrapy_walsh.proof.findings import Finding
    from scrapy_walsh.proof.sandbox import LoggedRequest

_UNTAGGED: Final = "/untagged/page"
_NAME, _, _COMMIT = IMPLEMENTATION.partition("@")
_TAGS: Final = {"impl": [_NAME], "sha": [_COMMIT], "spec": [SPEC_VERSION]}
_FOUND: Final = convert(fixtures(), live.Fixtures)


def _sites(token: str) -> list[Site]:
    """Those of the sandbox that the fixtures name, and a page that may not be tagged."""
    names = [urlsplit(url).netloc or url for url in fixtures().values()]
    robots = canary_robots(token, "Disallow: /untagged/*impl=\n")
    by_host = {default.host: default for default in default_sites() if default.host in names}
    operator = {
        **by_host[OPERATOR_HOST].routes,
        ROBOTS: robots,
        _UNTAGGED: negotiated(),
    }
    return [*by_host.values(), Site(OPERATOR_HOST, operator)]


def _play(here: Stage) -> None:
    here.probe(" ".join([*live.targets(_FOUND), f"{ORIGIN}{_UNTAGGED}"]))


def _tags(request: LoggedRequest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(target_of(request)).query)


def _sent_with(tags: dict[str, list[str]], of: Callable[[LoggedRequest], bool]) -> Judge:
    """Each request *of* a kind had these *tags*."""

    def judge(evidence: Evidence) -> Finding:
        requests_of = seen([request for request in evidence.log if of(request)])
        wrong = [request for request in requests_of if _tags(request) != tags]
        return none(wrong, target_of, f"requests={len(requests_of)}")

    return judge


OPERATOR: Final = Scene(
    name="operator",
    sites=_sites,
    play=_play,
    table={
        **live.table(_FOUND),
        "R13 SHOULD the operator's URLs carry impl, sha, spec": _sent_with(
            _TAGS,
            lambda request: request.host == OPERATOR_HOST and request.path != _UNTAGGED,
        ),
        "R13 SHOULD other hosts see no tags": _sent_with(
            {}, lambda request: request.host != OPERATOR_HOST
        ),
        "R13 SHOULD untagged where the tagged form is disallowed": _sent_with(
            {}, lambda request: request.path == _UNTAGGED
        ),
    },
)


# The operator's list over twelve runs: it fails, it is damaged, its schema and its address change.
#
# R3b, R3c, R10 and R12. Between two runs the stored documents are made older, so that the next run
# has to request them again.

#: Older than a list (PT6H) and than a schema (seven days) may be.
_AGED: Final = 700_000.0
_SCHEMA_PAGE: Final = Route(body=page("blocklist.schema.json"), content_type=JSON)


def _json(document: dict[str, Any]) -> Route:
    return Route(body=json.dumps(document), content_type=JSON)


def _without_schema(*domains: str) -> Route:
    return _json(blocklist(ORIGIN, *domains, inline=False))


_OTHER: Final = blocklist(ORIGIN, "other.test")
#: The answers of the list and the schema in each run after the first, by a name for the run.
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
    "schema held": (
        _without_schema("blocked.test", "third.test"),
        _SCHEMA_PAGE,
    ),
    "schema gone": (_without_schema("blocked.test", "fourth.test"), missing()),
}
#: The list is at another address for two runs, and then at its own again: what these answer.
_MIRROR: Final = "http://mirror.test/list.json"
_MOVES: Final[dict[str, tuple[str, Route]]] = {
    "mirror without a list": (_MIRROR, missing()),
    "mirror with an empty list": (_MIRROR, _json(blocklist(ORIGIN))),
    "mirror taken away": (LIST_URL, missing()),
}
_NAMES: Final = ("first", *_RUNS, *_MOVES)
_LISTED: Final = "blocked.test www.blocked.test"
_HOSTS: Final = f"{_LISTED} open.test other.test later.test third.test fourth.test".split()


def _urls(number: int) -> str:
    """A new page of every host for each run, so that R8 has nothing to say."""
    return " ".join(f"{host}/{number}" for host in _HOSTS)


def _play_documents(here: Stage) -> None:
    here.probe(_urls(0))
    for number, (name, (blocklist_of_run, schema)) in enumerate(_RUNS.items(), 1):
        here.age("blocklist", LIST_URL, _AGED)
        if name != "schema held":
            here.age("schema", SCHEMA_URL, _AGED)
        here.serve(OPERATOR_HOST, LIST, blocklist_of_run)
        here.serve(OPERATOR_HOST, SCHEMA, schema)
        here.probe(_urls(number))
    here.serve(OPERATOR_HOST, LIST, missing())
    for name, (url, blocklist_of_run) in _MOVES.items():
        here.serve("mirror.test", "/list.json", blocklist_of_run)
        here.probe(_urls(_NAMES.index(name)), {"WALSH_BLOCKLIST_URL": url})


def _in_force(name: str, more: str = "") -> Judge:
    """After run *name* requested the list again, *more* hosts are left alone as well."""
    number = _NAMES.index(name)
    refused = nothing_of(f"{_LISTED} {more}", f"open.test/{number}", number)
    return where(was_asked(THE_LIST, number), refused)


def _bound(name: str, asked: str) -> Judge:
    """The list of the last run before the address changed is in force in run *name*."""
    number = _NAMES.index(name)
    control = f"open.test/{number}"
    refused = nothing_of(f"{_LISTED} fourth.test", control, number)
    return where(was_asked(asked, number), refused)


def _retained(name: str) -> Judge:
    """The list of the first run is still in force after run *name* requested another."""
    return where(_in_force("first"), _in_force(name))


def _adopted(name: str, host: str, *paths: str) -> Judge:
    """The list of run *name*, which has no schema of its own, is adopted: *host* is refused.

    *paths*: all that the run requested of the operator.
    """
    return every(
        _in_force(name, host),
        only(OPERATOR_HOST, *paths, run=_NAMES.index(name)),
    )


#: Without any schema the old list stays, and the new one does not come into force.
_NOT_ADOPTED: Final = every(
    _retained("no schema"), was_asked("other.test/5", _NAMES.index("no schema"))
)

DOCUMENTS: Final = Scene(
    name="documents",
    sites=lambda _token: [
        *map(site, _HOSTS),
        Site("mirror.test", {"*": missing()}),
    ],
    play=_play_documents,
    table={
        "R3b retain last list on a 404": _retained("gone"),
        "R3b another address brings no list: the last one stays": _bound(
            "mirror without a list", "mirror.test/list.json"
        ),
        "R3b a mirror's list lifts nothing of the canonical one": _bound(
            "mirror taken away", THE_LIST
        ),
        "R3c unreadable document rejected; prior list retained": _retained("not JSON"),
        "R3c schema-invalid document rejected; prior list retained": _retained("invalid"),
        "R3c unknown contract major rejected": _retained("unknown major"),
        "R10 no schema to be had: the document is not adopted": _NOT_ADOPTED,
        "R10 no inline schema: the standalone one is asked": _adopted(
            "schema", "later.test", LIST, SCHEMA
        ),
        "R10 SHOULD a schema held is not asked again": _adopted("schema held", "third.test", LIST),
        "R10 SHOULD schema refresh failing: the held one is used": _adopted(
            "schema gone", "fourth.test", LIST, SCHEMA
        ),
        "R12 expired blocklist: refresh precedes every target": where(
            was_asked(THE_LIST), list_first(*range(1, len(_RUNS) + 1))
        ),
    },
)
