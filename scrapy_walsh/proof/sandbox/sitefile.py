"""Sites from a file: a JSON or a TOML document, by the file's suffix.

``sites`` is a list of tables with the keys ``host``, ``routes`` and, where https must fail,
``tls = false``. ``routes`` maps a path (or ``*``, for all the rest) to an answer: either a string,
the body, or a table with any of the keys of ``Route``: ``status``, ``body``, ``content_type``,
``headers`` (a table, or a list of pairs), ``delay`` (seconds), ``etag``, ``last_modified``,
``location``, ``behaviour``, ``pause`` (seconds), ``sequence`` (a list of answers) and ``accept``
(a table from media type to answer). In TOML::

    [[sites]]
    host = "news.test"

    [sites.routes]
    "/robots.txt" = { body = "User-agent: *\\nCrawl-delay: 2\\n", content_type = "text/plain" }
    "/feed.xml" = { sequence = [{ status = 503, headers = { Retry-After = "1" } }, "<rss/>"] }
    "/gone" = { status = 410 }
    "/stuck" = { behaviour = "hang" }
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, get_args

from scrapy_walsh.exceptions import ConfigError

from .site import Behaviour, Route, Site


def load_sites(path: Path | str) -> list[Site]:
    """The sites of a file, in its order.

    Raises ConfigError, in one line, and OSError.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        return [_site(**each) for each in document["sites"]]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{path}: not sites of the sandbox: {error}") from None


def _site(host: str, routes: dict[str, Any] | None = None, *, tls: bool = True) -> Site:
    return Site(host, {path: _route(each) for path, each in (routes or {}).items()}, tls)


def _route(found: dict[str, Any] | str) -> Route:
    if isinstance(found, str):
        return Route(body=found)
    if found.get("behaviour", "answer") not in get_args(Behaviour):
        raise ValueError(f"no behaviour {found['behaviour']!r}")
    turns = tuple(map(_route, found.get("sequence", ())))
    variants = {media: _route(each) for media, each in found.get("accept", {}).items()}
    return Route(**{**found, "sequence": turns, "accept": variants})
