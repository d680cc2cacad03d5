"""``--live``: requests the operator's real fixtures and canaries, with R13's tags, nothing else.

Two crawls with the identity's own URLs and the project's own state directory. They are judged by
the bot's own account: there is no server's log to look at.
"""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.verdict import BY_SETTING
from scrapy_walsh.proof.conformance.check import in_order, judged, rows_of
from scrapy_walsh.proof.conformance.crawl import Stage
from scrapy_walsh.proof.conformance.evidence import (
    Evidence,
    refused,
    seen,
    spaced,
    split,
)
from scrapy_walsh.proof.findings import Finding, broken, held, held_if, unseen

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.conformance.check import Check
    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.conformance.evidence import Judge, Run

# The operator's fixtures and canaries (spec sections 13 and 16), judged by the bot's own account.
# The sandbox's scene of the operator has the same rows.

_REPRESENTATIONS: Final = ("", ".html", ".md")
#: Where an operator's fixtures document is: beside the blocklist.
_DOCUMENT: Final = "test-fixtures.json"

#: An http or https URL with a host, and no blank: the targets of a run are given by spaces.
_Url: TypeAlias = Annotated[str, Meta(pattern=r"^https?://[^\s/?#\[\]]+\S*$")]


class Fixtures(Struct):
    """The URLs that an operator's document of fixtures names (spec section 13)."""

    robots_allowed_sentinel: _Url
    robots_disallowed: _Url
    walsh_only_allowed: _Url
    external_positive: _Url
    operator_blocked_host: Annotated[str, Meta(pattern=r"^[^\s/?#\[\]]+$")]
    flaky_429_endpoint: _Url | None = None


class _Document(Struct):
    contract: Annotated[str, Meta(pattern=r"^walsh-research-test-fixtures/v1(\.\d+)?$")]
    fixtures: Fixtures


def fixtures_of(run: Run, url: str) -> Fixtures:
    """The fixtures, from the account of the run that requested *url*.

    Raises DocumentInvalid, in one line, when they cannot be used.
    """
    result = (run.results(url) or [{"why": "the crawl came to no answer"}])[0]
    if result.get("status") != 200:
        raise DocumentInvalid(f"{url}: not fetched: {result.get('why', result.get('status'))}")
    try:
        return msgspec.json.decode(result.get("document", ""), type=_Document).fixtures
    except msgspec.DecodeError as error:
        raise DocumentInvalid(f"{url}: not a walsh-research-test-fixtures/v1: {error}") from None


def targets(fixtures: Fixtures) -> list[str]:
    """The URLs that a run of the fixtures is given."""
    urls = [
        fixtures.robots_allowed_sentinel,
        *_disallowed(fixtures),
        fixtures.walsh_only_allowed,
        fixtures.external_positive,
        _blocked(fixtures),
        fixtures.flaky_429_endpoint,
    ]
    return [url for url in urls if url is not None]


def _disallowed(fixtures: Fixtures) -> list[str]:
    """The URLs of the page that no bot of this name may request."""
    return [fixtures.robots_disallowed + suffix for suffix in _REPRESENTATIONS]


def _blocked(fixtures: Fixtures) -> str:
    scheme = urlsplit(fixtures.robots_allowed_sentinel).scheme
    return f"{scheme}://{fixtures.operator_blocked_host}/"


def table(fixtures: Fixtures) -> dict[str, Judge]:
    """The rows of the fixtures, which the first run of the evidence requested."""
    rows: dict[str, Judge] = {
        "R2c canary dogfood-allow fetched": _fetched(fixtures.robots_allowed_sentinel),
        "R2 canary dogfood-disallow refused (bare, .html, .md)": refused(
            " ".join(_disallowed(fixtures)), "R2"
        ),
        "R2a canary dogfood-walsh-only fetched": _fetched(fixtures.walsh_only_allowed),
        "R2 fixture external_positive fetched": _fetched(fixtures.external_positive),
        "R3 fixture operator_blocked_host refused": refused(_blocked(fixtures), "R3"),
        "R4b the operator's host asked at its pace": partial(_paced, _operator(fixtures)),
    }
    if (flaky := fixtures.flaky_429_endpoint) is not None:
        rows["R5 fixture flaky_429_endpoint fetched in the end"] = _fetched(flaky)
    return rows


def _operator(fixtures: Fixtures) -> str:
    return split(fixtures.robots_allowed_sentinel)[0]


def _fetched(url: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        result = evidence.first.result(url)
        reason = str(result.get("why", f"status={result.get('status')}"))
        status = result.get("status")
        if status in (200, 304):
            return held(f"status={status}")
        if status is None and result.get("requirement") not in (
            "R2",
            "R3",
            "R6",
            "R8",
            BY_SETTING,
        ):
            return unseen(reason)  # an outage is not a verdict of ours
        return broken(reason)

    return judge


def _received(run: Run, host: str) -> list[dict[str, Any]]:
    """The answers of *host* by the bot's account: URL and monotonic seconds of each."""
    return [
        response for response in run.told.get("received", ()) if split(response["url"])[0] == host
    ]


def _tagged(host: str, evidence: Evidence) -> Finding:
    """The operator's URLs were sent with R13's tags; NOT SEEN if the bot has no name for them."""
    urls = [response["url"] for response in _received(evidence.first, host)]
    tagged = [url for url in urls if "impl=" in url and "spec=" in url]
    seen(tagged, "nothing was tagged; see WALSH_IMPL")
    return held_if(len(tagged) == len(urls), f"{len(tagged)}/{len(urls)}")


def _paced(host: str, evidence: Evidence) -> Finding:
    """Answers of the operator's host came at least its interval apart."""
    run = evidence.first
    received = _received(run, host)
    required = max(
        [
            1.0,
            *(run.told["intervals"].get(response["url"], 0.0) for response in received),
        ]
    )
    return spaced(
        [later["at"] - earlier["at"] for earlier, later in pairwise(received)],
        required,
    )


#: The reason that lifts R8 for the fixtures. It stands in the record of their run.
REASON: Final = "a conformance run of the operator's own fixtures"


def run(
    bot: Bot,
    state: Path | None,
    impl: str | None,
    progress: Callable[[str], None],
) -> list[Check]:
    """The checks of the fixtures. *state*: the state directory, so that pacing outlives the run.
    *impl*: ``organisation/repository@commit``, None if it is not known.

    Raises DocumentInvalid when the fixtures document cannot be fetched or used.
    """
    identity = bot.identity
    url = f"{identity.blocklist_url.rpartition('/')[0]}/{_DOCUMENT}"
    with tempfile.TemporaryDirectory(prefix="walsh-conformance-") as folder:
        settings: dict[str, Any] = {
            "WALSH_STATE_DIR": "memory" if state is None else str(state.resolve()),
            "WALSH_REVISIT_REASON": REASON,
            "WALSH_IMPL": impl,
        }
        here = Stage(bot, Path(folder, "project"), **settings)
        run_of_document = here.probe(url, document=url)
        progress(f"fixtures document: crawl ended with code {run_of_document.code}")
        fixtures = fixtures_of(run_of_document, url)
        second = here.probe(" ".join(targets(fixtures)))
        progress(f"fixtures: crawl ended with code {second.code}")
    tagged = {"R13 SHOULD tags by the bot's own account": partial(_tagged, _operator(fixtures))}
    evidence = Evidence(identity.user_agent, [second])
    return in_order(judged(rows_of({**table(fixtures), **tagged}), evidence))
