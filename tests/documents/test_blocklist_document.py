"""R3, R10: the blocklist as a document, in real crawls: what is adopted, when, and who waits."""

from __future__ import annotations

import gzip
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy.freshness import SCHEMA_TTL
from scrapy_walsh.proof.sandbox import Request, Route, Sandbox, blocklist, hosts, max_in_flight
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import StoredDocument
from tests.crawl.harness import (
    FAR_OFF,
    LIST,
    LIST_SPIDER,
    ONCE,
    OPERATOR,
    SCHEMA,
    Crawl,
    age_document,
    crawl,
    kept,
    listing,
    make_project,
    operator,
    served,
    site,
    solo,
    state_dir,
    too_soon,
)
from tests.documents.matrix import Case, Outcome, document, play

if TYPE_CHECKING:
    from pathlib import Path

HELD = "http://blocked.test/x"
LIST_KEY = f"{OPERATOR}/blocklist.json"
INLINE = blocklist()["schema"]


# -- bd-*, bs-*, R3.8, R10: one case each, over a held list -------------------------------

WHOLE = json.dumps(document("DOMAIN"))


def raw(body: str | bytes, **fields: Any) -> Route:
    return Route(body=body, **fields)


def hop(location: str) -> Route:
    return Route(302, location=location)


#: Never adopted: after each of them the held list is in force as it was. More documents that are of
#: no use are rows of tests/data/blocklist_documents.json, which need no crawl.
REJECTED = {
    "bd2-major-2": Case(document("DOMAIN", contract="walsh-research-blocklist/v2", schema={})),
    "bd22-ref": Case(document("DOMAIN", schema={"$ref": "http://evil.test/s.json"})),
    "dialect": Case(document("DOMAIN", schema={"$schema": "http://evil.test/d", "$ref": "#x"})),
    "bd23-login-page": Case(raw("<html>login</html>")),
    "bd25-cut-off": Case(raw(WHOLE[: len(WHOLE) // 2])),
    "truncated": Case(raw(WHOLE, behaviour="truncate")),
    "deeply-nested": Case(raw("[" * 200_000)),
    "bd27-404": Case(raw(WHOLE, status=404)),
    "bd28-500": Case(raw(WHOLE, status=500)),
    "bd28-503": Case(raw(WHOLE, status=503)),
    "a-204": Case(Route(204)),
    "bs3-no-answer": Case(Route(behaviour="close")),
    "a-304-unasked": Case(Route(304)),
    "bd33-other-origin": Case(hop("http://other.test/blocklist.json")),
    "other-scheme": Case(hop("https://operator.other-scheme.test/moved.json")),
    "bad-place": Case(hop("http://[bad/")),
    "loop": Case(hop("/list.json")),
    "brotli": Case(raw(WHOLE, headers={"Content-Encoding": "br"})),
    "gzip-cut-off": Case(
        raw(gzip.compress(WHOLE.encode())[:-30], headers={"Content-Encoding": "gzip"})
    ),
    "bs10-very-old": Case(Route(404), age=50 * 700_000),
    "bd30-schema-is-none": Case(document("DOMAIN", schema=None), schema_then=served([1])),
    "bd30-schema-404": Case(document("DOMAIN", schema=None)),
}
#: Adopted: the new list is in force after each of them, the held one no more.
ADOPTED = {
    "bd1-as-published": Case(document("DOMAIN")),
    "bd17-refresh-of-no-use": Case(document("DOMAIN", refresh="Pfoo")),
    "bd18-accepts-all": Case(document("DOMAIN", schema={})),
    "bd32-schema-of-its-own": Case(
        document("DOMAIN", schema={"type": "object", "required": ["contract", "blocked"]})
    ),
    "bd31-stale-schema": Case(
        document("DOMAIN", schema=None),
        first={"schema": None},
        schema=served(INLINE),
        schema_age=SCHEMA_TTL + 10,
    ),
    "stale-schema-then-a-page": Case(
        document("DOMAIN", schema=None),
        first={"schema": None},
        schema=served(INLINE),
        schema_then=raw("<html>maintenance</html>"),
        schema_age=SCHEMA_TTL + 10,
    ),
    "cached-schema": Case(
        document("DOMAIN", schema=None), first={"schema": None}, schema=served(INLINE)
    ),
    "external-schema": Case(document("DOMAIN", schema=None), schema_then=served(INLINE)),
    "moved": Case(hop("/moved.json")),
    "clock-put-back": Case(document("DOMAIN"), age=-90_000),
    "over-the-floor": Case(document("DOMAIN"), first={"refresh": "PT2S"}, age=61),
    "over-the-ceiling": Case(document("DOMAIN"), first={"refresh": "P3650D"}, age=604_801),
    "over-six-hours": Case(document("DOMAIN"), first={"refresh": "PT"}, age=21_601),
}
#: Not even asked for: the held list is within its refresh, floor and ceiling counted (T12).
UNASKED = {
    "under-the-floor": Case(document("DOMAIN"), first={"refresh": "PT2S"}, age=5),
    "under-the-ceiling": Case(document("DOMAIN"), first={"refresh": "P3650D"}, age=604_000),
    "under-six-hours": Case(document("DOMAIN"), first={"refresh": "PT"}, age=21_000),
}
EMPTY = {"bd14-empty": Case(document("x", blocked=[]))}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return play(tmp_path_factory.mktemp("lists"), REJECTED | ADOPTED | UNASKED | EMPTY)


@pytest.mark.parametrize("name", REJECTED)
def test_r3_5_and_r3_9_what_must_not_be_adopted_is_not(
    outcomes: dict[str, Outcome], name: str
) -> None:
    found = outcomes[name]
    assert found.operator[0] == "/list.json", "the list was not asked for again"
    assert found.blocked == {"held"}
    # Once for each attempt; the next one beside the crawl may come within it.
    # D39: the line names the address that the list in force came from.
    held = f"stays in force (1 domain, from {found.list_url})"
    assert found.said("WARNING", "rejected", held)


@pytest.mark.parametrize("name", ADOPTED)
def test_r3_4_and_r12_1_what_is_valid_is_adopted_before_any_target(
    outcomes: dict[str, Outcome], name: str
) -> None:
    assert outcomes[name].blocked == {"other"}
    assert outcomes[name].said("adopted", "1 domain,")


@pytest.mark.parametrize("name", UNASKED)
def test_r3_8_within_refresh_nothing_is_asked(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].operator == []
    assert outcomes[name].blocked == {"held"}


def test_nothing_in_a_list_ends_in_a_traceback(outcomes: dict[str, Outcome]) -> None:
    assert "Traceback" not in outcomes["loop"].run.output
    assert outcomes["loop"].run.returncode == 0


def test_r3_5_no_reference_of_a_schema_is_ever_fetched(outcomes: dict[str, Outcome]) -> None:
    assert "evil.test" not in hosts(outcomes["bd22-ref"].run.log)


def test_bd_33_the_list_comes_from_its_own_origin_only(outcomes: dict[str, Outcome]) -> None:
    run = outcomes["bd33-other-origin"].run
    assert "other.test" not in hosts(run.log)
    assert {each.scheme for each in run.requests("operator.other-scheme.test")} == {"http"}


def test_bd_14_an_empty_list_is_the_operators_word_and_said(
    outcomes: dict[str, Outcome],
) -> None:
    assert outcomes["bd14-empty"].blocked == set()
    assert outcomes["bd14-empty"].run.lines(
        "WARNING", "lifted the opt-out of: held.bd14-empty.test"
    )


INLINE_CASES = ("bd1-as-published", "bd18-accepts-all", "bd32-schema-of-its-own")


@pytest.mark.parametrize("name", INLINE_CASES)
def test_r3_6_and_r10_1_no_separate_schema_is_asked_for(
    outcomes: dict[str, Outcome], name: str
) -> None:
    assert outcomes[name].operator == ["/list.json"]


@pytest.mark.parametrize("name", ["external-schema", "bd30-schema-is-none", "bd30-schema-404"])
def test_r3_7_the_standalone_schema_is_asked_for(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].operator == ["/list.json", "/schema.json"]


def test_r10_2_a_cached_schema_is_used(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["cached-schema"].operator == ["/list.json"]


def test_r10_3_and_r10_4_a_stale_schema_is_kept_and_said(outcomes: dict[str, Outcome]) -> None:
    for name in ("bd31-stale-schema", "stale-schema-then-a-page"):
        assert outcomes[name].operator == ["/list.json", "/schema.json"]
    run = outcomes["bd31-stale-schema"].run
    said = run.lines("WARNING", "schema not refreshed", "the cached one is used")
    assert len(said) == 2  # an answer that is no schema has no address in it
    assert sum("operator.bd31-stale-schema.test/schema.json" in each for each in said) == 1


@pytest.mark.parametrize(("name", "asked"), [("loop", 6), ("moved", 2)])
def test_r4_2_hops_of_the_list_are_spaced_and_five_at_most(
    outcomes: dict[str, Outcome], name: str, asked: int
) -> None:
    run = outcomes[name].run
    assert len(run.requests(f"operator.{name}.test")) == asked
    assert kept(run.gaps(f"operator.{name}.test"), 1.0)


def test_r4_1_crawls_side_by_side_take_turns(outcomes: dict[str, Outcome]) -> None:
    run = outcomes["loop"].run
    assert max_in_flight(run.log) == 1
    assert too_soon(run.log) == []


# -- bs-5, bs-13: nothing held, and a 304 --------------------------------------------------


def test_r10_5_and_r3_10_without_any_schema_nothing_is_adopted_and_the_list_is_empty(
    tmp_path: Path,
) -> None:
    run = solo(
        tmp_path / "none",
        HELD,
        sites=(operator(served(document("blocked.test", schema=None)), **{SCHEMA: Route(404)}),),
        settings=ONCE,
    )
    assert run.asked("operator.test") == [LIST, SCHEMA]
    assert run.asked("blocked.test") == ["/robots.txt", "/x"]
    assert (
        len(run.lines("WARNING", f"rejected {LIST_KEY}", "no blocklist loaded yet", "schema")) == 1
    )


def test_bs_13_a_304_counts_as_fresh(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", settings=ONCE)
    tagged = served(document("blocked.test"), etag='"1"')
    with Sandbox() as box:
        box.put(operator(tagged))
        crawl(project, box, HELD)
        age_document(project, "blocklist", LIST_KEY)
        second = crawl(project, box, HELD)
        third = crawl(project, box, HELD)
    (asked,) = second.requests("operator.test")
    assert asked.values("If-None-Match") == ['"1"']
    assert asked.status == 304
    for run in (second, third):
        assert "R3 blocked_operator" in run.why(HELD)
    assert third.asked("operator.test") == []


# -- nobody waits for a list that fails ---------------------------------------------------


def after_two(good: Route) -> Any:
    def serve(request: Request) -> Route:
        asked = sum(each.path == LIST for each in request.log)
        return good if asked > 2 else Route(503)

    return serve


#: Far more targets of a host than are sent until the list comes, however slow the machine is.
MANY = 30


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    """The list fails twice; meanwhile a host of many targets is crawled, then it is listed."""
    sites = (
        operator(after_two(listing("queued.test"))),
        site("queued.test"),
        *(site(f"quick{number}.test") for number in range(10)),
    )
    return solo(
        tmp_path_factory.mktemp("late"),
        *(f"http://queued.test/{number}" for number in range(MANY)),
        *(f"http://quick{number}.test/x" for number in range(10)),
        sites=sites,
        settings={"WALSH_BACKOFF_BASE": 0.01},
    )


def test_bs_6_a_failed_first_fetch_is_repeated_on_r5s_schedule(late: Crawl) -> None:
    assert late.asked("operator.test") == [LIST] * 3
    assert kept(late.gaps("operator.test"), 1.0)
    assert len(late.lines("no blocklist loaded yet")) == 2


def test_no_target_waits_for_that_schedule(late: Crawl) -> None:
    first, second = late.requests("operator.test")[:2]
    between = {each.host for each in late.log if first.arrived < each.arrived < second.arrived}
    assert "queued.test" in between
    assert len(between) > 1, "targets waited for the second attempt"


def test_r3_2_a_listed_hosts_queued_requests_are_refused(late: Crawl) -> None:
    adopted = late.requests("operator.test")[2].arrived
    asked = late.requests("queued.test")
    assert 1 < len(asked) < MANY
    assert all(each.arrived < adopted for each in asked)
    refused = [item for item in late.items if "R3 blocked_operator" in item.get("why", "")]
    assert len(refused) == MANY - len(late.targets("queued.test"))


#: Always has one request waiting at the wire, past its gate, whatever else is under way.
AT_THE_WIRE = """
import scrapy
from scrapy.utils.defer import maybe_deferred_to_future

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        also = [f"http://queued{n}.test/x" for n in range(40)]
        yield scrapy.Request("http://path.test/public", meta={"walsh_also": also})

    async def parse(self, response):
        engine = self.crawler.engine
        for url in response.request.meta["walsh_also"]:
            try:
                if hasattr(engine, "download_async"):
                    await engine.download_async(scrapy.Request(url))
                else:
                    await maybe_deferred_to_future(engine.download(scrapy.Request(url)))
            except Exception as error:
                yield {"url": url, "error": type(error).__name__, "why": str(error)}
                return
"""


def test_r3_2_a_target_at_the_wire_when_the_list_comes_is_judged_by_it(tmp_path: Path) -> None:
    every = [f"queued{number}.test" for number in range(40)]
    slow, page = replace(listing(*every), delay=0.7), {"/x": Route(delay=0.1)}
    run = solo(
        tmp_path / "wire",
        sites=(operator(after_two(slow)), *(site(host, page) for host in every)),
        spider=AT_THE_WIRE,
        settings={"WALSH_BACKOFF_BASE": 0.01},
    )
    third = run.requests("operator.test")[2]
    queued = [each for each in run.log if each.host.startswith("queued")]
    assert 1 < len(queued) < 80, "the list came before or after everything"
    assert all(each.arrived < third.arrived for each in queued)
    assert "R3 blocked_operator" in run.items[-1]["why"]
    lines = (state_dir(tmp_path / "wire") / "ledger.jsonl").read_text().splitlines()
    asked = [line["url"] for line in map(json.loads, lines) if line["kind"] == "asked"]
    assert asked == [each.target for each in run.log], "what was turned back was not asked"


def test_bs_6_a_list_that_hangs_beside_the_crawl_holds_it_for_five_seconds_at_most(
    tmp_path: Path,
) -> None:
    hanging = Route(sequence=(Route(404), Route(behaviour="hang"), Route(404)))
    run = solo(
        tmp_path / "hanging",
        *(f"http://steady.test/{number}" for number in range(3)),
        sites=(operator(hanging), site("steady.test")),
        settings={"WALSH_BACKOFF_BASE": 0.01, "DOWNLOAD_TIMEOUT": 30},
    )
    assert len(run.targets("steady.test")) == 3
    assert max(run.gaps("steady.test")) < 15


# -- a refresh during a crawl -------------------------------------------------------------


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    """A list with 14 seconds to go; the next one adds a host that is being crawled."""
    project = make_project(tmp_path_factory.mktemp("refreshed"), settings=ONCE)
    with Sandbox() as box:
        box.put(operator(listing("blocked.test", refresh="PT60S")))
        box.put(site("queued.test"))
        crawl(project, box, "http://path.test/public")
        box.put(operator(listing("blocked.test", "queued.test", refresh="PT60S")))
        stamp = _list_age(project)
        age_document(project, "blocklist", LIST_KEY, 46.0 - stamp)
        return crawl(project, box, *(f"http://queued.test/{number}" for number in range(24)))


def _list_age(project: Path) -> float:
    store = open_store(state_dir(project))
    held = store.get(StoredDocument, "blocklist", LIST_KEY)
    store.close()
    assert held is not None
    return time.time() - held.fetched_at


def test_r3_8_the_list_is_refreshed_in_the_middle_of_a_crawl(refreshed: Crawl) -> None:
    assert refreshed.asked("operator.test") == [LIST]
    assert hosts(refreshed.log)[0] == "queued.test"


def test_r3_2_an_opt_out_that_a_refresh_adds_holds_at_once(refreshed: Crawl) -> None:
    (asked,) = refreshed.requests("operator.test")
    reached = refreshed.requests("queued.test")
    assert len(reached) > 1
    assert all(each.arrived < asked.arrived for each in reached)
    assert sum("blocked_operator" in item.get("why", "") for item in refreshed.items) > 4


# -- hostile and special ------------------------------------------------------------------

#: Takes for ever to find that the value does not match; the limit is made short for the test.
HOSTILE = {
    **INLINE,
    "properties": {**INLINE["properties"], "operator": {"pattern": "^(a+)+$"}},
}
SHORT_LIMIT = f"""
from scrapy_walsh.adapters.documents import operator_list
operator_list._VALIDATION_TIMEOUT = 1.0
{LIST_SPIDER}
"""


def test_d3_a_hostile_pattern_is_given_up_and_nothing_is_requested(tmp_path: Path) -> None:
    run = solo(
        tmp_path / "hostile",
        HELD,
        "http://path.test/public",
        "http://path.test/private/x",
        sites=(operator(listing("blocked.test", operator="a" * 40 + "!", schema=HOSTILE)),),
        spider=SHORT_LIMIT,
        settings=FAR_OFF,
    )
    assert run.lines("WARNING", f"rejected {LIST_KEY}", "no answer in 1 s")
    assert run.targets("path.test") == []
    assert run.returncode == 1, "a slow machine cannot be told from a hostile pattern"
    assert run.lines("ERROR", "could not load", "no answer in 1 s")


#: The first child, which is a test of it, answers; the one that has a list to validate never does.
HANGS = """#!/bin/sh
[ -e "$0.tested" ] && exec sleep 100
touch "$0.tested"
exec '{}' "$@"
"""


def test_d3_a_validator_that_hangs_does_not_outlast_the_crawl(tmp_path: Path) -> None:
    hostile = listing("blocked.test", operator="a" * 40 + "!", schema=HOSTILE)
    hangs = tmp_path / "hangs"
    hangs.write_text(HANGS.format(sys.executable))
    hangs.chmod(0o755)
    begun = time.monotonic()
    run = solo(
        tmp_path / "outlast",
        *(f"http://path.test/{number}" for number in range(2)),
        sites=(operator(Route(sequence=(Route(404), hostile))),),
        spider=(
            "import sys\n"
            "from scrapy_walsh.adapters.documents import validate\n"
            f"sys.executable = {str(hangs)!r}\n"
            "validate.PATIENCE = 1\n"
            f"{LIST_SPIDER}"
        ),
        settings={"WALSH_BACKOFF_BASE": 0.01},
    )
    assert hangs.with_name("hangs.tested").exists()
    assert run.asked("operator.test") in [[LIST] * times for times in (2, 3, 4)]  # one a target
    assert time.monotonic() - begun < 30, "the command waited for the validator (60 s)"
    assert "Traceback" not in run.output


@pytest.fixture(scope="module")
def own_house(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    """The operator lists itself, and its robots.txt shuts everybody out."""
    closed = "User-agent: *\nDisallow: /\n"
    return solo(
        tmp_path_factory.mktemp("own"),
        "http://operator.test/bot/",
        "http://path.test/public",
        sites=(operator(listing("operator.test"), closed),),
    )


def test_t14_the_operators_documents_are_exempt_from_r2_and_r3(own_house: Crawl) -> None:
    assert own_house.asked("operator.test") == [LIST]
    assert own_house.lines(f"adopted {LIST_KEY}")
    assert own_house.targets("path.test") == ["/public"]


def test_t14_and_nothing_else_of_that_host_is(own_house: Crawl) -> None:
    assert "R3 blocked_operator" in own_house.why("http://operator.test/bot/")


def test_r3_8_hundreds_of_targets_ask_for_one_list(tmp_path: Path) -> None:
    run = solo(
        tmp_path / "many",
        *(f"http://path.test/private/{number}" for number in range(300)),
    )
    assert run.asked("operator.test") == [LIST]
    assert run.asked("path.test") == ["/robots.txt"]
    assert run.stats["walsh/verdict/disallowed_explicit"] == 300
