"""HTML made so that what a stranger wrote stays text: only ``element`` makes markup. Pure."""

from __future__ import annotations

import html
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID: Final = frozenset({"meta", "br"})


class Markup(str):
    """HTML; every other string is text, and is escaped where it goes into an element."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """An element. Of the names of attributes, ``_`` at the end goes and others become ``-``.

    An attribute that is None is left out; True stands alone.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


def joined(children: Iterable[object]) -> Markup:
    """Children one after the other, escaped unless they are Markup; None and False are nothing."""
    return Markup(
        "".join(_child(each) for each in children if each is not None and each is not False)
    )


def _child(child: object) -> str:
    return child if isinstance(child, Markup) else html.escape(visible(str(child)))


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    key = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {key}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {key}="{html.escape(visible(text))}"'


def cut(text: str, width: int) -> str:
    """*text*, with its middle left out where it is longer than *width*."""
    text = visible(text)
    if len(text) <= width:
        return text
    tail = width // 3
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def foreign(text: str, width: int = 64, title: int = 600) -> Markup:
    """What a stranger wrote, on its own: cut to *width*, the whole (to *title*) on hovering."""
    short, whole = cut(text, width), cut(text, title)
    class_ = "f u" if len(short) > 24 else "f"
    return element("bdi", short, dir="ltr", class_=class_, title=whole if whole != short else None)


def code(text: str, width: int = 120) -> Markup:
    """A rule, a digest, a path: as :func:`foreign`, in a fixed-width face."""
    return element("code", foreign(text, width))


def plural(count: int, noun: str, many: str = "") -> str:
    """``1 request``, ``1,204 requests``."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def seconds(value: float) -> str:
    """A time span as a person reads it: ``0.002 s``, ``1.5 s``, ``5 min``, ``1 d 2 h``."""
    if not math.isfinite(value):
        return "?"
    size = abs(value)
    if size < 120:
        return f"{value:.3f} s" if size < 10 and value != int(value) else f"{value:.4g} s"
    return ("-" if value < 0 else "") + _clock(size)


def _clock(size: float) -> str:
    for unit, length, smaller, part in (
        ("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1),
    ):  # fmt: skip
        if size >= length:
            whole, rest = divmod(int(size + 0.5 * part), length)
            more = f" {rest // part} {smaller}" if rest // part and whole < 1000 else ""
            return f"{whole:,} {unit}{more}"
    return f"{size:.0f} s"


def instant(at: float, layout: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Unix seconds as a UTC time."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(layout) + " UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at:.0f} (Unix seconds)"


def octets(count: int) -> str:
    """``512 B``, ``1.2 MB``."""
    size, units = float(count), ["B", "kB", "MB", "GB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.3g} {units[0]}" if units[0] != "B" else f"{count} B"
