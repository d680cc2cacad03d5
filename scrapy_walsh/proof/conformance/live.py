"""``--live``: requests the operator's real fixtures and canaries, with R13's tags, nothing else.

Two crawls with the identity's own URLs and the project's own state directory. They are judged by
the bot's own account: there is no server's log to look at.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.proof.conformance import crawl, fixtures
from scrapy_walsh.proof.conformance.check import in_order, judged
from scrapy_walsh.proof.conformance.evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.conformance.check import Check
    from scrapy_walsh.proof.conformance.crawl import Bot

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
    url = fixtures.fixtures_url(identity.blocklist_url)
    with tempfile.TemporaryDirectory(prefix="walsh-conformance-") as folder:
        settings = {"WALSH_STATE_DIR": "memory" if state is None else str(state.resolve())}
        told = {"WALSH_REVISIT_REASON": REASON, "WALSH_IMPL": impl}
        project = crawl.live_project(Path(folder, "project"), bot, **settings, **told)
        first = crawl.probe(project, None, [url], document=url)
        progress(f"fixtures document: crawl ended with code {first.code}")
        try:
            found = fixtures.fixtures_of(first, url)
        except DocumentInvalid as error:
            raise DocumentInvalid(f"{error}; see --live in docs/conformance.md") from None
        second = crawl.probe(project, None, fixtures.targets(found))
        progress(f"fixtures: crawl ended with code {second.code}")
    evidence = Evidence(identity.user_agent, identity.token, (first, second), bot.robots_pace)
    rows = [*fixtures.rows(found), fixtures.tags_row(found)]
    return in_order(judged(rows, evidence))
