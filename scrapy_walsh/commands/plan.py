"""``walsh plan``: what the next run of a spider would request and skip, and when; sends nothing.

The run is a real one, by a virtual clock, with a copy of the state and without a wire
(:mod:`scrapy_walsh.commands.plan_crawl`), in a process that can open no connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands import common, own_process
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.terminal import due_at
from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural
from scrapy_walsh.terminal import columns, local

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

_CRAWL: Final = "scrapy_walsh.commands.plan_process"
#: The spider that the plan is for, if none is named.
_SPIDER: Final = "walsh_metadata"
#: Seconds that an answer is assumed to take.
LATENCY: Final = 0.2
#: Seconds that making the plan may take.
_TIMEOUT: Final = 3600.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh plan`` takes."""
    add = parser.add_argument
    add(
        "spider",
        metavar="SPIDER",
        nargs="?",
        default=_SPIDER,
        help=f"by default {_SPIDER}",
    )
    add(
        "-a",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="the spider's arguments",
    )
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Have the run planned in a process of its own, and print what it would do."""
    arguments = {
        "spider": args.spider,
        "arguments": common.pairs("-a", args.a),
        "settings": common.given_settings(args),
    }
    try:
        answer = own_process.ask(_CRAWL, arguments, _TIMEOUT)
    except own_process.NoAnswerError as error:
        raise Misuse(f"planning the run {error}") from error
    if "misuse" in answer:
        raise Misuse(answer["misuse"])
    common.tell("plan", *answer["notices"])
    common.answer(args, answer, map(visible, as_lines(answer)))
    if any(request["purpose"] == TARGET for request in answer["requests"]):
        return 0
    return 1


# -- for a person --------------------------------------------------------------------------


def as_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The plan, in the order of its requests."""
    now = plan["now"]
    requests = plan["requests"]
    yield f"plan of {plan['spider']} for {plan['token']} at {local(now)}, made without a request"
    targets = {target["url"]: target for target in plan["targets"]}
    if requests:
        yield ""
        count = sum(request["purpose"] == TARGET for request in requests)
        targets_sent = plural(count, "target")
        yield f"{plural(len(requests), 'request')}, {targets_sent} among them, in this order"
        rows = [
            (
                f"in {_in(request['at'] - now)}",
                _target(targets[request["url"]])
                if request["purpose"] == TARGET
                else _document(request),
            )
            for request in requests
        ]
        yield from columns(rows, right={0}, indent=2)
    if not all(request.get("known", True) for request in requests):
        yield "  unknown files are assumed to allow everything, without a Crawl-delay"
    for decision in ("skip", "defer"):
        if targets_of := [target for target in targets.values() if target["decision"] == decision]:
            yield ""
            yield f"{decision} {plural(len(targets_of), 'target')}"
            yield from (f"  {_target(target)}" for target in targets_of)
    yield ""
    took = f"it takes {_in(plan['seconds'])} if each answer takes {LATENCY} s"
    yield took if requests else "nothing would be requested"


def _document(request: Mapping[str, Any]) -> str:
    return f"{request['url']}: {'to refresh it' if request['known'] else 'none is known yet'}"


def _target(target: Mapping[str, Any]) -> str:
    url: str = target["url"]
    verdict = target["verdict"]
    if target["revisit"]:
        url += f", every {duration(target['revisit'])}"
    if verdict is None:
        return url
    due = ""
    if target["next_due"]:
        due = f"; next due {local(due_at(target['next_due']))}"
    reason = verdict["brief"] or verdict["reason"]
    return f"{url}: {verdict['name']} ({verdict['requirement']}): {reason}{due}"


def _in(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return duration(round(seconds))
