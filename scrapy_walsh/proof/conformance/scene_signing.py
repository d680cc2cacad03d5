"""Signed requests (D25): targets, robots.txt, redirects, retries, and what a spider would sign."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.conformance.check import Scene
from scrapy_walsh.proof.conformance.evidence import every, none, seen, target_of
from scrapy_walsh.proof.findings import Finding, held
from scrapy_walsh.proof.keys import make_keys
from scrapy_walsh.proof.sandbox import Route, Site
from scrapy_walsh.proof.sandbox.routes import busy, site
from scrapy_walsh.proof.signatures import (
    Fault,
    Judgement,
    Seen,
    directory_keys,
    judge,
    repeated,
)

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Bot, Stage
    from scrapy_walsh.proof.conformance.evidence import Evidence, Judge
    from scrapy_walsh.proof.sandbox import LoggedRequest

# R1: the rows on signed requests (D25), for this package's own scene and for any other crawler.
#
# The server's log has every header field, so each request is verified by the key directory alone.

#: Seconds that a signature may be off the server's clock, because whole seconds are signed.
_SLACK: Final = 1.0


def seen_of(request: LoggedRequest) -> Seen:
    """A logged request as :mod:`scrapy_walsh.proof.signatures` takes it."""
    host = (request.values("Host") or [request.host])[0]
    fields = {name.lower(): request.values(name) for name, _ in request.headers}
    return Seen(
        request.method,
        host,
        target_of(request),
        request.wall,
        fields,
        request.scheme,
    )


def _judge_requests(evidence: Evidence) -> list[tuple[LoggedRequest, Judgement]]:
    return [
        (request, judge(seen_of(request), evidence.keys, slack=_SLACK)) for request in evidence.log
    ]


def _none_has(*faults: Fault) -> Judge:
    """No request has one of *faults*; NOT SEEN if no signature was looked at for that."""

    def look(evidence: Evidence) -> Finding:
        judged = _judge_requests(evidence)
        wrong = [
            f"{_place(request)}: {judgement.why}"
            for request, judgement in judged
            if judgement.fault in faults
        ]
        good = sum(judgement.fault is None for _, judgement in judged)
        if wrong:
            return none(wrong)
        return held(f"requests={seen(good, 'no signature holds')}")

    return look


def _not_repeated(evidence: Evidence) -> Finding:
    """No request carries the signature of an earlier one."""
    pairs = repeated(_judge_requests(evidence))
    wrong = [
        f"{_place(later)} carries the signature of {_place(earlier)}" for earlier, later in pairs
    ]
    return none(wrong)


def _place(request: LoggedRequest) -> str:
    return f"{request.host}{request.path}"


_URLS: Final = (
    "signed.test/first signed.test/second signed.test/third signed-too.test/first"
    " signed-hop.test/page signed-busy.test/page"
)
#: The fields that a spider might set to be taken for another signer.
_HEADERS: Final = {
    "Signature-Agent": 'sig="https://other.test"',
    "Signature-Input": 'sig=("@path");tag="web-bot-auth"',
    "Signature": "sig=:AAAA:",
}


def _by_https(bot: Bot) -> Bot:
    """*bot*, its policy page by https, as signing wants it; the page is not requested here."""
    url = bot.identity.policy_url.partition(":")[2]
    identity = replace(bot.identity, policy_url=f"https:{url}")
    return replace(bot, identity=identity, setting=asdict(identity))


def _sites(_token: str) -> list[Site]:
    return [
        *map(site, ("signed.test", "signed-too.test")),
        site(
            "signed-hop.test",
            page=Route(302, location="http://signed-too.test/second"),
        ),
        site("signed-busy.test", page=busy("1")),
    ]


def _play(here: Stage) -> None:
    keys = make_keys(Path(here.project, "keys"))
    here.keys = directory_keys(keys.directory.read_bytes())
    key = {"WALSH_SIGNING_KEY": str(keys.key)}
    here.probe(_URLS, key, posts=["http://signed.test/in"], headers=_HEADERS)


SIGNING: Final = Scene(
    name="signing",
    sites=_sites,
    play=_play,
    settings={"WALSH_SIGN_REQUESTS": True, "WALSH_MAX_RETRIES": 1},
    bot=_by_https,
    table={
        "R1 SHOULD each request is signed": _none_has(Fault.UNSIGNED),
        "R1 SHOULD signed by a key of the directory": _none_has(Fault.KEY),
        "R1 SHOULD signed for this time": _none_has(Fault.TIME),
        "R1 SHOULD signed for this host, method and path, once": every(
            _none_has(Fault.FORGED, Fault.MALFORMED), _not_repeated
        ),
    },
)
