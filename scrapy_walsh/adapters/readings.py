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
from scrapy_walsh.policy.readings import DEFERRED, FAILED, NOT_DUE, READ, REFUSED, Heard
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


class Readings:
    """The sources of one crawl."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heard: dict[str, Heard] = {}
        #: What came of the URLs that redirects led to.
        self._reached: dict[str, Heard] = {}
        #: By source, the URL that it redirects to and another source leads to as well.
        self._joined: dict[str, str] = {}
        #: Whether the spider itself reports what was read, by :meth:`report`.
        self.by_spider = False
        #: The first target that was refused or deferred: why, and what to do.
        self._first_refusal = ""
        #: The line that ends the run, and its level.
        self._last_line = (logging.INFO, "")
        connect = context.crawler.signals.connect
        connect(self._dropped, signals.request_dropped)
        connect(self._end, signals.engine_stopped)

    # -- during the run -------------------------------------------------------------------

    def declare(self, request: Request) -> None:
        """Note from now on what becomes of *request*, which ``Spider.start`` yielded: a source."""
        source = _key(request.url)
        request.meta[_SOURCE] = source
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
            self._hear(source, outcome, reason, moved_to)
            if _redirected(request):
                self._reached[_key(request.url)] = self._heard[source]
        elif moved_to is not None:
            self._heard[source] = Heard(moved_to=moved_to)

    def _hear(self, source: str, outcome: str, reason: str, moved_to: str | None) -> None:
        why = sys.intern(readings.one_line(reason))  # of many sources alike, it is kept once
        heard = Heard(outcome, why, self._context.wall(), moved_to)
        self._heard[source] = readings.later(self._heard.get(source), heard)

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

        *reason*: why the spider was closed, as Scrapy says it. A fleet's workers only count, since
        none of them sees all the answers to a source.
        """
        context = self._context
        if context.fleet:
            self._heard = {url: heard for url, heard in self._heard.items() if heard != _UNHEARD}
        for source, url in self._joined.items():
            found = self._reached.get(url) or self._heard.get(url)
            if found is not None and self._heard.get(source) == _UNHEARD:
                self._heard[source] = found
        needy = 0
        if context.config.state_dir is not None and context.halted is None and not context.fleet:
            now = context.wall()
            needy = self._name(self._updated(now), now)
        if needy and context.config.exit_attention:
            compat.fail_command()
        counts = Counter(heard.outcome for heard in self._heard.values())
        in_vain = bool(counts) and not counts[READ] and not context.fleet
        level = logging.WARNING if needy or in_vain else logging.INFO
        line = readings.last_line(counts, needy, reason)
        first = self._first_refusal or self._first_failure()
        if in_vain and first:
            line = f"{line}; the first: {first}"
        self._last_line = (level, line)

    def _first_failure(self) -> str:
        told = (f"{url}: {heard.reason}" for url, heard in self._heard.items() if heard.reason)
        return next(told, "")

    def _updated(self, now: float) -> list[Reading]:
        """Update the records of this run's sources, and return them. *now*: Unix seconds."""
        context = self._context

        def update(url: str, heard: Heard) -> Reading:
            old = context.recall(lambda: context.store.get(Reading, url))
            return readings.updated(old, url, heard, now)

        found = [update(url, heard) for url, heard in self._heard.items()]
        context.remember(lambda: context.store.put(*found))
        return found

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
