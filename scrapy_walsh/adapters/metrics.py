"""Writes metrics of the last run to a file for Prometheus (WALSH_METRICS).

The textfile collector of node_exporter can read it. A run replaces the file at its end in one step,
so that the collector never reads half a file. This module needs an extra of the package, so it is
imported only if the setting is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    #: By name in ``_METRICS``: the figures, by the values of the labels.
    _Figures = Mapping[str, Mapping[tuple[str, ...], float]]

_PREFIX: Final = "walsh"
_SUCCESS: Final = "last_success_timestamp_seconds"
#: By name: its help text, and its labels besides ``spider``.
_METRICS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "requests": ("Requests that were sent, by purpose.", ("purpose",)),
    "refused": ("Requests that were refused, by rule.", ("rule", "verdict")),
    "sources_read": ("Declared sources that were read, or have not changed.", ()),
    "sources_unread": ("Declared sources that were not read, although they were due.", ()),
    "sources_needing_a_person": ("Sources that the warnings of the run name.", ()),
    "run_seconds": ("How long the run took.", ()),
    "last_run_timestamp_seconds": ("When it ended.", ()),
    _SUCCESS: ("When a run last ended by itself, with a source read and no internal error.", ()),
}


def write(path: Path, spider: str, figures: _Figures, *, success: bool) -> None:
    """Replace the file *path* by the *figures* of a run of *spider*. Raises OSError.

    If the run was no *success*, the time of the last success stays.
    """
    registry = CollectorRegistry()
    success_times = figures["last_run_timestamp_seconds"]
    if not success:
        success_times = _read_last_success(path, spider)
    for name, (meaning, labels) in _METRICS.items():
        gauge = Gauge(name, meaning, ("spider", *labels), namespace=_PREFIX, registry=registry)
        for values, figure in {**figures, _SUCCESS: success_times}.get(name, {}).items():
            gauge.labels(spider, *values).set(figure)
    write_to_textfile(str(path), registry)


def _read_last_success(path: Path, spider: str) -> dict[tuple[str, ...], float]:
    """Return the last success of *spider* in the file *path*; empty if there is none."""
    try:
        families: Any = text_string_to_metric_families(path.read_text(encoding="utf-8"))
        samples = [sample for family in families for sample in family.samples]
    except (OSError, ValueError):
        return {}
    expected = f"{_PREFIX}_{_SUCCESS}", {"spider": spider}
    values = [sample.value for sample in samples if (sample.name, sample.labels) == expected]
    if values:
        return dict.fromkeys([()], values[0])
    return {}
