"""Tells the bot's own requests from forged ones, where they are signed and the log has that.

Pure: log entries and the keys of a directory in, entries and reasons out. A request whose
signature holds is the bot's. Every other one may be anybody's, whatever its User-Agent says, and
says nothing about the bot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.signing import FIELDS
from scrapy_walsh.proof.signatures import Judgement, Seen, judge, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.audit.reading import Entry

#: A log may name the host with the port of either scheme, and does not say which was used.
_DEFAULT_PORTS: Final = (":80", ":443")
#: Of a line that does not say, as from before the log's format had the fields.
_NOT_LOGGED: Final = "no fields of a signature in the log"
#: Of a request that carries the signature of an earlier one, which anybody may have seen.
_REPLAYED: Final = "a signature sent again"


@dataclass(slots=True)
class Own:
    """What was told apart: ``entries`` of the bot, and how many requests were not its, by reason.

    ``keys``: how many requests each key signed. ``forged``: the place of each request that is not
    the bot's, and why.
    """

    entries: list[Entry]
    keys: Counter[str]
    reasons: Counter[str]
    forged: list[tuple[str, str]]


def tell_apart(entries: Sequence[Entry], keys: Sequence[dict[str, Any]], slack: float) -> Own:
    """Judge each of *entries*. *slack*: seconds by which the log's clock may be off."""
    judged = [(entry, judge(_seen(entry), keys, slack=slack)) for entry in entries]
    again = {later: first for first, later in repeated(judged)}
    found = Own([], Counter(), Counter(), [])
    for entry, judgement in judged:
        fault, why = _why_not(entry, judgement, again.get(entry))
        if fault is None:
            found.entries.append(entry)
            found.keys[judgement.keyid] += 1
        else:
            found.reasons[fault] += 1
            found.forged.append((entry.place, why))
    return found


def _why_not(entry: Entry, judgement: Judgement, first: Entry | None) -> tuple[str | None, str]:
    if entry.signature is None:
        return _NOT_LOGGED, "its line has not the three fields of a signature"
    if judgement.fault is not None:
        return judgement.fault.value, judgement.why
    if first is not None:
        return _REPLAYED, f"its signature is that of {first.place}"
    return None, ""


def _seen(entry: Entry) -> Seen:
    fields = zip(FIELDS, entry.signature or (), strict=False)
    lines = {name.lower(): [value] for name, value in fields if value}
    forms = tuple(_authorities(entry.site))
    return Seen(entry.method, forms, entry.target, float(entry.time), lines)


def _authorities(site: str) -> Iterator[str]:
    yield site
    yield from (site.removesuffix(port) for port in _DEFAULT_PORTS if site.endswith(port))
