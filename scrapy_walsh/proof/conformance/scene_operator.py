"""The operator's own pages in the sandbox: fixtures, canaries, and R13's tags on the wire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from scrapy_walsh.findings import Finding, held_if, unseen
from scrapy_walsh.proof.conformance import live
from scrapy_walsh.proof.conformance.check import SHOULD, Row
from scrapy_walsh.proof.conformance.crawl import IMPLEMENTATION
from scrapy_walsh.proof.conformance.evidence import (
    LIST_URL,
    OPERATOR_HOST,
    ROBOTS,
    Evidence,
    target_of,
)
from scrapy_walsh.proof.conformance.part import operator_site, site
from scrapy_walsh.proof.conformance.scene import Scene, stage
from scrapy_walsh.proof.sandbox import Route, Site
from scrapy_walsh.proof.sandbox.routes import FIXTURES, busy, negotiated, text
from scrapy_walsh.spec import SPEC_VERSION

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Bot
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
