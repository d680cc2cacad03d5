"""The shapes of each picture and their places; ``templates/parts.html`` makes inline SVG of them.

A horizontal place is a part of the picture's width, from 0 to 1, so that a picture fits every
screen. All other lengths are pixels. Kinds of marks differ in shape or filling as well as in
colour, for readers who do not see colours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.times import duration
from scrapy_walsh.proof.report.history import READ, REFUSED, UNCHANGED
from scrapy_walsh.proof.report.lanes import COLUMNS, POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.report.lanes import Lane, Mark

#: A lane, in pixels: its height, where the bars of exchanges stand, and where decisions are.
_HEIGHT: Final = 46
_BASE: Final = 32
_UNDER: Final = 40
#: The height of an exchange's bar, in pixels.
_TALL: Final = 16
#: Marks nearer to each other than this part of the width are drawn side by side.
_NEAR: Final = 0.012
#: The pixels between them, and how many are moved at most.
_BESIDE: Final = 8
_MOST_BESIDE: Final = 6
#: From this part of the width on, marks are moved to the left.
_EDGE: Final = 0.9
#: Percent of the width that a label over a bar needs on a phone.
_LABEL: Final = 14.0
#: Seconds between two ticks of the time axis.
_STEPS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 180, 300,
    600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
)  # fmt: skip


class Shape(NamedTuple):
    """One SVG element. ``tag``: its name. ``kind``: its class; for ``use``, which mark it shows.

    ``at``, ``wide``: parts of the width. ``y``, ``high``, ``beside`` (how far it is moved to the
    right): pixels. ``words``, ``anchor``: of ``text``, its content and its ``text-anchor``.
    """

    tag: str
    kind: str
    at: float
    y: float
    wide: float = 0.0
    high: float = 0.0
    beside: int = 0
    words: str = ""
    anchor: str = ""


class Picture(NamedTuple):
    """Shapes, later ones over earlier ones. ``height``: pixels. ``axis``: it has only numbers."""

    height: int
    shapes: list[Shape]
    axis: bool = False


def percent(part: float) -> str:
    """*part*, of the width, as SVG writes it: a percentage."""
    return f"{min(max(part, 0.0), 1.0) * 100:.2f}%"


def _beside(parts: Sequence[float]) -> Iterator[int]:
    """By how many pixels each mark is moved, so that it neither hides another nor leaves the SVG.

    *parts*: where the marks are, in order.
    """
    first, place = -1.0, 0
    for part in parts:
        if abs(part - first) < _NEAR:
            place = min(place + 1, _MOST_BESIDE)
        else:
            first, place = part, 0
        yield (place if first <= _EDGE else -place - 1) * _BESIDE


def _use(name: str, part: float, y: int, beside: int = 0) -> Shape:
    return Shape("use", name, part, y, beside=beside)


def _label(words: str, part: float, y: int, kind: str = "") -> Shape:
    anchor = "end" if part > 0.88 else "start" if part < 0.06 else "middle"
    return Shape("text", kind, part, y, words=words, anchor=anchor)


def _across(y: int, kind: str = "ground") -> Shape:
    return Shape("line", kind, 0, y, wide=1)


def ticks(span: float) -> list[float]:
    """Where the ticks of the time axis are, in seconds from the start: at most five round values.

    *span*: seconds that the picture shows.
    """
    step = next((step for step in _STEPS if span / step <= 4.2), None)
    if step is None:
        step = 86400.0 * (int(span / 86400 / 4.2) + 1)
    return [place * step for place in range(int(span / step) + 1)]


def _grid(span: float, height: int) -> list[Shape]:
    """Vertical lines at the ticks."""
    return [Shape("line", "grid", at / span, -8, high=height + 16) for at in ticks(span)]


def axis(span: float) -> Picture:
    """The time axis: the times of the ticks."""
    return Picture(18, [_label(_tick(at), at / span, 13) for at in ticks(span)], axis=True)


def _tick(at: float) -> str:
    return "start" if at == 0 else f"+{duration(at) if at >= 120 else f'{at:g} s'}"


# -- a lane of the timeline ---------------------------------------------------------------


def lane(found: Lane, span: float) -> Picture:
    """The lane of one host. *span*: seconds that the picture shows."""
    back = _grid(span, _HEIGHT)
    exchanges = [mark for mark in found.marks if mark.kind not in POINTS]
    points = [mark for mark in found.marks if mark.kind in POINTS]
    shapes = [
        *back,
        *_bands(exchanges, span),
        _across(_BASE),
        *_exchanges(exchanges, span),
        *_answers(exchanges, span),
        *(_use(mark.kind, at, _UNDER, beside) for mark, at, beside in _placed(points, span)),
    ]
    return Picture(_HEIGHT, shapes)


def _placed(marks: Sequence[Mark], span: float) -> Iterator[tuple[Mark, float, int]]:
    """Each mark with its part of the width, and the pixels by which it is moved."""
    parts = [mark.at / span for mark in marks]
    return zip(marks, parts, _beside(parts), strict=True)


def _bands(exchanges: Sequence[Mark], span: float) -> Iterator[Shape]:
    """How long the host had to be left alone after each exchange: R4's interval, and R5's hold."""
    for place, mark in enumerate(exchanges):
        follows = exchanges[place + 1].at if place + 1 < len(exchanges) else span
        for until, y, high, name in (
            (mark.spaced, _BASE - 10, 10, "wait"),
            (mark.held or 0.0, _BASE - 13, 7, "hold"),
        ):
            end = min(until, max(follows, mark.until), span)
            if end > mark.until:
                wide = (end - mark.until) / span
                yield Shape("rect", name, mark.until / span, y, wide, high)


def _exchanges(exchanges: Sequence[Mark], span: float) -> Iterator[Shape]:
    for mark, at, beside in _placed(exchanges, span):
        if mark.until - mark.at > span / 200:
            wide = (mark.until - mark.at) / span
            yield Shape("rect", mark.kind, at, _BASE - _TALL, wide, _TALL)
        yield _use(mark.kind, at, _BASE, beside)
        if mark.short:
            yield _use("short", at, _BASE, beside)


def _answers(exchanges: Sequence[Mark], span: float) -> Iterator[Shape]:
    """The statuses that are not 2xx or 3xx, as far as there is room. The table has all of them."""
    free = -1.0
    for mark in exchanges:
        at = mark.at / span
        if (mark.trouble or not mark.answer.startswith(("2", "3"))) and at * 100 >= free:
            words = mark.answer if mark.answer.isdigit() else "none"
            yield _label(words, at, _BASE - _TALL - 4, "bad")
            free = at * 100 + _LABEL


# -- days ---------------------------------------------------------------------------------


def days(outcomes: bytearray) -> Picture:
    """What became of a source by days; a column for several days shows the worst of them."""
    count = min(len(outcomes), COLUMNS)
    shapes = [_across(16)]
    for place in range(count):
        part = outcomes[place * len(outcomes) // count : (place + 1) * len(outcomes) // count]
        worst = min((each for each in part if each), default=0)
        at, middle = (place + 0.1) / count, (place + 0.5) / count
        if worst in (READ, UNCHANGED):
            kind = "target" if worst == READ else "robots"
            shapes.append(Shape("rect", kind, at, 3, 0.8 / count, 12))
        elif worst:
            shapes.append(_use("refused" if worst == REFUSED else "given_up", middle, 9))
    return Picture(18, shapes)


# -- counts -------------------------------------------------------------------------------


def bar(count: int, most: int) -> Picture:
    """A bar whose length is *count* as a part of *most*."""
    return Picture(16, [Shape("rect", "target", 0, 2, count / most, 12)])
