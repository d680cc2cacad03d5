"""The ``walsh`` command of the ``scrapy`` tool (entry point group ``scrapy.commands``)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import signals
from scrapy.commands import ScrapyCommand

from scrapy_walsh.commands.main import main, parser_of
from scrapy_walsh.config import identity_given
from scrapy_walsh.exceptions import ConfigError

if TYPE_CHECKING:
    from scrapy import Spider


def _refuse_if_absent(spider: Spider) -> None:
    """End a crawl at its start that should run with this package, and does not.

    Scrapy loads this module with every command. It does so even if a spider's ``custom_settings``
    have ADDONS of their own, which replace the project's, and then nothing else of this package is
    loaded.
    """
    crawler = getattr(spider, "crawler", None)
    if crawler is None or hasattr(crawler, "walsh") or not identity_given(crawler.settings):
        return
    from scrapy_walsh.adapters import compat  # noqa: PLC0415  most commands need no crawl

    compat.refuse_start(
        ConfigError(
            f"the crawl of {spider.name} would run without scrapy_walsh, so without its "
            "checks and spacing: ADDONS does not have it here (custom_settings replace the "
            "project's), see docs/install.md"
        )
    )


dispatcher.connect(_refuse_if_absent, signals.spider_opened)


class Command(ScrapyCommand):
    """Hands everything after ``scrapy walsh`` to the subcommand."""

    requires_crawler_process = False
    default_settings = {"LOG_ENABLED": False}  # noqa: RUF012  Scrapy's own attribute

    def syntax(self) -> str:
        """What ``scrapy walsh`` takes."""
        return "SUBCOMMAND [options]"

    def short_desc(self) -> str:
        """What ``scrapy`` shows."""
        return "Check, prove and serve what scrapy_walsh promises"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Take everything as it is: each subcommand has a parser of its own."""
        # argparse does not know the subcommands, and would fold the list.
        parser.format_help = parser_of().format_help  # type: ignore[method-assign]
        parser.add_argument("subcommand", nargs=argparse.REMAINDER)
        parser.set_defaults(profile=None)

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:  # noqa: ARG002
        """No options of Scrapy's here; and no spiders, which Scrapy 2.13 would load at once."""
        if self.settings is not None:
            self.settings.set("SPIDER_MODULES", [], priority="cmdline")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run the subcommand."""
        self.exitcode = main([*opts.subcommand, *args])
