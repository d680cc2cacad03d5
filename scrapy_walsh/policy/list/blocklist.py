"""The operator's blocklist: the hosts that have opted out (R3).

A host is blocked if any form of it equals a listed domain or is a subdomain of it (T15). Entries
are read generously, because to block too much conforms to the specification, and to drop an opt-out
does not (T16). If a list has a million domains, it takes seconds to read, build or compare. So an
event loop lets a thread do it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.freshness import DEFAULT_REFRESH
from scrapy_walsh.policy.hosts import carried_ipv4, host_forms, is_doubtful, usual_url
from scrapy_walsh.policy.verdict import BLOCKED_OPERATOR, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

#: Suffixes under a country's code below which registries sell names, such as co.uk: the usual ones.
_SUFFIX: Final = (
    r"(?:ac|co|com|edu|go|gob|gouv|gov|govt|ltd|mil|ne|net|nom|or|org|plc|sch)\.[a-z]{2}"
)
_USUAL_ENTRY: Final = re.compile(rf"(?!{_SUFFIX}\Z)(?:[a-z0-9_-]+\.)+[a-z_][a-z0-9_-]*")
_SEPARATORS: Final = re.compile(r"[\s,;|]+")
_AROUND: Final = "\"'`<>(){}^!"  # people put names between these, and no name has them
_NO_ADDRESS: Final = re.compile(r"[^0-9.]")
_ASKABLE: Final = re.compile(r"[a-z0-9._:-]+")
_SIGNS: Final = re.compile(r"[]=:/?$()[{}<>|^]+")  # what ad filters and patterns put around a name
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")
_NAME: Final = re.compile(r"\.?[\w-]+(?:\.[\w-]+)+\.?")
_MAX_WARNINGS: Final = 20
#: Octets of a list that are read, by a crawl and by a command; a longer one is not adopted.
MAX_OCTETS: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Blocklist:
    """The domains that opted out, none unless they are given; iteration yields them in no order.

    ``domains``: as :func:`normalise` makes them. ``refresh``: how many seconds it is fresh (R12),
    within floor and ceiling (T12). ``updated``, ``contract``: as the document says. ``contact``:
    the operator's mail address, or empty. ``warnings``: one line each. ``document``: URL that it
    came from, or None. ``digest``: SHA-256 of its octets, hexadecimal, or None. ``inline``: the
    document brings its schema. ``others``: lists from other addresses that bind as well (D39);
    iteration, length and verdicts count them.
    """

    domains: Set[str] = field(default=frozenset(), repr=False)
    refresh: float = DEFAULT_REFRESH
    updated: str | None = None
    contract: str | None = None
    contact: str = ""
    warnings: tuple[str, ...] = ()
    document: str | None = None
    digest: str | None = None
    inline: bool = False
    others: tuple[Blocklist, ...] = ()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    @property
    def _all(self) -> Set[str]:
        return self.domains if not self.others else {*self.domains, *chain(*self.others)}

    @property
    def addresses(self) -> list[str]:
        """The URLs that the list, and those beside it, came from."""
        return [blocklist.document for blocklist in (self, *self.others) if blocklist.document]

    def blocks(self, url_or_host: str) -> Verdict | None:
        """Return the verdict that refuses ``url_or_host``, or None if its host is not listed.

        Raises ValueError if there is no readable host, or if another reader may find another host.
        Then the caller must refuse the request.
        """
        verdict = self._blocks(url_or_host)
        for blocklist in self.others:
            verdict = verdict or blocklist.blocks(url_or_host)
        return verdict

    def _blocks(self, url_or_host: str) -> Verdict | None:
        usual = usual_url(url_or_host)
        if usual:
            return self._judge(usual[1])
        for form in host_forms(url_or_host):
            for host in (form, *carried_ipv4(form)):
                if verdict := self._judge(host):
                    return verdict
        if is_doubtful(url_or_host):
            raise ValueError(f"not two slashes before the host in {url_or_host[:200]!r}")
        return None

    def _judge(self, host: str) -> Verdict | None:
        # IP addresses need no exception: listed ones are complete, so none is a suffix of another.
        domain = self._covering(host)
        if not domain:
            return None
        below = "" if host == domain else f", below {domain},"
        reason = f"host {host}{below} is on the operator blocklist"
        return Verdict(
            False, BLOCKED_OPERATOR, "R3", reason, self.document, None, (), (), domain, self.digest
        )

    def _covering(self, host: str) -> str:
        """Return the longest domain that ``host`` equals or is a subdomain of, or ""."""
        name, domains = host, self.domains
        while name and name not in domains:
            name = name.partition(".")[2]
        return name


def is_inline(members: dict[str, Any]) -> bool:
    """Tell whether the document brings its schema, so that no other is needed (R10.1)."""
    return "schema" in members


def normalise(entries: Iterable[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the domains that ``entries`` name, normalised, and warnings about odd entries.

    ``entries``: the values of the members ``domain``. Warnings: one line each, at most
    _MAX_WARNINGS, and a line that counts the others.
    """
    domains: list[str] = []
    warnings: list[str] = []
    for entry in entries:
        if _USUAL_ENTRY.fullmatch(entry):
            domains.append(entry)
        else:
            names = _unusual(entry)
            domains.extend(names)
            below = "every host below " if not all(map(_ADDRESS.fullmatch, names)) else ""
            effect = f"{below}{', '.join(names[:3])}" if names else "nothing"
            warnings.append(f"entry {entry[:200]!r} is no plain domain: it blocks {effect}")
    surplus = len(warnings) - _MAX_WARNINGS
    summary = [f"{surplus} more odd entries"] if surplus > 0 else []
    return domains, (*warnings[:_MAX_WARNINGS], *summary)


def _unusual(entry: str) -> tuple[str, ...]:
    """Return the domains of an entry that is not plainly a domain."""
    words = list(filter(None, (word.strip(_AROUND) for word in _SEPARATORS.split(entry))))
    if len(words) > 1:  # several domains, or prose around one
        words = [word for word in words if "." in word.strip(".") or word.count(":") > 1]
    return tuple(form for word in words for form in _entry_forms(word))


def _authority(piece: str) -> str:
    return re.split(r"[/?#]", piece.rpartition("://")[2], maxsplit=1)[0]


def _entry_forms(entry: str) -> tuple[str, ...]:
    """The domains that a piece of an entry may name: a host, a URL, a pattern or a filter."""
    forms = _read(entry)
    if r"\." in entry:  # a regular expression's dot, or a path after a backslash
        forms = (*[form for form in forms if "." in form], *_read(entry.replace(r"\.", ".")))
    usable = [form for form in forms if _ASKABLE.fullmatch(form)]
    if "*" in entry or any("." in form or ":" in form for form in usable):
        return forms
    names = filter(_NAME.fullmatch, _SIGNS.split(entry.replace(r"\.", ".")))
    return (*usable, *(form for name in names for form in _read(name.strip(".")))) or forms


def _read(entry: str) -> tuple[str, ...]:
    bare = entry.strip()
    if "*" in bare:
        # The text after the last wildcard covers every host that the pattern matches. If there is
        # no text after it, no domain covers them. Then at least the name before it is blocked.
        *prefixes, bare = _authority(bare).split("*")
        if not bare:
            names = (part.strip(".:") for part in reversed(prefixes))
            bare = next((name for name in names if "." in name and _NO_ADDRESS.search(name)), "")
    try:
        return host_forms(bare)
    except ValueError:
        return ()


def find_lifted(old: Blocklist, new: Blocklist) -> list[str]:
    """Return the domains that ``old`` lists and ``new`` does not block."""
    return [name for name in old if not new._covering(name) and new.blocks(name) is None]


def join_lists(lists: Sequence[Blocklist]) -> Blocklist:
    """Return the first list with the others beside it. A host is blocked if any list blocks it."""
    return replace(lists[0], others=tuple(lists[1:])) if len(lists) > 1 else lists[0]
