"""Many blocklists in two processes: a crawl for each case, with a state and an operator of its own.

The first process takes up each case's first list, then time passes, and the second process
meets what the operator answers later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.sandbox import Route, Sandbox, Site, blocklist, hosts
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import StoredDocument
from tests.crawl.harness import ONCE, Crawl, begin, make_project, served, site

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: One process, a crawler for each case, side by side.
SCRIPT = """
import json, sys
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings
from spiders import Probe

process = CrawlerProcess(get_project_settings())
for name, urls in json.loads(sys.argv[1]).items():
    crawler = process.create_crawler(Probe)
    settings = crawler.settings
    origin = f"http://operator.{name}.test"
    settings.set("WALSH_BLOCKLIST_URL", f"{origin}/list.json", "cmdline")
    settings.set("WALSH_BLOCKLIST_SCHEMA_URL", f"{origin}/schema.json", "cmdline")
    settings.set("WALSH_STATE_DIR", f"state/{name}", "cmdline")
    process.crawl(crawler, urls=" ".join(urls))
process.start()
"""
_NO_SCHEMA = Route(404)


@dataclass(frozen=True)
class Case:
    """What the operator answers in the second run, over the list of the first.

    ``then``: a document, or a Route that is none. ``first``: changes to the first list.
    ``age``: seconds that pass. ``schema``, ``schema_then``: the standalone schema in either run;
    ``schema_age``: seconds that pass for it. A document lists ``DOMAIN`` as its own entry.
    """

    then: Any
    first: Mapping[str, Any] = field(default_factory=dict)
    age: float = 700_000
    schema: Route = _NO_SCHEMA
    schema_then: Route = _NO_SCHEMA
    schema_age: float = 0


def document(domain: str, **changes: Any) -> dict[str, Any]:
    """A valid list of *domain*; a member that is None in *changes* is left out."""
    whole = {**blocklist("http://operator.test", domain), **changes}
    return {name: value for name, value in whole.items() if value is not None}


@dataclass
class Outcome:
    """The second run of one case: what the servers of its hosts saw, and what it said."""

    name: str
    run: Crawl

    @property
    def list_url(self) -> str:
        return f"http://operator.{self.name}.test/list.json"

    @property
    def operator(self) -> list[str]:
        """The paths asked of the operator."""
        return self.run.asked(f"operator.{self.name}.test")

    @property
    def blocked(self) -> set[str]:
        """Which of the two hosts R3 refused: that of the first list, that of the second."""
        found = set()
        for which in ("held", "other"):
            host = f"{which}.{self.name}.test"
            if self.run.lines(f"refused http://{host}/x", "R3 blocked_operator"):
                assert host not in hosts(self.run.log)
                found.add(which)
            else:
                assert self.run.asked(host)[-1:] == ["/x"], f"{host} was neither refused nor asked"
        return found

    def said(self, *words: str) -> list[str]:
        """The lines about this case's list with every one of *words*, the account left out."""
        return self.run.lines("[scrapy_walsh]", self.list_url, *words)


def play(project: Path, cases: Mapping[str, Case]) -> dict[str, Outcome]:
    """Both runs of every case."""
    make_project(project, settings=ONCE)
    (project / "matrix.py").write_text(SCRIPT)
    with Sandbox() as box:
        for name, case in cases.items():
            held = document(f"held.{name}.test", **case.first)
            box.put(_operator(name, served(held), case.schema))
            box.put(site(f"held.{name}.test"))
            box.put(site(f"other.{name}.test"))
        _run(project, box, cases, "held")
        for name, case in cases.items():
            _age(project / "state" / name, name, case)
            box.put(_operator(name, _answer(name, case.then), case.schema_then))
        second = _run(project, box, cases, "held", "other")
    return {name: Outcome(name, second) for name in cases}


def _operator(name: str, answer: Route, schema: Route) -> Site:
    moved = served(document(f"other.{name}.test"))
    routes = {"/list.json": answer, "/schema.json": schema, "/moved.json": moved}
    return site(f"operator.{name}.test", dict(routes))


def _answer(name: str, then: Any) -> Route:
    if isinstance(then, Route):
        return then
    return served(json.loads(json.dumps(then).replace("DOMAIN", f"other.{name}.test")))


def _run(project: Path, box: Sandbox, cases: Mapping[str, Case], *which: str) -> Crawl:
    urls = {name: [f"http://{host}.{name}.test/x" for host in which] for name in cases}
    box.clear()
    return begin(project, box, "matrix", json.dumps(urls)).finish()


def _age(directory: Path, name: str, case: Case) -> None:
    store = open_store(directory)
    for kind, path, seconds in (
        ("blocklist", "list.json", case.age),
        ("schema", "schema.json", case.schema_age),
    ):
        held = store.get(StoredDocument, kind, f"http://operator.{name}.test/{path}")
        if held is not None:
            store.put(replace(held, fetched_at=held.fetched_at - seconds))
    store.close()
