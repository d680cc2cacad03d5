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

from msgspec import Struct, convert, structs

from scrapy_walsh.exceptions import ConfigError

from .site import Behaviour, Route, Site


class _Route(Struct, forbid_unknown_fields=True):
    """As :class:`Route`, whose members it has."""

    status: int = 200
    body: str = ""
    content_type: str | None = Route.content_type
    headers: dict[str, str] | list[tuple[str, str]] = {}
    delay: float = 0.0
    etag: str | None = None
    last_modified: str | None = None
    location: str | None = None
    sequence: list[_Route | str] = []
    accept: dict[str, _Route | str] = {}
    behaviour: Behaviour = "answer"
    pause: float = 0.01


class _Site(Struct, forbid_unknown_fields=True):
    host: str
    routes: dict[str, _Route | str] = {}
    tls: bool = True


class _File(Struct):
    sites: list[_Site]


def load_sites(path: Path | str) -> list[Site]:
    """The sites of a file, in its order.

    Raises ConfigError, in one line that names the place, and OSError.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        found = convert(document, _File)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return [Site(each.host, _routes(each.routes), each.tls) for each in found.sites]


def _routes(found: dict[str, _Route | str]) -> dict[str, Route]:
    return {key: _route(each) for key, each in found.items()}


def _route(found: _Route | str) -> Route:
    if isinstance(found, str):
        return Route(body=found)
    turns, variants = tuple(map(_route, found.sequence)), _routes(found.accept)
    given = {"body": found.body or b"", "headers": found.headers or ()}
    return Route(**{**structs.asdict(found), **given, "sequence": turns, "accept": variants})
