"""The judges alone: what was not seen never passes, and a log that breaks a promise fails."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.proof.conformance import live, parts, vectors
from scrapy_walsh.proof.conformance.check import WORDS, Check, holds, in_order, judged
from scrapy_walsh.proof.conformance.evidence import Evidence, Run, spaced
from scrapy_walsh.proof.conformance.run import SCENES
from scrapy_walsh.proof.findings import Outcome
from tests import golden
from tests.crawl.harness import USER_AGENT
from tests.kit import evidence, request

if TYPE_CHECKING:
    from typing import Any

    from scrapy_walsh.proof.sandbox import LoggedRequest

PASS = WORDS[Outcome.HELD]
FAIL = WORDS[Outcome.BROKEN]
NOT_SEEN = WORDS[Outcome.UNSEEN]

LIST = "/.well-known/walsh-research/blocklist.json"
EXACT_UA = "exact UA on targets"
ROBOTS_BEFORE = "robots.txt asked before any target of a host"
BLOCKED = "nothing asked of a listed host, not even robots.txt"
EVERY_HOST = "never above one request per second per host"
CRAWL_DELAY = "per-host spacing honors Crawl-delay (>=2s)"
JITTER = "backoff jitter produces variance"
BOUNDED = "at most five retries of a 503 or 429, then given up"
MISLED = "no header line that names another asker"
WRITTEN = "a listed host blocked in whatever way its URL is written"
SILENT = "a host that never answers: three requests in all at most"
ENDLESS = "header lines without end are cut off"
LIST_FIRST = "blocklist asked before anything else"
SERIAL = "requests are serial"
NO_COST = "a refused URL costs its host no wait"
NO_LINKS = "no link followed, no image, script, style sheet or font asked"
NO_REFRESH = "neither meta refresh nor a Refresh header followed"
THEN_LLMS = "llms.txt asked where a page has no markdown"
CANONICAL = "one request for one canonical URL"
RETRY_DATE = "Retry-After as a date waited for"
NOT_AGAIN = "no source asked again within the hour"
KEPT = "second run asks neither robots.txt nor blocklist"

ROWS = [
    *(
        pytest.param(row, id=f"{part.name}-{row.title}")
        for part in parts.PARTS
        for row in part.rows
    ),
    *(
        pytest.param(row, id=f"{scene.name}-{row.title}")
        for scene in SCENES
        if scene is not vectors.VECTORS
        for row in scene.rows
    ),
]
#: As many empty runs as the longest scene has.
NOTHING = Evidence(USER_AGENT, [Run([])] * 9)


@pytest.mark.parametrize("row", ROWS)
def test_no_row_passes_on_an_empty_log(row: Any) -> None:
    (check,) = judged([row], NOTHING)
    golden.note(check.members())
    assert WORDS[check.outcome] == NOT_SEEN


def test_a_run_that_was_cut_off_passes_nothing() -> None:
    log = [request("operator.test", LIST, 0), request("path.test", "/robots.txt", 1)]
    rows = [row for part in parts.PARTS for row in part.rows]
    assert Outcome.HELD in {check.outcome for check in judged(rows, evidence(log))}
    cut = judged(rows, evidence(log, code=None))
    assert Outcome.HELD not in {check.outcome for check in cut}


def outcome(title: str, *logs: list[LoggedRequest], **fields: Any) -> str:
    (row,) = (row for part in parts.PARTS for row in part.rows if row.title == title)
    (check,) = judged([row], evidence(*logs, **fields))
    golden.note(check.members())
    return WORDS[check.outcome]


def visit(host: str, *paths: str, every: float = 1.0, **fields: Any) -> list[LoggedRequest]:
    return [request(host, path, number * every, **fields) for number, path in enumerate(paths)]


ROBOTS_FIRST = visit("path.test", "/robots.txt", "/public")
OTHER_AGENT = {"headers": (("User-Agent", "ExampleBrowser/1.0"),)}
HEADERS_CUT = [
    request("headers.test", "/page", 0, sent=9_000),
    request("written.test", "/page", 1),
]
TWO_AGENTS = {"headers": (("User-Agent", USER_AGENT), ("User-Agent", USER_AGENT))}


ALIKE = (1.0, 1.0, 1.0)
SPREAD = (1.0, 1.1, 2.2)


def down(
    *counts: int, every: tuple[float, ...] = ALIKE, busy: tuple[float, ...] = SPREAD
) -> list[LoggedRequest]:
    """So many visits to each of the hosts that answer 503, each at its own pace.

    And as many to those that answer 429, each at the pace *busy*. The last two are alike.
    """
    log = [
        visit(f"{group}-{name}.test", *["/page"] * count, every=pace)
        for group, paces in (("down", every), ("busy", busy))
        for name, count, pace in zip(
            "abcd", (*counts, counts[-1]), (*paces, paces[-1]), strict=True
        )
    ]
    return list(chain.from_iterable(log))


def later(*paths: str, **fields: Any) -> list[LoggedRequest]:
    """The same visits to the host that answers 429 at first, and to the one that answers 503."""
    hosts = ("limited.test", "later.test")
    return [each for host in hosts for each in visit(host, *paths, **fields)]


def dated(*paces: float) -> list[LoggedRequest]:
    """Two visits to each host that names a date, each at its own pace."""
    hosts = ("date.test", "date-429.test")
    log = (visit(host, *["/page"] * 2, every=pace) for host, pace in zip(hosts, paces, strict=True))
    return list(chain.from_iterable(log))


@pytest.mark.parametrize(
    ("title", "log", "expected"),
    [
        (EXACT_UA, ROBOTS_FIRST, PASS),
        (EXACT_UA, visit("path.test", "/a", **OTHER_AGENT), FAIL),
        (EXACT_UA, visit("path.test", "/a", **TWO_AGENTS), FAIL),
        (EXACT_UA, visit("path.test", "/a", headers=()), FAIL),
        (EXACT_UA, visit("path.test", "/robots.txt"), NOT_SEEN),
        (EXACT_UA, [*ROBOTS_FIRST, request("b.test", "/", 9, **OTHER_AGENT)], FAIL),
        (ROBOTS_BEFORE, ROBOTS_FIRST, PASS),
        (ROBOTS_BEFORE, visit("path.test", "/public"), FAIL),
        (
            ROBOTS_BEFORE,
            [request("path.test", "/robots.txt", 0, completed=2.0), request("path.test", "/a", 1)],
            FAIL,
        ),
        ("no request for a disallowed path", ROBOTS_FIRST, PASS),
        ("no request for a disallowed path", visit("path.test", "/robots.txt"), NOT_SEEN),
        ("no request for a disallowed path", visit("path.test", "/private/notes"), FAIL),
        ("no under-blocking: none of nine denied URLs asked", visit("merged.test", "/two"), FAIL),
        (
            BLOCKED,
            visit("notblocked.test", "/robots.txt", "/page"),
            PASS,
        ),
        (
            BLOCKED,
            visit("blocked.test", "/robots.txt"),
            FAIL,
        ),
        (BLOCKED, ROBOTS_FIRST, NOT_SEEN),
        (
            BLOCKED,
            [request("blocked.test:443", "", 0, method="CONNECT", scheme="https")],
            FAIL,
        ),
        (LIST_FIRST, ROBOTS_FIRST, FAIL),
        (LIST_FIRST, [request("operator.test", LIST, 0), *ROBOTS_FIRST], FAIL),
        (LIST_FIRST, [request("operator.test", LIST, -1), *ROBOTS_FIRST], PASS),
        (LIST_FIRST, [request("operator.test", LIST, -1)], NOT_SEEN),
        ("inline schema: no schema request", visit("operator.test", LIST), PASS),
        (
            "inline schema: no schema request",
            visit("operator.test", LIST, LIST.replace(".json", ".schema.json")),
            FAIL,
        ),
        (SERIAL, ROBOTS_FIRST, PASS),
        (SERIAL, [*ROBOTS_FIRST, request("b.test", "/", 1, in_flight=2)], FAIL),
        (EVERY_HOST, visit("a.test", "/robots.txt", "/1"), NOT_SEEN),
        (
            EVERY_HOST,
            [*visit("a.test", "/robots.txt", "/1", every=0.01), request("a.test", "/2", 1.02)],
            PASS,
        ),
        (EVERY_HOST, visit("a.test", "/1", "/2", every=0.9), FAIL),
        (CRAWL_DELAY, visit("delay.test", "/a", "/b", every=2.0), PASS),
        (CRAWL_DELAY, visit("delay.test", "/a", "/b", every=1.9), FAIL),
        (CRAWL_DELAY, visit("delay.test", "/a"), NOT_SEEN),
        (NO_COST, visit("delay.test", "/a", "/b", every=12.0), FAIL),
        (
            "first request to unseen host not delayed",
            [each for n in range(1, 6) for each in visit(f"fresh{n}.test", "/robots.txt", "/page")],
            FAIL,
        ),
        (BOUNDED, visit("down-a.test", *["/page"] * 6), NOT_SEEN),
        (BOUNDED, visit("down-a.test", *["/page"] * 7), FAIL),
        (BOUNDED, down(7, 6, 6), FAIL),
        (BOUNDED, down(1, 1, 1), FAIL),
        (BOUNDED, down(6, 6, 2), PASS),
        (JITTER, down(6, 6, 6), FAIL),
        (JITTER, down(6, 6, 6, every=(1.0, 1.4, 1.9)), FAIL),
        (JITTER, down(6, 6, 6, every=SPREAD), PASS),
        (JITTER, down(6, 6, 6, every=SPREAD, busy=ALIKE), FAIL),
        (JITTER, down(6, 6, 6, every=SPREAD, busy=(8.0, 9.4, 9.0)), FAIL),
        (JITTER, down(6, 6, 6, every=(8.0, 9.4, 4.0)), PASS),
        (JITTER, down(6, 6, 0), NOT_SEEN),
        ("429 and 503 asked again until 200", later(*["/page"] * 3), PASS),
        ("429 and 503 asked again until 200", visit("limited.test", *["/page"] * 3), NOT_SEEN),
        ("429 and 503 asked again until 200", later("/page", status=429), FAIL),
        ("Retry-After in seconds waited for (>=2s)", later(*["/page"] * 3), FAIL),
        (RETRY_DATE, dated(3.1, 1.0), FAIL),
        (RETRY_DATE, dated(1.0, 3.1), FAIL),
        (RETRY_DATE, dated(3.1, 3.1), PASS),
        (NO_LINKS, visit("links.test", "/page", "/next"), FAIL),
        (NO_LINKS, visit("links.test", "/page"), PASS),
        (NO_LINKS, visit("links.test", "/page", "/style.css"), FAIL),
        (NO_REFRESH, visit("links.test", "/page", "/refreshing"), PASS),
        (NO_REFRESH, visit("links.test", "/refreshing", "/by-meta"), FAIL),
        (NO_REFRESH, visit("links.test", "/refreshing", "/by-header"), FAIL),
        (NO_REFRESH, visit("links.test", "/page"), NOT_SEEN),
        (MISLED, ROBOTS_FIRST, PASS),
        (MISLED, visit("path.test", "/a", headers=(("x-forwarded-for", "192.0.2.1"),)), FAIL),
        (WRITTEN, visit("written.test", "/page"), PASS),
        (WRITTEN, [*visit("written.test", "/page"), request("blocked.test", "/written", 9)], FAIL),
        (SILENT, visit("silent.test", *["/robots.txt"] * 2, "/0", status=None), PASS),
        (SILENT, visit("silent.test", *["/robots.txt"] * 3, "/0", status=None), FAIL),
        (ENDLESS, visit("headers.test", "/page", sent=9_000), NOT_SEEN),
        (ENDLESS, HEADERS_CUT, PASS),
        (ENDLESS, [*HEADERS_CUT, request("headers.test", "/page", 2, sent=32 << 20)], FAIL),
        (CANONICAL, visit("same.test", "/page", "/page/"), FAIL),
        (THEN_LLMS, visit("llms.test", "/page", "/llms.txt"), PASS),
        (THEN_LLMS, visit("llms.test", "/llms.txt", "/page"), FAIL),
    ],
)  # fmt: skip
def test_a_row_says_what_the_log_shows(title: str, log: list[LoggedRequest], expected: str) -> None:
    assert outcome(title, log) == expected


FIRST = [
    *visit("operator.test", LIST),
    *visit("etag.test", "/robots.txt", "/page"),
    *visit("modified.test", "/robots.txt", "/page"),
]


@pytest.mark.parametrize(
    ("title", "second", "expected"),
    [
        (NOT_AGAIN, visit("etag.test", "/new"), PASS),
        (NOT_AGAIN, visit("etag.test", "/page", "/new"), FAIL),
        (NOT_AGAIN, [], NOT_SEEN),
        (KEPT, visit("etag.test", "/new"), PASS),
        (
            KEPT,
            visit("etag.test", "/robots.txt", "/new"),
            FAIL,
        ),
        (KEPT, [], NOT_SEEN),
    ],
)
def test_a_second_run_is_judged_by_both_logs(
    title: str, second: list[LoggedRequest], expected: str
) -> None:
    assert outcome(title, FIRST, second) == expected


def of_scene(title: str, *runs: Run) -> str:
    (row,) = (row for scene in SCENES for row in scene.rows if row.title == title)
    (check,) = judged([row], Evidence(USER_AGENT, runs))
    return WORDS[check.outcome]


EMPTY = Run([])
MODIFIED = (("If-Modified-Since", "Tue, 03 Nov 2026 08:30:00 GMT"), ("User-Agent", USER_AGENT))
MATCH = (("If-None-Match", '"page-1"'), ("User-Agent", USER_AGENT))
FOREIGN_MATCH = (("If-None-Match", '"page-1"'), ("User-Agent", "ExampleBrowser/1.0"))


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([], NOT_SEEN),
        (visit("etag.test", "/page", headers=MATCH), NOT_SEEN),
        (
            [
                *visit("etag.test", "/page", headers=MATCH),
                *visit("modified.test", "/page", headers=MODIFIED),
            ],
            PASS,
        ),
        (visit("etag.test", "/page", headers=FOREIGN_MATCH), FAIL),
    ],
)
def test_r1_1_conditional_requests_are_judged_by_themselves(
    log: list[LoggedRequest], expected: str
) -> None:
    assert of_scene("exact UA on conditional requests", EMPTY, Run(log), EMPTY) == expected


def left_alone(*, due: float | None, verdict: str = "deferred", calls: int = 1) -> Run:
    hosts = ("tomorrow.test", "tomorrow-429.test")
    told = [{"url": f"http://{host}/page", "verdict": verdict, "due": due} for host in hosts]
    log = (visit(host, "/robots.txt", *["/page"] * calls) for host in hosts)
    return Run(list(chain.from_iterable(log)), told={"results": told})


WHOLE = 1_800_000_001.0 + 86_400


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (left_alone(due=WHOLE), left_alone(due=WHOLE - 7_200, calls=0), PASS),
        (left_alone(due=WHOLE), left_alone(due=WHOLE - 82_800, calls=0), FAIL),
        (left_alone(due=WHOLE - 82_800), left_alone(due=WHOLE - 7_200, calls=0), FAIL),
        (left_alone(due=WHOLE), left_alone(due=WHOLE - 7_200), FAIL),
        (left_alone(due=WHOLE), left_alone(due=None, calls=0), FAIL),
        (left_alone(due=WHOLE), left_alone(due=WHOLE, verdict="excluded_tld", calls=0), FAIL),
        (left_alone(due=WHOLE), EMPTY, FAIL),
        (EMPTY, EMPTY, NOT_SEEN),
    ],
)
def test_r5_3_a_retry_after_is_for_its_whole_time_in_a_later_run_too(
    first: Run, second: Run, expected: str
) -> None:
    title = "Retry-After of a day: deferred, with its whole time"
    assert of_scene(title, first, second, EMPTY) == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("/robots.txt", "/a", "/robots.txt"), PASS),
        (("/robots.txt", "/a", "/b"), FAIL),
        (("/robots.txt", "/a", "/robots.txt", "/b"), FAIL),
        (("/robots.txt", "/a"), NOT_SEEN),
        (("/robots.txt",), NOT_SEEN),
        (("/robots.txt", "/b", "/robots.txt"), PASS),
        (("/robots.txt", "/b", "/a"), FAIL),
        (("/robots.txt", "/b", "/robots.txt", "/a"), FAIL),
        (("/robots.txt", "/b"), NOT_SEEN),
        (("/robots.txt", "/robots.txt"), NOT_SEEN),
        (("/a", "/robots.txt"), FAIL),
    ],
)
def test_r2_31_rules_past_their_ttl_are_not_gone_by_within_a_run(
    paths: tuple[str, ...], expected: str
) -> None:
    run = Run(visit("turning.test", *paths))
    title = "opt-out in robots.txt honored once its TTL is over within a run"
    assert of_scene(title, EMPTY, EMPTY, run) == expected


def to_the_end(*results: dict[str, Any], calls: int = 6) -> Run:
    log = [
        each
        for host in ("down.test", "busy.test")
        for each in visit(host, "/robots.txt", *["/page"] * calls)
    ]
    hosts = ("down.test", "busy.test")
    urls = [{"url": f"http://{host}/page"} for host in hosts]
    told = [url | result for url, result in zip(urls, results, strict=True)]
    return Run(log, told={"results": told})


GAVE_UP = ({"requirement": "R5", "gave_up": 503}, {"requirement": "R5", "gave_up": 429})


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (to_the_end(*GAVE_UP), PASS),
        (to_the_end(GAVE_UP[0], {"status": 429}), FAIL),
        (to_the_end({"status": 503}, GAVE_UP[1]), FAIL),
        (to_the_end(*GAVE_UP, calls=7), FAIL),
        (to_the_end(*GAVE_UP, calls=0), NOT_SEEN),
    ],
)
def test_r5_8_the_last_429_or_503_is_no_response_of_a_spider(run: Run, expected: str) -> None:
    assert of_scene("503 and 429 to the end: given up, and no response", run) == expected


REFRESHING = "http://refresh.test/page"


@pytest.mark.parametrize(
    ("told", "paths", "expected"),
    [
        ({"status": 200, "final": REFRESHING}, ["/page"], PASS),
        ({"status": 200, "final": REFRESHING}, ["/page", "/by-header"], FAIL),
        ({"status": 200, "final": "http://refresh.test/by-meta"}, ["/page", "/by-meta"], FAIL),
        ({"error": "Refused", "why": "out of scope"}, ["/page"], FAIL),
    ],
)
def test_r6_1_a_page_that_refreshes_is_the_answer_itself(
    told: dict[str, Any], paths: list[str], expected: str
) -> None:
    log = visit("refresh.test", "/robots.txt", *paths)
    run = Run(log, told={"results": [{"url": REFRESHING, **told}]})
    assert of_scene("a page that refreshes is the answer itself", run) == expected


def test_r6_a_request_that_nobody_declared_fails_whatever_its_host() -> None:
    title = "no unexpected URL fetched (no recursion)"
    declared = ["http://path.test/public"]
    assert outcome(title, ROBOTS_FIRST, declared=declared) == PASS
    for extra in (request("path.test", "/public?page=2", 9), request("other.test", "/", 9)):
        assert outcome(title, [*ROBOTS_FIRST, extra], declared=declared) == FAIL


def test_no_interval_is_not_seen() -> None:
    assert WORDS[spaced([], 1.0).outcome] == NOT_SEEN


def test_a_verdict_needs_every_must_and_at_least_one() -> None:
    checks = of_vectors()
    assert holds(checks)
    assert not holds([])
    assert not holds([*checks, *judged(parts.PARTS[0].rows, NOTHING)])


def of_vectors() -> list[Check]:
    return judged(vectors.VECTORS.rows, Evidence("", ()))


def test_r12v_every_vector_is_reproduced() -> None:
    found = of_vectors()
    assert {WORDS[check.outcome] for check in found} == {PASS}
    assert [check.detail for check in in_order(found) if check.id == "R2b"] == ["8/8"]


def test_a_vector_that_is_not_reproduced_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "canonical_url", lambda url: url)
    failed = [check for check in of_vectors() if WORDS[check.outcome] == FAIL]
    assert [check.id for check in failed] == ["R7b"]
    assert "Example.com" in failed[0].detail


FOUND = {
    "robots_allowed_sentinel": "https://wal.sh/allow",
    "robots_disallowed": "https://wal.sh/disallow",
    "walsh_only_allowed": "https://wal.sh/walsh-only",
    "external_positive": "https://external.test/project",
    "operator_blocked_host": "blocked.test",
}
URL = "https://wal.sh/.well-known/walsh-research/test-fixtures.json"


def told(document: object, **more: object) -> Run:
    result = {"url": URL, "status": 200, "document": json.dumps(document), **more}
    return Run([], told={"results": [result]})


def test_r13f_the_fixtures_are_read_from_the_account_of_a_run() -> None:
    document = {"contract": "walsh-research-test-fixtures/v1", "fixtures": FOUND}
    found = live.fixtures_of(told(document), URL)
    assert structs.asdict(found) == {**FOUND, "flaky_429_endpoint": None}
    null = {**document, "fixtures": {**FOUND, "flaky_429_endpoint": None}}
    assert live.fixtures_of(told(null), URL) == found


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"contract": "walsh-research-test-fixtures/v2", "fixtures": FOUND},
        {"contract": "walsh-research-test-fixtures/v1", "fixtures": {}},
        {
            "contract": "walsh-research-test-fixtures/v1",
            "fixtures": {**FOUND, "external_positive": "file:///etc/hostname"},
        },
        {
            "contract": "walsh-research-test-fixtures/v1",
            "fixtures": {**FOUND, "external_positive": "https://a.test/ https://b.test/"},
        },
        {
            "contract": "walsh-research-test-fixtures/v1",
            "fixtures": {**FOUND, "operator_blocked_host": 7},
        },
    ],
)
def test_a_fixtures_document_that_cannot_be_used_is_refused(document: object) -> None:
    with pytest.raises(DocumentInvalid, match="test-fixtures"):
        live.fixtures_of(told(document), URL)
