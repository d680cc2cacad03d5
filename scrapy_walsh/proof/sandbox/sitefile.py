"""Sites from a file: a JSON or a TOML document, by the file's suffix.

``sites`` is a list of tables with the keys ``host``, ``routes`` and, if https must fail, ``tls =
false``. ``routes`` maps a path (or ``*``, for all the rest) to an answer: either a string, the
body, or a table with any of the keys of ``Route``: ``status``, ``body``, ``content_type``,
``headers`` (a table, or a list of pairs), ``delay`` (seconds), ``etag``, ``last_modified``,
``location``, ``behaviour``, ``pause`` (seconds), ``sequence`` (a list of answers) and ``accept`` (a
table from media type to answer). In TOML::

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
        return [_site(**members) for members in document["sites"]]
    except (
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        RecursionError,
    ) as error:
        raise ConfigError(f"{path}: not sites of the sandbox: {error}") from None


def _site(host: str, routes: dict[str, Any] | None = None, *, tls: bool = True) -> Site:
    return Site(
        host,
        {path: _route(route) for path, route in (routes or {}).items()},
        tls,
    )


def _route(members: dict[str, Any] | str) -> Route:
    if isinstance(members, str):
        return Route(body=members)
    if members.get("behaviour", "answer") not in get_args(Behaviour):
        raise ValueError(f"no behaviour {members['behaviour']!r}")
    turns = tuple(map(_route, members.get("sequence", ())))
    variants = {media: _route(variant) for media, variant in members.get("accept", {}).items()}
    return Route(**{**members, "sequence": turns, "accept": variants})
