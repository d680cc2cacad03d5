"""Reads the sources that the operator declared: from a file, or from the command line.

A file that cannot be read at all raises. A bad entry is reported in one line, and the others count.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import msgspec

from scrapy_walsh.exceptions import SourcesInvalid, one_line
from scrapy_walsh.policy.urls import HAS_USERINFO, canonical_url, is_http_url, without_userinfo
from scrapy_walsh.policy.visits import cadence


@dataclass(frozen=True, slots=True)
class Source:
    """A declared source. ``url``: absolute, http or https.

    ``feed``, ``sitemap``: the URLs of its feed and of its sitemap, or None. ``children``: if that
    sitemap is an index, the sitemaps that it lists are requested, too. ``revisit``: seconds between
    two visits; None where WALSH_REVISIT holds. ``bare_host``: the URL was
    written without a scheme. ``url`` is then https, and http may be tried if the host gives no
    answer by https.
    """

    name: str
    url: str
    feed: str | None = None
    bare_host: bool = False
    sitemap: str | None = None
    children: bool = False
    revisit: float | None = None

    @property
    def first(self) -> str:
        """The URL of its first request, by which records know the source (R8)."""
        return self.feed or self.sitemap or self.url


#: One entry of a file: the place where it stands, for messages, and its keys and values as found.
_Entry = tuple[str, Mapping[str, Any]]


def read_sources(path: str | Path) -> tuple[list[Source], list[str]]:
    """The sources of a ``.toml``, ``.jsonl``, ``.opml`` or ``.txt`` file, and its problems.

    Each problem is one line that names the file and the place in it. Raises SourcesInvalid where
    the file cannot be read, or is not in the format that its name says.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise SourcesInvalid(f"{path.name}: unknown kind of file; use {', '.join(_READERS)}")
    problems: list[str] = []
    return _checked(reader(text_of(path), path.name, problems), path.name, problems)


def parse_urls(text: str) -> tuple[list[Source], list[str]]:
    """The sources of ``-a urls="URL URL"``, and a line for each that cannot be used."""
    entries = ((f"url {n}", {"url": url}) for n, url in enumerate(text.split(), 1))
    return _checked(entries, "urls", [])


def text_of(path: Path) -> str:
    """The text of a file of sources, as it is; SourcesInvalid where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourcesInvalid(f"{path.name}: not UTF-8 (byte {error.start}); save it so") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SourcesInvalid(f"{path}: cannot be read: {reason}; check the path") from error


# --- readers: text of a file to entries -------------------------------------------------------


def _toml(text: str, name: str, _problems: list[str]) -> Iterator[_Entry]:
    try:
        tables = tomllib.loads(text).get("source")
    except tomllib.TOMLDecodeError as error:
        raise SourcesInvalid(f"{name}: not TOML: {one_line(error)}") from error
    if not isinstance(tables, list):
        raise SourcesInvalid(f"{name}: no [[source]] table; write one for each source")
    for number, table in enumerate(tables, 1):
        yield f"source {number}", table if isinstance(table, dict) else {}


def _jsonl(text: str, name: str, problems: list[str]) -> Iterator[_Entry]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield f"line {number}", entry
        else:
            problems.append(f'{name}: line {number}: not a JSON object; write {{"url": "..."}}')


def _txt(text: str, _name: str, _problems: list[str]) -> Iterator[_Entry]:
    for number, line in enumerate(text.splitlines(), 1):
        # A # begins a comment after a space only: else it is the fragment of a URL.
        url = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if url:
            yield f"line {number}", {"url": url}


def _opml(text: str, name: str, _problems: list[str]) -> Iterator[_Entry]:
    try:
        root = ET.fromstring(text.strip())  # noqa: S314  the operator's own file
    except ET.ParseError as error:
        raise SourcesInvalid(f"{name}: not OPML: {one_line(error)}") from error
    if root.tag.lower() != "opml":
        raise SourcesInvalid(f"{name}: not OPML: its root is <{root.tag}>")
    for number, outline in enumerate(root.iter("outline"), 1):
        if entry := _outline(outline):
            yield f"outline {number}", entry


def _outline(outline: ET.Element) -> dict[str, str] | None:
    """The entry of an outline that is a subscription; None for a folder."""
    given = {key.lower(): value for key, value in outline.attrib.items()}
    feed, page = given.get("xmlurl"), given.get("htmlurl") or given.get("url")
    if not feed and not page and len(outline):
        return None
    entry = {"name": given.get("title") or given.get("text") or "", "url": page or feed or ""}
    return {**entry, "feed": feed} if feed else entry


_READERS: Final = {".toml": _toml, ".jsonl": _jsonl, ".opml": _opml, ".txt": _txt}


# --- checks: entries to sources ---------------------------------------------------------------


class _Given(msgspec.Struct):
    """The keys of an entry."""

    name: str = ""
    url: str = ""
    feed: str = ""
    sitemap: str = ""
    children: bool = False
    revisit: Any = None


_BARE: Final = re.compile(
    r"(?:[\w-]+\.)+[\w-]+\.?(?::\d{1,5})?(?:[/?].*)?|localhost(?::\d{1,5})?/?"
)


def _checked(
    entries: Iterable[_Entry], file: str, problems: list[str]
) -> tuple[list[Source], list[str]]:
    """The sources of *entries*, and *problems* with a line for each that is not used as it is."""
    seen: dict[str, tuple[str, Source]] = {}
    for place, entry in entries:
        try:
            source = _source(entry)
        except (SourcesInvalid, msgspec.ValidationError) as error:
            problems.append(f"{file}: {place}{_called(entry)}: {error}")
            continue
        first, _ = seen.setdefault(canonical_url(source.first), (place, source))
        if first != place:
            problems.append(f"{file}: {place} ({source.name}): the same URL as {first}; dropped")
        urls = [entry.get(key, "") for key in ("url", "feed", "sitemap")]
        if any(without_userinfo(url) != url for url in urls):
            host = urlsplit(source.url).netloc
            problems.append(f"{file}: {place} ({source.name}): a URL of {host} {HAS_USERINFO}")
        problems.extend(
            f"{file}: {place} ({source.name}): unknown key {key!r}; ignored"
            for key in sorted(entry.keys() - set(_Given.__struct_fields__))
        )
    return [source for _, source in seen.values()], problems


def _called(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    return f" ({one_line(name)})" if isinstance(name, str) and name.strip() else ""


def _source(entry: Mapping[str, Any]) -> Source:
    """The source of an entry. Raises SourcesInvalid and msgspec.ValidationError."""
    given = msgspec.convert(entry, _Given)
    feed, sitemap = _offered("feed", given.feed), _offered("sitemap", given.sitemap)
    if given.children and sitemap is None:
        raise SourcesInvalid('children = true without a sitemap; add sitemap = "https://..."')
    try:
        revisit = None if given.revisit is None else cadence(given.revisit)
    except ValueError as error:
        raise SourcesInvalid(f"revisit is {error}") from None
    # What is declared by its sitemap alone needs no page.
    url, bare = _url(given.url or sitemap or "")
    name = " ".join(given.name.split()) or urlsplit(url).netloc
    return Source(name, url, feed, bare, sitemap, given.children, revisit)


def _offered(key: str, written: str) -> str | None:
    """The URL of the feed or the sitemap of an entry, None without one."""
    url = without_userinfo(written.strip())
    return _usable(key, url, url) if url else None


def _url(written: str) -> tuple[str, bool]:
    """The URL to request, and whether it was written without a scheme."""
    written = without_userinfo(written.strip())
    if not written:
        raise SourcesInvalid('no url; add url = "https://..."')
    bare = "://" not in written and _BARE.fullmatch(written) is not None
    url = _usable("url", f"https://{written}" if bare else written, written)
    return (url if urlsplit(url).path or urlsplit(url).query else f"{url}/") if bare else url, bare


def _usable(key: str, url: str, written: str) -> str:
    """*url*; SourcesInvalid, which shows what was *written*, where it is not http or https."""
    if is_http_url(url):
        return url
    _, at, host = written.rpartition("@")
    shown = one_line(f"***@{host}" if at else written)  # what stood there may be a password
    raise SourcesInvalid(f"{key} {shown!r} cannot be used; write an absolute http or https URL")
