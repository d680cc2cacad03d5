"""The input and output pairs of the spec's section 12, checked on the pure functions (no crawl)."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.backoff import backoff_delay, parse_retry_after
from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.list.schema import parse_blocklist
from scrapy_walsh.policy.recrawl import canonical_url
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.proof.conformance.check import Check, judged, rows_of
from scrapy_walsh.proof.conformance.evidence import Evidence, none
from scrapy_walsh.proof.findings import Finding, held_if
from scrapy_walsh.proof.sandbox import blocklist

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.conformance.evidence import Judge

_TOKEN: Final = "Walsh-Research"  # noqa: S105  a product token; the tables are written for it
#: 23 May 2026, 00:00:00 GMT: the "now" of section 12.5.
_NOW: Final = 1_779_494_400.0
#: Section 12.5's table, and R5a of the reference report: attempt 2, base 1 s.
_JITTER_MOST: Final = 4.0
_JITTER_SPREAD: Final = 0.5
_SAMPLES: Final = 20


def _group(vector: dict[str, Any]) -> bool:
    rules = parse_robots(vector["robots"].encode(), _TOKEN)
    denied = vector["denied"]
    return (
        sorted(rules.group) == vector["group"]
        and rules.decide(vector["allowed"]).allowed
        and (denied is None or not rules.decide(denied).allowed)
    )


def _path(vector: dict[str, Any]) -> bool:
    body = "\n".join([f"User-agent: {_TOKEN}", *vector["rules"], ""])
    verdict = parse_robots(body.encode(), _TOKEN).decide(vector["path"])
    return bool(verdict.allowed == vector["allowed"])


def _domain(vector: dict[str, Any]) -> bool:
    document = blocklist("http://operator.test", vector["listed"])
    listed = parse_blocklist(json.dumps(document).encode(), None)
    return bool((listed.blocks(vector["host"]) is not None) == vector["blocked"])


def _canonical(vector: dict[str, Any]) -> bool:
    return bool(canonical_url(vector["url"]) == vector["canonical"])


def _retry_after(vector: dict[str, Any]) -> bool:
    return bool(parse_retry_after(vector["value"], _NOW) == vector["seconds"])


def _duration(vector: dict[str, Any]) -> bool:
    return bool(parse_duration(vector["text"]) * 1000 == vector["milliseconds"])


def _all(table: str, holds: Callable[[dict[str, Any]], bool]) -> Judge:
    """Every pair of *table* is reproduced; broken names the first that is not."""

    def judge(_: Evidence) -> Finding:
        vectors = json.loads(files(__package__).joinpath("vectors.json").read_bytes())[table]
        wrong = [vector for vector in vectors if not _holds(vector, holds)]
        return none(wrong, json.dumps, f"{len(vectors)}/{len(vectors)}")

    return judge


def _holds(vector: dict[str, Any], holds: Callable[[dict[str, Any]], bool]) -> bool:
    try:
        return holds(vector)
    except ValueError:
        return False


def _jitter(_: Evidence) -> Finding:
    delays = [backoff_delay(2, step / _SAMPLES) for step in range(_SAMPLES)]
    low, high = min(delays), max(delays)
    kept = low >= 0 and high <= _JITTER_MOST and high - low > _JITTER_SPREAD
    return held_if(kept, f"min={low:.3f} max={high:.3f}")


_TABLE: Final = {
    "R2a vectors: robots.txt group selection": _all("groups", _group),
    "R2b vectors: robots.txt path matching": _all("paths", _path),
    "R3a vectors: blocklist domain matching": _all("domains", _domain),
    "R7b vectors: canonical URL drops #fragment, and five more": _all("canonical", _canonical),
    "R5b vectors: Retry-After in seconds and as a date": _all("retry_after", _retry_after),
    "R5b Retry-After empty/None -> None": _all("retry_after_none", _retry_after),
    "R12 vectors: durations": _all("durations", _duration),
    "R5a backoff_delay is full jitter": _jitter,
}


def checks() -> list[Check]:
    """A check for each table."""
    return judged(rows_of(_TABLE), Evidence("", "", ()))
