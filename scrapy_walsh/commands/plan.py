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
from scrapy_walsh.policy.verdict import without_due
from scrapy_walsh.policy.words import plural
from scrapy_walsh.terminal import columns, local

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

_CRAWL: Final = "scrapy_walsh.commands.plan_process"
#: The spider whose run is told where none is named.
_SPIDER: Final = "walsh_metadata"
#: Seconds that an answer is assumed to take.
LATENCY: Final = 0.2
#: Seconds that making the plan may take.
_TIMEOUT: Final = 3600.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh plan`` takes."""
    add = parser.add_argument
    add("spider", metavar="SPIDER", nargs="?", default=_SPIDER, help=f"by default {_SPIDER}")
    add("-a", metavar="NAME=VALUE", action="append", default=[], help="the spider's arguments")
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Have the run planned in a process of its own, and print what it would do."""
    given = {
        "spider": args.spider,
        "arguments": common.pairs("-a", args.a),
        "settings": common.given_settings(args),
    }
    try:
        found = own_process.ask(_CRAWL, given, _TIMEOUT)
    except own_process.NoAnswerError as error:
        raise Misuse(f"planning the run {error}") from error
    if "misuse" in found:
        raise Misuse(found["misuse"])
    common.tell("plan", *found["notices"])
    common.answer(args, found, map(visible, as_lines(found)))
    return 0 if any(each["purpose"] == TARGET for each in found["requests"]) else 1


# -- for a person --------------------------------------------------------------------------


def as_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The plan, in the order in which it would be carried out."""
    now, sent = plan["now"], plan["requests"]
    yield f"plan of {plan['spider']} for {plan['token']} at {local(now)}, made without a request"
    targets = {each["url"]: each for each in plan["targets"]}
    if sent:
        yield ""
        asked = sum(each["purpose"] == TARGET for each in sent)
        yield f"{plural(len(sent), 'request')}, {plural(asked, 'target')} among them, in this order"
        rows = [
            (
                f"in {_in(each['at'] - now)}",
                _target(targets[each["url"]]) if each["purpose"] == TARGET else _document(each),
            )
            for each in sent
        ]
        yield from columns(rows, right={0}, indent=2)
    if not all(each.get("known", True) for each in sent):
        yield "  what is not known yet is assumed to refuse nothing, and to ask for no Crawl-delay"
    for decision in ("skip", "defer"):
        if found := [each for each in targets.values() if each["decision"] == decision]:
            yield ""
            yield f"{decision} {plural(len(found), 'target')}"
            yield from (f"  {_target(each)}" for each in found)
    yield ""
    took = f"it takes {_in(plan['seconds'])}, {LATENCY} s assumed for each answer"
    yield took if sent else "nothing would be requested"


def _document(request: Mapping[str, Any]) -> str:
    return f"{request['url']}: {'to refresh it' if request['known'] else 'none is known yet'}"


def _target(target: Mapping[str, Any]) -> str:
    url: str = target["url"]
    verdict = target["verdict"]
    if target["revisit"]:
        url += f", every {duration(target['revisit'])}"
    if verdict is None:
        return url
    due = f"; next due {local(due_at(target['next_due']))}" if target["next_due"] else ""
    why = without_due(verdict["reason"])
    return f"{url}: {verdict['name']} ({verdict['requirement']}): {why}{due}"


def _in(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else duration(round(seconds))
