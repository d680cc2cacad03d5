"""What ``verify`` keeps of each host does not grow with texts: many hosts fit into memory."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from scrapy_walsh.commands.common import read_blocklist
from scrapy_walsh.ledger.files import DOCUMENTS, Bodies, Documents, parse_line
from scrapy_walsh.policy.robots.file import Robots
from scrapy_walsh.proof.verify import Report
from scrapy_walsh.proof.verify.judge import Judge
from tests.kit import LIST, RULE, Forge, digest, lines_of

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = 1_300


def one_run(documents: Documents) -> Forge:
    """A run over many hosts, each with a robots.txt of its own, and two rounds of targets."""
    forge = Forge()
    forge.start(0, "one", "p1")
    forge.operator_list(1)
    for number in range(HOSTS):
        host = f"h{number}.test"
        forge.declare(1.5, f"http://{host}/a", f"http://{host}/b")
        body = b"User-agent: *\nDisallow: /%d/\nAllow: /\n" % number
        documents.put("robots", body, digest(body), 1)
        robots: dict[str, Any] = {"url": f"http://{host}/robots.txt", "digest": digest(body)}
        at = 2 + number * 0.5
        forge.ask(at, robots["url"], 200, "robots", exempt=True, body=digest(body))
        forge.add(at + 0.02, "adopted", requirement="R2", reason="", host=host, status=200,
                  group=["*"], **robots)  # fmt: skip
    for round_number, page in enumerate("ab"):
        for number in range(HOSTS):
            at = 2 + HOSTS * 0.5 * (1 + round_number) + number * 0.5
            host = f"h{number}.test"
            body = b"User-agent: *\nDisallow: /%d/\nAllow: /\n" % number
            rule = {**RULE, "digest": digest(body), "document": f"http://{host}/robots.txt"}
            forge.ask(at, f"http://{host}/{page}", digest=digest(body), interval=1.0)
            forge.add(at + 0.02, "fetched", url=f"http://{host}/{page}", host=host, status=200,
                      **rule)  # fmt: skip
    return forge


def test_rules_and_lines_of_many_hosts_do_not_stay_in_memory(tmp_path: Path) -> None:
    """All decisions are derived nevertheless, because rules are read again if they are needed."""
    documents = Documents(tmp_path / DOCUMENTS)
    documents.put("blocklist", LIST, digest(LIST), 1)
    forge = one_run(documents)
    report = Report()
    bodies = Bodies(tmp_path / DOCUMENTS)
    judge = Judge(report, bodies, read_blocklist)
    gc.collect()
    before = sum(isinstance(each, Robots) for each in gc.get_objects())
    for line in lines_of(*forge.entries):
        judge.take(parse_line(line))
    gc.collect()
    robots = sum(isinstance(each, Robots) for each in gc.get_objects()) - before
    bodies.close()
    assert (report.findings, report.underived) == ([], {})
    assert report.derived == 1 + HOSTS * (2 + 2 * 2)
    assert robots <= 1_024 < HOSTS
    exchanges = judge._replay.exchanges
    for number in range(HOSTS):
        (sent,) = exchanges.of(f"h{number}.test").sent.values()
        assert (sent.line.url, sent.line.pace, sent.line.digest) == ("", None, None)
