"""A plan as JSON data, and as lines for a person."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy_walsh.commands.plan_held import FETCH, REFRESH, Document
from scrapy_walsh.commands.plan_judge import ASK, DEFER, SKIP, Host, Plan, Target
from scrapy_walsh.policy.times import duration, iso, when
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state.records import BLOCKLIST
from scrapy_walsh.terminal import columns

if TYPE_CHECKING:
    from collections.abc import Iterator


def as_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON data; times are Unix seconds, durations seconds."""
    return asdict(plan)


def as_lines(plan: Plan) -> Iterator[str]:
    """The plan, in the order in which it would be carried out."""
    counts = Counter(target.decision for target in plan.targets)
    yield f"plan for {plan.token} at {iso(plan.now)}, made without a request"
    yield ""
    yield "documents"
    cells = [_document_cells(document, plan) for document in plan.documents]
    yield from columns(cells, indent=2)
    if not _is_held(plan, BLOCKLIST):
        yield "  no blocklist is cached: what it will block is not known"
    yield ""
    due, hosts = plural(counts[ASK], "target"), plural(len(plan.hosts), "host")
    yield f"ask {due} of {hosts}, in this order of hosts"
    asked = {target.url: target for target in plan.targets}
    for host in plan.hosts:
        only = "" if host.urls else ", for its robots.txt only"
        yield f"  {host.host}, {_every(host)}, from {when(host.due, plan.now)}{only}"
        yield from (f"    {_target(asked[url])}" for url in host.urls)
    for decision in (SKIP, DEFER):
        if counts[decision]:
            yield ""
            yield f"{decision} {plural(counts[decision], 'target')}"
            yield from (f"  {_target(t)}" for t in plan.targets if t.decision == decision)
    yield ""
    yield _estimate(plan)


def _every(host: Host) -> str:
    taught = host.learned
    why = "" if taught is None else f" (its answers 429 have taught {round(taught, 2):g} s)"
    if host.silent_since is not None:
        why += f", one request after all others (no answer since {iso(host.silent_since)})"
    return f"every {round(host.interval, 2):g} s{why}"


def _document_cells(document: Document, plan: Plan) -> tuple[str, str, str, str]:
    if document.fetched_at is None:
        age = "never fetched"
    elif document.fetched_at == 0:
        age = "too old to be used"
    else:
        age = f"{duration(round(plan.now - document.fetched_at))} old"
    return (document.action, document.kind, document.key, age)


def _is_held(plan: Plan, kind: str) -> bool:
    return any(d.kind == kind and d.action != FETCH for d in plan.documents)


def _target(target: Target) -> str:
    verdict = target.verdict
    if verdict is None:
        return f"{target.url}: unknown, robots.txt must be fetched first"
    doubt = "; robots.txt is requested again first" if target.robots == REFRESH else ""
    return f"{target.url}: {verdict.name} ({verdict.requirement}): {verdict.reason}{doubt}"


def _estimate(plan: Plan) -> str:
    if not plan.requests:
        return "nothing would be requested"
    listed = (
        f", and up to {plan.children:,} for sitemaps that an index lists" if plan.children else ""
    )
    return (
        f"it takes at least {plan.seconds:.1f} s: {plural(plan.requests, 'request')}, "
        f"{plan.latency:g} s assumed for each answer; an unknown Crawl-delay counts as none, and "
        f"up to {plural(plan.more, 'request')} more where first answers are of no use{listed}"
    )
