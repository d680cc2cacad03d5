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
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from scrapy_walsh.exceptions import ConfigError

from .site import Behaviour, Route, Site

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_NUMBER = (int, float)
_ROUTE_TYPES: dict[str, type | tuple[type, ...]] = {
    "status": int,
    "body": str,
    "content_type": str,
    "headers": (dict, list),
    "delay": _NUMBER,
    "etag": str,
    "last_modified": str,
    "location": str,
    "behaviour": str,
    "pause": _NUMBER,
    "sequence": list,
    "accept": dict,
}
_SITE_KEYS = {field.name for field in fields(Site)}


def load_sites(path: Path | str) -> list[Site]:
    """The sites that a file describes.

    Raises ConfigError, which names the file and the place; OSError when it cannot be read.
    """
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    try:
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not {path.suffix.lstrip('.') or 'JSON'}: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("sites"), list):
        raise ConfigError(f"{path}: needs a list 'sites'")
    return [_site(entry, f"{path}: sites[{n}]") for n, entry in enumerate(document["sites"])]


def _site(entry: Any, where: str) -> Site:
    table = _table(entry, _SITE_KEYS, where)
    if not isinstance(table.get("host"), str):
        raise ConfigError(f"{where}: needs a string 'host'")
    routes = _table(table.get("routes", {}), None, f"{where}: routes")
    return Site(
        table["host"],
        {path: _route(each, f"{where}: routes[{path!r}]") for path, each in routes.items()},
        tls=bool(table.get("tls", True)),
    )


def _route(entry: Any, where: str) -> Route:
    if isinstance(entry, str):
        return Route(body=entry)
    table = dict(_table(entry, _ROUTE_TYPES.keys(), where))
    for key, value in table.items():
        if not isinstance(value, _ROUTE_TYPES[key]):
            raise ConfigError(f"{where}: {key} cannot be {value!r}")
    if table.get("behaviour", "answer") not in get_args(Behaviour):
        raise ConfigError(f"{where}: behaviour is one of {', '.join(get_args(Behaviour))}")
    turns = table.pop("sequence", ())
    variants = table.pop("accept", {})
    return Route(
        **table,
        sequence=tuple(_route(each, f"{where}: sequence[{n}]") for n, each in enumerate(turns)),
        accept={
            media: _route(each, f"{where}: accept[{media!r}]") for media, each in variants.items()
        },
    )


def _table(entry: Any, known: AbstractSet[str] | None, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: must be a table")
    unknown = entry.keys() - (known or entry.keys())
    if unknown:
        names = ", ".join(sorted(known or ()))
        raise ConfigError(f"{where}: unknown key {min(unknown)!r}; known: {names}")
    return entry
