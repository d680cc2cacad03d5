"""``--live``: requests the operator's real fixtures and canaries, with R13's tags, nothing else.

Two crawls with the identity's own URLs and the project's own state directory. They are judged by
the bot's own account: there is no server's log to look at.
"""

from __future__ import annotations

import re
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.verdict import BY_SETTING
from scrapy_walsh.proof.conformance.check import in_order, judged, rows_of
from scrapy_walsh.proof.conformance.crawl import Stage
from scrapy_walsh.proof.conformance.evidence import Evidence, seen, split
from scrapy_walsh.proof.findings import Finding, broken, held, held_if, unseen
from scrapy_walsh.proof.spacing import THE_WIRE, is_short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_walsh.proof.conformance.check import Check
    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.conformance.evidence import Judge, Run

# Judges the operator's fixtures and canaries (spec sections 13 and 16) by the bot's own account.
#
# The same two crawls serve the sandbox and ``--live``: the fixtures document, then what it names.
# Nothing here looks at a server's log, so a run against the operator's real host can be judged.

_CONTRACT: Final = re.compile(r"walsh-research-test-fixtures/v1(\.\d+)?")
_URLS: Final = (
    "robots_allowed_sentinel",
    "robots_disallowed",
    "walsh_only_allowed",
    "external_positive",
)
_HOST: Final = "operator_blocked_host"
_FLAKY: Final = "flaky_429_endpoint"
_REPRESENTATIONS: Final = ("", ".html", ".md")


def fixtures_url(blocklist_url: str) -> str:
    """The URL of an operator's fixtures document, which is beside the blocklist."""
    return blocklist_url.rpartition("/")[0] + "/test-fixtures.json"


def fixtures_of(run: Run, url: str) -> dict[str, str]:
    """The fixtures by name, from the account of the run that requested *url*.

    Raises DocumentInvalid, in one line, when they cannot be used.
    """
    told = run.result(url)
    if told is None or told.get("status") != 200:
        why = "the crawl came to no answer" if told is None else told.get("why", told.get("status"))
        raise DocumentInvalid(f"{url}: not fetched: {why}")
    document = told.get("document")
    if not isinstance(document, dict) or not _CONTRACT.fullmatch(str(document.get("contract"))):
        raise DocumentInvalid(f"{url}: not a walsh-research-test-fixtures/v1 document")
    found = document.get("fixtures")
    if not isinstance(found, dict) or not all(_is_url(found.get(name)) for name in _URLS):
        raise DocumentInvalid(f"{url}: needs http(s) URLs in fixtures: {', '.join(_URLS)}")
    if not isinstance(found.get(_HOST), str):
        raise DocumentInvalid(f"{url}: needs a host name in fixtures: {_HOST}")
    if found.get(_FLAKY) is not None and not _is_url(found[_FLAKY]):
        raise DocumentInvalid(f"{url}: {_FLAKY} is neither null nor an http(s) URL")
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _is_url(value: Any) -> bool:
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    try:
        return urlsplit(value).scheme in ("http", "https") and bool(urlsplit(value).hostname)
    except ValueError:
        return False


def targets(fixtures: Mapping[str, str]) -> list[str]:
    """The URLs that a run of the fixtures is given."""
    scheme = urlsplit(fixtures["robots_allowed_sentinel"]).scheme
    found = [
        fixtures["robots_allowed_sentinel"],
        *_disallowed(fixtures),
        fixtures["walsh_only_allowed"],
        fixtures["external_positive"],
        f"{scheme}://{fixtures[_HOST]}/",
    ]
    return found + ([fixtures[_FLAKY]] if _FLAKY in fixtures else [])


def _disallowed(fixtures: Mapping[str, str]) -> list[str]:
    return [fixtures["robots_disallowed"] + suffix for suffix in _REPRESENTATIONS]


def table(fixtures: Mapping[str, str]) -> dict[str, Judge]:
    """The rows of the fixtures; the last run of the evidence is the one that requested them."""
    blocked = targets(fixtures)[6]
    operator = split(fixtures["robots_allowed_sentinel"])[0]
    refused = _all_refused(_disallowed(fixtures), "R2")
    found: dict[str, Judge] = {
        "R2c canary dogfood-allow fetched": _fetched(fixtures["robots_allowed_sentinel"]),
        "R2 canary dogfood-disallow refused (bare, .html, .md)": refused,
        "R2a canary dogfood-walsh-only fetched": _fetched(fixtures["walsh_only_allowed"]),
        "R2 fixture external_positive fetched": _fetched(fixtures["external_positive"]),
        "R3 fixture operator_blocked_host refused": _all_refused([blocked], "R3"),
        "R4b the operator's host asked at its pace": partial(_paced, operator),
    }
    if _FLAKY in fixtures:
        found["R5 fixture flaky_429_endpoint fetched in the end"] = _fetched(fixtures[_FLAKY])
    return found


def tags(fixtures: Mapping[str, str]) -> dict[str, Judge]:
    """The row for R13 where there is no server's log to judge by."""
    operator = split(fixtures["robots_allowed_sentinel"])[0]
    return {"R13 SHOULD tags by the bot's own account": partial(_tagged, operator)}


def _fetched(url: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        told = seen(evidence.runs[-1].result(url), "the crawl came to no answer")
        status = told.get("status")
        if status in (200, 304):
            return held(f"status={status}")
        if status is None and told.get("requirement") not in ("R2", "R3", "R6", "R8", BY_SETTING):
            return unseen(str(told.get("why")))  # an outage is not a verdict of ours
        return broken(str(told.get("why", f"status={status}")))

    return judge


def _all_refused(urls: list[str], requirement: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        told = [evidence.runs[-1].result(url) for url in urls]
        seen(all(told), "the crawl came to no answer")
        received = [each["url"] for each in evidence.runs[-1].told.get("received", ())]
        asked = [url for url in urls if any(_is_form_of(each, url) for each in received)]
        if asked:
            return broken(f"asked {asked[0]}")
        wrong = [each for each in told if each and each.get("requirement") != requirement]
        if wrong:
            return broken(str(wrong[0].get("why", f"status={wrong[0].get('status')}")))
        first = told[0] or {}
        return held(f"{first['verdict']} by {first['rule']}")

    return judge


def _is_form_of(received: str, url: str) -> bool:
    """Whether *received* is *url*, with R13's tags or without."""
    return received == url or received.startswith((f"{url}?impl=", f"{url}&impl="))


def _tagged(host: str, evidence: Evidence) -> Finding:
    """The operator's URLs were sent with R13's tags; NOT SEEN where no name is known for them."""
    received = [each["url"] for run in evidence.runs for each in run.told.get("received", ())]
    own = [url for url in received if split(url)[0] == host]
    tagged = [url for url in own if "impl=" in url and "spec=" in url]
    seen(tagged, "nothing was tagged; see WALSH_IMPL")
    return held_if(len(tagged) == len(own), f"{len(tagged)}/{len(own)}")


def _paced(host: str, evidence: Evidence) -> Finding:
    """Answers of the operator's host came at least its interval apart, in the last run."""
    run = evidence.runs[-1]
    received = [each for each in run.told.get("received", ()) if split(each["url"])[0] == host]
    seen(len(received) > 1, "its host was not asked twice")
    required = max([1.0, *(run.told["intervals"].get(each["url"], 0.0) for each in received)])
    gap = min(later["at"] - earlier["at"] for earlier, later in pairwise(received))
    return held_if(not is_short(gap, required, THE_WIRE), f"gap={gap:.3f}s, required {required:g}s")


#: What lifts R8 for the fixtures, and stands in the record of their run.
REASON: Final = "a conformance run of the operator's own fixtures"


def run(
    bot: Bot, state: Path | None, impl: str | None, progress: Callable[[str], None]
) -> list[Check]:
    """The checks of the fixtures. *state*: the state directory, so that pacing outlives the run.
    *impl*: ``organisation/repository@commit``, None where it is not known.

    Raises DocumentInvalid when the fixtures document cannot be fetched or used.
    """
    identity = bot.identity
    url = fixtures_url(identity.blocklist_url)
    with tempfile.TemporaryDirectory(prefix="walsh-conformance-") as folder:
        settings: dict[str, Any] = {
            "WALSH_STATE_DIR": "memory" if state is None else str(state.resolve()),
            "WALSH_REVISIT_REASON": REASON,
            "WALSH_IMPL": impl,
        }
        here = Stage(bot, Path(folder, "project"), **settings)
        first = here.probe(url, document=url)
        progress(f"fixtures document: crawl ended with code {first.code}")
        try:
            found = fixtures_of(first, url)
        except DocumentInvalid as error:
            raise DocumentInvalid(f"{error}; see --live in docs/conformance.md") from None
        second = here.probe(" ".join(targets(found)))
        progress(f"fixtures: crawl ended with code {second.code}")
    return in_order(judged(rows_of({**table(found), **tags(found)}), here.evidence()))
