"""R6: only declared targets, and what they redirect to, are requested.

A target is declared by the project's start requests (``Spider.start``). What a callback yields, a
page links to, or a pipeline requests is not declared, whatever its ``meta`` says. One exception:
a sitemap index that was declared with ``children = true`` declares sitemaps that it lists. With
WALSH_FOLLOW_LINKS, which walsh-research may not set, R6 is off; the other gates stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.verdict import OUT_OF_SCOPE, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The most sitemaps that one index declares.
MAX_CHILDREN: Final = 1_000
#: The only schemes that robots.txt, pacing and identity are defined for.
SCHEMES: Final = frozenset({"http", "https"})


@dataclass(slots=True)
class Scope:
    """The targets of one crawl, by exact URL without fragment.

    ``follow_links``: WALSH_FOLLOW_LINKS. ``_sources``: the declared ones. ``_hops``: where they
    redirect to, each with the source that led to it. ``_children``: by declared index that may
    declare sitemaps, those that it has declared.
    """

    follow_links: bool = False
    _sources: set[str] = field(default_factory=set)
    _hops: dict[str, str] = field(default_factory=dict)
    _children: dict[str, set[str]] = field(default_factory=dict)

    def declare(self, url: str) -> None:
        """Add *url* to the targets."""
        self._sources.add(_key(url))

    def allow_children(self, index: str) -> None:
        """Let *index*, a declared target, declare sitemaps (``children = true``)."""
        if self.is_source(index):
            self._children.setdefault(_key(index), set())

    def allows_children(self, index: str) -> bool:
        """Whether *index* may declare sitemaps."""
        return _key(index) in self._children

    def declare_child(self, url: str, index: str) -> bool:
        """Add the sitemap *url*, which the sitemap index *index* lists; False where it may not be.

        Only an index that was declared so may do that: for MAX_CHILDREN sitemaps at most, on the
        host that the index was declared on, wherever that redirects to. A sitemap that was declared
        in this way declares nothing (so the depth is 1).
        """
        found = self._children.get(_key(index))
        if found is None or _key(url) == _key(index) or not _same_host(url, index):
            return False
        if _key(url) not in found and len(found) >= MAX_CHILDREN:
            return False
        found.add(_key(url))
        self.declare(url)
        return True

    def declare_hop(self, url: str, origin: str) -> None:
        """Add *url*, to which the URL *origin* redirects, unless *origin* is out of scope."""
        source = self.source_of(origin)
        if source is not None:
            self._hops.setdefault(_key(url), source)

    def targets(self) -> Iterator[tuple[str, str | None]]:
        """Every target, and the source that redirects to it; None where it was declared itself."""
        yield from ((url, None) for url in self._sources)
        yield from ((url, via) for url, via in self._hops.items() if url not in self._sources)

    def source_of(self, url: str) -> str | None:
        """The declared target that *url* is, or that redirected to it; None without one."""
        url = _key(url)
        return url if url in self._sources else self._hops.get(url)

    def is_source(self, url: str) -> bool:
        """Whether *url* itself was declared."""
        return _key(url) in self._sources

    def refuses(self, url: str) -> Verdict | None:
        """The verdict against *url*, or None when it is within scope."""
        scheme, colon, _ = url.partition(":")
        if not colon or scheme.lower() not in SCHEMES:
            return _refused(f"{url[:100]!r} is not an http or https URL")
        if self.follow_links or self.source_of(url) is not None:
            return None
        return _refused("not a declared target; links, sub-resources and media are not followed")

    def refuses_in_place(self, url: str, other: str) -> Verdict | None:
        """The verdict against sending a request to *other* in place of one to *url*, or None.

        Redirects apart, a request to another host has that host fetch the page (a rendering
        service, an archive), and no gate sees how: with what User-Agent, how often, and what else
        (D24).
        """
        if self.refuses(other) is not None or _same_host(url, other):
            return None
        return _refused(
            f"a downloader middleware sends {other.partition('?')[0]} in its place: its host would "
            "fetch the page past the gates"
        )


def _same_host(url: str, other: str) -> bool:
    try:
        return hosts.host_key(url) == hosts.host_key(other)
    except ValueError:
        return False


def _key(url: str) -> str:
    return url.partition("#")[0]


def _refused(reason: str) -> Verdict:
    return Verdict(False, OUT_OF_SCOPE, "R6", reason)
