"""A host's requests as a picture: when each was sent, and how long the host was left alone. Pure.

    for shape in shapes(host.marks, began, span): ...

``templates/parts.html`` makes an inline SVG of the shapes. A horizontal place is a percentage of
the picture's width, so that a picture fits every screen; heights are pixels. Each shape has a form
or filling of its own beside its colour, because some readers do not see colours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.times import duration
from scrapy_walsh.proof.report.words import answer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.ledger import Line
    from scrapy_walsh.proof.ledgered import Gap

#: How many hosts are drawn; a host with more requests than this has its row alone.
DRAWN: Final = 24
MOST: Final = 120
#: The height of a picture, and the tops and heights of what is in it, in pixels.
HEIGHT: Final = 38
_REQUEST: Final = (18, 16)
_SPACED: Final = (26, 8)
_HELD: Final = (21, 6)
_LABEL: Final = 14
#: The classes of what is drawn.
KINDS: Final = frozenset({"target", "robots", "operator", "spaced", "held"})
#: The least width of a request, and the room that a label needs, in percent.
_NARROW: Final = 0.5
_ROOM: Final = 7.0


class Mark(NamedTuple):
    """One request. ``sent``, ``ended``: Unix seconds by the wall clock.

    ``spaced``, ``held``: seconds after it that the host had to be left alone, by R4's interval and
    by R5. ``answer``: in words; ``label``: the picture's word for it, if it has one. ``short``: it
    came too early.
    """

    purpose: str
    sent: float
    ended: float
    spaced: float
    held: float
    answer: str
    label: str
    short: bool


class Shape(NamedTuple):
    """A rectangle, or a text if there is one. ``kind``: its CSS class."""

    kind: str
    at: float
    wide: float
    y: int
    high: int
    text: str = ""


def mark_of(line: Line, gap: Gap | None) -> Mark:
    """The shapes of an exchange, and of the *gap* before it."""
    well = line.status is not None and line.status < 400
    return Mark(
        line.purpose,
        line.moment.began,
        line.at,
        0.0 if line.exempt else line.interval,
        line.wait or 0.0,
        answer_of(line),
        "" if well else str(line.status or answer_of(line)),
        gap is not None and gap.short,
    )


def shapes(marks: Sequence[Mark], began: float, span: float) -> Iterator[Shape]:
    """The shapes to draw, later ones over earlier ones. *span*: seconds that the picture shows."""

    def place(time: float) -> float:
        return min(max(100.0 * (time - began) / span, 0.0), 100.0)

    ends = [*(place(mark.sent) for mark in marks[1:]), 100.0]
    free = 0.0
    for mark, end in zip(marks, ends, strict=True):
        start = place(mark.sent)
        over = place(mark.ended)
        for kind, seconds, box in (
            ("spaced", mark.spaced, _SPACED),
            ("held", mark.held, _HELD),
        ):
            until = min(place(mark.ended + seconds), max(end, over))
            if until > over:
                yield Shape(kind, over, until - over, *box)
        start = min(start, 100.0 - _NARROW)
        yield Shape(mark.purpose, start, max(over - start, _NARROW), *_REQUEST)
        label = "too early" if mark.short else mark.label
        if label and start >= free:
            yield Shape("label", start, 0.0, _LABEL, 0, label)
            free = start + _ROOM


def ticks(span: float) -> list[tuple[float, str]]:
    """Places of the time axis, each with its words."""
    return [
        (part * 25.0, f"+{duration(span * part / 4)}" if part else "start") for part in range(4)
    ]
