"""Says how far a crawl is: a line in the log each LOGSTATS_INTERVAL, beside Scrapy's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.policy.times import duration

if TYPE_CHECKING:
    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.sources import Account


class Progress:
    """The lines of one crawl, from :meth:`start` to :meth:`stop`.

    None in a fleet: no worker knows what the others have done. None where the crawl has no sources.
    """

    def __init__(self, context: Context, account: Account) -> None:
        self._context = context
        self._account = account
        self._every = context.crawler.settings.getfloat("LOGSTATS_INTERVAL")
        self._begun = context.monotonic()
        self._timer = compat.Timer(self._say)

    def start(self) -> None:
        """Say it from now on, unless Scrapy is to say nothing either (0)."""
        if self._every and self._account.due and not self._context.fleet:
            self._timer.set(self._every)

    def stop(self) -> None:
        """Say it no more."""
        self._timer.cancel()

    def _say(self) -> None:
        done, left = self._account.counts.total(), len(self._account.left)
        looks = [queue.outlook() for queue in self._context.queues]
        due, waiting = sum(look[0] for look in looks), sum(look[1] for look in looks)
        # At the pace of the sources that have ended; at the least what intervals of hosts allow.
        elapsed = self._context.monotonic() - self._begun
        seconds = max([left * elapsed / done if done else 0.0, *(look[2] for look in looks)])
        end = f"in about {duration(round(seconds))}" if done or seconds else "not known yet"
        logger.info(
            "%d sources done, %d left; hosts: %d due, %d waiting; end %s",
            done,
            left,
            due,
            waiting,
            end,
        )
        self._timer.set(self._every)
