"""The parts of the lab for R1, R2 and R3: the User-Agent, robots.txt, the blocklist."""

from __future__ import annotations

import gzip
from functools import partial
from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.conformance.evidence import (
    OPERATOR_HOST,
    THE_LIST,
    THE_SCHEMA,
    Evidence,
    counted,
    exact_user_agent,
    never,
    none,
    nothing_of,
    seen,
    was_asked,
)
from scrapy_walsh.proof.conformance.part import Part, site
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Finding, broken, held, held_if
from scrapy_walsh.proof.sandbox import Route, Site, hosts, requests, user_agents
from scrapy_walsh.proof.sandbox.routes import TEXT, missing, text

if TYPE_CHECKING:
    from scrapy_walsh.proof.sandbox import LoggedRequest

# -- R1 ---------------------------------------------------------------------------------------


def _kind(request: LoggedRequest) -> str:
    if request.host == OPERATOR_HOST:
        return "documents"
    return "robots.txt" if request.path == ROBOTS else "targets"


def _exact_user_agent(kind: str, evidence: Evidence) -> Finding:
    return exact_user_agent(evidence, [e for e in evidence.log if _kind(e) == kind])


def _one_user_agent(evidence: Evidence) -> Finding:
    seen(len(evidence.log) > 1, "fewer than two requests")
    found = user_agents(evidence.log)
    return held_if(len(found) == 1, f"distinct={len(found)}")


IDENTITY: Final = Part(
    "identity",
    lambda _token: [site("identity.test")],
    "identity.test/page identity.test/other",
    {
        "R1 exact UA on targets": partial(_exact_user_agent, "targets"),
        "R1 exact UA on robots.txt": partial(_exact_user_agent, "robots.txt"),
        "R1 exact UA on the operator's documents": partial(_exact_user_agent, "documents"),
        "R1 MUST NOT UA neither rotated nor left out": _one_user_agent,
    },
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


_DENIED: Final = (
    "path.test/private/notes wild.test/docs/report.pdf wild.test/find?q=tides named-allow.test/no"
    " named-deny.test/page longest.test/long prefix.test/no merged.test/one merged.test/two"
)
_ALLOWED: Final = (
    "path.test/private/open wild.test/docs/report.pdf?x=1 wild.test/tie empty.test/page"
    " named-allow.test/page longest.test/short prefix.test/page merged.test/page"
    " robots-404.test/page"
)


def _robots_first(evidence: Evidence) -> Finding:
    """On every host robots.txt was requested, and answered, before anything else (R2.1)."""
    run, asked_target = evidence.first, 0
    for host in hosts(run.log):
        asked = run.asked(host)
        if host == OPERATOR_HOST or not asked:
            continue
        if asked[0].path != ROBOTS:
            return broken(f"{host} was asked {asked[0].path} first")
        if len(asked) > 1 and (asked[0].completed or 0) > asked[1].arrived:
            return broken(f"{host} was asked {asked[1].path} before its robots.txt was read")
        asked_target += len(asked) > 1
    return held(f"hosts={seen(asked_target, 'no target was asked')}")


def _robots_once(evidence: Evidence) -> Finding:
    """A robots.txt that was answered is not requested again within the run (R2.3)."""
    run = evidence.first
    asked = {host: run.get(f"{host}{ROBOTS}") for host in hosts(run.log)}
    had = {host: len(each) for host, each in asked.items() if each and each[0].status in (200, 404)}
    again = [f"{host}: {count} times" for host, count in had.items() if count > 1]
    return none(again, kept=f"hosts={len(seen(had, 'no robots.txt was asked'))}")


ROBOTS_RULES: Final = Part(
    "robots",
    _robots_sites,
    f"path.test/public {_DENIED} {_ALLOWED}",
    {
        "R2 robots.txt asked before any target of a host": _robots_first,
        "R2 SHOULD robots.txt asked once per host and run": _robots_once,
        "R2 no request for a disallowed path": never("path.test/private/notes", "path.test/public"),
        "R2 404 means no rules, empty Disallow allows": was_asked(
            "robots-404.test/page empty.test/page"
        ),
        "R2a named group allows where `*` disallows": was_asked("named-allow.test/page"),
        "R2a named group disallows where `*` allows": never(
            "named-deny.test/page", "path.test/public"
        ),
        "R2a longest matching name selected": never("longest.test/long", "longest.test/short"),
        "R2a a prefix of the token is a match": never("prefix.test/no", "prefix.test/page"),
        "R2a groups of one name merge": never(
            "merged.test/one merged.test/two", "merged.test/page"
        ),
        "R2b `*`, `$` and the query in a Disallow": never(
            "wild.test/docs/report.pdf wild.test/find?q=tides", "wild.test/tie"
        ),
        "R2b SHOULD longer Allow wins, Allow wins a tie, `$` ends the path": was_asked(
            "path.test/private/open wild.test/tie wild.test/docs/report.pdf?x=1"
        ),
        "R2c no under-blocking: none of nine denied URLs asked": never(_DENIED, "path.test/public"),
    },
)

# -- R3, and R10's common path ----------------------------------------------------------------

_UNRELATED: Final = "notblocked.test/page blocked.test.open.test/page"
_CONTROL: Final = "notblocked.test/page"


def _list_first(evidence: Evidence) -> Finding:
    others = [each for each in requests(evidence.first.log) if each.host != OPERATOR_HOST]
    seen(others, "no other host was asked")
    listed = evidence.first.get(THE_LIST)
    if listed and (listed[0].completed or others[0].arrived) <= others[0].arrived:
        return held()
    return broken(f"{others[0].host}{others[0].path} was asked first")


def _no_schema_request(evidence: Evidence) -> Finding:
    seen(evidence.first.get(THE_LIST), "the blocklist was not asked")
    return held_if(not evidence.first.get(THE_SCHEMA))


def _blocklist_sites(_token: str) -> list[Site]:
    blocked = ("blocked.test", "www.blocked.test", "blocked.test:8080")
    return [*map(site, blocked), site("notblocked.test"), site("blocked.test.open.test")]


BLOCKLIST: Final = Part(
    "blocklist",
    _blocklist_sites,
    f"blocked.test/notes www.blocked.test/notes BLOCKED.test:8080/notes {_UNRELATED}",
    {
        "R3 blocklist asked before anything else": _list_first,
        "R3 SHOULD blocklist asked once per run": counted(lambda run: run.get(THE_LIST), 1),
        "R3 nothing asked of a listed host, not even robots.txt": nothing_of(
            "blocked.test", _CONTROL
        ),
        "R3a subdomain blocked by the apex entry": nothing_of("www.blocked.test", _CONTROL),
        "R3a case and port make no difference": nothing_of("blocked.test:8080", _CONTROL),
        "R3 unrelated hosts not blocked": was_asked(_UNRELATED),
        "R10 inline schema: no schema request": _no_schema_request,
    },
)


# A part of the lab: hosts, files and URLs with which bots have broken R1, R2, R3 or R5.

#: Ways to write a URL of a host that is on the operator's list.
_WRITTEN: Final = "blocked.test./written name@blocked.test/written http:////blocked.test/written"
#: Requests of a run to a host that ends each connection without an answer: two for its robots.txt,
#: and one for a target.
_ATTEMPTS: Final = 3
#: Octets of header lines before which a crawler must break off, buffers on the way included.
_ENOUGH: Final = 16 << 20
#: Header names by which a request says that it comes from somebody else.
_MISLEADING: Final = (
    *("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "X-Original-User-Agent"),
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
    log = seen(evidence.log, "not asked")
    wrong = [(name, each) for each in log for name in _MISLEADING if each.values(name)]
    said = [f"{name} to {each.host}{each.path}" for name, each in wrong]
    return none(said, kept=f"requests={len(log)}")


def _cut_off(evidence: Evidence) -> Finding:
    asked = evidence.first.get("headers.test/page")
    further = asked and evidence.first.get("written.test/page")
    seen(further, "it was not asked, or the run came no further")
    most = max(each.sent for each in asked)
    return held_if(most < _ENOUGH, f"KiB={most // 1024}")


HOSTILE: Final = Part(
    "hostile",
    _sites,
    f"silent.test/0 silent.test/1 silent.test/2 headers.test/page {_WRITTEN} blanks.test/page"
    " blanks.test/no packed.test/page packed.test/no written.test/page",
    {
        "R1 MUST NOT no header line that names another asker": misled,
        "R2 a robots.txt that came compressed is obeyed": never(
            "packed.test/no", "packed.test/page"
        ),
        "R2a no-break spaces around names and values are blanks": never(
            "blanks.test/no", "blanks.test/page"
        ),
        "R3a a listed host blocked in whatever way its URL is written": nothing_of(
            "blocked.test", "written.test/page"
        ),
        "R5 SHOULD a host that never answers: three requests in all at most": counted(
            lambda run: run.asked("silent.test"), _ATTEMPTS
        ),
        "R5 SHOULD header lines without end are cut off": _cut_off,
    },
)
