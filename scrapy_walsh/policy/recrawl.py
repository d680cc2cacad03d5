"""R7, R8, R11: a declared source, from run to run: may it be sent, was it changed, is it read?

**R8**: a source is requested daily or less, and not again within the hour (spec section 10.3).

R8 compares runs (D12). Within one run a source is requested as often as its spider yields it. From
run to run a source has a *due time*, WALSH_REVISIT after the due time before. A run may send it a
little early, by a tenth of WALSH_REVISIT at most, and the next due time is still counted from the
one that it met. So a daily run finds each source due each day, whatever the minute at which it
begins, and its times do not drift. A source that was sent at any other time is next due
WALSH_REVISIT after that; missed periods are not made up. However early a run is, nine tenths of
WALSH_REVISIT, and an hour, must have passed since the source was last sent.

A source that was *given up* (429, 5xx or no answer until R5 granted no more, too many redirects, a
hop that was refused) has no visit, and is sent by the next run, but not within an hour of that.

A run that begins some seconds before the hour is over waits for them (:func:`hour_left`): else an
hourly job, whose runs begin as far apart as its sources may be sent, would read each every second
hour.

A source may have a cadence of its own (:func:`cadence`); else WALSH_REVISIT is its interval.

A source that has answered 410 is *retired*: it is due again 30 days after that at the earliest.

**R7**: which validators to send, and which to store (spec section 10.2). They are stored for each
exact URL and representation, not for canonical URLs (T20): ``/a`` and ``/a/``, or the markdown and
the HTML of one page, do not share an ETag. Field values are text that was decoded as Latin-1;
encoded as Latin-1 they are the octets that were received.

**R11**: one source among a hundred may be dead, answer 403, opt out, or be deferred for weeks, and
the log line about it would be overlooked. So each run compares what it found with the records. A
source that was not read for three of its periods is named at the end, and so is one that has moved
for good. A run that comes before a source is due changes nothing about it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy import verdict as verdicts
from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.hosts import host_key
from scrapy_walsh.policy.throttle import Wall  # noqa: TC001  a store reads the declared types
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import DEFERRED, NOT_DUE, Verdict
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_walsh.policy.event import Event
    from scrapy_walsh.policy.scope import Scope

# -- R8: may it be sent? ------------------------------------------------------------------

#: Seconds: the shortest time between two runs of a source without a written reason.
REVISIT_FLOOR: Final = 3600.0
#: Seconds of that time for which a run waits at most.
WAITS_FOR_THE_HOUR: Final = 300.0
#: Seconds: the longest interval. A record is kept for longer than this (``state.records``).
REVISIT_LONGEST: Final = 365 * 86400.0

#: The part of the interval by which a run may be early, or late, for a source's due time.
SLACK: Final = 0.1

#: Seconds: "daily", which WALSH_REVISIT is unless it is set.
REVISIT: Final = 86400.0

#: Seconds for which a source is left alone that has answered 410 (RFC 9110 section 15.5.11).
RETIRED: Final = 30 * 86400.0
#: "Gone": the site asks that links to it be removed.
GONE: Final = 410


class Visit(NamedTuple):
    """The last request for a source that was answered. Unix seconds.

    ``sent_at``: when it was sent. ``counted_from``: the due time that it met, or ``sent_at``
    where it met none. ``gone``: the answer was 410. ``gave_up_at``: when a later request for it was
    given up; None where none was. Of a source that was never answered the first two are 0.
    ``revisit``: the source's own cadence, seconds; None where WALSH_REVISIT holds.
    """

    sent_at: float
    counted_from: float
    gone: bool = False
    gave_up_at: float | None = None
    revisit: float | None = None


def cadence(written: object) -> float:
    """The seconds of *written*: a number of them, or an ISO 8601 duration such as ``P7D``.

    Raises ValueError, which says what is accepted, also where they are too few or too many (R8.2).
    """
    seconds = written
    try:
        if isinstance(written, str) and written.lstrip().startswith("P"):
            seconds = parse_duration(written.strip())
        seconds = math.nan if isinstance(written, bool) else float(seconds)  # type: ignore[arg-type]
        if REVISIT_FLOOR <= seconds <= REVISIT_LONGEST:
            return seconds
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"{ascii(written)[:100]}; accepted: a number of seconds, or a duration such as P7D, "
        f"at least {REVISIT_FLOOR:g}, at most {REVISIT_LONGEST:.0f} (365 days)"
    )


def _interval(of: Visit | Reading, revisit: float) -> float:
    """Seconds between two visits of a source; *revisit*: WALSH_REVISIT."""
    return max(revisit if of.revisit is None else of.revisit, REVISIT_FLOOR)


def key_of(url: str, form: str = "") -> str:
    """R8's key of a request: its URL without fragment, and its form, if that is not empty."""
    url = url.partition("#")[0]
    return f"{url} {form}" if form else url


def form_of(method: str, body: bytes = b"") -> str:
    """What tells a request from a plain GET of its URL; empty for a GET without a body.

    It is the method and, where there is a body, a space and 16 hexadecimal digits of its SHA-256.
    """
    if method == "GET" and not body:
        return ""
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f"{method} {digest}" if body else method


def due(last: Visit, revisit: float) -> float:
    """When the source is next due, Unix seconds. *revisit*: WALSH_REVISIT, seconds."""
    when = last.counted_from + _interval(last, revisit)
    return max(when, last.sent_at + RETIRED) if last.gone else when


def opens(last: Visit, revisit: float) -> float:
    """When a run may first send the source again, Unix seconds: a little before it is due."""
    if last.gone:
        return due(last, revisit)
    interval = _interval(last, revisit)
    rest = max(REVISIT_FLOOR, (1 - SLACK) * interval)
    return max(last.sent_at + rest, due(last, revisit) - SLACK * interval)


def next_due(last: Visit | None, held: float, now: float, revisit: float) -> float | None:
    """Unix seconds before which no run sends a source again; None: the next run may.

    *last*: as for :func:`not_due`. *held*: until when its host is left alone (R5), Unix seconds.
    This is what every command and report calls "next due".
    """
    moment = held if last is None else max(held, _until(last, now, revisit))
    return moment if moment > now else None


def _until(last: Visit, now: float, revisit: float) -> float:
    """Until when the source is left alone; its visit does not count too far ahead of *now* (D9)."""
    stale = last.sent_at - now >= _interval(last, revisit)
    return max(_abort_ends(last, now), 0.0 if stale else opens(last, revisit))


def hour_left(last: Visit | None, now: float, revisit: float) -> float | None:
    """Seconds for which a run should wait, since then the source may be sent again; else None.

    It waits for the end of the hour alone, not for a longer interval. The arguments are those
    of :func:`next_due`.
    """
    moment = next_due(last, 0.0, now, revisit)
    if last is None or moment is None or moment - now > WAITS_FOR_THE_HOUR:
        return None
    hour = max(last.sent_at, last.gave_up_at or 0.0) + REVISIT_FLOOR
    return moment - now if moment <= hour else None


def _abort_ends(last: Visit, now: float) -> float:
    """The end of the hour after the source was given up; 0.0 where there is none (R8.2)."""
    at = last.gave_up_at
    return 0.0 if at is None or at - now >= REVISIT_FLOOR else at + REVISIT_FLOOR


def met(sent_at: float, last: Visit | None, revisit: float, status: int | None = None) -> Visit:
    """The visit that begins at *sent_at*, counted from the due time if it met that.

    *status*: of the answer.
    """
    gone = status == GONE
    if last is None:
        return Visit(sent_at, sent_at, gone)
    when = due(last, revisit)
    on_time = abs(sent_at - when) <= SLACK * _interval(last, revisit)
    return Visit(sent_at, when if on_time else sent_at, gone)


#: The refusal of a source that another run is requesting, and has no answer to yet.
UNDER_WAY: Final = Verdict(False, NOT_DUE, "R8", "another run is requesting it now")


def not_due(last: Visit | None, now: float, revisit: float, reason: str | None) -> Verdict | None:
    """A refusal while it is too soon to send a source again, else None.

    *last*: None when it was never answered. *now*: Unix seconds. *revisit* counts as
    :data:`REVISIT_FLOOR` at least. A written *reason* lifts the rule.

    A stored time in the future is a clock that was put back: up to *revisit* ahead it refuses,
    beyond that it is stale (D9). So no clock can shut a source out for more than two intervals.
    """
    if last is None or (reason is not None and reason.strip()):
        return None
    moment, hour = _until(last, now, revisit), _abort_ends(last, now)
    if now >= moment:
        return None
    if now < hour:
        what = f"given up {iso(hour - REVISIT_FLOOR)}"
    else:
        what = f"last requested {iso(last.sent_at)}"
        what += ", answered 410 (Gone) and left alone for 30 days" if last.gone else ""
    return Verdict(False, NOT_DUE, "R8", f"{what}{verdicts.NEXT_DUE}{iso(math.ceil(moment))}")


def counts_for(
    key: str, url: str, scope: Scope, carried: Iterable[str], hops: Mapping[str, Iterable[str]]
) -> dict[str, None]:
    """The sources for which an answer to the request *key*, for *url*, counts.

    They are those from which redirects led to it, in any number of steps, and itself if it is one.
    *carried*: those that are known without *hops*. *hops*: by key of a request that redirects led
    to, the sources that they led from.
    """
    found = dict.fromkeys(carried)
    left = [key, *found]
    while left:
        for source in hops.get(left.pop(), ()):
            if source not in found:
                found[source] = None
                left.append(source)
    if scope.is_source(url):
        found[key] = None
    elif not found and (source_of := scope.source_of(url)) is not None:
        found[source_of] = None
    return found


def counts_as_asked(status: int | None) -> bool:
    """Whether an answer counts as a visit of the source: 2xx, 304, and 4xx other than 429.

    *status* is None when there was no answer. Whatever R5 retries comes back at the next run.
    """
    if status is None or status == 429:
        return False
    return 200 <= status < 300 or status == 304 or 400 <= status < 500


# -- R7: was it changed? -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of one representation of one exact URL (T20).

    ``representation``: of :func:`representation_key`. ``stored_at``: Unix seconds.
    ``content_type``: of the answer that had them, which a 304 need not repeat.
    """

    url: str
    representation: str
    etag: str | None
    last_modified: str | None
    stored_at: Wall
    content_type: str | None = None


#: What no field value may have: control characters, and what is not Latin-1.
_NOT_SENT: Final = re.compile(r"[^\x20-\x7e\x80-\xff]")
_PACKED_TAG: Final = re.compile(r'((?:W/)?"[^"]+)-(?:gzip|br)"')


def conditional_headers(etag: str | None, last_modified: str | None) -> dict[str, str]:
    """The header fields of a conditional request (RFC 9110 section 13.1); none without validators.

    The values are sent as they were received. One that must not be in a header is left out, even
    where it comes from the store. Apache's mod_deflate and mod_brotli answer ``"x-gzip"``, and know
    only ``"x"`` again, so that is sent too.
    """
    tag = _entity_tag(etag)
    packed = _PACKED_TAG.fullmatch(tag or "")
    fields = {
        "If-None-Match": f'{tag}, {packed[1]}"' if packed else tag,
        "If-Modified-Since": _field_value(last_modified),
    }
    return {name: value for name, value in fields.items() if value is not None}


def representation_key(accept: str | None) -> str:
    """The name of a representation: the value of Accept, ``*/*`` without one (RFC 9110 12.5.1)."""
    return (accept or "").strip() or "*/*"


def replaces_validators(method: str, status: int | None) -> bool:
    """Whether an answer replaces the stored validators: a 200 to a GET does, no other answer."""
    return method == "GET" and status == 200


def to_store(answered: Validators) -> Validators | None:
    """What to store after an answer that :func:`replaces_validators`; *answered*: its fields.

    None if it has no validators: then the stored ones must be deleted.
    """
    tag, date = _entity_tag(answered.etag), _field_value(answered.last_modified)
    if tag is None and date is None:
        return None
    content_type = _field_value(answered.content_type)
    return replace(answered, etag=tag, last_modified=date, content_type=content_type)


def _entity_tag(value: str | None) -> str | None:
    # "If-None-Match: *" matches every representation: the server would answer 304 for ever.
    return None if value == "*" else _field_value(value)


def _field_value(value: str | None) -> str | None:
    usable = value is not None and value.strip() and not _NOT_SENT.search(value)
    return value if usable else None


# -- R11: is it read? ---------------------------------------------------------------------

#: What became of a source in one run. READ: its data came, or it has not changed (304).
READ: Final = "read"
REFUSED: Final = "refused"
LEFT_OUT: Final = "left_out"
FAILED: Final = "failed"
#: The run ended before its request, or the next one that it needed, was sent.
NOT_REQUESTED: Final = "not_requested"

#: In the order in which the last line of a run counts them.
OUTCOMES: Final = (READ, NOT_DUE, REFUSED, DEFERRED, LEFT_OUT, FAILED, NOT_REQUESTED)

#: For how many of its periods (its interval) a source may not be read before it is named.
PERIODS: Final = 3
#: Seconds after which a source is named again that still needs a person; less SLACK, as for R8.
NAMED_AGAIN: Final = 7 * 86400.0
#: Sources that are named one by one at the end of a run.
LISTED: Final = 20
#: Where those are named that need a person.
_WHO: Final = "warnings name each once a week, `scrapy walsh state show` always"


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether a declared source is still read. Times are Unix seconds.

    ``url``: of the source. ``since``: when it was last read, or first declared where it never was.
    ``declared_at``: when a run last declared it. ``read``: 1 where it was ever read, else 0.
    ``reason``: why the last visit did not read it, None where it did. ``moved_to``: where a
    permanent redirect led at the last visit that was answered. ``gone_at``: when it answered 410,
    so that it is left alone (:data:`RETIRED`); None where it has not. ``revisit``: as of a
    :class:`Visit`. ``told_at``: when a warning last named it; None where none has said what is so.
    """

    url: str
    since: Wall
    declared_at: Wall
    read: int = 0
    reason: str | None = None
    moved_to: str | None = None
    gone_at: Wall | None = None
    revisit: float | None = None
    told_at: Wall | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What one run learned of a source.

    ``outcome``: one of the constants above. ``reason``: why it was not read, one line. ``at``:
    when that was known, Unix seconds. ``moved_to``: where permanent redirects, and no others, led.
    ``gone``: it answered 410. ``revisit``: as of a :class:`Visit`.
    """

    outcome: str = NOT_REQUESTED
    reason: str = ""
    at: float = 0.0
    moved_to: str | None = None
    gone: bool = False
    revisit: float | None = None


def outcome_of(verdict: Verdict, due: float | None) -> str:
    """What becomes of a source that *verdict* is against; *due*: where it was deferred."""
    if verdict.name == NOT_DUE:
        return NOT_DUE
    return REFUSED if due is None and verdict.name != DEFERRED else DEFERRED


def replaces(known: str | None, outcome: str) -> bool:
    """Whether *outcome* is what becomes of a source in this run, of which *known* was before.

    A source that was read stays read. NOT_DUE does not replace an outcome that says more.
    """
    return known in (None, NOT_REQUESTED) or (known != READ and outcome != NOT_DUE)


def updated(old: Reading | None, url: str, heard: Heard, now: float) -> Reading:
    """The record of *url* after a run that ends at *now*; *old*: the one before it.

    A time on record that lies in the future is a clock that was put back: it counts as *now*.
    A deferral tells nothing new of a source that is said once.
    """
    base = Reading(url, now, now) if old is None else old
    base = replace(base, since=min(base.since, now), declared_at=now, revisit=heard.revisit)
    silent = heard.outcome == DEFERRED and _is_said_once(base)
    if silent or heard.outcome in (NOT_DUE, NOT_REQUESTED):
        return base
    if heard.outcome == READ:
        new = replace(base, since=heard.at, read=1, gone_at=None, reason=None)
        new = replace(new, moved_to=heard.moved_to)
    else:
        gone_at = heard.at if heard.gone else None
        moved_to = heard.moved_to or base.moved_to
        new = replace(base, reason=heard.reason, moved_to=moved_to, gone_at=gone_at)
    same = cause(new.reason) == cause(base.reason) and new.moved_to == base.moved_to
    return new if same else replace(new, told_at=None)


def cause(reason: str | None) -> tuple[str, ...]:
    """What of *reason* stays the same from run to run: its rule, and for most its verdict.

    A host that gives no answer may answer 503 tomorrow: both is R5.
    """
    reason = reason or ""
    return tuple(re.findall(r"^[RD]5\b", reason) or reason.split()[:2])


def is_known(old: Reading, event: Event, now: float, revisit: float) -> bool:
    """Whether a warning of *event*, which ends the visit of a source, would say nothing new.

    *old*: the record before this run. A source that is not read by now is named as such.
    """
    same = cause(old.reason) == cause(f"{event.requirement} {event.verdict}")
    return same or is_unread(old, now, revisit)


def is_unread(reading: Reading, now: float, revisit: float) -> bool:
    """Whether the source was not read for so long that the operator must be told.

    *revisit*: WALSH_REVISIT, seconds. A run may be a tenth of it early (:data:`SLACK`), so the
    third period is over for a run that comes as early as that. A source that is gone is not meant.
    """
    if reading.gone_at is not None:
        return False
    return now - reading.since >= (PERIODS - SLACK) * _interval(reading, revisit)


def _is_said_once(reading: Reading) -> bool:
    """Whether the source is gone, or refused by its owner: a person can mend nothing there."""
    return reading.gone_at is not None or cause(reading.reason) in verdicts.OWNERS_NO


def _has_opted_out(reading: Reading) -> bool:
    """Whether the owner refuses a source that was read before."""
    return bool(reading.read) and cause(reading.reason) in verdicts.OWNERS_NO


def attention(reading: Reading, now: float, revisit: float) -> str:
    """Why a source needs a person, and what to do, to follow its name; empty where it needs none.

    Of an opt-out it follows the name of the host. What is said once needs nobody after that.
    *revisit*: WALSH_REVISIT, seconds.
    """
    if _is_said_once(reading) and reading.told_at is not None:
        return ""
    if reading.gone_at is not None:
        return "is gone (410): take it out of your list"
    if _has_opted_out(reading):
        return f"by {reading.reason}: take them out, this is said once"
    if reading.moved_to is not None:
        return f"has moved for good to {reading.moved_to}: change it in your list"
    if is_unread(reading, now, revisit):
        reason = reading.reason or "no run since then was answered before it ended"
        return f"has not been read since {iso(reading.since)[:10]}: {reason}"
    return ""


def is_to_be_told(reading: Reading, now: float) -> bool:
    """Whether a warning is to name a source that needs a person: first, then once a week."""
    at = reading.told_at
    return at is None or not 0 <= now - at < (1 - SLACK) * NAMED_AGAIN


def attention_lines(readings: Iterable[Reading], now: float, revisit: float) -> list[str]:
    """What warnings say of *readings*, sources that need a person.

    First what is said once, one line for a host that has opted out; then the longest unread. There
    are LISTED lines at most, and one for the others. *revisit*: WALSH_REVISIT, seconds.
    """
    ordered = sorted(readings, key=lambda each: (not _is_said_once(each), each.since, each.url))
    hosts = Counter(_host(each) for each in ordered if _has_opted_out(each))
    lines: dict[str, str] = {}
    for each in ordered:
        name = each.url
        if _has_opted_out(each):
            many = plural(hosts[_host(each)], "source")
            name = f"{_host(each)} refuses from now on what it let be read: {many} of your list,"
        lines.setdefault(name, f"{name} {attention(each, now, revisit)}")
    said = list(lines.values())
    if len(said) > LISTED:
        more = f"... and {len(said) - LISTED} more (scrapy walsh state show lists them)"
        return [*said[:LISTED], more]
    return said


def _host(reading: Reading) -> str:
    """The host of a source, whose key may name a form after the URL."""
    return host_key(reading.url.partition(" ")[0])


def last_line(
    outcomes: Mapping[str, int],
    needy: int,
    close_reason: str,
    rules: Mapping[str, int] | None = None,
    links: Mapping[str, int] | None = None,
) -> str:
    """The last line of a run, for somebody who reads no other.

    *outcomes*: sources by outcome. *needy*: those that need a person. *close_reason*: why the
    spider was closed, Scrapy's word. *rules*, *links*: by requirement, how many sources, and how
    many requests of the spider's own, it refused.
    """
    counts = Counter(outcomes)
    if total := counts.total():
        parts = [f"{counts[READ]} of {plural(total, 'source')} read or unchanged"]
        words = {name: name.replace("_", " ") for name in OUTCOMES[1:]}
        words[REFUSED] += _by_rule(rules or {}, counts[REFUSED])
        parts += [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]
    else:
        parts = ["no source was declared"]
    if links:
        count = sum(links.values())
        parts[-1] += f"; {plural(count, 'link')} refused{_by_rule(links, count)}"
        parts[-1] += f": {verdicts.REMEDIES['R6', verdicts.OUT_OF_SCOPE]}" if "R6" in links else ""
    # Scrapy's word for a run that came to its end by itself.
    stopped = "" if close_reason == "finished" else f"stopped ({close_reason}): "
    needs = f"; {needy} need{'s' if needy == 1 else ''} a person: {_WHO}" if needy else ""
    return f"walsh: {stopped}{', '.join(parts)}{needs}"


def rule_of(reason: str) -> str:
    """The requirement, or the setting, that *reason* (:func:`refusal_line`) begins with; or ""."""
    found = re.match(r"R\d+|WALSH_[A-Z_]+", reason)
    return found[0] if found else ""


def _by_rule(counts: Mapping[str, int], total: int) -> str:
    """ " (R6)", or " (2 by R2, 1 by R3)"; empty where *counts* do not make up *total*."""
    if "" in counts or sum(counts.values()) != total:
        return ""
    if len(counts) < 2:
        return "".join(f" ({rule})" for rule in counts)
    return f" ({', '.join(f'{count} by {rule}' for rule, count in sorted(counts.items()))})"


def refusal_line(verdict: Verdict) -> str:
    """A refusal in one line: by which requirement and rule, and in which document."""
    by = f"by {verdict.rule}" if verdict.rule else f"({verdict.reason})"
    line = "" if verdict.line is None else f":{verdict.line}"
    where = f" in {verdict.document}{line}" if verdict.document else ""
    return f"{verdict.requirement} {verdict.name} {by}{where}"
