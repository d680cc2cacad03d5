"""R3, R10: the blocklist as a document, in real crawls: what is adopted, when, and who waits."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy.freshness import SCHEMA_TTL
from scrapy_walsh.sandbox import Request, Route, Sandbox, blocklist, hosts
from tests.crawl.harness import (
    LIST_SPIDER,
    OPERATOR,
    Crawl,
    age_document,
    crawl,
    forget_pacing,
    kept,
    make_project,
    site,
    solo,
)
from tests.documents.kit import LIST, SCHEMA, listing, operator, served, targets

if TYPE_CHECKING:
    from pathlib import Path

HELD, OTHER = "http://blocked.test/x", "http://other.test/x"
AGAIN: dict[str, Any] = {"WALSH_REVISIT_REASON": "one run after another"}
#: A failed attempt is not repeated while a short crawl lasts: only what must be is seen.
ONCE: dict[str, Any] = {**AGAIN, "WALSH_BACKOFF_BASE": 10_000.0, "WALSH_BACKOFF_CAP": 10_000.0}
LIST_KEY, SCHEMA_KEY = f"{OPERATOR}/blocklist.json", f"{OPERATOR}/blocklist.schema.json"
INLINE = blocklist()["schema"]


class Bot:
    """One project, one sandbox, and a run after each change of the operator's answer."""

    def __init__(self, project: Path, box: Sandbox, **settings: Any) -> None:
        self.project, self.box = make_project(project, settings={**ONCE, **settings}), box
        box.put(site("other.test"))
        box.put(site("blocked.test"))

    def run(self, answer: Any = None, *, age: float | None = None, **routes: Any) -> Crawl:
        """A crawl of both hosts with *answer* as the list, the held one *age* seconds older."""
        if answer is not None:
            self.box.set_route("operator.test", LIST, answer)
        for path, route in routes.items():
            self.box.set_route("operator.test", path, route)
        if age is not None:
            age_document(self.project, "blocklist", LIST_KEY, age)
        forget_pacing(self.project)
        return crawl(self.project, self.box, HELD, OTHER)


def blocks(run: Crawl) -> set[str]:
    """Which of the two hosts R3 refused; whatever was not refused must have been fetched."""
    refused = {host for host in ("blocked.test", "other.test") if host not in hosts(run.log)}
    for host in {"blocked.test", "other.test"} - refused:
        assert run.asked(host)[-1] == "/x"
    for host in refused:
        assert "R3 blocked_operator" in run.why(f"http://{host}/x")
    return refused


def changed(**members: Any) -> dict[str, Any]:
    document = {**blocklist("http://operator.test", "other.test"), **members}
    return {name: value for name, value in document.items() if value is not None}


# -- bd-*: documents, one a run, over a held list of blocked.test -------------------------

V11 = {**INLINE, "properties": {**INLINE["properties"], "contract": {"type": "string"}}}
WHOLE = json.dumps(blocklist("http://operator.test", "other.test"))

#: Never adopted: after each of them the held list is in force as it was.
REJECTED = {
    "bd-5 major 10": served(changed(contract="walsh-research-blocklist/v10", schema=V11)),
    "bd-8 no contract": served(changed(contract=None, schema={})),
    "bd-11 blocked is no array": served(changed(blocked={"domain": "other.test"})),
    "bd-12 an entry is no object": served(changed(blocked=["other.test"], schema={})),
    "bd-16 refresh against the schema": served(changed(refresh="6h")),
    "bd-21 a schema that is none": served(changed(schema={"type": "no-such-type"})),
    "bd-22 a schema elsewhere": served(changed(schema={"$ref": "http://evil.test/s.json"})),
    "a schema on disk": served(changed(schema={"$ref": "file:///etc/hostname"})),
    "a dialect elsewhere": served(changed(schema={"$schema": "http://evil.test/d", "$ref": "#x"})),
    "bd-23 a login page": Route(body="<html>login</html>"),
    "bd-24 an array": served([]),
    "bd-25 cut off in the middle": Route(body=WHOLE[: len(WHOLE) // 2]),
    "an empty body": Route(body=b""),
    "bd-28 a 500": Route(500, body=WHOLE),
    "a 204": Route(204),
    "a 304 to a plain question": Route(304),
    "bd-33 another origin": Route(302, location="http://other.test/blocklist.json"),
    "another scheme": Route(302, location=f"https://operator.test{LIST}"),
    "a place that is none": Route(302, location="http://[bad/"),
    "a loop": Route(302, location=LIST),
    "packed with what nobody knows": Route(body=WHOLE, headers={"Content-Encoding": "br"}),
    "a member twice": Route(body=WHOLE.replace('"blocked":', '"blocked": [], "blocked":', 1)),
}
#: Adopted: other.test is refused after each of them, blocked.test is not.
ADOPTED = {
    "bd-1 as published": served(changed()),
    "bd-4 a later minor": served(changed(contract="walsh-research-blocklist/v1.1", schema=V11)),
    "bd-15 a member more": served(changed(extra="x")),
    "bd-17 a refresh of no use": served(changed(refresh="Pfoo")),
    "bd-18 a schema that accepts all": served(changed(schema={})),
    "bd-32 a schema of its own": served(changed(schema={"required": ["contract", "blocked"]})),
    "under text/plain": Route(body=WHOLE, content_type="text/plain"),
    "moved on its own origin": Route(302, location="/moved.json"),
    "with a byte order mark": Route(body="\ufeff" + WHOLE),
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Crawl]:
    runs: dict[str, Crawl] = {}
    with Sandbox() as box:
        bot = Bot(tmp_path_factory.mktemp("documents"), box)
        box.set_route("operator.test", "/moved.json", served(changed()))
        box.put(site("evil.test"))
        runs["first"] = bot.run(listing("blocked.test"))
        for name, answer in REJECTED.items():
            runs[name] = bot.run(answer, age=700_000)
        for name, answer in ADOPTED.items():
            bot.run(listing("blocked.test"), age=700_000)
            runs[name] = bot.run(answer, age=700_000)
        runs["lifted"] = bot.run(served(changed(blocked=[])), age=700_000)
    return runs


@pytest.mark.parametrize("name", REJECTED)
def test_r3_5_what_must_not_be_adopted_is_not(documents: dict[str, Crawl], name: str) -> None:
    run = documents[name]
    assert run.asked("operator.test")[0] == LIST, "the list was not asked for again"
    assert blocks(run) == {"blocked.test"}
    assert len(run.lines("WARNING", f"rejected {LIST_KEY}", "stays in force (1 domains)")) == 1
    assert run.returncode == 0
    assert "Traceback" not in run.output


@pytest.mark.parametrize("name", ADOPTED)
def test_r3_4_what_is_valid_is_adopted(documents: dict[str, Crawl], name: str) -> None:
    assert blocks(documents[name]) == {"other.test"}
    assert documents[name].lines(f"adopted {LIST_KEY}", "1 domains")


def test_r3_5_no_reference_of_a_schema_is_ever_fetched(documents: dict[str, Crawl]) -> None:
    assert "evil.test" not in {host for run in documents.values() for host in hosts(run.log)}


def test_own_bd_33_the_list_is_never_taken_from_another_origin(
    documents: dict[str, Crawl],
) -> None:
    assert "/blocklist.json" not in documents["bd-33 another origin"].asked("other.test")
    assert [each.scheme for each in documents["another scheme"].requests("operator.test")] == [
        "http"
    ]


def test_own_bd_14_an_empty_list_is_the_operators_word_and_said(
    documents: dict[str, Crawl],
) -> None:
    assert blocks(documents["lifted"]) == set()
    assert documents["lifted"].lines("WARNING", "lifted the opt-out of: other.test")


def test_r3_6_and_r10_1_no_separate_schema_is_asked_for(documents: dict[str, Crawl]) -> None:
    assert SCHEMA not in {path for run in documents.values() for path in run.asked("operator.test")}


def test_r4_2_the_operator_too_is_asked_once_a_second(documents: dict[str, Crawl]) -> None:
    for name in ("a loop", "moved on its own origin"):
        assert kept(documents[name].gaps("operator.test"), 1.0)
    assert len(documents["a loop"].requests("operator.test")) == 6


# -- bs-*, R3.8, R10.2 to R10.4: what is held, and for how long ---------------------------


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Crawl]:
    """Runs over one state, each named for what it shows."""
    runs: dict[str, Crawl] = {}
    with Sandbox() as box:
        bot = Bot(tmp_path_factory.mktemp("held"), box, DOWNLOAD_TIMEOUT=1)
        runs["first"] = bot.run(listing("blocked.test", refresh="PT2S"))
        runs["under the floor"] = bot.run(Route(404), age=50)
        runs["over the floor"] = bot.run(age=15)
        runs["stale"] = bot.run(age=5 * 700_000)
        runs["no answer"] = bot.run(Route(behaviour="close"), age=10)
        ten_years = Route(
            body=json.dumps(blocklist() | {"refresh": "P3650D"}),
            content_type="application/json",
            etag='"1"',
        )
        runs["recovered"] = bot.run(ten_years)
        runs["under the ceiling"] = bot.run(age=600_000)
        runs["over the ceiling"] = bot.run(age=10_000)
        runs["after the 304"] = bot.run(age=600_000)
        runs["replaced"] = bot.run(listing("other.test", refresh="PT6H"), age=10_000)
        runs["under six hours"] = bot.run(Route(500), age=21_000)
        runs["put back"] = bot.run(listing("other.test"), age=-700_000)
    return runs


UNASKED = ("under the floor", "under the ceiling", "after the 304", "under six hours")


@pytest.mark.parametrize("name", UNASKED)
def test_r3_8_within_refresh_nothing_is_asked(held: dict[str, Crawl], name: str) -> None:
    # Floor 60 s, though the list says PT2S; ceiling 7 days, though it says P3650D (T12).
    assert held[name].asked("operator.test") == []
    assert blocks(held[name]) == ({"other.test"} if "hours" in name else {"blocked.test"})


@pytest.mark.parametrize(
    "name", ["over the floor", "stale", "no answer", "over the ceiling", "replaced", "put back"]
)
def test_r3_8_and_r12_1_beyond_refresh_the_list_comes_before_any_target(
    held: dict[str, Crawl], name: str
) -> None:
    assert held[name].asked("operator.test") == [LIST]
    assert hosts(held[name].log)[0] == "operator.test"


@pytest.mark.parametrize("name", ["over the floor", "stale", "no answer"])
def test_r3_9_no_failure_and_no_age_empties_the_list(held: dict[str, Crawl], name: str) -> None:
    # bs-1, bs-3, bs-7, bs-10: each run is a process of its own.
    assert blocks(held[name]) == {"blocked.test"}
    assert held[name].lines("WARNING", f"rejected {LIST_KEY}", "stays in force")


def test_own_bs_13_a_304_counts_as_fresh(held: dict[str, Crawl]) -> None:
    (asked,) = held["over the ceiling"].requests("operator.test")
    assert asked.values("If-None-Match") == ['"1"']
    assert asked.status == 304
    assert blocks(held["over the ceiling"]) == {"blocked.test"}


def test_own_bs_9_a_live_list_replaces_the_held_one(held: dict[str, Crawl]) -> None:
    assert blocks(held["replaced"]) == {"other.test"}
    assert held["replaced"].lines("WARNING", "lifted the opt-out of: blocked.test")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Crawl]:
    """A list without an inline schema, and the standalone one in good and bad times."""
    runs: dict[str, Crawl] = {}
    other = served(blocklist("http://operator.test", "other.test", inline=False))
    both = served(
        blocklist("http://operator.test", "blocked.test", "other.test", inline=False)
    )
    with Sandbox() as box:
        bot = Bot(tmp_path_factory.mktemp("schemas"), box)
        box.set_route("operator.test", SCHEMA, Route(404))
        runs["none to be had"] = bot.run(served(blocklist(inline=False)))
        runs["external"] = bot.run(**{SCHEMA: served(INLINE)})
        runs["cached"] = bot.run(other, age=700_000, **{SCHEMA: Route(404)})
        age_document(bot.project, "schema", SCHEMA_KEY, SCHEMA_TTL + 10)
        runs["refresh failed"] = bot.run(both, age=700_000)
        runs["no schema"] = bot.run(other, age=700_000, **{SCHEMA: served([1])})
    return runs


def test_r10_5_without_any_schema_nothing_is_adopted(schemas: dict[str, Crawl]) -> None:
    assert schemas["none to be had"].asked("operator.test") == [LIST, SCHEMA]
    assert blocks(schemas["none to be had"]) == set()
    assert schemas["none to be had"].lines("WARNING", "NO LIST WAS EVER HELD", "schema")


def test_r3_7_the_standalone_schema_is_asked_for(schemas: dict[str, Crawl]) -> None:
    assert schemas["external"].asked("operator.test") == [LIST, SCHEMA]
    assert blocks(schemas["external"]) == {"blocked.test"}


def test_r10_2_the_schema_is_cached_for_seven_days(schemas: dict[str, Crawl]) -> None:
    assert schemas["cached"].asked("operator.test") == [LIST]
    assert blocks(schemas["cached"]) == {"other.test"}


def test_r10_3_and_r10_4_a_stale_schema_is_kept_and_said(schemas: dict[str, Crawl]) -> None:
    run = schemas["refresh failed"]
    assert run.asked("operator.test") == [LIST, SCHEMA]
    assert blocks(run) == {"blocked.test", "other.test"}
    assert len(run.lines("WARNING", "schema not refreshed", "the cached one is used")) == 1


def test_own_a_standalone_schema_that_is_none_does_not_lift_an_opt_out(
    schemas: dict[str, Crawl],
) -> None:
    assert "blocked.test" in blocks(schemas["no schema"])


# -- nobody waits for a list that fails ---------------------------------------------------


def after_two(good: Route) -> Any:
    def serve(request: Request) -> Route:
        asked = sum(each.path == LIST for each in request.log)
        return good if asked > 2 else Route(503)

    return serve


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    """The list fails twice; meanwhile a host of ten targets is crawled, then it is listed."""
    sites = (
        operator(after_two(listing("queued.test"))),
        site("queued.test"),
        *(site(f"quick{number}.test") for number in range(10)),
    )
    return solo(
        tmp_path_factory.mktemp("late"),
        *(f"http://queued.test/{number}" for number in range(10)),
        *(f"http://quick{number}.test/x" for number in range(10)),
        sites=sites,
        settings={"WALSH_BACKOFF_BASE": 0.01},
    )


def test_own_bs_6_a_failed_first_fetch_is_repeated_on_r5s_schedule(late: Crawl) -> None:
    assert late.asked("operator.test") == [LIST] * 3
    assert kept(late.gaps("operator.test"), 1.0)
    assert len(late.lines("NO LIST WAS EVER HELD")) == 2


def test_own_no_target_waits_for_that_schedule(late: Crawl) -> None:
    first, second = late.requests("operator.test")[:2]
    between = {each.host for each in late.log if first.arrived < each.arrived < second.arrived}
    assert {"queued.test", *(f"quick{number}.test" for number in range(10))} <= between


def test_r3_2_a_listed_hosts_queued_requests_are_refused(late: Crawl) -> None:
    adopted = late.requests("operator.test")[2].arrived
    asked = late.requests("queued.test")
    assert 1 < len(asked) < 8
    assert all(each.arrived < adopted for each in asked)
    refused = [item for item in late.items if "R3 blocked_operator" in item.get("why", "")]
    assert len(refused) == 10 - len(targets(late, "queued.test"))


def test_own_bs_6_a_list_that_hangs_beside_the_crawl_holds_it_for_five_seconds_at_most(
    tmp_path: Path,
) -> None:
    hanging = Route(sequence=(Route(404), Route(behaviour="hang")))
    run = solo(
        tmp_path / "hanging",
        *(f"http://steady.test/{number}" for number in range(4)),
        sites=(operator(hanging), site("steady.test")),
        settings={"WALSH_BACKOFF_BASE": 0.01, "DOWNLOAD_TIMEOUT": 30},
    )
    assert len(targets(run, "steady.test")) == 4
    assert max(run.gaps("steady.test")) < 15


# -- a refresh during a crawl -------------------------------------------------------------


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    """A list with three seconds to go; the next one adds a host that is being crawled."""
    project = make_project(tmp_path_factory.mktemp("refreshed"), settings=ONCE)
    with Sandbox() as box:
        box.put(operator(listing("blocked.test", refresh="PT60S")))
        box.put(site("queued.test"))
        crawl(project, box, "http://path.test/public")
        box.put(operator(listing("blocked.test", "queued.test", refresh="PT60S")))
        stamp = _list_age(project)
        age_document(project, "blocklist", LIST_KEY, 56.0 - stamp)
        return crawl(project, box, *(f"http://queued.test/{number}" for number in range(12)))


def _list_age(project: Path) -> float:
    from scrapy_walsh.state import open_store  # noqa: PLC0415
    from tests.crawl.harness import state_dir  # noqa: PLC0415

    store = open_store(state_dir(project))
    document = store.get_document("blocklist", LIST_KEY)
    store.close()
    assert document is not None
    return datetime.now().timestamp() - document.fetched_at


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
from scrapy_walsh.adapters import operator_list
operator_list._VALIDATION_TIMEOUT = 2.0
{LIST_SPIDER}
"""


def test_own_d3_a_hostile_pattern_is_given_up_and_the_crawl_goes_on(tmp_path: Path) -> None:
    run = solo(
        tmp_path / "hostile",
        HELD,
        "http://path.test/public",
        "http://path.test/private/x",
        sites=(operator(listing("blocked.test", operator="a" * 40 + "!", schema=HOSTILE)),),
        spider=SHORT_LIMIT,
        settings={"WALSH_BACKOFF_BASE": 10_000.0, "WALSH_BACKOFF_CAP": 10_000.0},
    )
    assert run.lines("WARNING", f"rejected {LIST_KEY}", "no answer in 2 s")
    assert targets(run, "path.test") == ["/public"]
    asked, first = run.requests("operator.test")[0], run.requests("path.test")[0]
    assert asked.completed is not None
    assert 2.0 <= first.arrived - asked.completed < 10


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


def test_own_t14_the_operators_documents_are_exempt_from_r2_and_r3(own_house: Crawl) -> None:
    assert own_house.asked("operator.test") == [LIST]
    assert own_house.lines(f"adopted {LIST_KEY}")
    assert targets(own_house, "path.test") == ["/public"]


def test_own_t14_and_nothing_else_of_that_host_is(own_house: Crawl) -> None:
    assert "R3 blocked_operator" in own_house.why("http://operator.test/bot/")


def test_r3_8_a_thousand_targets_ask_for_one_list(tmp_path: Path) -> None:
    run = solo(
        tmp_path / "many",
        *(f"http://path.test/private/{number}" for number in range(1000)),
        timeout=60,
    )
    assert run.asked("operator.test") == [LIST]
    assert run.asked("path.test") == ["/robots.txt"]
    assert run.stats["walsh/verdict/disallowed_explicit"] == 1000
