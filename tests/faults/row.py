"""What a row of the table is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What becomes of the healthy host: it is crawled as usual, and the run is green; nothing or not
#: all is sent, a line names the fault, and the run ends with exit 1; nothing is sent at all, since
#: the run is refused at its start; nothing is sent, by a site's fault, and the run is green; it is
#: crawled, and what failed beside it makes the run end with exit 1; one or the other, as ``does``
#: says: only what holds for all rows is asked for, and the line.
Then = Literal["as usual", "held back", "refused", "host's doing", "not well", "either"]
AS_USUAL: Then = "as usual"
HELD_BACK: Then = "held back"
REFUSED: Then = "refused"
HOSTS_DOING: Then = "host's doing"
NOT_WELL: Then = "not well"
EITHER: Then = "either"

#: The operator's list: a few entries; a schema that only a child process may judge; more than
#: 100 kB; both.
SHORT, WILD, LONG, LONG_WILD = "short", "wild", "long", "long wild"
#: What earlier runs knew of the list and of each robots.txt: nothing; what is to be asked for
#: again; what still holds.
UNKNOWN, STALE, FRESH = "unknown", "stale", "fresh"

Variant = tuple[str, str]
USUAL: tuple[Variant, ...] = ((SHORT, UNKNOWN), (SHORT, STALE))
#: Rows whose fault is met by a child process alone.
CHILD: tuple[Variant, ...] = (
    (WILD, UNKNOWN),
    (LONG, UNKNOWN),
    (LONG_WILD, STALE),
    (SHORT, UNKNOWN),
)


@dataclass(frozen=True)
class Row:
    """One fault.

    ``what``: the fault, for README.md. ``does``: what the crawl does, where ``then`` does not
    say enough. ``says``: words of which one stands in a line of ours where the run is not green;
    the page shows the first. ``fault``: what ``inside.py`` does. ``settings``, ``environment``: of
    the crawl with the fault. ``sites``: answers to robots.txt or the list that are not as usual.
    ``before``: what is done to the project before the crawl. ``spider``, ``arguments``: what
    crawls, and its arguments in place of ``urls``. ``command``: what is run in place of ``scrapy
    crawl``; ``<port>`` is the servers', here and in ``files``. ``again``: whether the healthy run
    after it must be served. ``quick``: it runs in CI. ``apart``: it needs a new interpreter.
    """

    name: str
    kind: str
    what: str
    then: Then
    fault: Mapping[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    does: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    sites: str = ""
    before: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[Variant, ...] = USUAL
    proxied: bool = False
    https: bool = False
    again: bool = True
    quick: bool = True
    apart: bool = False
    spider: str = "probe"
    arguments: str = ""
    command: tuple[str, ...] = ()
    needs: Callable[[], bool] | None = None
