"""Tables, figures with their tables, legends: what the parts of a page are made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.proof.report import pictures
from scrapy_walsh.proof.report.markup import (
    Markup,
    element,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a page may tell: rows of a table, characters of a whole URL."""

    rows: int
    title: int


WORDS: Final = {
    "target": "target", "robots": "robots.txt", "operator": "operator's document",
    events.FETCHED: "fetched", events.NOT_MODIFIED: "not modified", events.REFUSED: "refused",
    events.HELD: "held", events.RETRIED: "backed off", events.GIVEN_UP: "given up",
    events.TOO_MANY_REDIRECTS: "redirected too often",
    events.DEFERRED: "deferred", events.ADOPTED: "document adopted",
    events.TAKEN_UP: "document taken up", events.REJECTED: "document rejected",
}  # fmt: skip


def table(
    title: str, heads: Sequence[str], rows: Iterable[Markup], total: int, limit: int
) -> Markup:
    """A table that scrolls in its own frame; a head that starts with ``#`` is of numbers."""
    shown = [row for row, _ in zip(rows, range(limit), strict=False)]
    cut = f" The first {len(shown):,} of {total:,}." if total > len(shown) else ""
    head = element("thead", element("tr", *map(_head, heads)))
    body = element("table", head, element("tbody", *shown), aria_label=title)
    frame = element("div", body, class_="scroll", tabindex=0, role="region", aria_label=title)
    return joined((element("p", f"{title}.{cut}", class_="soft caption"), frame))


def _head(words: str) -> Markup:
    numbers = words.startswith("#")
    return element("th", words.removeprefix("#"), scope="col", class_="n" if numbers else None)


def row(first: object, *cells: object) -> Markup:
    """A row whose first cell is its head; whole numbers and :class:`Number` stand to the right."""
    head = element("th", first, scope="row", class_="n" if isinstance(first, Number) else None)
    return element("tr", head, *map(_cell, cells))


class Number(str):
    """A number as text."""

    __slots__ = ()


def _cell(value: object) -> Markup:
    if isinstance(value, int):
        return element("td", f"{value:,}", class_="n")
    return element("td", value, class_="n" if isinstance(value, Number) else None)


def figure(key: str, title: str, words: str, *content: object, below: Markup) -> Markup:
    """A picture, and the table behind it."""
    told = element("figcaption", element("span", title, id=f"{key}-title"), " ", words)
    drawn = element("figure", told, *content, role="img", aria_labelledby=f"{key}-title")
    return joined(
        (
            drawn,
            element("details", element("summary", "Table", aria_label=f"Table: {title}"), below),
        )
    )


def legend(*entries: tuple[str, str]) -> Markup:
    """What the marks mean."""
    return element(
        "ul",
        *(element("li", pictures.sign(name), words) for name, words in entries),
        class_="legend",
    )


def picture_row(
    name: object, picture: Markup, number: object = None, class_: str = "row"
) -> Markup:
    cells = [element("div", name, class_="name"), element("div", picture, class_="picture")]
    if number is not None:
        cells.append(element("div", number, class_="number soft"))
        class_ += " with-number"
    return element("div", *cells, class_=class_)
