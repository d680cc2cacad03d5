"""Monitors for spidermon over the stats of a crawl (docs/reference.md, docs/compatibility.md).

To use them, add this setting:

    SPIDERMON_ENGINE_STOP_MONITORS = ("scrapy_walsh.monitors.WalshMonitorSuite",)

They run when the engine stops, because some stats do not exist when the spider closes. To import
this module, install spidermon; our package does not.

No monitor fails because of a refused page: gates are meant to refuse.
"""

from __future__ import annotations

from spidermon import Monitor, MonitorSuite, monitors


class WalshMonitor(Monitor):  # type: ignore[misc]  # spidermon publishes no types
    """Fails if a person should look at the crawl."""

    def _assert_none(self, stat: str, explanation: str) -> None:
        count = self.data.stats.get(stat, 0)
        assert not count, f"{stat} is {count}: {explanation}"  # noqa: S101  how a monitor fails

    @monitors.name("The stats are complete")  # type: ignore[untyped-decorator]
    def test_stats_are_complete(self) -> None:
        """The suite runs at the engine's stop, when all stats exist."""
        complete = "walsh/robots/cached" in self.data.stats
        assert complete, "name this suite in SPIDERMON_ENGINE_STOP_MONITORS"  # noqa: S101

    @monitors.name("The crawl was not refused")  # type: ignore[untyped-decorator]
    def test_crawl_was_not_refused(self) -> None:
        """Its installation is complete, and no other job with its state overlaps it."""
        is_refused = self.data.stats.get("finish_reason") == "walsh_refused"
        assert not is_refused, "the crawl was refused: see the log's CRITICAL line"  # noqa: S101

    @monitors.name("No request was given up")  # type: ignore[untyped-decorator]
    def test_no_request_was_given_up(self) -> None:
        """Each request succeeded within its retries (R5)."""
        self._assert_none("walsh/given_up", "their hosts answer with errors, or not at all (R5)")

    @monitors.name("Every source is read")  # type: ignore[untyped-decorator]
    def test_every_source_is_read(self) -> None:
        """No declared source has been without an answer for three of its periods."""
        self._assert_none("walsh/unread", "sources not read for long: the log names them")

    @monitors.name("No source has moved")  # type: ignore[untyped-decorator]
    def test_no_source_has_moved(self) -> None:
        """No declared source redirects for good."""
        self._assert_none("walsh/moved", "write their new addresses into the sources")

    @monitors.name("No entry of a fleet's queue was set aside")  # type: ignore[untyped-decorator]
    def test_nothing_was_set_aside(self) -> None:
        """All entries of the shared queue were readable."""
        self._assert_none("walsh/fleet/set_aside", "entries of the queue that cannot be used")


class WalshMonitorSuite(MonitorSuite):  # type: ignore[misc]
    """The suite for ``SPIDERMON_ENGINE_STOP_MONITORS``."""

    monitors = [WalshMonitor]  # noqa: RUF012  spidermon's own form
