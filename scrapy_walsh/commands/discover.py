"""``walsh discover HOST``: what a host offers in place of HTML, as a structured link map (R9).

Its ``/llms.txt`` and its front page, by content negotiation, are requested through all gates;
nothing that they link to is.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy_walsh.commands.check_answer import Misuse, absolute, printable
from scrapy_walsh.commands.project import settings_of
from scrapy_walsh.config import has_identity
from scrapy_walsh.exceptions import WalshError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy.settings import Settings

    from scrapy_walsh.commands.discover_online import LinkMap, Probe


def main(argv: Sequence[str]) -> int:
    """Discover. Exit codes: 0 links were found, 1 none, or refused, 2 misuse."""
    args = _parser().parse_args(argv)
    try:
        found = _discover(args)
    except WalshError as error:
        print(f"walsh discover: {printable(str(error))}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(found.members()))
    else:
        print("\n".join(printable(line) for line in _lines(found)))
    return 0 if found.links else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="walsh discover", description="What does a host offer?", allow_abbrev=False
    )
    add = parser.add_argument
    add("host", metavar="HOST", help="HOST[:PORT], tried by https, then http; or with its scheme")
    add("--identity", metavar="NAME|JSON", help="the bot's identity, in place of WALSH_IDENTITY")
    add("-s", "--set", metavar="NAME=VALUE", action="append", default=[], help="a Scrapy setting")
    add("--json", action="store_true", help="answer with one JSON object")
    return parser


def _discover(args: argparse.Namespace) -> LinkMap:
    origins = _origins(args.host)
    settings = _settings(args)
    from scrapy_walsh.commands.discover_online import discover  # noqa: PLC0415  slow

    return discover(origins, settings)


def _origins(host: str) -> list[str]:
    """The origins to try in turn; Misuse where *host* is more, or less, than a host."""
    url = absolute(host)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.path not in ("", "/") or "@" in parts.netloc:
        raise Misuse(f"{host!r} is not a host: give HOST, HOST:PORT, or http://HOST")
    if parts.query or parts.fragment:
        raise Misuse(f"{host!r} is not a host: leave out what follows it")
    schemes = [parts.scheme] if "://" in host else ["https", "http"]
    return [f"{scheme}://{parts.netloc}" for scheme in schemes]


def _settings(args: argparse.Namespace) -> Settings:
    settings = settings_of(args)
    if not has_identity(settings):
        raise Misuse(
            "no identity: WALSH_IDENTITY is not set: set it in the project, or give --identity"
        )
    return settings


def _lines(found: LinkMap) -> Iterator[str]:
    """The map for a person."""
    for probe in found.probes:
        yield from _probe_lines(probe)
    for feed in found.suggested_feeds:
        yield f"offers a feed: {feed}"
    links = len(found.links)
    yield f"{links} link{'' if links == 1 else 's'} found; declare those that a crawl shall request"


def _probe_lines(probe: Probe) -> Iterator[str]:
    gate = f" ({probe.requirement})" if probe.requirement else ""
    said = f": {probe.reason}" if probe.reason else ""
    yield f"{probe.url}: {probe.outcome}{gate}{said}"
    for section in probe.sections:
        depth = "  " * section.level
        if section.title:
            yield f"{depth}{'#' * section.level} {section.title}"
        yield from (f"{depth}  {_link(title, url)}" for title, url in section.links)


def _link(title: str, url: str) -> str:
    return f"{title}: {url}" if title else url
