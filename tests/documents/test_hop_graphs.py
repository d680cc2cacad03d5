"""D37: over random graphs of redirects, ``verify`` and ``audit`` say the same of each exchange.

Each graph is crawled twice: by this build, and by one that follows a robots.txt wherever it leads.
The ledger is judged by ``verify``, and what each host's server saw by ``audit``.
"""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from scrapy_walsh.proof.audit.reading import Bot, read_logs
from scrapy_walsh.proof.sandbox import Route, Site
from tests import zygote
from tests.audit.test_crawl import nginx
from tests.crawl.harness import Crawl, answer, solo
from tests.kit import report_of, rows_of, rules, written

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = 24
#: Of each host, disallowed by its rules; a redirect may lead there, and on to another host.
CLOSED, OPEN = "/closed/page", "/open/page"
RULES = "User-agent: *\nDisallow: /closed/\n"
FOLLOWS_ALL = """
from scrapy_walsh.adapters.documents import robots_txt
from scrapy_walsh.policy import chain
def by_the_list_alone(url, origin, scope, held, gates, *, led):
    return chain.judge_host(url, held, gates)
robots_txt.judge_robots_hop = by_the_list_alone
"""


class Graph(NamedTuple):
    """``plain``: the hosts that serve their rules at /robots.txt, or at a page of their own."""

    sites: tuple[Site, ...]
    plain: frozenset[str]
    names: tuple[str, ...]


def graph(seed: int) -> Graph:
    draw = random.Random(seed)
    names = tuple(f"h{number}.test" for number in range(HOSTS))

    def somewhere() -> Route:
        path = draw.choice([CLOSED, CLOSED, OPEN, "/robots.txt"])
        return Route(302, location=f"http://{draw.choice(names)}{path}")

    sites, plain = [], set()
    for name in names:
        pages = {path: draw.choice([answer(RULES), somewhere()]) for path in (CLOSED, OPEN)}
        kind = draw.choice(["rules", "rules", "own", "elsewhere", "elsewhere"])
        robots = {
            "rules": answer(RULES),
            "own": Route(302, location=CLOSED),
            "elsewhere": somewhere(),
        }[kind]
        if kind == "own":
            pages[CLOSED] = answer(RULES)
        if kind != "elsewhere":
            plain.add(name)
        sites.append(Site(name, {"/robots.txt": robots, **pages, "/page": Route(body="p")}))
    return Graph(tuple(sites), frozenset(plain), names)


def crawled(folder: Path, seed: int, *, broken: bool) -> tuple[Graph, Crawl]:
    made = graph(seed)
    folder.mkdir()
    more = {}
    if broken:
        (folder / "sitecustomize.py").write_text(FOLLOWS_ALL)
        more = {zygote.BROKEN: "1"}
    urls = [f"http://{name}/page" for name in made.names if seed % 2 or name not in made.plain]
    return made, solo(folder, *urls, sites=made.sites, **more)


def found_by_audit(folder: Path, made: Graph, crawl: Crawl) -> set[str]:
    found = set()
    for name in made.plain:
        lines = nginx(crawl.log, name)
        if not lines:
            continue
        bot = Bot(b"walsh-research", host=name)
        log = read_logs([written(folder / f"{name}.log", lines)], bot)
        row = rows_of(log, timeline=rules((-math.inf, RULES)))["obeyed"]
        found |= {name for finding in row.findings if finding.text.startswith(CLOSED)}
    return found


def found_by_verify(folder: Path, made: Graph) -> set[str]:
    state = folder / ".scrapy/walsh"
    lines = [json.loads(each) for each in (state / "ledger.jsonl").read_text().splitlines()]
    urls = {each["n"]: each.get("url", "") for each in lines}
    broken = {urls[each.line] for each in report_of(state).findings if each.rule == "R2"}
    return {name for name in made.plain if f"http://{name}{CLOSED}" in broken}


@pytest.mark.parametrize("seed", range(4))
def test_r2_nothing_is_requested_that_its_own_site_disallows(tmp_path: Path, seed: int) -> None:
    made, crawl = crawled(tmp_path / "whole", seed, broken=False)
    assert crawl.returncode == 0, crawl.output
    assert "Traceback" not in crawl.output
    report = report_of(tmp_path / "whole/.scrapy/walsh")
    assert report.holds, report.findings
    assert found_by_audit(tmp_path, made, crawl) == set()


@pytest.mark.parametrize("seed", range(2))
def test_verify_and_audit_say_the_same_of_the_same_exchange(tmp_path: Path, seed: int) -> None:
    made, crawl = crawled(tmp_path / "broken", seed, broken=True)
    assert crawl.returncode == 0, crawl.output
    by_audit = found_by_audit(tmp_path, made, crawl)
    assert by_audit
    assert found_by_verify(tmp_path / "broken", made) == by_audit
