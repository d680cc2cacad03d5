"""WALSH_METRICS: what the last run was like, as a file for Prometheus.

It is of the kind that node_exporter's textfile collector reads. A run replaces the file at its end
and at once, so that the collector never reads half of one. What is imported here is an extra of the
package, so this module is imported where the setting is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    #: By name in ``_METRICS``, the values by those of its labels.
    _Figures = Mapping[str, Mapping[tuple[str, ...], float]]

_PREFIX: Final = "walsh"
_SUCCESS: Final = "last_success_timestamp_seconds"
#: By name: what it says of the last run, and its labels beside that of the spider.
_METRICS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "requests": ("Requests that were sent, by what for.", ("purpose",)),
    "refused": ("Requests that were refused, by rule.", ("rule", "verdict")),
    "sources_read": ("Declared sources that were read, or have not changed.", ()),
    "sources_unread": ("Declared sources that were not, those not due apart.", ()),
    "sources_needing_a_person": ("Sources that the warnings of the run name.", ()),
    "run_seconds": ("How long the run took.", ()),
    "last_run_timestamp_seconds": ("When it ended.", ()),
    _SUCCESS: ("When a run last ended by itself, with a source read and no fault of ours.", ()),
}


def write(path: Path, spider: str, figures: _Figures, *, success: bool) -> None:
    """Replace *path* by *figures* of the run of *spider*. Raises OSError.

    The last success is that of the earlier file where the run was none.
    """
    registry = CollectorRegistry()
    last = figures["last_run_timestamp_seconds"] if success else _before(path, spider)
    for name, (meaning, labels) in _METRICS.items():
        gauge = Gauge(name, meaning, ("spider", *labels), namespace=_PREFIX, registry=registry)
        for values, figure in {**figures, _SUCCESS: last}.get(name, {}).items():
            gauge.labels(spider, *values).set(figure)
    write_to_textfile(str(path), registry)


def _before(path: Path, spider: str) -> dict[tuple[str, ...], float]:
    """The last success of *spider* that the file at *path* has; empty for none, or no such file."""
    try:
        families: Any = text_string_to_metric_families(path.read_text(encoding="utf-8"))
        samples = [each for family in families for each in family.samples]
    except (OSError, ValueError):
        return {}
    wanted = f"{_PREFIX}_{_SUCCESS}", {"spider": spider}
    found = [each.value for each in samples if (each.name, each.labels) == wanted]
    return dict.fromkeys([()], found[0]) if found else {}
