"""Reads the sources that the operator declared: from a file, or from the command line.

For example, ``read_sources("sources.toml")``. A file that cannot be read raises. If an entry is
bad, one line reports it, and the other entries count.
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
    two visits; None for WALSH_REVISIT. ``bare_host``: the URL was written without a scheme. Then
    ``url`` is https, and http may be tried if the host gives no answer by https.
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
        """The URL of its first request, which is the key of its records (R8)."""
        return self.feed or self.sitemap or self.url


#: An entry of a file: its place, for messages, and its keys and values as they are written.
_Entry = tuple[str, Mapping[str, Any]]


#: Octets of a file of sources that are read.
MAX_FILE: Final = 32 * 1024 * 1024


def read_sources(path: str | Path) -> tuple[list[Source], list[str]]:
    """The sources of a ``.toml``, ``.jsonl``, ``.opml`` or ``.txt`` file, and its problems.

    Each problem is one line that names the file and the place in it. Raises SourcesInvalid if the
    file cannot be read, or is not in the format of its suffix.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise SourcesInvalid(f"{path.name}: unknown kind of file; use {', '.join(_READERS)}")
    problems: list[str] = []
    try:
        return _check(reader(_octets_of(path), path.name, problems), path.name, problems)
    except (MemoryError, RecursionError) as error:
        raise SourcesInvalid(f"{path.name}: too large or too deep to be read; divide it") from error


def parse_urls(text: str) -> tuple[list[Source], list[str]]:
    """The sources of ``-a urls="URL URL"``, and a line for each that cannot be used."""
    entries = ((f"url {n}", {"url": url}) for n, url in enumerate(text.split(), 1))
    return _check(entries, "urls", [])


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


#: A dotted key with very many parts: the parser's memory grows with the square of their number.
_DEEP_KEY: Final = re.compile(
    r"""(?:^|[\[{,])[ \t]*+(?:(?:"[^"\n]*+"|'[^'\n]*+'|[\w-]++)[ \t]*+\.[ \t]*+){100}""",
    re.ASCII | re.MULTILINE,
)


def _toml(octets: bytes, name: str, _problems: list[str]) -> Iterator[_Entry]:
    text = _text(octets, name)
    try:
        if _DEEP_KEY.search(text):
            raise RecursionError
        tables = tomllib.loads(text).get("source")
    except RecursionError as error:
        raise SourcesInvalid(f"{name}: nested too deeply; write [[source]] tables") from error
    except ValueError as error:  # also a number with very many digits
        raise SourcesInvalid(f"{name}: not TOML: {one_line(error)}") from error
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


#: A word of a line of newsboat; it may be in quotes.
_WORD: Final = re.compile(r'"([^"]*)"|(\S+)')


def _txt(octets: bytes, name: str, _problems: list[str]) -> Iterator[_Entry]:
    """A URL in each line, then newsboat's tags, and its title after a ``~``."""
    for number, line in enumerate(_text(octets, name).splitlines(), 1):
        # A # begins a comment only after a space. Otherwise it begins the fragment of a URL.
        words_of_line = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip(_BLANK)
        url, *words = [quoted or bare for quoted, bare in _WORD.findall(words_of_line)] or [""]
        # A query of newsboat is in quotes, and has no URL.
        if not url or (words_of_line.startswith('"') and "://" not in url):
            continue
        titles = [word[1:] for word in words if word.startswith("~")]
        yield f"line {number}", {"url": url, "name": titles[0]} if titles else {"url": url}


def _opml(octets: bytes, name: str, problems: list[str]) -> Iterator[_Entry]:
    """The subscriptions of an OPML file, parsed as leniently as a feed.

    If the file is not well-formed, we parse its tags one by one.
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
    """Collects the outlines of an OPML document, from its tree or from its tags.

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
        """Take *element* and the elements below it. The depth is limited, as for a feed."""
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
    """An open outline. ``is_comment``: it is a comment, or inside of a comment."""

    number: int
    is_comment: bool
    is_folder: bool = False


_READERS: Final = {".toml": _toml, ".jsonl": _jsonl, ".opml": _opml, ".txt": _txt}
#: The suffixes of files of sources.
KINDS: Final = tuple(_READERS)


# --- checks: entries to sources ---------------------------------------------------------------


class _Keys(msgspec.Struct):
    """The keys of an entry."""

    name: str = ""
    url: str = ""
    feed: str = ""
    sitemap: str = ""
    children: bool = False
    revisit: Any = None


#: Invisible blanks, for example of a URL that was copied.
_BLANK: Final = " \t\r\n\f\v\u00a0\u00ad\u200b\u200c\u200d\u2060\ufeff"
#: Browsers used this scheme for a feed: ``feed:https://...``, ``feed://...``.
_FEED_SCHEME: Final = re.compile(r"feed:(?=https?:)|feed:(?=//)", re.IGNORECASE)
_BARE: Final = re.compile(
    r"(?:[\w-]+\.)+[\w-]+\.?(?::\d{1,5})?(?:[/?].*)?|localhost(?::\d{1,5})?/?"
)


def _check(
    entries: Iterable[_Entry], file: str, problems: list[str]
) -> tuple[list[Source], list[str]]:
    """The sources of *entries*, and *problems* with a line for each problem of an entry."""
    source_by_key: dict[str, tuple[str, Source]] = {}
    for place, entry in entries:
        try:
            source = _source(entry)
        except (SourcesInvalid, msgspec.ValidationError) as error:
            problems.append(f"{file}: {place}{_called(entry)}: {error}")
            continue
        first_place, _ = source_by_key.setdefault(_key(source.first), (place, source))
        label = f"{file}: {place} ({source.name})"
        if first_place != place:
            problems.append(f"{label}: the same URL as {first_place}; dropped")
        urls = [entry.get(key, "") for key in ("url", "feed", "sitemap")]
        if any(without_userinfo(url) != url for url in urls):
            # D36: for a message only.
            host = urlsplit(source.url).netloc
            problems.append(f"{label}: a URL of {host} {HAS_USERINFO}")
        unknown_keys = sorted(entry.keys() - set(_Keys.__struct_fields__))
        problems += [f"{label}: unknown key {key!r}; ignored" for key in unknown_keys]
    return [source for _, source in source_by_key.values()], problems


def _key(url: str) -> str:
    """The same key for all spellings of a URL, for example with an IDN or its punycode."""
    key = canonical_url(url)
    # D36: a key within a list; it is never sent.
    parts = urlsplit(key)
    return parts._replace(netloc=hosts.host_key(key)).geturl()


def _called(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    return f" ({one_line(name)})" if isinstance(name, str) and name.strip() else ""


def _source(entry: Mapping[str, Any]) -> Source:
    """The source of an entry. Raises SourcesInvalid and msgspec.ValidationError."""
    keys = msgspec.convert(entry, _Keys)
    feed = _document("feed", keys.feed)
    sitemap = _document("sitemap", keys.sitemap)
    if keys.children and sitemap is None:
        raise SourcesInvalid('children = true without a sitemap; add sitemap = "https://..."')
    try:
        revisit = None if keys.revisit is None else cadence(keys.revisit)
    except ValueError as error:
        raise SourcesInvalid(f"revisit is {error}") from None
    # A source with a sitemap needs no page.
    url, bare_host = _url(keys.url or sitemap or "")
    # D36: for people only.
    name = " ".join(keys.name.split()) or urlsplit(url).netloc
    return Source(name, url, feed, bare_host, sitemap, keys.children, revisit)


def _document(key: str, value: str) -> str | None:
    """The URL of the feed or the sitemap of an entry, or None."""
    url = _clean(value)
    return _checked_url(key, url, url) if url else None


def _clean(text: str) -> str:
    """A URL without userinfo, invisible blanks and the scheme ``feed:``."""
    text = text.strip(_BLANK)
    scheme = _FEED_SCHEME.match(text)
    if scheme is not None:
        text = text[scheme.end() :]
        if text.startswith("//"):
            text = f"http:{text}"
    return without_userinfo(text)


def _url(value: str) -> tuple[str, bool]:
    """The URL to request, and whether *value* has no scheme."""
    text = _clean(value)
    if not text:
        raise SourcesInvalid('no url; add url = "https://..."')
    is_bare = "://" not in text and _BARE.fullmatch(text) is not None
    if not is_bare:
        return _checked_url("url", text, text), False
    url = _checked_url("url", f"https://{text}", text)
    # D36: this URL is declared, judged and sent.
    parts = urlsplit(url)
    if not (parts.path or parts.query):
        url += "/"
    return url, True


def _checked_url(key: str, url: str, text: str) -> str:
    """*url*. Raises SourcesInvalid, with the *text* of the entry, if it is not http or https."""
    if is_http_url(url):
        return url
    _, at, host = text.rpartition("@")
    shown_text = one_line(f"***@{host}" if at else text)  # there may be a password before the @
    raise SourcesInvalid(
        f"{key} {shown_text!r} cannot be used; write an absolute http or https URL"
    )
