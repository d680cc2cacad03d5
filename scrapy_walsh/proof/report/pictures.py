"""What the pictures show, and where; a template makes inline SVG of it.

Places along the time are parts of the width, everything else is pixels; a kind of mark differs in
shape or filling as well as in colour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.proof.report.lanes import EXCHANGES, POINTS, TROUBLE
from scrapy_walsh.proof.report.spacing import SHORT
from scrapy_walsh.proof.report.words import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.report.lanes import Column, Lane, Mark
    from scrapy_walsh.proof.report.tally import Host

_HEIGHT: Final = 46
_BASE: Final = 32  # where bars stand
_UNDER: Final = 40  # where decisions are
#: Marks nearer than this part of the width stand side by side, so many pixels each.
_NEAR: Final = 0.012
_BESIDE: Final = 8
_MOST_BESIDE: Final = 6
#: Marks after this part of the width move to the left.
_EDGE: Final = 0.9
_TALL: Final = 16
#: Percent of the width that a label over a bar needs on a phone.
_LABEL: Final = 14.0
#: Beyond this many times the required gap, a dot stands at the edge.
MOST: Final = 3.0
_STEPS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 180, 300,
    600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
)  # fmt: skip


class Shape(NamedTuple):
    """One element of a picture. ``tag``: its element; ``kind``: its class, or the mark it uses.

    ``at``, ``wide``: parts of the width; ``y``, ``high``, ``beside``: pixels.
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
    """Shapes, the later over the earlier; ``height`` in pixels; ``axis``: numbers, not marks."""

    height: int
    shapes: list[Shape]
    axis: bool = False


def percent(part: float) -> str:
    """A part of the width, as SVG has it."""
    return f"{min(max(part, 0.0), 1.0) * 100:.2f}%"


def _beside(parts: Sequence[float]) -> list[int]:
    """Pixels by which each mark moves, not to hide the one before it, nor to leave the picture."""
    clusters: list[list[float]] = []
    for part in parts:
        if clusters and abs(part - clusters[-1][0]) < _NEAR:
            clusters[-1].append(part)
        else:
            clusters.append([part])
    return [
        (min(place, _MOST_BESIDE) - (min(len(each), _MOST_BESIDE + 1) if each[0] > _EDGE else 0))
        * _BESIDE
        for each in clusters
        for place in range(len(each))
    ]


def _use(name: str, part: float, y: int, beside: int = 0) -> Shape:
    return Shape("use", name, part, y, beside=beside)


def _label(words: str, part: float, y: int, kind: str = "") -> Shape:
    anchor = "end" if part > 0.88 else "start" if part < 0.06 else "middle"
    return Shape("text", kind, part, y, words=words, anchor=anchor)


def _across(y: int, kind: str = "ground") -> Shape:
    return Shape("line", kind, 0, y, wide=1)


def ticks(span: float) -> list[float]:
    """At most five seconds since the start, even ones."""
    step = next((step for step in _STEPS if span / step <= 4.2), None)
    if step is None:
        step = 86400.0 * (int(span / 86400 / 4.2) + 1)
    return [place * step for place in range(int(span / step) + 1)]


def _grid(span: float, height: int) -> list[Shape]:
    """Lines down the picture at the ticks."""
    return [Shape("line", "grid", at / span, -8, high=height + 16) for at in ticks(span)]


def axis(span: float) -> Picture:
    """The times of the ticks."""
    return Picture(18, [_label(_tick(at), at / span, 13) for at in ticks(span)], axis=True)


def _tick(at: float) -> str:
    return "start" if at == 0 else f"+{seconds(at) if at >= 120 else f'{at:g} s'}"


# -- a lane of the timeline ---------------------------------------------------------------


def lane(found: Lane, span: float) -> Picture:
    """What happened to one host over the time of the picture."""
    back = _grid(span, _HEIGHT)
    if found.columns:
        return Picture(_HEIGHT, [*back, *_columns(found.columns), _across(_BASE)])
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
    """Marks, where they are, and how far beside that they are drawn."""
    parts = [mark.at / span for mark in marks]
    return zip(marks, parts, _beside(parts), strict=True)


def _bands(exchanges: Sequence[Mark], span: float) -> Iterator[Shape]:
    """How long the host was to be left alone: by its spacing, and by R5 over it."""
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
    """The status of what went wrong, as far as there is room; the rest are in the table."""
    free = -1.0
    for mark in exchanges:
        at = mark.at / span
        if (mark.trouble or not mark.answer.startswith(("2", "3"))) and at * 100 >= free:
            words = mark.answer if mark.answer.isdigit() else "none"
            yield _label(words, at, _BASE - _TALL - 4, "bad")
            free = at * 100 + _LABEL


def _columns(columns: Sequence[Column]) -> Iterator[Shape]:
    """Bars as high as their requests are many; under them what else was decided."""
    scale, wide, free = 20 / _most(columns), 1 / len(columns), -1.0
    for place, column in enumerate(columns):
        part = place / len(columns)
        middle = part + 0.5 / len(columns)
        yield from _stack(column, part, wide, scale, _BASE)
        if column.counts[TROUBLE] and part * 100 >= free:
            yield _label("R5", middle, 8, "bad")
            free = part * 100 + _LABEL / 2
        kinds = [kind for kind in POINTS if column.counts[kind]]
        if column.counts[SHORT]:
            yield _use("short", middle, _BASE)
        if kinds:
            yield _use(kinds[-1], middle, _UNDER)


def _most(columns: Sequence[Column]) -> int:
    return max((column.requests for column in columns), default=0) or 1


def _stack(column: Column, part: float, wide: float, scale: float, base: int) -> Iterator[Shape]:
    top = float(base)
    for kind in EXCHANGES:
        high = column.counts[kind] * scale
        if high:
            top -= high
            yield Shape("rect", kind, part + wide * 0.08, top, wide * 0.84, high)


# -- the run as a whole -------------------------------------------------------------------


def overview(columns: Sequence[Column], span: float) -> Picture:
    """Requests over the time of the run."""
    most, wide = _most(columns), 1 / len(columns)
    words = f"{most:,} in {seconds(span / len(columns))}"
    shapes = [*_grid(span, 102), _across(16, "grid"), Shape("text", "", 0, 11, words=words)]
    for place, column in enumerate(columns):
        shapes += _stack(column, place / len(columns), wide, 84 / most, 100)
    return Picture(102, [*shapes, _across(100)])


# -- gaps ---------------------------------------------------------------------------------


def strip(host: Host) -> Picture:
    """The host's closest gap, and its exempt one, on the scale of what was required."""
    start, one = _on_scale(0), _on_scale(1)
    shapes = [Shape("rect", "below", start, 0, one - start, 22)]
    for at in (0.0, 1.0, 2.0, MOST):
        kind = "one" if at == 1.0 else "grid"
        shapes.append(Shape("line", kind, _on_scale(at), -2, high=26))
    if host.exempt is not None:
        shapes.append(_use("exempt", _on_scale(host.exempt.ratio), 11))
    if host.closest is not None:
        part = _on_scale(host.closest.ratio)
        if host.closest.verdict == SHORT:
            shapes.append(_use("short", part, 11))
        elif host.closest.ratio > MOST:
            shapes.append(_use("deferred", part, 11))
        else:
            shapes.append(Shape("circle", "kept", part, 11))
    return Picture(22, shapes)


def scale() -> Picture:
    """The numbers of the scale."""
    places = ((0.0, "0"), (1.0, "required"), (2.0, "2x"), (MOST, f"{MOST:g}x or more"))
    return Picture(18, [_label(words, _on_scale(at), 13) for at, words in places], axis=True)


def _on_scale(ratio: float) -> float:
    return 0.03 + 0.94 * min(max(ratio, 0.0), MOST) / MOST


# -- counts -------------------------------------------------------------------------------


def bar(count: int, most: int, kind: str) -> Picture:
    """A bar as long as *count* is large."""
    return Picture(16, [Shape("rect", f"bar {kind}", 0, 2, count / most, 12)])
