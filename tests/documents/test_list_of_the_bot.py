"""R3b, D39: the blocklist belongs to the product token, and not to the URL that it came from.

Chains of runs on one state, each with a ``WALSH_BLOCKLIST_URL`` of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from scrapy_walsh.state import files, open_store
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument
from tests.crawl.harness import (
    FAR_OFF,
    LIST,
    LIST_SPIDER,
    LIST_URL,
    OWN_IDENTITY,
    Crawl,
    age_document,
    crawl,
    forget_pacing,
    listing,
    make_project,
    operator,
    run_scrapy,
    site,
    state_dir,
    verify,
)

if TYPE_CHECKING:
    from pathlib import Path

MIRROR = "http://mirror.test/list.json"
OTHER = "http://other.test/list.json"
#: Answers of a new address that bring no list.
NONE_TO_BE_HAD = {
    "404": Route(404),
    "500": Route(500),
    "not JSON": Route(body="<html>hello</html>", content_type="application/json"),
    "another origin": Route(302, location="http://elsewhere.test/list.json"),
    "an unknown version": listing(contract="walsh-research-blocklist/v2"),
}


class Bot:
    """One bot and its state, for a chain of runs."""

    def __init__(self, project: Path, **settings: Any) -> None:
        self.project = project
        self.settings = settings
        self.number = 0

    def run(
        self, url: str, answer: Any, *hosts: str, spider: str = LIST_SPIDER, **settings: Any
    ) -> tuple[Crawl, list[str]]:
        """A run whose list is at *url*, with that *answer*; and which of *hosts* it requested."""
        self.number += 1
        given = {**FAR_OFF, **self.settings, **settings, "WALSH_BLOCKLIST_URL": url}
        make_project(self.project, spider, given)
        if state_dir(self.project).exists():
            forget_pacing(self.project)
        with Sandbox() as box:
            box.put(operator(answer if url == LIST_URL else Route(404)))
            for address in (MIRROR, OTHER):
                host, path = address.removeprefix("http://").split("/")
                box.put(site(host, {f"/{path}": answer if url == address else Route(404)}))
            for host in hosts:
                box.put(site(host))
            wanted = [f"http://{host}/{self.number}" for host in hosts]
            done = crawl(self.project, box, *wanted)
        return done, [host for host in hosts if done.targets(host)]

    def findings(self) -> list[str]:
        """What ``walsh verify`` finds about lists: these runs keep no pace between them."""
        _, printed = verify(state_dir(self.project), "--json")
        found = json.loads(printed)["findings"]
        return [each["text"] for each in found if each["rule"] in {"R3", "R12", "chain", "run"}]


@pytest.mark.parametrize("name", NONE_TO_BE_HAD)
def test_r3b_what_a_list_of_another_address_blocks_stays_blocked(tmp_path: Path, name: str) -> None:
    bot = Bot(tmp_path / "project")
    bot.run(LIST_URL, listing("blocked.test"), "free.test")
    for _ in range(2):
        done, requested = bot.run(MIRROR, NONE_TO_BE_HAD[name], "www.blocked.test", "free.test")
        assert requested == ["free.test"]
        assert done.asked("www.blocked.test") == []
        assert f"[{LIST_URL}]" in " ".join(done.lines("refused http://www.blocked.test/"))
        assert done.lines("last list stays in force (1 domain, from", LIST_URL)
        assert "no blocklist loaded yet" not in done.output
        assert done.returncode == 0
    assert bot.findings() == []


def test_r3b_a_mirror_that_is_set_for_one_run(tmp_path: Path) -> None:
    """Its list lifts what the canonical one blocks for its own run, by name, and no longer."""
    bot = Bot(tmp_path / "project")
    hosts = "a.test", "b.test", "c.test"
    assert bot.run(LIST_URL, listing("a.test", "b.test"), *hosts)[1] == ["c.test"]
    done, requested = bot.run(MIRROR, listing("b.test", "c.test"), *hosts)
    assert requested == ["a.test"]
    assert done.lines("WARNING", "the operator lifted the opt-out of: a.test")
    assert not done.lines("lifted the opt-out of", "b.test")
    # The mirror is taken away again, and the canonical address does not answer.
    done, requested = bot.run(LIST_URL, Route(503), *hosts)
    assert requested == []
    assert done.lines("last list stays in force (3 domains, from", LIST_URL, MIRROR)
    # It is asked at once, though its list is fresh, and without validators.
    (asked,) = (each for each in done.requests("operator.test") if each.path == LIST)
    assert not asked.values("If-None-Match")
    done, requested = bot.run(LIST_URL, listing("a.test", "b.test"), *hosts)
    assert requested == ["c.test"]
    assert done.lines("WARNING", "the operator lifted the opt-out of: c.test")
    done, _ = bot.run(LIST_URL, Route(503), *hosts)
    assert LIST not in done.asked("operator.test")  # that list is fresh, and it alone binds
    assert done.targets("c.test")
    assert bot.findings() == []


def test_r3b_a_third_address_goes_by_all_lists_that_were_held(tmp_path: Path) -> None:
    bot = Bot(tmp_path / "project")
    bot.run(LIST_URL, listing("a.test"), "free.test")
    bot.run(MIRROR, listing("b.test"), "free.test")
    assert bot.run(OTHER, Route(404), "a.test", "b.test", "c.test")[1] == ["c.test"]
    assert bot.findings() == []
    printed = run_scrapy(bot.project, None, "walsh", "doctor").stdout
    assert LIST_URL in printed
    assert MIRROR in printed
    for host, code in (("a.test", 1), ("b.test", 1), ("c.test", 0)):
        words = ("walsh", "check", f"http://{host}/{bot.number}", "--token", "Walsh-Research")
        assert run_scrapy(bot.project, None, *words).returncode == code


def test_r3b_a_list_belongs_to_the_product_token(tmp_path: Path) -> None:
    """Another bot in the same directory has its own; one list may be that of two bots."""
    one = Bot(tmp_path / "project")
    two = {"WALSH_IDENTITY": {**OWN_IDENTITY, "product": "Second/1.0"}}
    one.run(LIST_URL, listing("a.test"), "free.test")
    done, requested = one.run(MIRROR, Route(404), "a.test", **two)
    assert requested == ["a.test"]
    assert done.lines("no blocklist loaded yet")
    # The second bot takes the first one's list up; so it is held under both tokens.
    assert one.run(LIST_URL, Route(404), "a.test", "free.test", **two)[1] == ["free.test"]
    for settings in (two, {}):
        assert one.run(MIRROR, Route(404), "a.test", "free.test", **settings)[1] == ["free.test"]
    assert one.findings() == []


@pytest.mark.parametrize("damage", ["gone", "flipped", "database"])
def test_d14_a_list_of_another_address_that_is_lost_defers_everything(
    tmp_path: Path, damage: str
) -> None:
    bot = Bot(tmp_path / "project")
    bot.run(LIST_URL, listing("a.test"), "free.test")
    directory = state_dir(bot.project)
    for name in files.copies_of(directory, LIST_URL):
        if damage == "flipped":
            octets = (directory / name).read_bytes()
            (directory / name).write_bytes(octets[:-9] + b"?" + octets[-8:])
        elif damage == "gone":
            (directory / name).unlink()
    if damage == "database":
        for each in directory.glob("state.sqlite3*"):
            each.unlink()
    done, requested = bot.run(MIRROR, Route(404), "a.test", "free.test")
    if damage == "database":  # the copies are whole
        assert requested == ["free.test"]
        return
    assert requested == []
    assert done.returncode == 1
    # Only a list from the address that is configured now ends it, also in later runs.
    assert bot.run(MIRROR, listing("b.test"), "a.test", "b.test")[1] == ["a.test"]
    assert bot.run(MIRROR, Route(404), "a.test", "b.test")[1] == ["a.test"]
    assert bot.run(LIST_URL, Route(404), "a.test", "free.test")[1] == []


FORGETFUL = f"""
from scrapy_walsh.state.records import StoredDocument
from scrapy_walsh.state.store import Store

def own_alone(self, url, token, now):
    kept = self.get(StoredDocument, "blocklist", url)
    return [] if kept is None else [kept]

Store.binding_lists = own_alone
{LIST_SPIDER}
"""


def test_verify_finds_a_run_that_forgets_a_list_of_another_address(tmp_path: Path) -> None:
    bot = Bot(tmp_path / "project")
    bot.run(LIST_URL, listing("a.test"), "free.test")
    assert bot.run(MIRROR, Route(404), "a.test", spider=FORGETFUL)[1] == ["a.test"]
    (found,) = bot.findings()
    assert f", from {LIST_URL}, had to stay in force (R3b)" in found
    # The same where the address of this run has a list of its own, which is older.
    bot.run(MIRROR, listing("b.test"), "free.test")
    bot.run(LIST_URL, listing("c.test"), "free.test")
    assert len(bot.findings()) == 1
    assert bot.run(MIRROR, Route(404), "c.test", spider=FORGETFUL)[1] == ["c.test"]
    assert f", from {LIST_URL}, had to stay in force (R3b)" in bot.findings()[-1]


def test_r3b_no_clock_that_was_set_lifts_an_opt_out(tmp_path: Path) -> None:
    bot = Bot(tmp_path / "project")
    bot.run(MIRROR, listing(), "free.test")
    age_document(bot.project, BLOCKLIST, MIRROR, seconds=-1e7)  # it came "from the future"
    bot.run(LIST_URL, listing("a.test"), "free.test")
    assert bot.run(MIRROR, Route(404), "a.test", "free.test")[1] == ["free.test"]


def test_r3b_a_list_of_before_that_names_no_token_binds_every_bot(tmp_path: Path) -> None:
    bot = Bot(tmp_path / "project")
    bot.run(LIST_URL, listing("a.test"), "free.test")
    store = open_store(state_dir(bot.project))
    kept = store.get(StoredDocument, BLOCKLIST, LIST_URL)
    assert kept is not None
    assert kept.tokens == "walsh-research"
    store.put(replace(kept, tokens=""))
    store.close()
    two = {"WALSH_IDENTITY": {**OWN_IDENTITY, "product": "Second/1.0"}}
    assert bot.run(MIRROR, Route(404), "a.test", "free.test", **two)[1] == ["free.test"]
