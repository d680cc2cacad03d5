"""WALSH_METRICS: the file that node_exporter's textfile collector reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import DAY, Runs, rules, site

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("prometheus_client", reason="in a clone: pip install -e '.[test]'")

SETTINGS = {"WALSH_METRICS": "walsh.prom", "WALSH_MAX_RETRIES": 0}
SUCCESS = "walsh_last_success_timestamp_seconds"


def read(path: Path) -> dict[tuple[str, ...], float]:
    """The values of the file, by name and labels other than the spider's."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    families = text_string_to_metric_families(path.read_text())
    samples = [each for family in families for each in family.samples]
    assert {each.labels.pop("spider") for each in samples} == {"probe"}
    return {(each.name, *each.labels.values()): each.value for each in samples}


def test_a_run_leaves_its_figures_and_keeps_the_last_success(tmp_path: Path) -> None:
    closed = site("b.test", robots=rules("Disallow: /"))
    with Runs(tmp_path, site("a.test"), closed, settings=SETTINGS) as runs:
        urls = ("http://a.test/1", "http://a.test/2", "http://b.test/1")
        assert runs(*urls).returncode == 0
        first = read(tmp_path / "walsh.prom")
        runs.pass_time(DAY)
        runs.serve("a.test", "*", Route(status=503))
        runs(*urls)
        second = read(tmp_path / "walsh.prom")
        (tmp_path / "walsh.prom").unlink()
        (tmp_path / "walsh.prom").mkdir()
        third = runs(*urls)
    assert first["walsh_requests", "target"] == 2
    assert first["walsh_requests", "robots"] == 2
    assert first["walsh_refused", "R2", "disallowed_explicit"] == 1
    assert (first["walsh_sources_read",], first["walsh_sources_unread",]) == (2, 1)
    assert first[SUCCESS,] == first["walsh_last_run_timestamp_seconds",]
    assert (second["walsh_sources_read",], second[SUCCESS,]) == (0, first[SUCCESS,])
    assert third.returncode == 1
    assert third.lines("ERROR: WALSH_METRICS: walsh.prom cannot be written (", "correct it")
    assert third.lines("walsh: ended with errors: 0 of 3 sources read")


@pytest.mark.parametrize("text", ["", "walsh_last_suc", f"{SUCCESS} x\n", "\0"])
def test_a_damaged_file_is_written_anew(tmp_path: Path, text: str) -> None:
    from scrapy_walsh.adapters import metrics  # noqa: PLC0415

    path = tmp_path / "walsh.prom"
    path.write_text(text)
    metrics.write(path, "probe", {"last_run_timestamp_seconds": {(): 1.0}}, success=False)
    assert read(path) == {("walsh_last_run_timestamp_seconds",): 1.0}
    assert list(tmp_path.iterdir()) == [path]
