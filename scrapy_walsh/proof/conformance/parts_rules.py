"""The parts of the lab for R1, R2 and R3: the User-Agent, robots.txt, the blocklist."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Finding, broken, held, held_if, unseen
from scrapy_walsh.proof.conformance.check import MUST_NOT, SHOULD, Row
from scrapy_walsh.proof.conformance.evidence import (
    OPERATOR_HOST,
    Evidence,
    asked_for,
    exact_user_agent,
    never,
    nothing_of,
    was_asked,
)
from scrapy_walsh.proof.conformance.part import Part, left_alone, requested, site
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import Route, Site, hosts, requests, user_agents
from scrapy_walsh.proof.sandbox.routes import LIST, SCHEMA, TEXT, missing, text

if TYPE_CHECKING:
    from scrapy_walsh.proof.sandbox import LoggedRequest

# -- R1 ---------------------------------------------------------------------------------------


def _kind(request: LoggedRequest) -> str:
    if request.host == OPERATOR_HOST:
        return "the operator's documents"
    return "robots.txt" if request.path == ROBOTS else "targets"


def _exact_user_agent(evidence: Evidence, kind: str) -> Finding:
    return exact_user_agent(evidence, (each for each in evidence.log if _kind(each) == kind))


def _one_user_agent(evidence: Evidence) -> Finding:
    found = user_agents(evidence.log)
    if len(evidence.log) < 2:
        return unseen("fewer than two requests")
    return held_if(len(found) == 1, f"distinct={len(found)}")


def _identity_rows() -> tuple[Row, ...]:
    kinds = ("targets", "robots.txt", "the operator's documents")
    exact = [
        Row("R1", f"exact UA on {kind}", lambda e, kind=kind: _exact_user_agent(e, kind))  # type: ignore[misc]
        for kind in kinds
    ]
    return (*exact, Row("R1", "UA neither rotated nor left out", _one_user_agent, MUST_NOT))


IDENTITY: Final = Part(
    "identity",
    ("R1",),
    lambda _token: [site("identity.test")],
    ("http://identity.test/page", "http://identity.test/other"),
    _identity_rows(),
)

# -- R2 ---------------------------------------------------------------------------------------

_PATHS: Final = "User-agent: *\nDisallow: /private/\nAllow: /private/open\n"
_WILD: Final = "User-agent: *\nDisallow: /*.pdf$\nDisallow: /find?q=\nDisallow: /tie\nAllow: /tie\n"


def _robots_sites(token: str) -> list[Site]:
    lower = token.lower()
    start = lower[: max(1, len(lower) // 2)]
    groups = {
        "path.test": _PATHS,
        "wild.test": _WILD,
        "empty.test": "User-agent: *\nDisallow:\n",
        "named-allow.test": f"User-agent: *\nDisallow: /\n\nUser-agent: {token}\nDisallow: /no\n",
        "named-deny.test": f"User-agent: *\nAllow: /\n\nUser-agent: {token.upper()}\nDisallow: /\n",
        "longest.test": (
            f"User-agent: {start}\nDisallow: /short\n\nUser-agent: {lower}\nDisallow: /long\n"
        ),
        "prefix.test": f"User-agent: *\nDisallow:\n\nUser-agent: {start}\nDisallow: /no\n",
        "merged.test": (
            f"User-agent: {token}\nDisallow: /one\n\nUser-agent: {token}\nDisallow: /two\n"
        ),
    }
    return [
        *(site(host, robots) for host, robots in groups.items()),
        site("robots-404.test", missing()),
    ]


_PUBLIC: Final = "http://path.test/public"
_DENIED: Final = (
    "http://path.test/private/notes",
    "http://wild.test/docs/report.pdf",
    "http://wild.test/find?q=tides",
    "http://named-allow.test/no",
    "http://named-deny.test/page",
    "http://longest.test/long",
    "http://prefix.test/no",
    "http://merged.test/one",
    "http://merged.test/two",
)
_ALLOWED: Final = (
    _PUBLIC,
    "http://path.test/private/open",
    "http://wild.test/docs/report.pdf?x=1",
    "http://wild.test/tie",
    "http://empty.test/page",
    "http://named-allow.test/page",
    "http://longest.test/short",
    "http://prefix.test/page",
    "http://merged.test/page",
    "http://robots-404.test/page",
)


def _robots_first(evidence: Evidence) -> Finding:
    """On every host robots.txt was requested, and answered, before anything else (R2.1)."""
    run, seen = evidence.first, 0
    for host in hosts(run.log):
        asked = run.asked(host)
        if host == OPERATOR_HOST or not asked:
            continue
        if asked[0].path != ROBOTS:
            return broken(f"{host} was asked {asked[0].path} first")
        if len(asked) > 1 and (asked[0].completed or 0) > asked[1].arrived:
            return broken(f"{host} was asked {asked[1].path} before its robots.txt was read")
        seen += len(asked) > 1
    return held(f"hosts={seen}") if seen else unseen("no target was asked")


def _robots_once(evidence: Evidence) -> Finding:
    """A robots.txt that was answered is not requested again within the run (R2.3)."""
    run = evidence.first
    asked = {host: run.get(host, ROBOTS) for host in hosts(run.log)}
    had = {host: len(each) for host, each in asked.items() if each and each[0].status in (200, 404)}
    again = [host for host, count in had.items() if count > 1]
    if not had:
        return unseen("no robots.txt was asked")
    return held_if(
        not again, f"{again[0]}: {had[again[0]]} times" if again else f"hosts={len(had)}"
    )


ROBOTS_RULES: Final = Part(
    "robots",
    ("R2",),
    _robots_sites,
    (*_ALLOWED[:2], *_DENIED, *_ALLOWED[2:]),
    (
        Row("R2", "robots.txt asked before any target of a host", _robots_first),
        Row("R2", "robots.txt asked once per host and run", _robots_once, SHOULD),
        left_alone(
            "R2", "no request for a disallowed path", "path.test/private/notes", "path.test/public"
        ),
        requested(
            "R2",
            "404 means no rules, empty Disallow allows",
            "robots-404.test/page empty.test/page",
        ),
        requested("R2a", "named group allows where `*` disallows", "named-allow.test/page"),
        left_alone(
            "R2a",
            "named group disallows where `*` allows",
            "named-deny.test/page",
            "path.test/public",
        ),
        left_alone(
            "R2a", "longest matching name selected", "longest.test/long", "longest.test/short"
        ),
        left_alone("R2a", "a prefix of the token is a match", "prefix.test/no", "prefix.test/page"),
        left_alone(
            "R2a", "groups of one name merge", "merged.test/one merged.test/two", "merged.test/page"
        ),
        left_alone(
            "R2b",
            "`*`, `$` and the query in a Disallow",
            "wild.test/docs/report.pdf wild.test/find?q=tides",
            "wild.test/tie",
        ),
        requested(
            "R2b",
            "longer Allow wins, Allow wins a tie, `$` ends the path",
            "path.test/private/open wild.test/tie wild.test/docs/report.pdf?x=1",
            SHOULD,  # R2c: over-blocking is conformant
        ),
        Row(
            "R2c",
            "no under-blocking: none of nine denied URLs asked",
            lambda e: never(e.first, _DENIED, _PUBLIC),
        ),
    ),
)

# -- R3, and R10's common path ----------------------------------------------------------------

_BLOCKED: Final = ("blocked.test", "www.blocked.test", "blocked.test:8080")
_UNRELATED: Final = ("http://notblocked.test/page", "http://blocked.test.open.test/page")


def _list_first(evidence: Evidence) -> Finding:
    others = [each for each in requests(evidence.first.log) if each.host != OPERATOR_HOST]
    if not others:
        return unseen("no other host was asked")
    listed = evidence.first.get(OPERATOR_HOST, LIST)
    if listed and (listed[0].completed or others[0].arrived) <= others[0].arrived:
        return held()
    return broken(f"{others[0].host}{others[0].path} was asked first")


def _list_once(evidence: Evidence) -> Finding:
    asked = len(evidence.first.get(OPERATOR_HOST, LIST))
    return held_if(asked == 1, f"requests={asked}") if asked else unseen("it was not asked")


def _no_schema_request(evidence: Evidence) -> Finding:
    if not evidence.first.get(OPERATOR_HOST, LIST):
        return unseen("the blocklist was not asked")
    return held_if(not evidence.first.get(OPERATOR_HOST, SCHEMA))


BLOCKLIST: Final = Part(
    "blocklist",
    ("R3", "R10"),
    lambda _token: [site("notblocked.test"), site("blocked.test.open.test"), *map(site, _BLOCKED)],
    (
        "http://blocked.test/notes",
        "http://www.blocked.test/notes",
        "http://BLOCKED.test:8080/notes",
        *_UNRELATED,
    ),
    (
        Row("R3", "blocklist asked before anything else", _list_first),
        Row("R3", "blocklist asked once per run", _list_once, SHOULD),
        Row(
            "R3",
            "nothing asked of a listed host, not even robots.txt",
            lambda e: nothing_of(e.first, ["blocked.test"], _UNRELATED[0]),
        ),
        Row(
            "R3a",
            "subdomain blocked by the apex entry",
            lambda e: nothing_of(e.first, ["www.blocked.test"], _UNRELATED[0]),
        ),
        Row(
            "R3a",
            "case and port make no difference",
            lambda e: nothing_of(e.first, ["blocked.test:8080"], _UNRELATED[0]),
        ),
        Row("R3", "unrelated hosts not blocked", lambda e: was_asked(e.first, *_UNRELATED)),
        Row("R10", "inline schema: no schema request", _no_schema_request),
    ),
)


# A part of the lab: hosts, files and URLs with which bots have broken R1, R2, R3 or R5.

_CONTROL: Final = "http://written.test/page"
#: Ways to write a URL of a host that is on the operator's list.
_BLOCKED_HOSTILE: Final = (
    "http://blocked.test./written",
    "http://name@blocked.test/written",
    "http:////blocked.test/written",
)
_SILENT: Final = tuple(f"http://silent.test/{number}" for number in range(3))
#: Requests of a run to a host that ends each connection without an answer: five retries (R5).
_ATTEMPTS: Final = 6
_ENDLESS: Final = "http://headers.test/page"
#: Octets of header lines before which a crawler must break off, buffers on the way included.
_ENOUGH: Final = 16 << 20
#: Header names by which a request says that it comes from somebody else.
_MISLEADING: Final = (
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Real-Ip",
    "X-Original-User-Agent",
)


def _sites(token: str) -> list[Site]:
    packed = gzip.compress(f"User-agent: {token}\nDisallow: /no\n".encode(), mtime=0)
    encoded = {"Content-Encoding": "gzip"}
    silent = Route(behaviour="close")
    return [
        site("written.test"),
        site("blanks.test", text(f"User-agent:\u00a0{token}\u00a0\nDisallow:\u00a0/no\u2003\n")),
        site("packed.test", Route(body=packed, content_type=TEXT, headers=encoded)),
        Site("silent.test", {"*": silent}),
        site("headers.test", page=Route(behaviour="headers", pause=0.0)),
    ]


def misled(evidence: Evidence) -> Finding:
    """No request had a header line that names another sender."""
    for each in evidence.log:
        for name in _MISLEADING:
            if each.values(name):
                return held_if(False, f"{name} to {each.host}{each.path}")
    return held_if(True, f"requests={len(evidence.log)}") if evidence.log else unseen("not asked")


def _listed(evidence: Evidence) -> Finding:
    return nothing_of(evidence.first, ["blocked.test"], _CONTROL)


def _given_up(evidence: Evidence) -> Finding:
    asked = len(evidence.first.asked("silent.test"))
    return held_if(asked <= _ATTEMPTS, f"requests={asked}") if asked else unseen("it was not asked")


def _cut_off(evidence: Evidence) -> Finding:
    asked = evidence.first.get("headers.test", "/page")
    if not asked or not asked_for(evidence.first, _CONTROL):
        return unseen("it was not asked, or the run came no further")
    most = max(each.sent for each in asked)
    return held_if(most < _ENOUGH, f"KiB={most // 1024}")


HOSTILE: Final = Part(
    "hostile",
    ("R1", "R2", "R3", "R5"),
    _sites,
    (
        *_SILENT,
        _ENDLESS,
        *_BLOCKED_HOSTILE,
        "http://blanks.test/page",
        "http://blanks.test/no",
        "http://packed.test/page",
        "http://packed.test/no",
        _CONTROL,
    ),
    (
        Row("R1", "no header line that names another asker", misled, MUST_NOT),
        left_alone(
            "R2",
            "a robots.txt that came compressed is obeyed",
            "packed.test/no",
            "packed.test/page",
        ),
        left_alone(
            "R2a",
            "no-break spaces around names and values are blanks",
            "blanks.test/no",
            "blanks.test/page",
        ),
        Row("R3a", "a listed host blocked in whatever way its URL is written", _listed),
        Row("R5", "a host that never answers: six requests in all at most", _given_up, SHOULD),
        Row("R5", "header lines without end are cut off", _cut_off, SHOULD),
    ),
)
