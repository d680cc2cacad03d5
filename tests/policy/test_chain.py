"""Section 7: the order of the gates."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from scrapy_walsh.policy import chain
from scrapy_walsh.policy.backoff import Answer
from scrapy_walsh.policy.chain import NeedDocument, Rules
from scrapy_walsh.policy.event import Pace
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.verdict import Verdict
from scrapy_walsh.policy.visits import Visit

URL = "http://h.test/private/page"


def listing(*domains: str) -> Blocklist:
    return Blocklist(domains=set(domains))


@dataclass
class Held:
    """Documents as they are held; notes which were looked at, in order."""

    domains: Blocklist | None = field(default_factory=Blocklist)
    rules: Rules | None = field(default_factory=lambda: parse_robots(b"", "Walsh-Research"))
    run: Visit | None = None
    looked: list[str] = field(default_factory=list)

    def blocklist(self) -> Blocklist | None:
        self.looked.append("R3")
        return self.domains

    def robots(self, origin: str) -> Rules | None:
        self.looked.append(f"R2 {origin}")
        return self.rules

    def last_visit(self, key: str) -> Visit | None:
        self.looked.append("R8")
        return self.run


def judge(held: Held, url: str = URL, *, declared: bool = True, gates: Gates | None = None):
    scope = Scope()
    if declared:
        scope.declare(url)
    return chain.judge(url, scope, held, gates or Gates(), now=1_000_000.0)


def test_r7g_1_gates_are_asked_in_order():
    held = Held()
    assert judge(held).allowed
    assert held.looked == ["R3", "R8", "R2 http://h.test"]


def test_r6_refuses_before_any_document_is_looked_at():
    held = Held()
    assert judge(held, declared=False).requirement == "R6"
    assert held.looked == []


def test_r7g_2_blocked_host_ends_it_before_robots_txt():
    held = Held(domains=listing("h.test"), rules=None)
    assert judge(held).name == "blocked_operator"
    assert held.looked == ["R3"]


def test_r3_1_blocklist_is_needed_before_robots_txt():
    assert judge(Held(domains=None, rules=None)) == NeedDocument("blocklist")


def test_r2_1_robots_txt_is_needed_before_a_target():
    assert judge(Held(rules=None)) == NeedDocument("robots", "http://h.test")


def test_r2_4_robots_txt_is_per_scheme_host_and_port():
    needed = judge(Held(rules=None), "https://h.test:8443/x")
    assert needed == NeedDocument("robots", "https://h.test:8443")


def test_r2_2_disallowed_path_is_refused():
    held = Held(rules=parse_robots(b"User-agent: *\nDisallow: /private\n", "Walsh-Research"))
    verdict = judge(held)
    assert (verdict.requirement, verdict.name, verdict.line) == ("R2", "disallowed_explicit", 2)


def test_r8_source_asked_too_soon_costs_its_host_nothing():
    held = Held(run=Visit(999_000.0, 999_000.0), rules=None)
    assert judge(held).requirement == "R8"
    assert held.looked == ["R3", "R8"]


def test_r8_redirect_target_is_not_a_source():
    held = Held(run=Visit(999_000.0, 999_000.0))
    scope = Scope()
    scope.declare("http://g.test/")
    scope.declare_hop(URL, "http://g.test/")
    assert chain.judge(URL, scope, held, Gates(), 1_000_000.0).allowed


def test_excluded_suffix_is_refused_before_robots_txt():
    held = Held(rules=None)
    verdict = judge(held, "http://agency.GOV/", gates=Gates(excluded_tlds=("gov",)))
    assert (verdict.name, verdict.requirement) == ("excluded_tld", "WALSH_EXCLUDED_TLDS")
    assert held.looked == ["R3"]


@pytest.mark.parametrize("url", ["http://", "http://[::1/", "http://a b/"])
def test_r3_unreadable_host_is_refused(url):
    verdict = judge(Held(), url)
    assert not isinstance(verdict, NeedDocument)
    assert not verdict.allowed


@pytest.mark.parametrize("wait", [300.5, 7200.0, 1e300])
def test_host_beyond_patience_is_deferred_with_its_due_time(wait):
    verdict = chain.admit(Pace("h.test", wait, 1.0), Gates(patience=300.0), now=0.0)
    assert isinstance(verdict, Verdict)
    assert verdict.name == "deferred"
    assert not verdict.allowed
    assert "h.test" in verdict.reason


def test_host_within_patience_is_waited_for():
    step = chain.admit(Pace("h.test", 300.0, 1.0), Gates(patience=300.0), now=0.0)
    assert step == 300.0


@pytest.mark.parametrize("status", [429, 503])
def test_r5_3_retry_after_beyond_patience_is_not_shortened(status):
    answer = Answer("target", status, retry_after=["86400"])
    failure = chain.conclude(answer, Gates(patience=300.0), now=0.0, rand=0.5).failure
    assert failure is not None
    assert failure.delay == 86400.0
