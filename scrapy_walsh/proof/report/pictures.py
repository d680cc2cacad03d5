"""The pictures, as inline SVG: no script, no viewBox, so that text never shrinks with the page.

Places along the time are percentages, everything else is pixels; a kind of mark differs in shape
or filling as well as in colour.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.report.lanes import EXCHANGES, POINTS, TROUBLE
from scrapy_walsh.proof.report.markup import Markup, element, joined, seconds
from scrapy_walsh.proof.report.spacing import SHORT

if TYPE_CHECKING:
    from collections.abc import Sequence

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

DEFINITIONS: Final = Markup(
    '<svg width="0" height="0" class="defs" aria-hidden="true"><defs>'
    '<pattern id="wait" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" class="wait-back"/>'
    '<rect width="1.4" height="6" class="wait-line"/></pattern>'
    '<pattern id="hold" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<rect width="5" height="5" class="hold-back"/>'
    '<rect width="2.4" height="5" class="hold-line"/></pattern>'
    '<pattern id="dots" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<rect width="4" height="4" class="paper"/><circle cx="2" cy="2" r="1.2" class="dot"/>'
    "</pattern>"
    '<rect id="m-target" y="-16" width="5" height="16" class="target"/>'
    '<rect id="m-robots" x="1" y="-15" width="5" height="14" class="robots"/>'
    '<rect id="m-operator" x="1" y="-15" width="6" height="14" class="operator"/>'
    '<path id="m-held" d="M-4-3h8l-4 7z" class="held"/>'
    '<path id="m-refused" d="M-4-4l8 8m0-8l-8 8" class="refused"/>'
    '<path id="m-deferred" d="M-4-5l8 5-8 5z" class="deferred"/>'
    '<path id="m-given_up" d="M0-5l5 9h-10z" class="given-up"/>'
    '<path id="m-short" d="M0-7l6 7-6 7-6-7z" class="short"/>'
    '<path id="m-exempt" d="M0-5l5 5-5 5-5-5z" class="exempt"/>'
    "</defs></svg>"
)


def _percent(part: float) -> str:
    return f"{min(max(part, 0.0), 1.0) * 100:.2f}%"


def _use(name: str, part: float, y: int, beside: int = 0) -> Markup:
    moved = f"translate({beside})" if beside else None
    return element("use", href=f"#m-{name}", x=_percent(part), y=y, transform=moved)


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


def _label(words: str, part: float, y: int, class_: str = "") -> Markup:
    anchor = "end" if part > 0.88 else "start" if part < 0.06 else "middle"
    return element("text", words, x=_percent(part), y=y, text_anchor=anchor, class_=class_ or None)


def svg(height: int, *children: object, class_: str = "strip") -> Markup:
    """A picture as wide as its place."""
    return element("svg", *children, width="100%", height=height, class_=class_, aria_hidden="true")


def ticks(span: float) -> list[float]:
    """At most five seconds since the start, even ones."""
    step = next((step for step in _STEPS if span / step <= 4.2), None)
    if step is None:
        step = 86400.0 * (int(span / 86400 / 4.2) + 1)
    return [place * step for place in range(int(span / step) + 1)]


def grid(span: float, height: int) -> Markup:
    """Lines down the picture at the ticks."""
    return joined(
        element(
            "line",
            x1=_percent(at / span),
            x2=_percent(at / span),
            y1=-8,
            y2=height + 8,
            class_="grid",
        )
        for at in ticks(span)
    )


def axis(span: float) -> Markup:
    """The times of the ticks."""
    return svg(18, *(_label(_tick(at), at / span, 13) for at in ticks(span)), class_="strip axis")


def _tick(at: float) -> str:
    return "start" if at == 0 else f"+{seconds(at) if at >= 120 else f'{at:g} s'}"


# -- a lane of the timeline ---------------------------------------------------------------


def lane(found: Lane, span: float) -> Markup:
    """What happened to one host over the time of the picture."""
    if found.columns:
        return svg(_HEIGHT, grid(span, _HEIGHT), *_columns(found.columns), _ground())
    exchanges = [mark for mark in found.marks if mark.kind not in POINTS]
    points = [mark for mark in found.marks if mark.kind in POINTS]
    return svg(
        _HEIGHT,
        grid(span, _HEIGHT),
        *_bands(exchanges, span),
        _ground(),
        *map(_exchange, exchanges, repeat(span), _beside([mark.at / span for mark in exchanges])),
        *_answers(exchanges, span),
        *map(_point, points, repeat(span), _beside([mark.at / span for mark in points])),
    )


def _ground() -> Markup:
    return element("line", x1="0%", x2="100%", y1=_BASE, y2=_BASE, class_="ground")


def _bands(exchanges: Sequence[Mark], span: float) -> list[Markup]:
    """How long the host was to be left alone: by its spacing, and by R5 over it."""
    found = []
    for place, mark in enumerate(exchanges):
        follows = exchanges[place + 1].at if place + 1 < len(exchanges) else span
        for until, y, height, name in (
            (mark.spaced, _BASE - 10, 10, "wait"),
            (mark.held or 0.0, _BASE - 13, 7, "hold"),
        ):
            end = min(until, max(follows, mark.until), span)
            if end > mark.until:
                found.append(
                    element(
                        "rect",
                        x=_percent(mark.until / span),
                        width=_percent((end - mark.until) / span),
                        y=y,
                        height=height,
                        class_=name,
                    )
                )
    return found


def _exchange(mark: Mark, span: float, beside: int) -> Markup:
    bar = None
    if mark.until - mark.at > span / 200:
        bar = element(
            "rect",
            x=_percent(mark.at / span),
            width=_percent((mark.until - mark.at) / span),
            y=_BASE - _TALL,
            height=_TALL,
            class_=mark.kind,
        )
    wrong = _use("short", mark.at / span, _BASE, beside) if mark.short else None
    return joined((bar, _use(mark.kind, mark.at / span, _BASE, beside), wrong))


def _answers(exchanges: Sequence[Mark], span: float) -> list[Markup]:
    """The status of what went wrong, as far as there is room; the rest are in the table."""
    found, free = [], -1.0
    for mark in exchanges:
        at = mark.at / span
        if (mark.trouble or not mark.answer.startswith(("2", "3"))) and at * 100 >= free:
            words = mark.answer if mark.answer.isdigit() else "none"
            found.append(_label(words, at, _BASE - _TALL - 4, "bad"))
            free = at * 100 + _LABEL
    return found


def _point(mark: Mark, span: float, beside: int) -> Markup:
    return _use(mark.kind, mark.at / span, _UNDER, beside)


def _columns(columns: Sequence[Column]) -> list[Markup]:
    """Bars as high as their requests are many; under them what else was decided."""
    most = max((column.requests for column in columns), default=0) or 1
    found, free = [], -1.0
    for place, column in enumerate(columns):
        part = place / len(columns)
        found.append(_stack(column, part, 1 / len(columns), 20 / most, _BASE))
        if column.counts[TROUBLE] and part * 100 >= free:
            found.append(_label("R5", part + 0.5 / len(columns), 8, "bad"))
            free = part * 100 + _LABEL / 2
        kinds = [kind for kind in POINTS if column.counts[kind]]
        if column.counts[SHORT]:
            found.append(_use("short", part + 0.5 / len(columns), _BASE))
        if kinds:
            found.append(_use(kinds[-1], part + 0.5 / len(columns), _UNDER))
    return found


def _stack(column: Column, part: float, width: float, scale: float, base: int) -> Markup:
    bars, top = [], float(base)
    for kind in EXCHANGES:
        height = column.counts[kind] * scale
        if height:
            top -= height
            bars.append(
                element(
                    "rect",
                    x=_percent(part + width * 0.08),
                    width=_percent(width * 0.84),
                    y=top,
                    height=height,
                    class_=kind,
                )
            )
    return joined(bars)


# -- the run as a whole -------------------------------------------------------------------


def overview(columns: Sequence[Column], span: float) -> Markup:
    """Requests over the time of the run."""
    most = max((column.requests for column in columns), default=0) or 1
    bars = (
        _stack(column, place / len(columns), 1 / len(columns), 84 / most, 100)
        for place, column in enumerate(columns)
    )
    floor = element("line", x1="0%", x2="100%", y1=100, y2=100, class_="ground")
    top = element("line", x1="0%", x2="100%", y1=16, y2=16, class_="grid")
    words = element("text", f"{most:,} in {seconds(span / len(columns))}", x="0%", y=11)
    return svg(102, grid(span, 102), top, words, *bars, floor)


# -- gaps ---------------------------------------------------------------------------------


def strip(host: Host) -> Markup:
    """The host's closest gap, and its exempt one, on the scale of what was required."""
    marks = []
    if host.exempt is not None:
        marks.append(_use("exempt", _on_scale(host.exempt.ratio), 11))
    if host.closest is not None:
        part = _on_scale(host.closest.ratio)
        if host.closest.verdict == SHORT:
            marks.append(_use("short", part, 11))
        elif host.closest.ratio > MOST:
            marks.append(_use("deferred", part, 11))
        else:
            marks.append(element("circle", cx=_percent(part), cy=11, r=5, class_="kept"))
    return svg(22, *_scale(22), *marks)


def scale() -> Markup:
    """The numbers of the scale."""
    places = ((0.0, "0"), (1.0, "required"), (2.0, "2x"), (MOST, f"{MOST:g}x or more"))
    return svg(18, *(_label(words, _on_scale(at), 13) for at, words in places), class_="strip axis")


def _scale(height: int) -> list[Markup]:
    before = element(
        "rect", x=_percent(_on_scale(0)), width=_percent(_on_scale(1) - _on_scale(0)), y=0,
        height=height, class_="below",
    )  # fmt: skip
    lines = [
        element(
            "line", x1=_percent(_on_scale(at)), x2=_percent(_on_scale(at)), y1=-2, y2=height + 2,
            class_="one" if at == 1.0 else "grid",
        )
        for at in (0.0, 1.0, 2.0, MOST)
    ]  # fmt: skip
    return [before, *lines]


def _on_scale(ratio: float) -> float:
    return 0.03 + 0.94 * min(max(ratio, 0.0), MOST) / MOST


# -- counts -------------------------------------------------------------------------------


def bar(count: int, most: int, class_: str) -> Markup:
    """A bar as long as *count* is large."""
    width = _percent(count / most)
    return svg(16, element("rect", x="0%", width=width, y=2, height=12, class_=f"bar {class_}"))


def sign(name: str) -> Markup:
    """One mark, for the legend."""
    if name in ("wait", "hold"):
        inner = element("rect", x=1, y=4, width=26, height=10, class_=name)
    elif name == "kept":
        inner = element("circle", cx=14, cy=9, r=5, class_="kept")
    elif name in EXCHANGES:
        inner = element("use", href=f"#m-{name}", x=11, y=17)
    else:
        inner = element("use", href=f"#m-{name}", x=14, y=9)
    return element("svg", inner, width=28, height=18, class_="sign", aria_hidden="true")
