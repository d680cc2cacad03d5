"""``walsh discover HOST``: what a host offers in place of HTML, as a structured link map (R9).

Its ``/llms.txt`` and its front page, by content negotiation, are requested through all gates;
nothing that they link to is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy_walsh.commands.check_answer import Misuse, absolute, printable
from scrapy_walsh.commands.project import add_json, add_settings, settings_to_send
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy_walsh.commands.discover_online import LinkMap, Probe


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh discover`` takes."""
    add = parser.add_argument
    add("host", metavar="HOST", help="HOST[:PORT], tried by https, then http; or with its scheme")
    add_settings(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Request what the host may offer, and print the links."""
    origins, settings = _origins(args.host), settings_to_send(args)
    from scrapy_walsh.commands.discover_online import discover  # noqa: PLC0415  slow

    found = discover(origins, settings)
    if args.json:
        print(json.dumps(found.members()))
    else:
        print("\n".join(printable(line) for line in _lines(found)))
    return 0 if found.links and found.well else 1


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


def _lines(found: LinkMap) -> Iterator[str]:
    """The map for a person."""
    for probe in found.probes:
        yield from _probe_lines(probe)
    for feed in found.suggested_feeds:
        yield f"offers a feed: {feed}"
    for sitemap in found.suggested_sitemaps:
        yield f"robots.txt names a sitemap: {sitemap}"
    links = plural(len(found.links), "link")
    yield f"{links} found; declare those that a crawl shall request"


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
