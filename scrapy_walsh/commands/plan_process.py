"""The process in which ``walsh plan`` runs a crawl: first the virtual clock, then Scrapy."""

from __future__ import annotations

from scrapy_walsh.commands.plan_clock import CLOCK

if __name__ == "__main__":
    # Scrapy and Twisted keep functions of `time`, so the clock stands before they are imported.
    CLOCK.install()
    from scrapy_walsh.commands import own_process, plan_crawl

    own_process.answer(plan_crawl.look)
