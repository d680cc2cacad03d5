"""A part of the lab: hosts, files and URLs with which bots have broken R1, R2, R3 or R5."""

from __future__ import annotations

import gzip
from typing import Final

from scrapy_walsh.findings import Finding, held_if, unseen
from scrapy_walsh.proof.conformance.check import MUST_NOT, SHOULD, Row
from scrapy_walsh.proof.conformance.evidence import Evidence, asked_for, nothing_of
from scrapy_walsh.proof.conformance.part import Part, left_alone, site
from scrapy_walsh.proof.sandbox import Route, Site
from scrapy_walsh.proof.sandbox.routes import TEXT, text

_CONTROL: Final = "http://written.test/page"
#: Ways to write a URL of a host that is on the operator's list.
_BLOCKED: Final = (
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
        *_BLOCKED,
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
