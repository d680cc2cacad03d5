"""Reads the sources that the operator declared: from a file, or from the command line.

A file that cannot be read at all raises. A bad entry is reported in one line, and the others count.
"""

from __future__ import annotations

import codecs
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import msgspec

from scrapy_walsh.exceptions import DocumentInvalid, SourcesInvalid, one_line
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.formats.xmltext import xml_text
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


#: Octets of a file of sources that are read.
MAX_FILE: Final = 32 * 1024 * 1024


def read_sources(path: str | Path) -> tuple[list[Source], list[str]]:
    """The sources of a ``.toml``, ``.jsonl``, ``.opml`` or ``.txt`` file, and its problems.

    Each problem is one line that names the file and the place in it. Raises SourcesInvalid if the
    file cannot be read, or is not in the format that its name says.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise SourcesInvalid(f"{path.name}: unknown kind of file; use {', '.join(_READERS)}")
    problems: list[str] = []
    return _checked(reader(_octets_of(path), path.name, problems), path.name, problems)


def parse_urls(text: str) -> tuple[list[Source], list[str]]:
    """The sources of ``-a urls="URL URL"``, and a line for each that cannot be used."""
    entries = ((f"url {n}", {"url": url}) for n, url in enumerate(text.split(), 1))
    return _checked(entries, "urls", [])


def text_of(path: Path) -> str:
    """The text of a file of sources, as it is; SourcesInvalid if it cannot be read."""
    return _text(_octets_of(path), path.name)


def _octets_of(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe without a writer would never end
            raise SourcesInvalid(f"{path}: cannot be read: not a file; check the path")
        with path.open("rb") as file:
            octets = file.read(MAX_FILE + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SourcesInvalid(f"{path}: cannot be read: {reason}; check the path") from error
    if len(octets) > MAX_FILE:
        raise SourcesInvalid(f"{path}: longer than {MAX_FILE >> 20} MiB; divide it")
    return octets


def _text(octets: bytes, name: str) -> str:
    is_utf_16 = octets.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return octets.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourcesInvalid(f"{name}: not UTF-8 (byte {error.start}); save it so") from error


# --- readers: octets of a file to entries -----------------------------------------------------


def _toml(octets: bytes, name: str, _problems: list[str]) -> Iterator[_Entry]:
    try:
        tables = tomllib.loads(_text(octets, name)).get("source")
    except tomllib.TOMLDecodeError as error:
        raise SourcesInvalid(f"{name}: not TOML: {one_line(error)}") from error
    except RecursionError as error:
        raise SourcesInvalid(f"{name}: nested too deeply; write [[source]] tables") from error
    if not isinstance(tables, list):
        raise SourcesInvalid(f"{name}: no [[source]] table; write one for each source")
    for number, table in enumerate(tables, 1):
        yield f"source {number}", table if isinstance(table, dict) else {}


def _jsonl(octets: bytes, name: str, problems: list[str]) -> Iterator[_Entry]:
    for number, line in enumerate(_text(octets, name).split("\n"), 1):
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


#: A word of a line of newsboat, which may stand in quotes.
_WORD: Final = re.compile(r'"([^"]*)"|(\S+)')


def _txt(octets: bytes, name: str, _problems: list[str]) -> Iterator[_Entry]:
    """A URL in each line; behind it newsboat's tags, and its title after a ``~``."""
    for number, line in enumerate(_text(octets, name).splitlines(), 1):
        # A # begins a comment after a space only: else it is the fragment of a URL.
        words_of_line = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip(_BLANK)
        url, *words = [quoted or bare for quoted, bare in _WORD.findall(words_of_line)] or [""]
        # A query of newsboat is in quotes, and has no URL.
        if not url or (words_of_line.startswith('"') and "://" not in url):
            continue
        titles = [word[1:] for word in words if word.startswith("~")]
        yield f"line {number}", {"url": url, "name": titles[0]} if titles else {"url": url}


def _opml(octets: bytes, name: str, problems: list[str]) -> Iterator[_Entry]:
    """The subscriptions of an OPML file, read as kindly as a feed.

    A file that is not well-formed is read by the tags that it has.
    """
    try:
        text = xml_text(octets.strip(), None, name)
    except DocumentInvalid as error:
        raise SourcesInvalid(str(error)) from error
    outlines = _Outlines()
    try:
        outlines.visit(ET.fromstring(text))  # noqa: S314  without a document type
    except ET.ParseError as error:
        outlines = _Outlines()
        outlines.feed(text)
        if not outlines.subscriptions:
            raise SourcesInvalid(f"{name}: not OPML: {one_line(error)}") from error
        problems.append(f"{name}: not well-formed, read by its tags: {one_line(error)}")
    if outlines.root != "opml":
        raise SourcesInvalid(f"{name}: not OPML: its root is <{outlines.root}>")
    for number, attributes in sorted(outlines.subscriptions.items()):
        page = attributes.get("htmlurl") or attributes.get("url") or ""
        feed = attributes.get("xmlurl", "")
        title = attributes.get("title") or attributes.get("text") or ""
        entry = {"name": title, "url": page or feed}
        yield f"outline {number}", {**entry, "feed": feed} if feed else entry


class _Outlines(HTMLParser):
    """Collects the outlines of an OPML document: from its tree, or from its tags.

    ``root``: the name of its first element. ``subscriptions``: by number, the attributes of each
    outline that is neither a folder nor a comment, nor below a comment (OPML 2.0).
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = ""
        self.subscriptions: dict[int, dict[str, str]] = {}
        self._number = 0
        #: The outlines that are open, the innermost last.
        self._open: list[_Outline] = []

    def visit(self, element: ET.Element) -> None:
        """Take *element*, and the elements below it, which are at most as deep as a feed's."""
        name = element.tag.lower()
        self.handle_starttag(name, list(element.attrib.items()))
        for child in element:
            self.visit(child)
        self.handle_endtag(name)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.root = self.root or tag
        if tag != "outline":
            return
        self._number += 1
        attributes = {name.lower(): value or "" for name, value in attrs}
        outline = _Outline(self._number, attributes.get("iscomment", "").strip().lower() == "true")
        if self._open:
            self._open[-1].is_folder = True
            outline.is_comment = outline.is_comment or self._open[-1].is_comment
        self._open.append(outline)
        self.subscriptions[self._number] = attributes

    def handle_endtag(self, tag: str) -> None:
        if tag != "outline" or not self._open:
            return
        outline = self._open.pop()
        attributes = self.subscriptions[outline.number]
        has_url = any(attributes.get(name) for name in ("xmlurl", "htmlurl", "url"))
        if outline.is_comment or (outline.is_folder and not has_url):
            del self.subscriptions[outline.number]


@dataclass(slots=True)
class _Outline:
    """An outline that is open. ``is_comment``: it, or one around it, is a comment."""

    number: int
    is_comment: bool
    is_folder: bool = False


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


#: Blanks that people cannot see, which come with a URL that was copied.
_BLANK: Final = " \t\r\n\f\v\u00a0\u00ad\u200b\u200c\u200d\u2060\ufeff"
#: The scheme by which browsers handed a feed to its reader: ``feed:https://...``, ``feed://...``.
_FEED_SCHEME: Final = re.compile(r"feed:(?=https?:)|feed:(?=//)", re.IGNORECASE)
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
        first, _ = seen.setdefault(_key(source.first), (place, source))
        if first != place:
            problems.append(f"{file}: {place} ({source.name}): the same URL as {first}; dropped")
        urls = [entry.get(key, "") for key in ("url", "feed", "sitemap")]
        if any(without_userinfo(url) != url for url in urls):
            # D36: it is shown to a person.
            host = urlsplit(source.url).netloc
            problems.append(f"{file}: {place} ({source.name}): a URL of {host} {HAS_USERINFO}")
        problems.extend(
            f"{file}: {place} ({source.name}): unknown key {key!r}; ignored"
            for key in sorted(entry.keys() - set(_Given.__struct_fields__))
        )
    return [source for _, source in seen.values()], problems


def _key(url: str) -> str:
    """What two spellings of one URL have in common: IDN and its punycode are one host."""
    key = canonical_url(url)
    # D36: a key within one list, which is not sent.
    parts = urlsplit(key)
    return parts._replace(netloc=hosts.host_key(key)).geturl()


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
    # D36: it is shown to a person.
    name = " ".join(given.name.split()) or urlsplit(url).netloc
    return Source(name, url, feed, bare, sitemap, given.children, revisit)


def _offered(key: str, written: str) -> str | None:
    """The URL of the feed or the sitemap of an entry, None without one."""
    url = _written(written)
    return _usable(key, url, url) if url else None


def _written(text: str) -> str:
    """A URL as it was written, without userinfo, invisible blanks and the scheme ``feed:``."""
    text = text.strip(_BLANK)
    scheme = _FEED_SCHEME.match(text)
    if scheme is not None:
        rest = text[scheme.end() :]
        text = f"http:{rest}" if rest.startswith("//") else rest
    return without_userinfo(text)


def _url(written: str) -> tuple[str, bool]:
    """The URL to request, and whether it was written without a scheme."""
    written = _written(written)
    if not written:
        raise SourcesInvalid('no url; add url = "https://..."')
    bare = "://" not in written and _BARE.fullmatch(written) is not None
    url = _usable("url", f"https://{written}" if bare else written, written)
    # D36: what it returns is the URL that is declared, judged and sent.
    return (url if urlsplit(url).path or urlsplit(url).query else f"{url}/") if bare else url, bare


def _usable(key: str, url: str, written: str) -> str:
    """*url*; SourcesInvalid, which shows what was *written*, where it is not http or https."""
    if is_http_url(url):
        return url
    _, at, host = written.rpartition("@")
    shown = one_line(f"***@{host}" if at else written)  # what stood there may be a password
    raise SourcesInvalid(f"{key} {shown!r} cannot be used; write an absolute http or https URL")
