"""The account of a crawl's sources: their outcomes, and which of them need a person.

:class:`Account` stores the outcomes as ``Reading`` records, logs the progress of the crawl each
LOGSTATS_INTERVAL, and ends the log with a warning for each source that needs a person, and with the
last line of the run. ``policy.readings`` and ``policy.summary`` decide what these are.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.context import FINISHED
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.exceptions import one_line
from scrapy_walsh.policy import readings, summary
from scrapy_walsh.policy.event import TARGET
from scrapy_walsh.policy.readings import Result
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.visits import is_auto
from scrapy_walsh.state.records import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.policy.visits import Visit

_START_REQUESTS: Final = (
    "Scrapy 2.19 does not call start_requests(), which this spider has: write async def start()"
)
#: The records of so many sources are updated at once: that takes some milliseconds.
_AT_ONCE: Final = 100


class _Ending(NamedTuple):
    """The end of a crawl. ``reason``: Scrapy's close reason. ``is_halted``: it was ended early.

    ``was_done``: earlier runs of the job have requested all sources. ``hints``: the end of the last
    line. ``warns``: it is a warning.
    """

    reason: str
    is_halted: bool
    was_done: bool
    hints: str
    warns: bool


class Account:
    """The outcomes of a crawl's sources: it stores them, and logs which sources need a person."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Whether the spider starts with sources. The pages that a command fetches are no sources.
        self.due = True
        #: The sources that have not ended.
        self.left: dict[str, None] = {}
        #: Whether a source was dropped because an earlier run of the job has requested it.
        self.earlier = False
        #: Sources that have moved for good, each with its new URL.
        self._moves: list[tuple[str, str]] = []
        #: By outcome, how many sources have ended.
        self.counts: Counter[str] = Counter()
        #: By requirement, how many sources were refused.
        self._rules: Counter[str] = Counter()
        #: By requirement, how many other requests of the spider were refused.
        self.links: Counter[str] = Counter()
        #: Sources that have ended and are not stored yet.
        self._unstored: list[tuple[str, Result]] = []
        #: How many of the sources that were read have not changed; None if they are not counted.
        self.unchanged: int | None = None
        #: Writes the last line of the run, a text with a level of the log.
        self.write: Callable[[int, str], object] = logger.log
        #: How many sources need a person. Counted by :meth:`close`.
        self.needy = 0
        #: By key, the records of sources that need a person, are unread, or have moved.
        self._ailing: dict[str, Reading] = {}
        #: The first target that was refused or failed: its URL, the reason and the remedy.
        self._first = ""
        #: Sources that are read again after a warning, as their records were before.
        self._over: list[Reading] = []
        #: Hosts with a robots.txt that is available again.
        self._robots_over: set[str] = set()
        #: Hosts with a robots.txt that was rejected, if a warning must say so.
        self._robots_news: set[str] = set()
        #: Whether warnings at the end name sources.
        self._has_named = False
        #: Whether this run differs from the one before for any source.
        self._has_changed = False
        #: Set by :meth:`close`.
        self._ending: _Ending | None = None
        self._every = context.crawler.settings.getfloat("LOGSTATS_INTERVAL")
        self._timer = compat.Timer(self._say_progress)

    def begin(self) -> None:
        """Log the progress from now on, unless LOGSTATS_INTERVAL is 0.

        A worker of a fleet does not log it, because it does not know what the others have done.
        """
        if self._every and self.due and not self._context.fleet:
            self._timer.set(self._every)

    def _say_progress(self) -> None:
        done = self.counts.total()
        remaining = len(self.left)
        outlooks = [queue.outlook() for queue in self._context.queues]
        due = sum(outlook[0] for outlook in outlooks)
        waiting = sum(outlook[1] for outlook in outlooks)
        # The pace of the sources that have ended, but not faster than the hosts' intervals allow.
        elapsed = self._context.monotonic() - self._context.begun
        estimate = remaining * elapsed / done if done else 0.0
        seconds = max([estimate, *(outlook[2] for outlook in outlooks)])
        end = f"in about {duration(round(seconds))}" if done or seconds else "not known yet"
        hosts = f"hosts: {due} due, {waiting} waiting"
        logger.info("%d sources done, %d left; %s; end %s", done, remaining, hosts, end)
        self._timer.set(self._every)

    def first(self, line: str) -> None:
        """Keep *line*, about a target that was refused or failed, if it is the first."""
        self._first = self._first or one_line(line, 500)

    def add(self, key: str, result: Result, earlier: str | None) -> None:
        """Note the outcome of the source *key*; *earlier*: its outcome before, if any."""
        self.left.pop(key, None)
        self.counts[result.outcome] += 1
        if earlier is not None:
            self.counts[earlier] -= 1
        if result.outcome == readings.REFUSED != earlier:
            self._rules[result.cause.requirement] += 1
        if result.reason:
            self.first(f"{key}: {result.reason}")
        if result.moved_to is not None:
            self._moves.append((key, result.moved_to))
        self._unstored.append((key, result))
        if len(self._unstored) >= _AT_ONCE:
            self._store()

    def _store(self) -> bool:
        """Update the records of ended sources, and note which sources need a person.

        Returns whether there are records. A fleet's worker has none, because it does not see all
        answers. Then only sources that are gone are known to need a person.
        """
        context = self._context
        now = context.wall()
        revisit = context.config.revisit
        has_records = not (context.config.state_dir is None or context.fleet or context.halted)
        unstored = self._unstored
        self._unstored = []
        updates = []
        for key, result in unstored:
            if has_records or result.gone:
                cadence = self.interval_of(key)
                old = self._record_of(key) if has_records else None
                new = readings.updated(old, key, replace(result, revisit=cadence), now)
                updates.append(self._compare(old, new, now))
        if has_records:
            context.remember(lambda: context.store.put(*updates))
        for reading in updates:
            is_unread = readings.is_unread(reading, now, revisit, self.visit_of)
            if is_unread or reading.moved_to or self._needs_person(reading, now):
                self._ailing[reading.url] = reading
            else:
                self._ailing.pop(reading.url, None)
        return has_records

    def _compare(self, old: Reading | None, new: Reading, now: float) -> Reading:
        """Note what a warning must say of *new*, the record of a source after *old*."""
        recorder = self._context.recorder
        host = readings.host_of(new.url)
        new = readings.with_robots(new, recorder.robots.get(host), now)
        if readings.is_over(old, new) and old is not None:
            self._over.append(old)
        if old is not None and old.robots and not new.robots:
            self._robots_over.add(host)
        if new.robots:
            is_told = new.robots_told_at != now
            (recorder.robots_known if is_told else self._robots_news).add(host)
        is_same = old is not None and (old.reason is None, old.cause) == (
            new.reason is None,
            new.cause,
        )
        self._has_changed = self._has_changed or not is_same
        return new

    def interval_of(self, key: str) -> float | None:
        """The own interval of the source *key*, seconds; None for WALSH_REVISIT."""
        cadence = self._context.scope.cadence(key)
        if not is_auto(cadence, auto=self._context.config.auto_revisit):
            return cadence
        visit = self.visit_of(key)
        return None if visit is None else visit.revisit

    def _record_of(self, key: str) -> Reading | None:
        return self._context.recall(lambda: self._context.store.get(Reading, key))

    def visit_of(self, key: str) -> Visit | None:
        """The record of the visits of the source *key* (``VisitOf``)."""
        return self._context.recall(lambda: self._context.store.visit_of(key))

    def _needs_person(self, reading: Reading, now: float) -> bool:
        return bool(summary.attention(reading, now, self._context.config.revisit, self.visit_of))

    def close(self, reason: str) -> None:
        """Store the outcomes, and name the sources that need a person.

        *reason*: Scrapy's close reason.
        """
        self._timer.cancel()
        if not self.due:
            return
        context = self._context
        counts = self.counts
        if not context.fleet:
            counts[readings.NOT_REQUESTED] += len(self.left)
        self._unstored += [(key, Result()) for key in self.left]
        has_records = self._store()
        context.recorder.robots_known -= self._robots_news
        self._doubt_moves()
        self.needy = self._name(has_records=has_records)
        if self.needy and context.config.exit_attention:
            compat.fail_command()
        was_done = self.earlier and not counts.total()
        in_vain = not (counts[readings.READ] or context.fleet or was_done)
        is_halted = context.halted is not None
        # Requests may come in another way, for example from Redis to a RedisSpider.
        has_requests = context.recorder.sent[(TARGET,)] or self.links
        is_misspelt = not has_requests and compat.skips_start_requests(context.crawler.spidercls)
        hints = ""
        if in_vain and self._first:
            hints += f"; the first: {self._first}"
        if is_misspelt:
            hints += f"; {_START_REQUESTS}"
        is_news = self._has_changed or not has_records
        warns = self._has_named or (in_vain and is_news) or is_misspelt or bool(self.links["R6"])
        self._ending = _Ending(reason, is_halted, was_done, hints, warns)

    def _doubt_moves(self) -> None:
        """Ignore the move of a source if one of another host moved to the same URL in this run."""
        shared = readings.moved_together(self._moves)
        now = self._context.wall()
        doubtful = [reading for reading in self._ailing.values() if reading.moved_to in shared]
        for reading in doubtful:
            corrected = replace(reading, moved_to=None)
            self._context.remember(partial(self._context.store.put, corrected))
            if self._needs_person(corrected, now):
                self._ailing[reading.url] = corrected
            else:
                del self._ailing[reading.url]

    def _name(self, *, has_records: bool) -> int:
        """Log the sources that need a person, if a warning is due. Returns how many need one.

        *has_records*: the time of the warning is stored, too.
        """
        context = self._context
        now = context.wall()
        revisit = context.config.revisit
        ailing = self._ailing.values()
        needy = [reading for reading in ailing if self._needs_person(reading, now)]
        overdue = [row for row in needy if readings.is_due_again(row.told_at, now)]
        lines = summary.attention_lines(overdue, now, revisit, self.visit_of)
        read_hosts = {readings.host_of(row.url) for row in self._over}
        lines += summary.over_lines(self._over, self._robots_over - read_hosts)
        for line in lines:
            logger.warning("%s", line)
        self._has_named = bool(lines) or (bool(needy) and not has_records)
        if has_records:
            unread = [row for row in ailing if readings.is_unread(row, now, revisit, self.visit_of)]
            moved = [row for row in ailing if row.moved_to is not None]
            context.recorder.set("unread", len(unread))
            context.recorder.set("moved", len(moved))
            updates = [replace(reading, told_at=now) for reading in overdue]
            context.remember(lambda: context.store.put(*updates))
        return len(needy)

    def say(self) -> None:
        """Log the last line of the run. Called after everything that Scrapy logs."""
        ending = self._ending
        if ending is None:
            return
        recorder = self._context.recorder
        reason = ending.reason
        # An error after the spider was closed counts, too, for example if a feed is not stored.
        if recorder.own_faults and reason == FINISHED:
            reason = summary.NOT_WELL
        line = summary.last_line(
            self.counts,
            self.needy,
            reason,
            self._rules,
            self.links,
            halted=ending.is_halted,
            unstored=recorder.unstored,
            was_done=ending.was_done,
            unchanged=self.unchanged,
        )
        level = logging.WARNING if ending.warns else logging.INFO
        line += ending.hints
        self.write(level, line)
