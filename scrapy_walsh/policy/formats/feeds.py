"""R9: reads the entries of a feed: RSS 0.9x, 1.0 and 2.0, Atom, and JSON Feed 1.x.

Only title, URL and date are kept. feedparser gets bytes, never a URL or a file name, since it would
open those. What it gets has passed ``xmltext``, which refuses or mends what would harm it.
"""

from __future__ import annotations

import codecs
import json
import re
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import feedparser

from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly
from scrapy_walsh.policy.formats.representation import FEED, HTML, JSON_FEED, representation
from scrapy_walsh.policy.formats.text import Entry, absolute_http_url, plain_text, resolved, utc_iso
from scrapy_walsh.policy.formats.xmltext import xml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Octets in which a document type is looked for, and one without declarations of its own.
_HEAD: Final = 4096
_DOCTYPE: Final = re.compile(rb"<!DOCTYPE[^<>\[]*+>", re.IGNORECASE)


def read_feed(body: bytes, content_type: str | None, url: str) -> list[Entry]:
    """The entries that have a link, in document order.

    ``content_type``: the header's value or None. ``url``: where the feed was fetched, which is the
    base of its relative links. Of a malformed feed what can be read is returned. Raises
    DocumentInvalid for what is not a feed, and for a document type with declarations of its own;
    DocumentTooCostly for elements or JSON that are nested too deeply.
    """
    if representation(content_type, body) == JSON_FEED:
        return list(_json_entries(body, url))
    head = _DOCTYPE.sub(b"", body[:_HEAD], count=1)  # some feeds have that of HTML
    if representation(None, body) == HTML and representation(None, head) != FEED:
        raise DocumentInvalid(f"{url}: an HTML page, not a feed")
    return list(_xml_entries(xml_text(body, content_type, url), url))


def _xml_entries(text: str, url: str) -> Iterator[Entry]:
    parsed = _parsed(text, url)
    if not parsed.get("version") and not parsed.entries:
        raise DocumentInvalid(f"{url}: neither RSS nor Atom; nothing in it can be read as a feed")
    for entry in parsed.entries:
        if link := _first_link(_links_of(entry), url):
            yield Entry(plain_text(str(entry.get("title", ""))), link, _entry_date(entry))


def _parsed(text: str, url: str) -> Any:
    try:
        return feedparser.parse(
            BytesIO(text.encode()),
            # No content-location: it would make a link of a guid that is none.
            response_headers={"content-type": "application/xml; charset=utf-8"},
            sanitize_html=False,  # titles are stripped here, nothing else is kept
            resolve_relative_uris=False,
        )
    except Exception as error:  # the parser does not say which errors it raises
        kind = type(error).__name__
        raise DocumentInvalid(f"{url}: cannot be read as a feed ({kind})") from error


def _links_of(entry: Any) -> Iterator[str]:
    link = str(entry.get("link", ""))
    if not entry.get("guidislink") or absolute_http_url(link):  # else it is the name of the entry
        yield link
    for link in entry.get("links", ()):
        if link.get("rel") == "alternate":
            yield str(link.get("href", ""))


def _first_link(candidates: Iterable[str], base: str) -> str | None:
    """The first of *candidates* that is a usable link, as an absolute URL."""
    return next((link for target in candidates if (link := resolved(base, target))), None)


def _entry_date(entry: Any) -> str | None:
    for name in ("published_parsed", "updated_parsed", "created_parsed"):
        # The `get` of feedparser's entries would return another of these dates, and warn.
        if parsed := dict.get(entry, name):
            moment = [*parsed[:5], min(parsed[5], 59)]
            try:
                return utc_iso(datetime(*moment))
            except ValueError:
                return None
    return None


def _json_entries(body: bytes, url: str) -> Iterator[Entry]:
    for item in _json_items(body, url):
        if link := _first_link((_string(item, "url"), _string(item, "external_url")), url):
            yield Entry(plain_text(_string(item, "title")), link, _json_date(item))


def _json_items(body: bytes, url: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(body.removeprefix(codecs.BOM_UTF8))
    except RecursionError as error:
        raise DocumentTooCostly(f"{url}: JSON nested too deeply; not read") from error
    except ValueError as error:
        raise DocumentInvalid(f"{url}: not JSON, so not a JSON Feed") from error
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise DocumentInvalid(f"{url}: a JSON Feed without a list of items")
    return [item for item in items if isinstance(item, dict)]


def _string(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _json_date(item: dict[str, Any]) -> str | None:
    for name in ("date_published", "date_modified"):
        try:
            return utc_iso(datetime.fromisoformat(_string(item, name).strip()))
        except ValueError:
            continue
    return None
