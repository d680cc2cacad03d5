"""The input and output pairs of the spec's section 12, checked on the pure functions (no crawl)."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.backoff import backoff_delay, parse_retry_after
from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.list.schema import parse_blocklist
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.urls import canonical_url
from scrapy_walsh.proof.conformance.check import Scene
from scrapy_walsh.proof.conformance.evidence import Evidence, none
from scrapy_walsh.proof.findings import Finding, held_if
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.proof.sandbox.routes import ORIGIN

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


def _group(vector: dict[str, Any]) -> list[Any]:
    rules = parse_robots(vector["robots"].encode(), _TOKEN)
    return [
        sorted(rules.group),
        *(rules.decide(path).allowed for path in vector["paths"]),
    ]


def _path(vector: dict[str, Any]) -> bool:
    body = "\n".join([f"User-agent: {_TOKEN}", *vector["rules"], ""])
    return parse_robots(body.encode(), _TOKEN).decide(vector["path"]).allowed


def _domain(vector: dict[str, Any]) -> bool:
    document = json.dumps(blocklist(ORIGIN, vector["listed"]))
    return parse_blocklist(document.encode(), None).blocks(vector["host"]) is not None


def _retry_after(vector: dict[str, Any]) -> float | None:
    return parse_retry_after(vector["given"], _NOW)


def _all(table: str, answer_of: Callable[[dict[str, Any]], object]) -> Judge:
    """Each vector of *table* is reproduced; broken names the first that is not."""

    def judge(_: Evidence) -> Finding:
        vectors = json.loads(files(__package__).joinpath("vectors.json").read_bytes())[table]
        wrong = [vector for vector in vectors if answer_of(vector) != vector["expected"]]
        return none(wrong, json.dumps, f"{len(vectors)}/{len(vectors)}")

    return judge


def _jitter(_: Evidence) -> Finding:
    delays = [backoff_delay(2, step / _SAMPLES) for step in range(_SAMPLES)]
    low = min(delays)
    high = max(delays)
    holds = low >= 0 and high <= _JITTER_MOST and high - low > _JITTER_SPREAD
    return held_if(holds, f"min={low:.3f} max={high:.3f}")


#: A row for each table, and no crawl.
VECTORS: Final = Scene(
    name="vectors",
    sites=lambda _token: [],
    play=lambda _stage: None,
    table={
        "R2a vectors: robots.txt group selection": _all("groups", _group),
        "R2b vectors: robots.txt path matching": _all("paths", _path),
        "R3a vectors: blocklist domain matching": _all("domains", _domain),
        "R7b vectors: canonical URL drops #fragment, and five more": _all(
            "canonical", lambda vector: canonical_url(vector["given"])
        ),
        "R5b vectors: Retry-After in seconds and as a date": _all("retry_after", _retry_after),
        "R5b Retry-After empty/None -> None": _all("retry_after_none", _retry_after),
        "R12 vectors: durations": _all(
            "durations", lambda vector: parse_duration(vector["given"]) * 1000
        ),
        "R5a backoff_delay is full jitter": _jitter,
    },
)
