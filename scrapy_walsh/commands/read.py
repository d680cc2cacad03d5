"""``walsh read LIST``: the crawl of ``walsh_metadata`` without a project, for a person or a pipe.

Settings and state are the user's (:func:`scrapy_walsh.commands.common.user_settings`). A feed takes
the items to standard output, so an item counts as seen once standard output took it.
"""

from __future__ import annotations

import io
import logging
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals
from scrapy.exporters import BaseItemExporter
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.commands import common, init
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.own_crawl import add_addon
from scrapy_walsh.commands.terminal import encodable, show, show_no_more, table
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.words import plural
from scrapy_walsh.sources import report
from scrapy_walsh.sources.sources import KINDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from scrapy_walsh.sources.items import MetadataItem

_SPIDER: Final = "walsh_metadata"
#: By option, Scrapy's name of the format.
FORMATS: Final = {
    "table": "walsh_table", "jsonl": "jsonlines", "json": "json", "csv": "csv", "md": "walsh_md",
}  # fmt: skip
#: Each batch needs a place in the URI, but has the same one.
_STDOUT: Final = "stdout:%(batch_id).0s"
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>#])")
#: One thread, because lines stay in order, and names are resolved in Scrapy's threads.
_THREAD: Final = ThreadPool(0, 1, "stdout")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh read`` takes."""
    add = parser.add_argument
    add("list", metavar="LIST", nargs="+", help=f"a file ({', '.join(KINDS)}), or URLs")
    add(
        "--format",
        choices=tuple(FORMATS),
        help="by default table on a terminal, else jsonl: JSON lines",
    )
    add("--all", action="store_true", help="also what was seen in an earlier run")
    common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Read the list; 0 and 1 as ``scrapy crawl`` has them."""
    arguments = arguments_of(args.list)
    if not ("WALSH_IDENTITY" in common.user_settings() or args.identity):
        return _ask_identity(args.list)
    settings = common.settings_to_send(args, load=common.user_crawl_settings)
    WalshConfig.from_settings(settings, default_state_dir)  # exit code 2 for an unusable value
    add_addon(settings)
    _set_output(settings, args.format or ("table" if _is_terminal() else "jsonl"))
    arguments["all_items"] = str(int(args.all))
    logging.getLogger("scrapy.extensions.feedexport").addFilter(_is_no_lost_output)
    return compat.run_as_command(settings, _SPIDER, _prepare, **arguments)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def arguments_of(words: Sequence[str]) -> dict[str, str]:
    """The spider's argument for a file, or for URLs. Misuse for several files."""
    paths = [word for word in words if "://" not in word and _is_file(Path(word))]
    if not paths:
        return {"urls": " ".join(words)}
    if len(words) > 1:
        raise Misuse(f"{paths[0]} and another: give one file, or URLs")
    return {"sources": paths[0]}


def _is_file(path: Path) -> bool:
    return path.exists() or path.suffix.lower() in KINDS


def _ask_identity(words: Sequence[str]) -> int:
    """Ask for the identity, and write it. Misuse without a terminal.

    Nothing is requested, because each request would name a policy page that is not there yet.
    """
    file = common.user_file()
    if sys.stdin is None or not (sys.stdin.isatty() and _is_terminal()):
        raise Misuse(
            f"no identity: {file} needs a table [identity] with product, policy_url and "
            "blocklist_url; on a terminal this command asks for them"
        )
    show(["your bot needs a name, and a site for two pages about it (docs/no-site.md)"])
    show(init.write_identity(file))
    show([f"then: walsh read {shlex.join(words)}"])
    return 2


def _set_output(settings: Settings, form: str) -> None:
    feed: dict[str, Any] = {
        "format": FORMATS[form],
        "encoding": "utf8",
        "store_empty": form == "json",
    }
    feed["batch_item_count"] = int(form == "jsonl")  # each item is written at once
    added: dict[str, dict[str, Any]] = {
        "FEEDS": {_STDOUT: feed},
        "FEED_STORAGES": {"stdout": _Stdout},
        "FEED_EXPORTERS": {"walsh_table": _Table, "walsh_md": _Markdown},
    }
    for name, entries in added.items():
        settings.set(name, {**settings.getdict(name), **entries}, priority="cmdline")
    settings.set("SPIDER_MODULES", ["scrapy_walsh.spiders"], priority="cmdline")
    for name, value in ("LOG_LEVEL", "WARNING"), ("LOG_FORMAT", "%(levelname)s: %(message)s"):
        settings.set(name, value, priority="addon")  # below the user's own


def _prepare(crawler: Crawler) -> None:
    """Have the last line of the run on stderr, with the unchanged sources apart."""

    def opened(spider: Any) -> None:
        account = spider.crawler.walsh.sources.account

        def write(_level: int, line: str) -> None:
            count = sum(walk.row.new for walk in spider.walks.values())
            new = f"; {plural(count, 'new link')}" if count else ""
            print(common.printable(line) + new, file=sys.stderr)

        account.write = write

    def closed(spider: Any) -> None:
        outcomes = [walk.row.outcome for walk in spider.walks.values()]
        spider.crawler.walsh.sources.account.unchanged = outcomes.count(report.NOT_MODIFIED)

    crawler.signals.connect(opened, signals.spider_opened, weak=False)
    crawler.signals.connect(closed, signals.spider_closed, weak=False)


# -- standard output ----------------------------------------------------------------------


class _Stdout:
    """Scrapy's storage for a feed, or for a batch of it.

    It writes in a thread, because a reader such as ``less`` may make us wait. If the reader is
    gone, the crawl ends.
    """

    is_lost = False

    def __init__(self, uri: str, *, feed_options: object = None) -> None:
        """The signature is Scrapy's."""

    def open(self, spider: Spider) -> io.BytesIO:
        """The feed is written here first."""
        self._crawler = spider.crawler
        return io.BytesIO()

    def store(self, file: io.BytesIO) -> Deferred[None]:
        """Write the feed."""
        from twisted.internet import reactor as installed  # noqa: PLC0415  it installs one

        reactor: Any = installed
        if not _THREAD.started:
            _THREAD.start()
            reactor.addSystemEventTrigger("during", "shutdown", _THREAD.stop)
        done = deferToThreadPool(reactor, _THREAD, self._write, file.getvalue())
        return done.addErrback(self._failed)

    def _write(self, octets: bytes) -> None:
        if self.is_lost or sys.stdout is None:
            raise BrokenPipeError
        sys.stdout.buffer.write(octets if octets.endswith(b"\n") else octets + b"\n")
        sys.stdout.buffer.flush()

    def _failed(self, failure: Failure) -> Failure:
        if not _Stdout.is_lost:
            _Stdout.is_lost = True
            if sys.stdout is not None:
                show_no_more()
            error = failure.value
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                common.tell("read", f"standard output: {error.strerror}")
            compat.close_spider(self._crawler, "output_closed")
        return failure


def _is_no_lost_output(record: logging.LogRecord) -> bool:
    """Filter of a log: a lost output is said once, without a traceback."""
    return not (_Stdout.is_lost and record.exc_info)


class _Listing(BaseItemExporter):
    """Writes the items at the end, by source."""

    def __init__(self, file: io.BytesIO, **options: Any) -> None:
        super().__init__(**options)
        self._file = file
        self._items: dict[str, list[MetadataItem]] = {}

    def export_item(self, item: MetadataItem) -> None:
        """Keep *item*."""
        self._items.setdefault(item.source, []).append(item)

    def finish_exporting(self) -> None:
        """Write all items."""
        for source, items in self._items.items():
            for line in self._lines(visible(source), items):
                self._file.write(f"{line}\n".encode(self.encoding or "utf-8"))

    def _lines(self, source: str, items: Sequence[MetadataItem]) -> Iterator[str]:
        raise NotImplementedError


class _Table(_Listing):
    """A table for each source: date and title of a link, and below them its URL."""

    def _lines(self, source: str, items: Sequence[MetadataItem]) -> Iterator[str]:
        rows: list[tuple[str, str]] = []
        for item in items:
            texts = [text for text in (item.title, item.url) if text]
            rows += zip(((item.published or "")[:10], ""), texts, strict=False)
        yield encodable(source)
        yield from map(encodable, table(rows, least=(10,), indent=2))


class _Markdown(_Listing):
    """A list for each source."""

    def _lines(self, source: str, items: Sequence[MetadataItem]) -> Iterator[str]:
        yield f"## {_escaped(source)}\n"
        for item in items:
            title = _escaped(visible(item.title or item.url))
            url = visible(item.url).replace("<", "%3C").replace(">", "%3E")
            yield " ".join(filter(None, ("-", (item.published or "")[:10], f"[{title}](<{url}>)")))
        yield ""


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)
