"""The source report as a table and as a document."""

from __future__ import annotations

import os
import select
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.policy import readings
from scrapy_walsh.sources import report
from scrapy_walsh.sources.report import ReportRow, as_document, as_lines, check_writable

if TYPE_CHECKING:
    from pathlib import Path


def test_table_lines_up() -> None:
    due = datetime.fromtimestamp(1779580800.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    shown = datetime.fromtimestamp(1779580800.0).strftime("%Y-%m-%d %H:%M:%S")
    rows = [
        ReportRow("a", "https://a.test/", "fed", "R9", "", 1, 1234, 10, 10, 3, next_due=due),
        ReportRow("x" * 50, "https://x.test/", "refused", "R2", "robots.txt line 3", 0, 0, 0),
    ]
    lines = as_lines(rows)
    assert len(lines) == 3
    assert lines[0].split() == [
        "source",
        "outcome",
        "rule",
        "requests",
        "bytes",
        "new",
        "known",
        "next",
        "due",
        "why",
    ]
    assert lines[1].split() == ["a", "read:", "feed", "R9", "1", "1234", "10", "3", *shown.split()]
    assert lines[2].startswith("x" * 39 + "…  refused     R2")
    assert lines[2].endswith("  next run             robots.txt line 3")
    assert (
        len(
            {
                line.index(word)
                for line, word in zip(lines, ("outcome", "read: feed", "refused"), strict=True)
            }
        )
        == 1
    )


def test_outcomes_are_called_by_what_happened_and_values_stay() -> None:
    """Each outcome has a label without a riddle; the document has the value (D23)."""
    values = [*sorted(report.READ), *(each for each in readings.OUTCOMES if each != readings.READ)]
    labels = [report.label(value) for value in values]
    assert [text for text in labels if text.startswith("read: ")] == [
        "read: feed", "read: llms.txt", "read: markdown", "read: sitemap",
    ]  # fmt: skip
    assert len({*labels}) == len(values)
    assert {"fed", "negotiated", "not modified"}.isdisjoint(labels)
    assert not [text for text in labels if "_" in text]
    html = ReportRow("a", "https://a.test/", readings.LEFT_OUT, "R9", only_html=True)
    assert as_lines([html])[1].startswith("a       left out: HTML only  R9")
    assert as_document([html], [], 0)["sources"][0]["outcome"] == "left_out"
    for value in values:
        is_html = value == readings.LEFT_OUT
        assert (report.label(value, only_html=True) != report.label(value)) == is_html


def test_hints_follow_the_reason() -> None:
    row = ReportRow("a", "https://a.test/", "left_out", "R9", "page: HTML")
    row.moved_to = "https://b.test/"
    row.suggested_feeds = ["https://b.test/f"]
    why = "page: HTML; moved for good to https://b.test/; offers a feed: https://b.test/f"
    assert as_lines([row])[1].endswith(why)


def test_sources_of_one_name_are_told_apart() -> None:
    rows = [ReportRow("a", "https://a.test/1", "fed"), ReportRow("a", "https://a.test/2", "fed")]
    assert [line.split()[0] for line in as_lines(rows)[1:]] == [
        "https://a.test/1",
        "https://a.test/2",
    ]


def test_document_has_every_field() -> None:
    document = as_document([ReportRow("a", "https://a.test/", "fed")], ["one problem"], 2)
    assert document["problems"] == ["one problem"]
    assert document["requests"] == {"sources": 0, "documents": 2}
    assert document["sources"] == [
        {
            "source": "a",
            "url": "https://a.test/",
            "outcome": "fed",
            "requirement": "",
            "reason": "",
            "requests": 0,
            "bytes": 0,
            "items": 0,
            "new": 0,
            "known": 0,
            "moved_to": None,
            "suggested_feeds": [],
            "suggested_sitemaps": [],
            "next_due": None,
            "only_html": False,
        }
    ]


def test_to_look_whether_a_report_can_be_written_makes_no_file(tmp_path: Path) -> None:
    check_writable(str(tmp_path / "report.json"))
    assert list(tmp_path.iterdir()) == []
    for where in (tmp_path, tmp_path / "none" / "report.json"):
        with pytest.raises(SourcesInvalid, match="cannot be written: "):
            check_writable(str(where))


def test_a_pipe_for_the_report_has_no_end_before_it(tmp_path: Path) -> None:
    """Who reads it would get nothing, and the crawl would wait for a reader in the end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(str(pipe))
        assert not select.select([reader], [], [], 0.0)[0]
    finally:
        os.close(reader)
    check_writable(str(pipe))
