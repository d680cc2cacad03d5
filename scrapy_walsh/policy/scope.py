"""Request only declared targets, and the URLs that they redirect to (R6).

A target is declared by the project's start requests (``Spider.start``). Requests of a callback or a
pipeline, and links of a page, are not declared, whatever their ``meta`` says. One exception: if a
sitemap index was declared with ``children = true``, it declares sitemaps that it lists. With
WALSH_FOLLOW_LINKS, which walsh-research may not set, R6 is off; the other gates stay.

A crawl may have a million targets, and remembers each of them to its end. So the declared URLs are
stored as digests, about 25 octets each, whatever their length. A digest is enough, because we only
compare with a URL that we have. A URL that was never declared has the digest of a given target with
odds of 1 in 2**128. With a million targets that takes 10**32 links. To find such a URL on purpose
takes as long as to break the digest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.urls import exact_url
from scrapy_walsh.policy.verdict import OUT_OF_SCOPE, Verdict

#: The most sitemaps that an index declares.
MAX_CHILDREN: Final = 1_000
#: The only schemes that robots.txt, pacing and identity are defined for.
SCHEMES: Final = frozenset({"http", "https"})


#: Octets of a digest. The first two select the bucket; the others are stored there, and then a
#: mark.
_DIGEST: Final = 16
_REST: Final = _DIGEST - 2
_ENTRY: Final = _REST + 1

#: The marks of a source: the operator has named it; or only a sitemap index lists it.
_NAMED: Final = 0
_LISTED: Final = 1
#: The files of an authority that are declared with its targets (D38).
_OF_AN_AUTHORITY: Final = ("/robots.txt", "/llms.txt")


@dataclass(slots=True)
class Digests:
    """The digests of texts, each with a mark. ``_buckets``: the entries of each bucket."""

    _buckets: dict[bytes, bytearray] = field(default_factory=dict)

    def add(self, text: str, mark: int = 0) -> None:
        """Add *text*, or give it another *mark*, a number below 256."""
        bucket, tail = _digest(text)
        row = self._buckets.setdefault(bucket, bytearray())
        place = _place(row, tail)
        if place < 0:
            row += tail + bytes([mark])
        else:
            row[place + _REST] = mark

    def mark(self, text: str) -> int | None:
        """The mark of *text*; None for a text that was not added."""
        bucket, tail = _digest(text)
        row = self._buckets.get(bucket, b"")
        place = _place(row, tail)
        return None if place < 0 else row[place + _REST]

    def __contains__(self, text: str) -> bool:
        return self.mark(text) is not None

    def __bool__(self) -> bool:
        return bool(self._buckets)


def _place(row: bytes | bytearray, tail: bytes) -> int:
    """Where the entry of the digest *tail* begins in *row*, or -1."""
    place = row.find(tail)
    while place % _ENTRY and place >= 0:  # across two other entries
        place = row.find(tail, place + 1)
    return place


@lru_cache(maxsize=16)  # each look at a request begins with its URL's
def _digest(text: str) -> tuple[bytes, bytes]:
    octets = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(octets, digest_size=_DIGEST).digest()
    return digest[:2], digest[2:]


@dataclass(slots=True)
class Scope:
    """The targets of a crawl, by exact URL (``urls.exact_url``).

    ``follow_links``: WALSH_FOLLOW_LINKS. ``growing``: whether `Spider.start` has not ended, so that
    it may still declare targets. ``typed``: a person types the requests, so a request is declared
    if no other URL led to it. ``_sources``: the declared targets. ``_authorities``: the hosts and
    ports of the targets that the operator has named. ``_cadences``: the longest cadence of each
    target that has one, seconds (R8). ``_shortest``: by host, the shortest of them. ``_hops``:
    the URLs that they redirect to, each with the source that led to it. ``_children``: the sitemaps
    that each index with ``children`` has declared.
    """

    follow_links: bool = False
    growing: bool = False
    typed: bool = False
    _sources: Digests = field(default_factory=Digests)
    _authorities: Digests = field(default_factory=Digests)
    _cadences: dict[str, float] = field(default_factory=dict)
    _shortest: dict[str, float] = field(default_factory=dict)
    _hops: dict[str, str] = field(default_factory=dict)
    _children: dict[str, set[str]] = field(default_factory=dict)

    def declare(self, url: str, revisit: float | None = None) -> bool:
        """Add *url* to the targets. Returns whether that is new.

        *revisit*: its cadence, seconds (``visits.cadence``); None if WALSH_REVISIT holds.
        """
        url = exact_url(url)
        is_new = self._sources.mark(url) != _NAMED
        if is_new:
            self._sources.add(url, _NAMED)
            self._authorities.add(_host(url))
        return self._lengthen(url, revisit) or is_new

    def _lengthen(self, url: str, revisit: float | None) -> bool:
        """Give *url* that cadence if it is longer than the declared one. Returns whether it is."""
        if revisit is None or revisit <= self._cadences.get(url, -1.0):
            return False
        self._cadences[url] = revisit
        host = _host(url)
        if revisit:  # by "auto" it is WALSH_REVISIT at least
            self._shortest[host] = min(revisit, self._shortest.get(host, revisit))
        return True

    def shortest(self, url: str, revisit: float) -> float:
        """The shortest interval of a target on the host of *url*, seconds; *revisit*: the usual."""
        return min(revisit, self._shortest.get(_host(url), revisit))

    def cadence(self, url: str) -> float | None:
        """The seconds between two visits of *url* or of R8's key of it; None for WALSH_REVISIT.

        If several were declared for a URL, the longest cadence wins, and any over "auto".
        """
        return self._cadences.get(exact_url(url).partition(" ")[0])

    def allow_children(self, index: str) -> None:
        """Let *index*, a declared target, declare sitemaps (``children = true``)."""
        if self.is_source(index):
            self._children.setdefault(exact_url(index), set())

    def allows_children(self, index: str) -> bool:
        """Whether *index* may declare sitemaps."""
        return exact_url(index) in self._children

    def declare_child(self, url: str, index: str) -> bool:
        """Add the sitemap *url*, which the index *index* lists.

        Returns False if that is not allowed.

        Only an index that was declared so may do that: for MAX_CHILDREN sitemaps at most, on the
        host that the index was declared on, wherever that redirects to. A sitemap that was declared
        in this way declares nothing (so the depth is 1).
        """
        children = self._children.get(exact_url(index))
        if children is None or exact_url(url) == exact_url(index) or not _same_host(url, index):
            return False
        if exact_url(url) not in children and len(children) >= MAX_CHILDREN:
            return False
        children.add(exact_url(url))
        if not self.is_source(url):
            self._sources.add(exact_url(url), _LISTED)
        self._lengthen(exact_url(url), self._cadences.get(exact_url(index)))
        return True

    def declare_hop(self, url: str, origin: str) -> None:
        """Add *url*, a redirect of the URL *origin*, unless *origin* is out of scope."""
        source = self.source_of(origin)
        if source is not None:
            self._hops.setdefault(exact_url(url), source)

    def source_of(self, url: str) -> str | None:
        """The declared target that *url* is, or that redirected to it; None without one."""
        url = exact_url(url)
        return url if url in self._sources else self._hops.get(url)

    def is_source(self, url: str) -> bool:
        """Whether *url* itself was declared."""
        return exact_url(url) in self._sources

    def is_named(self, url: str) -> bool:
        """Whether the operator has named *url*, or another URL of the host that *url* is a file of.

        A sitemap that an index lists is a source, and not named (D38).
        """
        url = exact_url(url)
        if self._sources.mark(url) == _NAMED:
            return True
        path = url.partition("://")[2].partition("/")[2]
        return f"/{path}" in _OF_AN_AUTHORITY and _host(url) in self._authorities

    def refuses(self, url: str) -> Verdict | None:
        """The verdict against *url*, or None when it is within scope."""
        if not _has_scheme(url):
            return _refuse(f"{url[:100]!r} is not an http or https URL")
        if self.follow_links or self.source_of(url) is not None:
            return None
        return _refuse("not a declared target; links, sub-resources and media are not followed")

    def undecided(self, url: str) -> bool:
        """Whether *url* is out of scope, but `Spider.start` may still declare it."""
        return self.growing and _has_scheme(url) and self.refuses(url) is not None

    def refuses_in_place(self, url: str, other: str) -> Verdict | None:
        """The verdict against a request to *other* in place of *url*, or None.

        Redirects apart, another host would fetch the page for us, for example a rendering service
        or an archive. No gate would see how: with what User-Agent, how often, and what else (D24).
        """
        is_refused = self.refuses(other) is not None and not self.undecided(other)
        if is_refused or _same_host(url, other):
            return None
        return _refuse(
            f"a downloader middleware sends {other.partition('?')[0]} instead, "
            "whose host would fetch the page without our checks"
        )


def _has_scheme(url: str) -> bool:
    scheme, colon, _ = url.partition(":")
    return bool(colon) and scheme.lower() in SCHEMES


def _host(url: str) -> str:
    """As ``hosts.host_or_url``, which keeps the last URLs: there may be a million of these."""
    try:
        return hosts.host_key(url)
    except ValueError:
        return url


def _same_host(url: str, other: str) -> bool:
    return hosts.host_or_url(url) == hosts.host_or_url(other)


def _refuse(reason: str) -> Verdict:
    return Verdict(False, OUT_OF_SCOPE, "R6", reason)
