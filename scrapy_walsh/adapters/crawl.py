"""Creates and connects the parts of a crawl, and handles its beginning and end.

``Crawl.of(crawler)`` creates it at first use by any component. It closes with the spider. It
decides nothing: ``gate`` passes requests on, ``pacing`` spaces hosts, and ``documents`` fetches
documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request, signals

from scrapy_walsh.adapters import compat, disk_lines, scraping, seats
from scrapy_walsh.adapters.context import FINISHED, Context, default_state_dir
from scrapy_walsh.adapters.delivery import Delivery
from scrapy_walsh.adapters.documents import validate
from scrapy_walsh.adapters.documents.fetcher import Fetcher
from scrapy_walsh.adapters.events import process_name
from scrapy_walsh.adapters.gate import Documents, Gate
from scrapy_walsh.adapters.intake import Intake
from scrapy_walsh.adapters.lease import Lease
from scrapy_walsh.adapters.sources import Sources
from scrapy_walsh.adapters.ticket import Retries, Tickets
from scrapy_walsh.adapters.wire.pacing import TURNSTILE, Pacing
from scrapy_walsh.adapters.wire.tags import Tags
from scrapy_walsh.config import SETTINGS, WalshConfig
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy.backoff import silent_attempts
from scrapy_walsh.policy.event import LIFTED
from scrapy_walsh.policy.readings import NOT_REQUESTED, READ
from scrapy_walsh.policy.summary import NOT_WELL
from scrapy_walsh.policy.throttle import LONGEST
from scrapy_walsh.policy.verdict import NOT_DUE
from scrapy_walsh.spec import SPEC_VERSION, __version__
from scrapy_walsh.state.forms import FORM

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_walsh.adapters.wire.signing import Signer

_ATTRIBUTE: Final = "walsh"
#: Scrapy's commands for looking at pages (D46), and the command for typing requests.
_LOOKS: Final = ("fetch", "parse", "check", "shell", "view")
_SHELL: Final = "shell"

#: Seconds after SIGTERM in which what is under way may still end. ``docker stop`` kills after ten,
#: and the end of a crawl takes some of them.
_LAST_SECONDS: Final = 5.0
#: Seconds between looks at what has begun since then: an answer that came late is still read.
_LAST_LOOKS: Final = 0.5

compat.watch_selectors(scraping.look)


class Crawl(Context):
    """One crawl. Each part gets only the other parts that it needs."""

    @classmethod
    def of(cls, crawler: Crawler) -> Crawl:
        """Return the crawl of *crawler*. Raises ConfigError or StateError at its creation."""
        crawl: Crawl | None = getattr(crawler, _ATTRIBUTE, None)
        if crawl is None:
            seats.check(crawler)
            try:
                crawl = cls(crawler)
            except WalshError as error:
                compat.refuse_start(error)
            setattr(crawler, _ATTRIBUTE, crawl)
        return crawl

    def __init__(self, crawler: Crawler) -> None:
        #: The file of the JOBDIR, locked for this process.
        self.job = disk_lines.open_job(crawler.settings)
        config = WalshConfig.from_settings(crawler.settings, default_state_dir)
        self.signer: Signer | None = None
        if config.signing_key is not None:
            from scrapy_walsh.adapters.wire.signing import signer_of  # noqa: PLC0415  an extra

            self.signer = signer_of(config)
        super().__init__(crawler, config)
        self._lease = Lease.of_process(self.config, self.wall)
        #: Scrapy's finish reason.
        self._reason = ""
        #: Called with each request just before it is sent.
        self.on_wire: list[Callable[[Request], None]] = []
        #: Breaks off the exchange that is under way.
        self.break_off: Callable[[], None] = _nothing
        self._last_call = compat.Timer(self._break_off)
        self.pacing = Pacing(self)
        self.tickets = Tickets(self.pacing.host_of)
        if not config.scraping:
            self.tickets.refuses_pages = config.is_walsh_research
        self.fetcher = Fetcher(self, self.tickets)
        self.sources = Sources(self, self.pacing)
        self.delivery = Delivery(self)
        self.recorder.known = self.sources.knows
        self.documents = Documents(self, self.fetcher, self.pacing, self.sources)
        self.retries = Retries(self)
        #: Adds tags to requests, if they should have tags (R13).
        self.tags: Tags | None = None
        self.intake = Intake(self, self.tickets, self.sources)
        self.gate = Gate(
            self,
            self.tickets,
            self.intake,
            self.pacing,
            self.documents,
            self.sources,
            self.delivery,
            self.retries,
        )
        connect = crawler.signals.connect
        connect(self._on_opened, signals.spider_opened)
        connect(self.idle, signals.spider_idle)
        connect(self._on_closed, signals.spider_closed)
        connect(self._on_feeds_closed, signals.feed_exporter_closed)
        connect(self._on_stopped, signals.engine_stopped)
        TURNSTILE.join(self)
        compat.ON_FAILURE.append(self.fail)

    def _on_opened(self) -> None:
        try:
            self._open()
        except Exception as error:  # the signal would drop it, and the crawl would go on unchecked
            self.fail(error)

    def _open(self) -> None:
        compat.on_crawl(self.crawler, self.tickets.take_back)
        compat.on_filter(self.crawler, self.intake.is_duplicate)
        compat.on_shutdown(self.crawler, lambda: self._last_call.set(_LAST_SECONDS))
        compat.on_too_long(self.crawler, self.sources.too_long)
        self.pacing.pulse.beat()
        self.sources.begin()
        self.remember(lambda: self.store.prune(min(self.wall(), self.steady())))
        self.recall(self._note_lifted)
        self.say_lost(self.store)
        self.store.let_wait(self._write_soon)
        self.recorder.soon = self._write_soon
        if not any(isinstance(addon, seats.Addon) for addon in self.crawler.addons.addons):
            seats.tell_plugins(self.crawler.settings)  # otherwise the add-on has done that
        command = _SHELL if compat.is_shell(self.crawler) else compat.command()
        self.look = command if command in _LOOKS else None
        shell = self.look == _SHELL
        if self.look is not None:  # a reason to send a page again (spec section 1.1)
            self.gates = replace(self.gates, revisit_reason=f"opened with scrapy {self.look}")
            self.sources.account.due = False  # a page that a person looks at is no source
        if shell:
            # A typed request is declared. If a person looks at a page, that is no scraping (R9).
            self.scope.follow_links = self.scope.typed = True
            self.scope.growing = False
            self.tickets.refuses_pages = None
        # If a page cannot be shown, stderr gets the reason. `check` reports failures itself.
        self.gate.looks = self.look is not None and self.look != "check"
        if shell or self.config.tag_requests:
            self.tags = Tags(self, self.documents.rules_of, shell=shell)
        self.recorder.note("started", **self._terms())
        problems = seats.not_made(self.crawler, self.config)
        if problems:
            self.halt(seats.incomplete(problems))
        elif self._lease is not None and (overlap := self._lease.take()) is not None:
            self.halt(overlap)

    def _note_lifted(self) -> None:
        """Record holds that a person has lifted on another machine of the fleet (D40)."""
        for host, reason in self.store.lifted_elsewhere():
            if self.recorder.ledger is not None:
                self.recorder.ledger.write("", {"kind": LIFTED, "host": host, "reason": reason})

    def _break_off(self) -> None:
        """End what is under way: the sender of the signal will soon kill this process."""
        self.break_off()
        validate.stop_children()
        self._last_call.set(_LAST_LOOKS)

    def _on_closed(self, reason: str) -> None:
        steps = (
            self._last_call.cancel,
            *self.stops,
            self.documents.operator.close,
            self.pacing.pulse.timer.cancel,
            lambda: TURNSTILE.leave_for_good(self),
            lambda: compat.ON_FAILURE.remove(self.fail),
            self.documents.robots_txt.count,
            self.recorder.rates,
            self.intake.close,
            self.sources.close,
            self.delivery.close,
            lambda: self.sources.account.close(reason),
            self.recorder.tell_alike,
            lambda: self.say_lost(self.store),
            lambda: self._note_end(reason),
            self.recorder.close,
            self.close_store,
            *([] if self._lease is None else [self._lease.give_back]),
        )
        self._reason = reason
        self._run_steps(*steps)

    def _run_steps(self, *steps: Callable[[], object]) -> None:
        """Run the last *steps*. If one fails, the others run nevertheless."""
        for step in steps:
            try:
                step()
            except Exception as error:
                self.tell_failure(error)
        if self.recorder.own_faults:
            compat.fail_command()
            if self._reason == FINISHED:  # the failure came after the last spider_idle
                self.crawler.stats.set_value("finish_reason", NOT_WELL)

    def _on_feeds_closed(self) -> None:
        """Handle feed_exporter_closed, which comes after the spider has closed."""
        self._run_steps(self.delivery.feeds_closed)

    def _note_end(self, reason: str) -> None:
        not_requested = self.sources.account.counts[NOT_REQUESTED] or None
        self.recorder.note("ended", reason=reason, not_requested=not_requested)

    def _write_metrics(self, reason: str) -> None:
        path = self.config.metrics
        account = self.sources.account
        recorder = self.recorder
        if path is None:
            return
        from scrapy_walsh.adapters import metrics  # noqa: PLC0415  an extra

        read_count = account.counts[READ]
        figures: dict[str, Any] = {
            "requests": recorder.sent,
            "refused": recorder.rules,
            "sources_read": {(): read_count},
            "sources_unread": {(): account.counts.total() - read_count - account.counts[NOT_DUE]},
            "sources_needing_a_person": {(): account.needy},
            "run_seconds": {(): self.monotonic() - self.begun},
            "last_run_timestamp_seconds": {(): self.wall()},
        }
        success = reason == FINISHED and bool(read_count) and not recorder.own_faults
        spider = getattr(self.crawler.spider, "name", None) or ""
        try:
            metrics.write(path, spider, figures, success=success)
        except OSError as error:
            detail = error.strerror or error
            recorder.own_fault(f"WALSH_METRICS: {path} cannot be written ({detail}): correct it")

    def _on_stopped(self) -> None:
        # If the feed exporter raises, its signal does not come.
        self._run_steps(self.delivery.feeds_closed, lambda: self._write_metrics(self._reason))
        self.sources.account.say()
        self.recorder.tell_not_well()

    def _terms(self) -> dict[str, Any]:
        """Return identity, spider and settings, so that ``verify`` can decide again.

        If requests are signed, also the key's ID and the URL of its directory (D25).
        """
        config = self.config
        signer = self.signer
        return {
            "process": process_name(),
            "spider": getattr(self.crawler.spider, "name", None) or "",
            "version": __version__,
            "stored_form": FORM,
            "spec": SPEC_VERSION,
            "user_agent": config.identity.user_agent,
            "token": config.identity.token,
            "blocklist_url": config.blocklist_url,
            "schema_url": config.schema_url,
            "look": self.look,
            "signed": signer and {"keyid": signer.keyid, "directory": signer.directory},
            "settings": {
                **{
                    setting.field: getattr(config, setting.field)
                    for setting in SETTINGS
                    if setting.row.terms
                },
                "silent_attempts": silent_attempts(config.max_retries, config.robots_unreachable),
                "longest_learned": min(config.patience, LONGEST),
                "revisit_reason": self.gates.revisit_reason,
                "follow_links": self.scope.follow_links,
                "usage": dict(config.usage),
                "shared": config.shared_state is not None,
                "tag_requests": config.tag_requests or self.look == _SHELL,
            },
        }


def _nothing() -> None:
    """Nothing is under way."""


class Seat:
    """A component of Scrapy with access to the crawl."""

    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Create the component, and the crawl at first use."""
        return cls(Crawl.of(crawler))
