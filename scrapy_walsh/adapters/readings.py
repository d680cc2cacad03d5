"""Notes whether each declared source was read, and logs at the end which ones need a person.

A source is a request of ``Spider.start``, known by its URL. It counts as read when an answer of 2xx
reaches the spider, or a 304 says that nothing is new. A spider that knows better what "read" means
reports it itself (``report``), and sets ``by_spider``. ``policy.readings`` decides what follows.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from scrapy import Request, signals

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import GaveUp, Refused
from scrapy_walsh.policy import readings
from scrapy_walsh.policy.readings import (
    DEFERRED,
    FAILED,
    NOT_DUE,
    READ,
    REFUSED,
    UNANSWERED,
    Heard,
)
from scrapy_walsh.policy.scope import Digests
from scrapy_walsh.policy.verdict import DEFERRED as DEFERRED_VERDICT
from scrapy_walsh.policy.verdict import NOT_DUE as NOT_DUE_VERDICT
from scrapy_walsh.policy.verdict import REMEDIES
from scrapy_walsh.state.records import Reading

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_walsh.adapters.context import Context

#: The key of ``Request.meta`` for the source whose request it is; retries and redirects keep it.
_SOURCE: Final = "walsh_reads"
_BY_VERDICT: Final = {NOT_DUE_VERDICT: NOT_DUE, DEFERRED_VERDICT: DEFERRED}
_PERMANENT: Final = (301, 308)
_UNHEARD: Final = Heard()
#: The records of so many sources are updated at once: that takes some milliseconds.
_AT_ONCE: Final = 100


class Readings:
    """The sources of one crawl."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: The sources that were declared and have not ended, and what is known of them.
        self._heard: dict[str, Heard] = {}
        #: Those that have: their outcomes, as places in ``readings.OUTCOMES``.
        self._ended = Digests()
        self._counts: Counter[str] = Counter()
        #: Those of them whose records are not stored yet, with what was heard.
        self._unstored: list[tuple[str, Heard]] = []
        #: By URL, the records of sources that need a person.
        self._needy: dict[str, Reading] = {}
        #: What came of the URLs that redirects led to.
        self._reached: dict[str, Heard] = {}
        #: By source, the URL that it redirects to and another source leads to as well.
        self._joined: dict[str, str] = {}
        #: Whether the spider itself reports what was read, by :meth:`report`.
        self.by_spider = False
        #: Whether the spider starts with sources. The pages that a command fetches are none.
        self.sources = True
        #: The first target that was refused or deferred: why, and what to do. The first failure.
        self._first_refusal = ""
        self._first_failure = ""
        #: The line that ends the run, and its level.
        self._last_line = (logging.INFO, "")
        connect = context.crawler.signals.connect
        connect(self._dropped, signals.request_dropped)
        connect(self._end, signals.engine_stopped)

    # -- during the run -------------------------------------------------------------------

    def declare(self, request: Request) -> None:
        """Note from now on what becomes of *request*, which ``Spider.start`` yielded: a source."""
        if not self.sources:
            return
        source = _key(request.url)
        request.meta[_SOURCE] = source
        if source not in self._ended:
            self._heard.setdefault(source, _UNHEARD)

    def answered(self, response: Response) -> None:
        """Note an answer that reaches the spider."""
        request = response.request
        if request is None:
            return
        if 200 <= response.status < 300:
            self.unchanged(request)
        else:
            where = f" from {request.url}" if _redirected(request) else ""
            self._note(request, FAILED, f"HTTP {response.status}{where}")

    def unchanged(self, request: Request) -> None:
        """Note that the source of *request* was read, or has not changed."""
        self._note(request, READ)

    def ended(self, request: Request, error: Exception) -> None:
        """Note that *request* ended in *error*, and no answer reaches the spider."""
        if isinstance(error, Refused):
            otherwise = REFUSED if error.due is None else DEFERRED
            outcome = _BY_VERDICT.get(error.verdict.name, otherwise)
            why = readings.refusal_line(error.verdict)
            if not self._first_refusal:
                remedy = REMEDIES.get((error.verdict.requirement, error.verdict.name), "")
                told = f"{request.url}: {why}{f'; {remedy}' if remedy else ''}"
                self._first_refusal = readings.one_line(told)
            self._note(request, outcome, why)
        elif isinstance(error, GaveUp):
            self._note(request, FAILED, f"R5: {error.reason}")
        else:
            self._note(request, FAILED, f"{type(error).__name__}: {error}")

    def report(self, url: str, outcome: str, reason: str = "") -> None:
        """Called by a spider: note what became of the source *url*; arguments as in ``Heard``."""
        source = _key(Request(url).url)
        moved_to = self._heard.get(source, _UNHEARD).moved_to
        self._hear(source, outcome, reason, moved_to)

    def _note(self, request: Request, outcome: str, reason: str = "") -> None:
        source = request.meta.get(_SOURCE)
        if source is None:
            return
        moved_to = moved_for_good(request) if outcome == READ else None
        if not self.by_spider:
            heard = self._hear(source, outcome, reason, moved_to)
            if _redirected(request):
                self._reached[_key(request.url)] = heard
        elif moved_to is not None:
            self._heard[source] = Heard(moved_to=moved_to)

    def _hear(self, source: str, outcome: str, reason: str, moved_to: str | None) -> Heard:
        why = sys.intern(readings.one_line(reason))  # of many sources alike, it is kept once
        heard = Heard(outcome, why, self._context.wall(), moved_to)
        known = self._outcome_of(source)
        if known is not None and readings.later(known, heard) is known:
            return known
        self._heard.pop(source, None)
        self._ended.add(source, readings.OUTCOMES.index(outcome))
        self._counts[outcome] += 1
        if known is not None:
            self._counts[known.outcome] -= 1
        if why and not self._first_failure:
            self._first_failure = f"{source}: {why}"
        self._unstored.append((source, heard))
        if len(self._unstored) >= _AT_ONCE:
            self._store()
        return heard

    def _outcome_of(self, source: str) -> Heard | None:
        """What became of *source*, as far as it is kept; None where it has not ended."""
        mark = self._ended.mark(source)
        return None if mark is None else Heard(readings.OUTCOMES[mark], at=self._context.wall())

    def _store(self) -> None:
        """Update the records of sources that have ended, where this crawl has records of them."""
        unstored, self._unstored = self._unstored, []
        if self._stores():
            self._update(unstored, self._context.wall())

    def _stores(self) -> bool:
        """Whether this crawl has records. Of a fleet's workers none sees all that is answered."""
        context = self._context
        return context.config.state_dir is not None and not context.fleet and not context.halted

    def _dropped(self, request: Request) -> None:
        """Leave out a source that Scrapy's filter dropped: a duplicate, or known from a JOBDIR.

        Where a redirect of the source was dropped, what it leads to had been requested before: the
        source is read if that is.
        """
        source = request.meta.get(_SOURCE)
        if source is not None and _redirected(request):
            self._joined[source] = _key(request.url)
        elif source is not None and self._heard.get(source) == _UNHEARD:
            del self._heard[source]

    # -- at its end -----------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Store what was read, and name the sources that need a person.

        *reason*: why the spider was closed, as Scrapy says it.
        """
        if not self.sources:
            return
        context = self._context
        for source, url in self._joined.items():
            found = self._reached.get(url) or self._outcome_of(url)
            if found is not None and self._heard.get(source) == _UNHEARD:
                self._hear(source, found.outcome, found.reason or f"see {url}", found.moved_to)
        needy = 0
        self._store()
        counts = self._counts
        if not context.fleet:
            counts[UNANSWERED] += len(self._heard)
        if self._stores():
            now = context.wall()
            self._update(list(self._heard.items()), now)
            needy = self._name(list(self._needy.values()), now)
        if needy and context.config.exit_attention:
            compat.fail_command()
        in_vain = bool(counts.total()) and not counts[READ] and not context.fleet
        level = logging.WARNING if needy or in_vain else logging.INFO
        line = readings.last_line(counts, needy, reason)
        first = self._first_refusal or self._first_failure
        if in_vain and first:
            line = f"{line}; the first: {first}"
        self._last_line = (level, line)

    def _update(self, sources: list[tuple[str, Heard]], now: float) -> None:
        """Update the records of *sources*, and note which need a person. *now*: Unix seconds."""
        context = self._context

        def update(url: str, heard: Heard) -> Reading:
            old = context.recall(lambda: context.store.get(Reading, url))
            return readings.updated(old, url, heard, now)

        found = [update(url, heard) for url, heard in sources]
        context.remember(lambda: context.store.put(*found))
        for each in found:
            if each.moved_to is not None or readings.is_unread(each, now, context.config.revisit):
                self._needy[each.url] = each
            else:
                self._needy.pop(each.url, None)

    def _name(self, found: list[Reading], now: float) -> int:
        """Log the sources in *found* that need a person, and return their number."""
        context, revisit = self._context, self._context.config.revisit
        unread = [each for each in found if readings.is_unread(each, now, revisit)]
        moved = [each for each in found if each.moved_to is not None]
        context.recorder.set("unread", len(unread))
        context.recorder.set("moved", len(moved))
        for line in readings.unread_lines(unread, now, revisit) + readings.moved_lines(moved):
            logger.warning("%s", line)
        return len({each.url for each in (*unread, *moved)})

    def _end(self) -> None:
        """Log the last line of the run, after everything that Scrapy logs."""
        level, line = self._last_line
        if line:
            logger.log(level, "%s", line)


def moved_for_good(request: Request) -> str | None:
    """The URL of *request*, if permanent redirects (301, 308), and no others, led to it."""
    hops = request.meta.get("redirect_reasons", [])
    return request.url if hops and all(hop in _PERMANENT for hop in hops) else None


def _redirected(request: Request) -> bool:
    return bool(request.meta.get("redirect_urls"))


def _key(url: str) -> str:
    return url.partition("#")[0]
