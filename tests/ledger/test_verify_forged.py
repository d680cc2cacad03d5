"""A ledger whose chain is right and whose author is not: each broken promise names its line."""

from __future__ import annotations

import json
import random
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy import chain
from scrapy_walsh.policy.verdict import Verdict
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.proof.verify.terms import ADMITTED
from tests.crawl.harness import LIST_URL
from tests.kit import (
    BLOCKED,
    DENIED,
    LIST,
    ROBOTS,
    ROBOTS_URL,
    RULE,
    Forge,
    H,
    T,
    digest,
    honest,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.policy.event import Pace

    #: Breaks one promise in a ledger, and gives the entry that must be named.
    Break = Callable[[Forge], dict[str, Any]]

DAY = 86400.0
LAST = 150.0
NEW_LIST = json.dumps(blocklist("http://operator.test", "h.test")).encode()
BAD_LIST = json.dumps({"contract": "walsh-research-blocklist/v2", "blocked": []}).encode()
STRICT = b"User-agent: *\nDisallow: /\n"
SLOW = b"User-agent: *\nAllow: /\nCrawl-delay: 2000\n"
OUR_SIDE = "could not load robots.txt (our side): no disk"
SHORT = json.dumps({**blocklist(), "refresh": "PT1M"}).encode()


def move(entry: dict[str, Any], seconds: float) -> dict[str, Any]:
    """An exchange that was made that much later, or earlier."""
    for name in ("at", "started", "ended"):
        entry[name] += seconds
    return entry


def change(entry: dict[str, Any], **members: Any) -> dict[str, Any]:
    entry.update(members)
    return entry


def third_run(forge: Forge, process: str = "p3", **settings: Any) -> Forge:
    """A run long after the others, with its documents in force."""
    forge.start(3 * DAY, "three", process, **settings)
    forge.operator_list(3 * DAY + 1)
    forge.ask(3 * DAY + 2, ROBOTS_URL, 200, "robots")
    forge.in_force(3 * DAY + 2.02, "adopted", digest(ROBOTS))
    return forge


def after(forge: Forge, url: str, at: float = 5.0, **more: Any) -> dict[str, Any]:
    """A target asked in that run, whether declared or not."""
    return forge.get(3 * DAY + at, url, **more)


def declared(forge: Forge, *urls: str) -> Forge:
    forge.declare(3 * DAY + 3, *urls)
    return forge


def drop(forge: Forge, *entries: dict[str, Any]) -> None:
    forge.entries = [each for each in forge.entries if not any(each is e for e in entries)]


# -- R1, run ------------------------------------------------------------------------------


def another_agent(forge: Forge) -> dict[str, Any]:
    agent = "Mozilla/5.0 (compatible; Walsh-Research/9.9; +https://wal.sh/bot/)"
    return change(forge.only("started"), user_agent=agent)


def a_browsers_agent(forge: Forge) -> dict[str, Any]:
    return change(forge.only("started"), user_agent="Mozilla/5.0 (X11) Firefox/140.0")


def setting(**members: Any) -> Break:
    def broken(forge: Forge) -> dict[str, Any]:
        started = forge.only("started", nth=1)
        started["settings"] = {**started["settings"], **members}
        return started

    return broken


def held_for_another_host(forge: Forge) -> dict[str, Any]:
    return hold_of(forge, host="other.test")


def hold_of(forge: Forge, wait: float = 1.9, host: str = "h.test") -> dict[str, Any]:
    """A hold after the robots.txt of a third run, which asks for two seconds."""
    declared(third_run(forge), f"{H}/y")
    return forge.add(3 * DAY + 2.1, "held", url=f"{H}/y", host=host, wait=wait)


def no_start(forge: Forge) -> dict[str, Any]:
    drop(forge, forge.only("started", nth=1))
    return forge.only("declared", f"{H}/a", 1)


def after_the_end(forge: Forge) -> dict[str, Any]:
    return forge.add(110, "held", url=f"{H}/d", host="h.test", wait=1.0)


def started_twice(forge: Forge) -> dict[str, Any]:
    return forge.start(120, "one", "p1")


def no_such_kind(forge: Forge) -> dict[str, Any]:
    return change(forge.only("refused", f"{H}/other"), kind="pardoned")


def a_text_for_a_time(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", f"{H}/target"), started="noon")


def a_gap(forge: Forge) -> dict[str, Any]:
    return forge.add(LAST, "gap", reason="3 lines could not be written", lost=3)


# -- R2, R3, R12 --------------------------------------------------------------------------


def robots_after_the_target(forge: Forge) -> dict[str, Any]:
    drop(forge, forge.only("asked", ROBOTS_URL), forge.only("adopted", ROBOTS_URL))
    return forge.only("asked", f"{H}/a")


def robots_before_the_list(forge: Forge) -> dict[str, Any]:
    drop(forge, forge.only("adopted", LIST_URL))
    return forge.only("asked", ROBOTS_URL)


def a_disallowed_path(forge: Forge) -> dict[str, Any]:
    return after(declared(third_run(forge), f"{H}/private/y"), f"{H}/private/y")


def asked_though_refused(forge: Forge) -> dict[str, Any]:
    forge = declared(third_run(forge), f"{H}/private/y")
    forge.refuse(3 * DAY + 4, f"{H}/private/y", **DENIED)
    return after(forge, f"{H}/private/y")


def a_blocked_host(forge: Forge) -> dict[str, Any]:
    forge.run = "one"
    robots = f"{BLOCKED}/robots.txt"
    place = forge.index(forge.only("ended"))
    asked = forge.ask(14.9, robots, 200, "robots", exempt=True)
    forge.entries.insert(place, forge.entries.pop())
    return asked


def blocked_since(forge: Forge) -> dict[str, Any]:
    """A new list came, and a target of a host in it is asked all the same."""
    declared(third_run(forge), f"{H}/y")
    forge.operator_list(3 * DAY + 3, NEW_LIST)
    return after(forge, f"{H}/y")


def an_invalid_list(forge: Forge) -> dict[str, Any]:
    third_run(forge)
    return forge.operator_list(3 * DAY + 4, BAD_LIST)


def a_list_that_nobody_sent(forge: Forge) -> dict[str, Any]:
    """Another list is adopted in mid-run: who wanted the opt-outs gone would write that."""
    third_run(forge)
    entry = forge.operator_list(3 * DAY + 4)
    drop(forge, forge.entries[-2])
    return entry


def a_list_forgotten(forge: Forge) -> dict[str, Any]:
    """R3b, T7: the refresh fails, and the list of the runs before is not kept to."""
    forge.start(3 * DAY, "three", "p3")
    forge.ask(3 * DAY + 1, LIST_URL, 404, "operator")
    return forge.add(3 * DAY + 2, "rejected", url=LIST_URL, requirement="R3", reason="")


def on_without_a_list(forge: Forge) -> dict[str, Any]:
    """No list can be had, the run says that it defers then, and it goes on with an empty one."""
    forge.start(3 * DAY, "three", "p3", blocklist_unreachable="defer")
    forge.ask(3 * DAY + 1, LIST_URL, 404, "operator")
    return forge.add(3 * DAY + 2, "rejected", url=LIST_URL, requirement="R3", reason="")


def robots_asked_without_a_list(forge: Forge) -> dict[str, Any]:
    no_list(forge)
    return forge.ask(3 * DAY + 3, ROBOTS_URL, 200, "robots")


def a_target_without_a_list(forge: Forge) -> dict[str, Any]:
    declared(no_list(forge), f"{H}/y")
    return after(forge, f"{H}/y")


def no_list(forge: Forge) -> Forge:
    """A run that says what goes where no list can be had, truly."""
    forge.start(3 * DAY, "three", "p3", blocklist_unreachable="deny")
    forge.ask(3 * DAY + 1, LIST_URL, 404, "operator")
    reason = "no blocklist is available, and WALSH_BLOCKLIST_UNREACHABLE is deny"
    forge.add(
        3 * DAY + 2, "rejected", url=LIST_URL, requirement="R3", verdict="unknown_blocklist",
        reason=reason,
    )  # fmt: skip
    return forge


def a_robots_txt_that_did_not_come(forge: Forge) -> dict[str, Any]:
    """The digest of another file, of the same group, in the place of the one that came."""
    asked = forge.only("asked", ROBOTS_URL)
    asked["body"] = digest(STRICT)
    return forge.only("adopted", ROBOTS_URL)


def a_robots_txt_of_another_host(forge: Forge) -> dict[str, Any]:
    other = "http://other.test/robots.txt"
    forge.start(3 * DAY, "three", "p3")
    forge.operator_list(3 * DAY + 1)
    forge.ask(3 * DAY + 2, other, 200, "robots", body=digest(STRICT))
    forge.add(
        3 * DAY + 2.1, "adopted", url=other, requirement="R2", reason="", host="other.test",
        status=200, group=["*"], digest=digest(STRICT),
    )  # fmt: skip
    return forge.in_force(3 * DAY + 3, "taken_up", digest(STRICT))


def an_older_list(forge: Forge) -> dict[str, Any]:
    """A newer list came, and the next run goes by the one before."""
    forge.start(200, "three", "p3")
    forge.operator_list(201, NEW_LIST)
    forge.add(202, "ended", reason="finished")
    forge.start(300, "four", "p4")
    return forge.add(
        301, "taken_up", url=LIST_URL, requirement="R3", reason="", digest=digest(LIST)
    )


def a_stale_list(forge: Forge) -> dict[str, Any]:
    declared(third_run(forge), f"{H}/y")
    return after(forge, f"{H}/y", 22000)


def a_list_past_its_refresh(forge: Forge) -> dict[str, Any]:
    declared(third_run(forge), f"{H}/y")
    forge.operator_list(3 * DAY + 4, SHORT)
    return after(forge, f"{H}/y", 70)


def old_rules(forge: Forge) -> dict[str, Any]:
    """Rules of the day before yesterday, taken up as if they were fresh."""
    forge.start(3 * DAY, "three", "p3")
    forge.operator_list(3 * DAY + 1)
    forge.in_force(3 * DAY + 2, "taken_up", digest(ROBOTS))
    declared(forge, f"{H}/y")
    return after(forge, f"{H}/y")


def old_rules_adopted_again(forge: Forge) -> dict[str, Any]:
    forge.start(3 * DAY, "three", "p3")
    forge.operator_list(3 * DAY + 1)
    return forge.in_force(3 * DAY + 2, "adopted", digest(ROBOTS))


def rules_past_their_time(forge: Forge) -> dict[str, Any]:
    declared(third_run(forge, robots_ttl=600.0), f"{H}/y")
    return after(forge, f"{H}/y", 700)


def kept_rules(forge: Forge, seconds: float) -> dict[str, Any]:
    """T6: the rules of an earlier answer stay, and a target is asked so many seconds later."""
    settings = {"max_retries": 0, "robots_ttl": 600.0, "slow_hosts": "visit"}
    forge.start(3 * DAY, "three", "p3", **settings)
    forge.operator_list(3 * DAY + 1)
    forge.ask(3 * DAY + 2, ROBOTS_URL, 200, "robots")
    forge.in_force(3 * DAY + 2.02, "adopted", digest(SLOW))
    declared(forge, f"{H}/y")
    failed = 3 * DAY + 10_000
    forge.ask(failed, ROBOTS_URL, 503, "robots", interval=2000.0, wait=0.1, gives_up=True)
    forge.in_force(failed + 0.02, "rejected", digest(SLOW))
    return forge.ask(failed + seconds, f"{H}/y", interval=2000.0, digest=digest(SLOW))


def kept_rules_past_their_hour(forge: Forge) -> dict[str, Any]:
    """Two intervals are longer than the hour for which they stay, and lengthen it by nothing."""
    return kept_rules(forge, 3700)


def another_line(forge: Forge) -> dict[str, Any]:
    return change(forge.only("refused", f"{H}/private/x"), line=1)


def another_rule(forge: Forge) -> dict[str, Any]:
    return change(forge.only("fetched", f"{H}/a"), rule="Allow: /a", line=9)


def another_verdict(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", f"{H}/a"), verdict="allowed_implicit")


def another_group(forge: Forge) -> dict[str, Any]:
    return change(forge.only("adopted", ROBOTS_URL), group=["walsh-research"])


def another_digest(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", f"{H}/a"), digest=digest(STRICT))


def refused_for_nothing(forge: Forge) -> dict[str, Any]:
    return forge.entries[
        forge.index(change(forge.only("refused", f"{BLOCKED}/x"), rule="blocked.example"))
    ]


def a_page_asked_as_robots_txt(forge: Forge) -> dict[str, Any]:
    """A disallowed page, and the ledger says that it was for a robots.txt."""
    third_run(forge)
    return forge.ask(3 * DAY + 5, f"{H}/private/x", 200, "robots", interval=2.0)


def a_page_asked_as_the_operators_list(forge: Forge) -> dict[str, Any]:
    third_run(forge)
    return forge.ask(3 * DAY + 5, "http://operator.test/private", 200, "operator")


def rules_that_no_answer_brought(forge: Forge) -> dict[str, Any]:
    change(forge.only("asked", ROBOTS_URL), status=404)
    return forge.only("adopted", ROBOTS_URL)


def unreachable_without_asking(forge: Forge) -> dict[str, Any]:
    forge.start(3 * DAY, "three", "p3")
    forge.operator_list(3 * DAY + 1)
    return forge.add(
        3 * DAY + 2,
        "rejected",
        url="http://new.test/robots.txt",
        requirement="R2",
        verdict="unknown_unreachable",
        host="new.test",
        reason="",
    )


def unreachable_after_one_try(forge: Forge) -> dict[str, Any]:
    forge.start(3 * DAY, "three", "p3")
    forge.operator_list(3 * DAY + 1)
    url = "http://new.test/robots.txt"
    forge.ask(3 * DAY + 2, url, 503, "robots", wait=0.1)
    return forge.add(
        3 * DAY + 3,
        "rejected",
        url=url,
        requirement="R2",
        verdict="unknown_unreachable",
        host="new.test",
        reason="",
    )


def rules_forgotten(forge: Forge) -> dict[str, Any]:
    """T6: the robots.txt fails, and what it once said is not kept to."""
    forge.start(3 * DAY, "three", "p3", max_retries=0)
    forge.operator_list(3 * DAY + 1)
    forge.ask(3 * DAY + 2, ROBOTS_URL, 503, "robots", wait=0.1, gives_up=True)
    return forge.add(
        3 * DAY + 3,
        "rejected",
        url=ROBOTS_URL,
        requirement="R2",
        verdict="unknown_unreachable",
        host="h.test",
        reason="",
    )


# -- R4 -----------------------------------------------------------------------------------


def too_fast(forge: Forge) -> dict[str, Any]:
    return move(forge.only("asked", f"{H}/target"), -0.2)


def faster_than_crawl_delay(forge: Forge) -> dict[str, Any]:
    """The spacing of one second is kept, the Crawl-delay of two is not."""
    asked = change(forge.only("asked", f"{H}/target"), interval=1.0)
    return move(asked, -1.0)


def too_fast_between_processes(forge: Forge) -> dict[str, Any]:
    third_run(forge)
    forge.start(3 * DAY + 2.5, "four", "p4")
    forge.operator_list(3 * DAY + 2.6)
    return forge.ask(3 * DAY + 2.9, ROBOTS_URL, 200, "robots")


def overlap(forge: Forge) -> dict[str, Any]:
    """Two hosts at once, in one process."""
    asked = forge.only("asked", f"{H}/target")
    return change(asked, started=forge.only("asked", f"{H}/own")["ended"] - 0.005)


def two_exempt_targets(forge: Forge) -> dict[str, Any]:
    place = forge.index(forge.only("fetched", f"{H}/a")) + 1
    forge.run = "one"
    asked = forge.ask(1.215, f"{H}/busy")
    forge.entries.insert(place, forge.entries.pop())
    return asked


def exempt_twice(forge: Forge) -> dict[str, Any]:
    third_run(forge)
    return change(forge.only("asked", ROBOTS_URL, 1), exempt=True)


def exempt_after_a_retry(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", ROBOTS_URL), attempt=1)


def exempt_after_a_redirect(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", ROBOTS_URL), hops=1, robots_of=H)


def exempt_after_another_process(forge: Forge) -> dict[str, Any]:
    """An exchange that took long had begun before the one that is said to be the first."""
    url = "http://new.test/robots.txt"
    for run, process in (("three", "p3"), ("four", "p4")):
        forge.start(3 * DAY, run, process)
        forge.operator_list(3 * DAY + (1 if run == "three" else 2.5))
    forge.run = "three"
    forge.ask(3 * DAY + 10, url, 200, "robots", exempt=True)
    forge.run = "four"
    asked = forge.ask(3 * DAY + 8.5, url, 200, "robots")
    return change(asked, ended=T + 3 * DAY + 12, at=T + 3 * DAY + 12)


def a_target_at_once_though_paced(forge: Forge) -> dict[str, Any]:
    started = forge.only("started")
    started["settings"] = {**started["settings"], "pace_robots": True}
    return forge.only("asked", f"{H}/a")


def exempt_target(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", f"{H}/d"), exempt=True)


def another_host(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", f"{H}/d"), host="elsewhere.test")


def deferred_for_nothing(forge: Forge) -> dict[str, Any]:
    change(forge.only("asked", f"{H}/e"), retry_after=["9"], wait=9.0)
    change(forge.only("retried", f"{H}/e"), wait=9.0)
    return forge.only("deferred")


# -- R5 -----------------------------------------------------------------------------------


def backoff_shortened(forge: Forge) -> dict[str, Any]:
    """Retry-After says 7, the ledger 3: and the host is asked as if it were so."""
    asked = change(forge.only("asked", f"{H}/busy"), wait=3.0)
    change(forge.only("retried", f"{H}/busy"), wait=3.0)
    return asked


def backoff_not_waited_for(forge: Forge) -> dict[str, Any]:
    return move(forge.only("asked", f"{H}/busy", 1), -0.5)


def backoff_forgotten_by_the_next_run(forge: Forge) -> dict[str, Any]:
    forge.start(200, "three", "p3")
    forge.operator_list(200.5)
    return forge.ask(201, ROBOTS_URL, 200, "robots")


def broken_off_and_answered(forge: Forge) -> dict[str, Any]:
    """A 429 that says this side broke it off, so that nobody waits for its Retry-After."""
    declared(third_run(forge), f"{H}/y")
    more = {"answered": False, "retry_after": ["600"]}
    return forge.ask(3 * DAY + 5, f"{H}/y", 429, **more)


def banned(forge: Forge, next_at: float = 620, **more: Any) -> dict[str, Any]:
    """A 403 that asks for ten minutes, and the next request to its host."""
    third_run(forge)
    declared(forge, f"{H}/y", f"{H}/z")
    members = {"retry_after": ["600"], "wait": 600.0, **more}
    asked = forge.get(3 * DAY + 10, f"{H}/y", 403, **members)
    forge.get(3 * DAY + next_at, f"{H}/z")
    return asked


def retry_after_of_a_403_not_kept(forge: Forge) -> dict[str, Any]:
    banned(forge, 300)
    return forge.only("asked", f"{H}/z")


def retry_after_of_a_403_left_out(forge: Forge) -> dict[str, Any]:
    return banned(forge, 20, wait=None)


def retry_after_of_a_403_shortened(forge: Forge) -> dict[str, Any]:
    return banned(forge, 80, wait=60.0)


def a_date_by_our_clock_alone(forge: Forge) -> dict[str, Any]:
    """The server's clock is an hour behind ours."""
    date, behind = (formatdate(T + 3 * DAY + each, usegmt=True) for each in (610, -3590))
    return banned(forge, retry_after=[date], date=behind, wait=600.0)


def another_hosts_hold_lifted(forge: Forge) -> dict[str, Any]:
    forge.add(3 * DAY, "lifted", host="other.test", reason="a mistake")
    return retry_after_of_a_403_not_kept(forge)


def no_wait_after_a_503(forge: Forge) -> dict[str, Any]:
    asked = forge.only("asked", f"{H}/e")
    del asked["wait"]
    drop(forge, forge.only("retried", f"{H}/e"), forge.only("deferred"))
    return asked


def tries(forge: Forge, attempts: list[int], **last: Any) -> dict[str, Any]:
    third_run(forge)
    declared(forge, f"{H}/y")
    asked: dict[str, Any] = {}
    for place, attempt in enumerate(attempts):
        at = 3 * DAY + 10.0 + 100 * place
        gives_up = attempt >= 5
        asked = forge.ask(at, f"{H}/y", 503, wait=0.5, attempt=attempt, gives_up=gives_up)
        forge.add(
            at + 0.02, "given_up" if gives_up else "retried", url=f"{H}/y", host="h.test",
            status=503, wait=0.5,
        )  # fmt: skip
    return change(asked, **last)


def a_sixth_retry(forge: Forge) -> dict[str, Any]:
    return tries(forge, [0, 1, 2, 3, 4, 5, 6])


def a_sixth_retry_under_another_number(forge: Forge) -> dict[str, Any]:
    return tries(forge, [0, 1, 2, 3, 4, 4])


def asked_after_it_was_given_up(forge: Forge) -> dict[str, Any]:
    return tries(forge, [0, 1, 2, 3, 4, 5, 0])


def robots_tried_over_and_over(forge: Forge) -> dict[str, Any]:
    forge.start(3 * DAY, "three", "p3")
    forge.operator_list(3 * DAY + 1)
    forge.ask(3 * DAY + 2, ROBOTS_URL, 503, "robots", wait=0.5)
    return forge.ask(3 * DAY + 9, ROBOTS_URL, 503, "robots", wait=0.5)


def silent(forge: Forge, *urls: str, **settings: Any) -> dict[str, Any]:
    """A third run with a target of its own for each attempt; none of them got an answer."""
    third_run(forge, **{"silent_attempts": 6, **settings})
    declared(forge, *urls)
    asked: dict[str, Any] = {}
    for place, url in enumerate(urls):
        at = 3 * DAY + 10.0 + 100 * place
        last = place >= 5
        asked = forge.ask(at, url, None, wait=0.5, gives_up=last)
        kind = "given_up" if last else "retried"
        forge.add(at + 0.02, kind, url=url, host="h.test", wait=0.5)
    return asked


PAGES = [f"{H}/{number}" for number in range(7)]


def put_off(forge: Forge, url: str, **more: Any) -> dict[str, Any]:
    """That target is deferred, since its host gave no answer."""
    members = {"requirement": "R5", "verdict": "deferred", "reason": "h.test did not answer"}
    at = 3 * DAY + 1000
    return forge.add(at, "deferred", url=url, host="h.test", due=T + at, **{**members, **more})


def a_silent_host_asked_again(forge: Forge) -> dict[str, Any]:
    return silent(forge, *PAGES)


def robots_txt_of_a_silent_host(forge: Forge) -> dict[str, Any]:
    """Under allow the last attempt is a target's."""
    silent(forge, *PAGES[:5])
    return forge.ask(3 * DAY + 900, ROBOTS_URL, None, "robots", wait=0.5, gives_up=True)


def robots_txt_failed(forge: Forge, *answers: int | None, gives_up: bool) -> dict[str, Any]:
    """A third run whose robots.txt has these answers, and no other; the last of its requests."""
    forge.start(3 * DAY, "three", "p3")
    forge.operator_list(3 * DAY + 1)
    asked: dict[str, Any] = {}
    for attempt, status in enumerate(answers):
        at, last = 3 * DAY + 10.0 + 100 * attempt, attempt == len(answers) - 1
        more = {"attempt": attempt, "gives_up": gives_up and last}
        asked = forge.ask(at, ROBOTS_URL, status, "robots", wait=0.5, **more)
        if not more["gives_up"]:
            forge.add(at + 0.02, "retried", url=ROBOTS_URL, host="h.test", status=status, wait=0.5)
    return asked


def a_second_retry_of_a_host_that_answers_nothing(forge: Forge) -> dict[str, Any]:
    return robots_txt_failed(forge, None, None, gives_up=False)


def a_second_retry_of_a_robots_txt_that_answers_500(forge: Forge) -> dict[str, Any]:
    return robots_txt_failed(forge, 500, 502, gives_up=False)


def remembered(forge: Forge) -> None:
    """The host gave no answer in an earlier run (D31): one attempt is all that this one grants."""
    change(silent(forge, PAGES[0]), silent=True, gives_up=True)
    change(forge.entries[-1], kind="given_up")


def a_remembered_host_asked_twice(forge: Forge) -> dict[str, Any]:
    remembered(forge)
    declared(forge, PAGES[1])
    asked = forge.ask(3 * DAY + 500, PAGES[1], None, wait=0.5, gives_up=True, silent=True)
    forge.add(3 * DAY + 500.02, "given_up", url=PAGES[1], host="h.test", wait=0.5)
    return asked


def given_up_too_soon(forge: Forge) -> dict[str, Any]:
    asked = change(silent(forge, *PAGES[:2]), gives_up=True)
    change(forge.entries[-1], kind="given_up")
    return asked


def not_given_up(forge: Forge) -> dict[str, Any]:
    asked = change(silent(forge, *PAGES[:6]), gives_up=False)
    change(forge.entries[-1], kind="retried")
    return asked


def deferred_though_it_may_answer(forge: Forge) -> dict[str, Any]:
    silent(forge, *PAGES[:4])
    return put_off(forge, PAGES[6])


def more_attempts_than_its_settings_grant(forge: Forge) -> dict[str, Any]:
    silent(forge, *PAGES[:2], silent_attempts=60)
    return forge.only("started", nth=2)


def trials_of_http(forge: Forge) -> dict[str, Any]:
    """An attempt that is not to be counted, and not of https."""
    declared(third_run(forge, silent_attempts=6), f"{H}/y")
    return forge.ask(3 * DAY + 10, f"{H}/y", None, wait=0.5, once=True, gives_up=True)


def trials_over_and_over(forge: Forge) -> dict[str, Any]:
    third_run(forge, silent_attempts=6)
    asked: dict[str, Any] = {}
    for attempt in range(3):
        url, at = "https://h.test/robots.txt", 3 * DAY + 10 + 100 * attempt
        asked = forge.ask(at, url, None, "robots", wait=0.5, once=True, attempt=attempt)
    return asked


def deferred_for_a_robots_txt_that_was_read(forge: Forge) -> dict[str, Any]:
    declared(third_run(forge), PAGES[6])
    return put_off(forge, PAGES[6], requirement="R2", verdict="unknown_parse_error")


def a_429_for_an_answer(forge: Forge) -> dict[str, Any]:
    told = forge.only("retried", f"{H}/busy")
    told.update(kind="fetched", **RULE)
    return told


def a_500_for_an_answer(forge: Forge) -> dict[str, Any]:
    declared(third_run(forge, max_retries=0), f"{H}/y")
    forge.ask(3 * DAY + 5, f"{H}/y", 500, wait=0.5, gives_up=True)
    return forge.tell(3 * DAY + 5.02, "fetched", f"{H}/y", 500)


def told_and_sent_again(forge: Forge) -> dict[str, Any]:
    """A 500 that is retried is told as the spider's answer."""
    forge.only("asked", f"{H}/busy").update(status=500, retry_after=[], wait=0.5)
    forge.only("retried", f"{H}/busy").update(status=500, wait=0.5)
    place = forge.index(forge.only("retried", f"{H}/busy"))
    told = change(forge.tell(3.311, "fetched", f"{H}/busy", 500), run="one")
    forge.entries.insert(place, forge.entries.pop())
    return told


def told_and_followed(forge: Forge) -> dict[str, Any]:
    """A redirect that is followed is told as the spider's answer."""
    place = forge.index(forge.only("declared", f"{H}/target"))
    told = change(forge.tell(12.51, "fetched", f"{H}/own", 302), run="one")
    forge.entries.insert(place, forge.entries.pop())
    return told


def redirected_out(forge: Forge, status: int = 302) -> dict[str, Any]:
    declared(third_run(forge), f"{H}/y")
    forge.ask(3 * DAY + 5, f"{H}/y", status)
    return forge.add(
        3 * DAY + 5.02, "too_many_redirects", url=f"{H}/y", host="h.test", status=status,
        requirement="D5", reason="",
    )  # fmt: skip


def redirected_out_by_a_page(forge: Forge) -> dict[str, Any]:
    return redirected_out(forge, 200)


def redirected_out_unasked(forge: Forge) -> dict[str, Any]:
    told = redirected_out(forge)
    drop(forge, forge.only("asked", f"{H}/y"))
    return told


# -- R6, R7, R8 ---------------------------------------------------------------------------


def undeclared(forge: Forge) -> dict[str, Any]:
    return after(third_run(forge), f"{H}/link")


def declared_by_no_redirect(forge: Forge) -> dict[str, Any]:
    change(forge.only("asked", f"{H}/own"), status=200)
    return forge.only("declared", f"{H}/target")


def an_excluded_suffix(forge: Forge) -> dict[str, Any]:
    forge.only("started")["settings"] = {**forge.only("started")["settings"]}
    forge.only("started")["settings"]["excluded_tlds"] = ["test"]
    return forge.only("asked", f"{H}/a")


def a_304_for_an_answer(forge: Forge) -> dict[str, Any]:
    return change(forge.only("not_modified"), kind="fetched")


def fetched_without_an_exchange(forge: Forge) -> dict[str, Any]:
    drop(forge, forge.only("asked", f"{H}/d"))
    return forge.only("not_modified")


def half_a_robots_txt(forge: Forge) -> dict[str, Any]:
    change(forge.only("asked", ROBOTS_URL), octets=100, whole=False)
    return forge.only("adopted", ROBOTS_URL)


def half_a_list(forge: Forge) -> dict[str, Any]:
    change(forge.only("asked", LIST_URL), octets=100, whole=False)
    return forge.only("adopted", LIST_URL)


def sent_elsewhere(forge: Forge) -> dict[str, Any]:
    return change(forge.only("asked", f"{H}/d"), sent=f"{H}/private/x")


def tags_of_no_operator(forge: Forge) -> dict[str, Any]:
    settings = {**forge.only("started", nth=1)["settings"], "tag_requests": True}
    forge.only("started", nth=1)["settings"] = settings
    tags = "impl=o/r&spec=walsh-research-compliance/v1.3"
    return change(forge.only("asked", f"{H}/d"), sent=f"{H}/d?{tags}")


def within_the_hour(forge: Forge) -> dict[str, Any]:
    forge.start(2000, "three", "p3")
    forge.in_force(2000.2, "taken_up", digest(ROBOTS))
    forge.add(2000.1, "taken_up", url=LIST_URL, requirement="R3", reason="", digest=digest(LIST))
    forge.declare(2000.3, f"{H}/a")
    return forge.get(2001, f"{H}/a")


def twice_in_a_run(forge: Forge) -> dict[str, Any]:
    declared(third_run(forge), f"{H}/y")
    after(forge, f"{H}/y")
    return after(forge, f"{H}/y", 9)


BREAKS: dict[Break, str] = {
    another_agent: "R1", a_browsers_agent: "R1",
    setting(min_interval=0.5): "R4", setting(max_retries=6): "R5",
    setting(follow_links=True): "R6", setting(scraping=True): "R9", setting(revisit=60.0): "R8",
    setting(robots_ttl=DAY + 1): "R2", setting(robots_unreachable="ignore"): "R2",
    setting(patience=None): "run",
    no_start: "run", after_the_end: "run", started_twice: "run", no_such_kind: "run",
    a_text_for_a_time: "run", a_gap: "chain",
    robots_after_the_target: "R2", robots_before_the_list: "R3", a_disallowed_path: "R2",
    asked_though_refused: "R2", a_blocked_host: "R3", blocked_since: "R3",
    an_invalid_list: "R3", a_list_that_nobody_sent: "R3",
    a_list_forgotten: "R3", an_older_list: "R3",
    on_without_a_list: "R3", robots_asked_without_a_list: "R3", a_target_without_a_list: "R3",
    setting(blocklist_unreachable="ignore"): "R3",
    a_stale_list: "R12", a_list_past_its_refresh: "R12",
    old_rules: "R12", old_rules_adopted_again: "R2", rules_past_their_time: "R12",
    kept_rules_past_their_hour: "R12",
    another_line: "R2", another_rule: "R2", another_verdict: "R2", another_group: "R2",
    another_digest: "R2", refused_for_nothing: "R3", rules_that_no_answer_brought: "R2",
    a_robots_txt_that_did_not_come: "R2", a_robots_txt_of_another_host: "R2",
    a_page_asked_as_robots_txt: "R2", a_page_asked_as_the_operators_list: "R3",
    unreachable_without_asking: "R2", unreachable_after_one_try: "R2", rules_forgotten: "R2",
    too_fast: "R4", faster_than_crawl_delay: "R4", too_fast_between_processes: "R4",
    overlap: "R4", two_exempt_targets: "R4", exempt_twice: "R4", exempt_after_a_retry: "R4",
    exempt_after_a_redirect: "R4",
    exempt_after_another_process: "R4", a_target_at_once_though_paced: "R4", exempt_target: "R4",
    another_host: "R4", deferred_for_nothing: "R4",
    backoff_shortened: "R5", backoff_not_waited_for: "R5",
    backoff_forgotten_by_the_next_run: "R5", no_wait_after_a_503: "R5",
    retry_after_of_a_403_not_kept: "R5", retry_after_of_a_403_left_out: "R5",
    retry_after_of_a_403_shortened: "R5", another_hosts_hold_lifted: "R5",
    a_date_by_our_clock_alone: "R5",
    broken_off_and_answered: "R5", a_sixth_retry: "R5",
    a_sixth_retry_under_another_number: "R5", asked_after_it_was_given_up: "R5",
    robots_tried_over_and_over: "R5", a_429_for_an_answer: "R5",
    a_500_for_an_answer: "R5",
    a_remembered_host_asked_twice: "R5",
    a_second_retry_of_a_host_that_answers_nothing: "R5",
    a_second_retry_of_a_robots_txt_that_answers_500: "R5",
    a_silent_host_asked_again: "R5", robots_txt_of_a_silent_host: "R5", given_up_too_soon: "R5",
    not_given_up: "R5", deferred_though_it_may_answer: "R5",
    more_attempts_than_its_settings_grant: "R5", trials_of_http: "R5", trials_over_and_over: "R5",
    deferred_for_a_robots_txt_that_was_read: "R2",
    undeclared: "R6", declared_by_no_redirect: "R6", an_excluded_suffix: "WALSH_EXCLUDED_TLDS",
    told_and_sent_again: "R5", told_and_followed: "run",
    redirected_out_by_a_page: "D5", redirected_out_unasked: "run",
    sent_elsewhere: "R13", tags_of_no_operator: "R13",
    half_a_robots_txt: "R2", half_a_list: "R3",
    a_304_for_an_answer: "R7", fetched_without_an_exchange: "run",
    within_the_hour: "R8", twice_in_a_run: "R8", held_for_another_host: "R4",
}  # fmt: skip


#: What *admit* was given for a request that it does not let go, and by which requirement.
NOT_ADMITTED: dict[str, tuple[str, dict[str, Any] | None]] = {
    "its host was not due": ("R4", {"wait": 3.0}),
    "its host was due beyond the patience": ("R4", {"wait": 301.0}),
    "its host is slow": ("R4", {"interval": 600.0}),
    "its host gave no answer": (
        "R5",
        {"spent": {"allowed": False, "name": "deferred", "requirement": "R5", "reason": "silent"}},
    ),
    "the line does not say it": ("R4", None),
}


@pytest.mark.parametrize(("rule", "pace"), NOT_ADMITTED.values(), ids=NOT_ADMITTED.keys())
@pytest.mark.parametrize("url", [f"{H}/a", ROBOTS_URL, LIST_URL])
def test_a_request_that_admit_does_not_let_go_is_named(
    rule: str, pace: dict[str, Any] | None, url: str, tmp_path: Path
) -> None:
    forge = honest()
    entry = forge.only("asked", url)
    entry["pace"] = None if pace is None else {**entry["pace"], **pace}
    names = {(finding.line, finding.rule) for finding in forge.check(tmp_path).findings}
    slow, silent = pace is not None and "interval" in pace, rule == "R5"
    exempt = (slow and url != f"{H}/a") or (silent and url == LIST_URL)
    assert names == (set() if exempt else {(forge.number(entry), rule)})


def test_a_request_before_the_form_that_says_it_is_not_held_to_it(tmp_path: Path) -> None:
    forge = honest()
    for entry in forge.entries:
        entry.pop("pace", None)
        entry.pop("stored_form", None)
    report = forge.check(tmp_path)
    assert told(report) == []
    assert any(ADMITTED in note for note in report.notes)


def test_admit_is_asked_about_each_exchange(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A limit that is new in *admit*: two targets of a host in a run, by a fact that is new."""
    forge = honest()
    targets = [
        entry
        for entry in forge.entries
        if entry["kind"] == "asked" and entry["purpose"] == "target" and entry["run"] == "one"
    ]
    for sent, entry in enumerate(targets):
        entry["pace"]["wait"] = sent / 1e6  # stands for the count
    admit = chain.admit

    def limited(pace: Pace, *more: Any, **options: Any) -> Verdict | float:
        if pace.wait * 1e6 > 1:
            return Verdict(False, "deferred", "R4", "two targets of a host are enough")
        return admit(pace, *more, **options)

    monkeypatch.setattr(chain, "admit", limited)
    lines = {finding.line for finding in forge.check(tmp_path).findings}
    assert lines == {forge.number(entry) for entry in targets[2:]}
    assert len(lines) > 1


def name_of(value: object) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("broken", "rule"), BREAKS.items(), ids=name_of)
def test_a_broken_promise_is_named_by_its_line(broken: Break, rule: str, tmp_path: Path):
    forge = honest()
    entry = broken(forge)
    report = forge.check(tmp_path, NEW_LIST, BAD_LIST, STRICT, SHORT, SLOW)
    named = {(finding.line, finding.rule) for finding in report.findings}
    assert (forge.number(entry), rule) in named, told(report)


def test_an_honest_ledger_holds_and_every_decision_is_derived(tmp_path: Path):
    report = honest().check(tmp_path)
    assert told(report) == []
    assert report.underived == {}
    assert (report.lines, report.runs, report.requests) == (38, 2, 9)
    decided = {"asked", "adopted", "taken_up", "fetched", "not_modified", "refused", "deferred"}
    of_targets = [
        entry
        for entry in honest().entries
        if entry["kind"] in decided and entry.get("purpose") != "operator"
    ]
    # Three exchanges brought no answer to a spider: their decision is derived, and told once.
    # What the first run has learned of the host (D28), and the second goes on with, is derived.
    assert report.derived == len(of_targets) + 1


HONEST_MORE = {
    "a third run": lambda f: after(declared(third_run(f), f"{H}/y"), f"{H}/y"),
    "R8 lifted in writing": lambda f: after(
        declared(third_run(f, revisit_reason="a correction"), f"{H}/y", f"{H}/z"), f"{H}/y"
    ),
    "a refresh that failed": lambda f: (
        declared(third_run(f), f"{H}/y"),
        f.add(3 * DAY + 22000, "rejected", url=LIST_URL, requirement="R3", reason=""),
        after(f, f"{H}/y", 22001),
    ),
    "a hold": hold_of,
    "one redirect too many": redirected_out,
    # Until issue 38 a 500 that was given up counted as fetched.
    "a 500 after the last retry is given up": lambda f: (
        declared(third_run(f, max_retries=0), f"{H}/y"),
        f.ask(3 * DAY + 5, f"{H}/y", 500, wait=0.5, gives_up=True),
        f.add(3 * DAY + 5.02, "given_up", url=f"{H}/y", host="h.test", status=500, wait=0.5),
    ),
    "five retries": lambda f: tries(f, [0, 1, 2, 3, 4, 5]),
    "robots.txt unreachable": lambda f: (
        f.start(3 * DAY, "three", "p3", max_retries=0),
        f.operator_list(3 * DAY + 1),
        f.ask(3 * DAY + 2, "http://new.test/robots.txt", 503, "robots", wait=0.1, gives_up=True),
        f.add(
            3 * DAY + 3, "rejected", url="http://new.test/robots.txt", requirement="R2",
            verdict="unknown_unreachable", host="new.test", reason="",
        ),
        f.declare(3 * DAY + 4, "http://new.test/x"),
        f.ask(3 * DAY + 5, "http://new.test/x", verdict="unknown_unreachable", digest=None),
    ),
    "rules of an earlier answer, within their hour": lambda f: kept_rules(f, 3500),
    "robots.txt answers 304 to nothing": lambda f: (
        f.start(3 * DAY, "three", "p3"),
        f.operator_list(3 * DAY + 1),
        f.ask(3 * DAY + 2, "http://new.test/robots.txt", 304, "robots"),
        f.add(
            3 * DAY + 3, "rejected", url="http://new.test/robots.txt", requirement="R2",
            host="new.test", reason="",
        ),
    ),
    "robots.txt could not be loaded (our side)": lambda f: (
        f.start(3 * DAY, "three", "p3"),
        f.operator_list(3 * DAY + 1),
        f.add(
            3 * DAY + 3, "rejected", url="http://new.test/robots.txt", requirement="R2",
            verdict="deferred", host="new.test", reason=OUR_SIDE,
        ),
        f.declare(3 * DAY + 4, "http://new.test/x"),
        f.add(
            3 * DAY + 5, "deferred", url="http://new.test/x", requirement="R2", verdict="deferred",
            host="new.test", reason=OUR_SIDE, due=T + 3 * DAY + 5,
            document="http://new.test/robots.txt",
        ),
    ),
    "a 403 that asks for ten minutes, which are kept": banned,
    "a hold that a person has lifted": lambda f: (
        third_run(f),
        declared(f, f"{H}/y"),
        f.get(3 * DAY + 10, f"{H}/y", 403, retry_after=["9999999"], wait=9999999.0),
        f.add(3 * DAY + 11, "ended", reason="finished"),
        f.add(3 * DAY + 12, "lifted", host="h.test", reason="a mistake") | {"run": ""},
        f.start(3 * DAY + 20, "four", "p4"),
        f.operator_list(3 * DAY + 21),
        f.in_force(3 * DAY + 22, "taken_up", digest(ROBOTS)),
        f.declare(3 * DAY + 23, f"{H}/z"),
        f.get(3 * DAY + 24, f"{H}/z"),
    ),
    "the list could not be loaded (our side), though one is held": lambda f: (
        f.start(3 * DAY, "three", "p3"),
        f.operator_list(3 * DAY + 1),
        f.add(
            3 * DAY + 3, "rejected", url=LIST_URL, requirement="R3", verdict="deferred",
            reason="blocklist not refreshed: no disk",
        ),
        f.declare(3 * DAY + 4, "http://new.test/x"),
        f.add(
            3 * DAY + 5, "deferred", url="http://new.test/x", requirement="R3", verdict="deferred",
            host="new.test", reason=OUR_SIDE, due=T + 3 * DAY + 5,
            document=LIST_URL,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("more", HONEST_MORE.values(), ids=HONEST_MORE.keys())
def test_what_the_spec_allows_is_no_finding(more: Callable[[Forge], Any], tmp_path: Path):
    forge = honest()
    more(forge)
    forge.add(4 * DAY, "ended", reason="finished")
    report = forge.check(tmp_path, SHORT, SLOW)
    assert told(report) == []
    assert report.underived == {}


def test_r5_6_an_honest_silent_host_is_found_honest(tmp_path: Path) -> None:
    forge = honest()
    silent(forge, *PAGES[:6])
    put_off(forge, PAGES[6])
    assert told(forge.check(tmp_path)) == []


@pytest.mark.parametrize(("robots_host", "is_found"), [("h.test", False), ("", True)])
def test_a_target_may_wait_for_the_host_of_its_robots_txt(
    robots_host: str, is_found: bool, tmp_path: Path
) -> None:
    """The reason names that host as well, and nothing is read out of it."""
    forge = honest()
    silent(forge, *PAGES[:6])
    declared(forge, "http://moved.test/x")
    line = put_off(forge, "http://moved.test/x", robots_host=robots_host) | {"host": "moved.test"}
    forge.entries[-1] = line
    found = [finding.line for finding in forge.check(tmp_path).findings]
    assert found == ([forge.number(line)] if is_found else [])


@pytest.mark.parametrize("answers", [(None, None), (500, 502), (500,)])
def test_a_robots_txt_that_is_given_up_is_found_honest(
    tmp_path: Path, answers: tuple[int | None, ...]
) -> None:
    forge = honest()
    robots_txt_failed(forge, *answers, gives_up=True)
    assert told(forge.check(tmp_path)) == []


def test_one_attempt_is_honest_where_an_earlier_run_had_no_answer(tmp_path: Path) -> None:
    forge = honest()
    remembered(forge)
    put_off(forge, PAGES[6])
    report = forge.check(tmp_path)
    assert told(report) == []
    assert report.underived == {}


def test_an_excluded_suffix_is_refused_by_the_setting(tmp_path: Path):
    forge = third_run(honest(), excluded_tlds=["gov"])
    forge.declare(3 * DAY + 3, "http://h.gov/x")
    refused = {"requirement": "WALSH_EXCLUDED_TLDS", "verdict": "excluded_tld", "reason": ""}
    forge.refuse(3 * DAY + 4, "http://h.gov/x", **refused)
    assert told(forge.check(tmp_path / "right")) == []
    forge.only("refused", "http://h.gov/x")["requirement"] = "R6"
    assert len(told(forge.check(tmp_path / "wrong"))) == 1


def test_a_hold_that_nothing_here_asks_for_is_not_derived(tmp_path: Path):
    forge = honest()
    hold_of(forge, wait=60.0)
    forge.add(4 * DAY, "ended", reason="finished")
    report = forge.check(tmp_path)
    assert told(report) == []
    assert report.underived == {"decisions that depend on missing lines": 1}


def test_what_was_not_seen_is_never_counted_as_derived(tmp_path: Path):
    """No documents: the pacing is judged, no decision is."""
    whole = honest().check(tmp_path / "whole")
    forge = honest()
    for entry in forge.entries:  # as if the files of those digests were not there
        if entry.get("digest"):
            entry["digest"] = "0" * 64
    report = forge.check(tmp_path / "bare")
    assert told(report) == []
    out_of_scope_not_due_deferred_taught = 4
    assert report.derived == out_of_scope_not_due_deferred_taught < whole.derived
    assert report.underived.total() >= whole.derived - report.derived


def test_redacted_queries_are_stated_and_not_judged_by_robots_txt(tmp_path: Path):
    forge = honest()
    url = f"{H}/y?redacted"
    after(declared(third_run(forge), url), url)
    forge.add(4 * DAY, "ended", reason="finished")
    report = forge.check(tmp_path)
    assert told(report) == []
    assert report.underived == {
        "decisions about URLs whose query is redacted": 1,
        "answers to exchanges whose decision was not derived": 1,
    }


def test_of_r8_after_a_killed_run_is_not_derived(tmp_path: Path):
    """What a run that was killed had answered may be asked again (design section 8)."""
    forge = honest()
    drop(forge, forge.only("ended"))
    drop(forge, forge.only("refused", f"{H}/a"))
    place = forge.index(forge.only("asked", f"{H}/d"))
    forge.run = "two"
    forge.get(98 + T - T + 8, f"{H}/a")
    forge.entries[place:place] = [forge.entries.pop(-2), forge.entries.pop()]
    for entry in forge.entries[place + 2 :]:
        for name in {"at", "started", "ended", "due"} & entry.keys():
            entry[name] += 20
    report = forge.check(tmp_path)
    assert told(report) == []
    assert [why for why in report.underived if why.startswith("R8 after a run")]


VALUES = [
    None, True, -1, 0, 10**400, 1e308, -1e308, "", "x", "http://[", "http://h.test:99999/",
    "\ud800", [], ["x"], [None], {}, "asked", "R2", "R3",
    digest(ROBOTS), digest(LIST), f"{H}/robots.txt",
]  # fmt: skip


@pytest.mark.slow
def test_no_line_whatever_its_members_stops_the_check(tmp_path: Path):
    chance = random.Random(11)
    for _ in range(150):
        forge = honest()
        for _ in range(3):
            entry = chance.choice(forge.entries)
            name = chance.choice([*entry, "settings"])
            entry[name] = chance.choice(VALUES)
            if name in ("kind", "run") and not isinstance(entry[name], str):
                del entry[name]
                entry["kind"] = chance.choice(["asked", "adopted", "refused", "started"])
        forge.check(tmp_path)
