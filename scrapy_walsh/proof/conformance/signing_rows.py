"""R1: the rows on signed requests (D25), for this package's own scene and for any other crawler.

The server's log has every header field, so each request is verified by the key directory alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Finding, broken, held, unseen
from scrapy_walsh.policy import signing
from scrapy_walsh.proof.conformance.check import SHOULD, Row
from scrapy_walsh.proof.conformance.evidence import target_of
from scrapy_walsh.proof.signatures import Fault, Judgement, Seen, judge, repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_walsh.proof.conformance.evidence import Evidence
    from scrapy_walsh.proof.sandbox import LoggedRequest

#: Seconds by which a signature may be off the server's clock: whole seconds are signed.
_SLACK: Final = 1.0


def seen_of(request: LoggedRequest) -> Seen:
    """A logged request as :mod:`scrapy_walsh.proof.signatures` takes it."""
    host = (request.values("Host") or [request.host])[0]
    target = signing.target(request.method, request.scheme, host, request.path)
    fields: dict[str, list[str]] = {}
    for name, value in request.headers:
        fields.setdefault(name.lower(), []).append(value)
    return Seen(
        request.method,
        (target.authority,),
        target_of(request),
        request.wall,
        fields,
        request.scheme,
    )


def _judged(evidence: Evidence) -> list[tuple[LoggedRequest, Judgement]]:
    return [(each, judge(seen_of(each), evidence.keys, slack=_SLACK)) for each in evidence.log]


def _none_has(*faults: Fault) -> Callable[[Evidence], Finding]:
    """No request has one of *faults*; NOT SEEN where no signature was looked at for that."""

    def look(evidence: Evidence) -> Finding:
        judged = _judged(evidence)
        for request, judgement in judged:
            if judgement.fault in faults:
                return broken(f"{request.host}{request.path}: {judgement.why}")
        good = sum(judgement.fault is None for _, judgement in judged)
        return held(f"requests={good}") if good else unseen("no signature holds")

    return look


def _of_itself(evidence: Evidence) -> Finding:
    """Each signature is of its own request, and no request carries that of an earlier one."""
    found = _none_has(Fault.FORGED, Fault.MALFORMED)(evidence)
    for first, later in _replays(evidence):
        return broken(f"{later.host}{later.path} carries the signature of {first.host}{first.path}")
    return found


def _replays(evidence: Evidence) -> Iterator[tuple[LoggedRequest, LoggedRequest]]:
    return repeated(_judged(evidence))


ROWS: Final = (
    Row("R1", "each request is signed", _none_has(Fault.UNSIGNED), SHOULD),
    Row("R1", "signed by a key of the directory", _none_has(Fault.KEY), SHOULD),
    Row("R1", "signed for this time", _none_has(Fault.TIME), SHOULD),
    Row("R1", "signed for this host, method and path, once", _of_itself, SHOULD),
)
