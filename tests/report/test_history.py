"""``--days``: the sources by days, the requests and octets of hosts, opt-outs, what 304 saved."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.proof.report.history import FAILED, OURS, READ, REFUSED, UNCHANGED, History
from scrapy_walsh.proof.report.html import page
from scrapy_walsh.proof.report.runs import NoRun
from tests.kit import Read, Shown, T, asked, began, decided, ended, lines_of, tally_of

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400.0


def declared(url: str, day: float, **more: Any) -> dict[str, Any]:
    return {"at": T + day * DAY, "run": f"r{day:g}", "kind": "declared", "url": url, **more}


def a_day(day: float, *entries: dict[str, Any]) -> list[dict[str, Any]]:
    run, at = f"r{day:g}", day * DAY
    moved = [{**each, "run": run, "at": each["at"] + at} for each in entries]
    for each in moved:
        for name in {"started", "ended"} & each.keys():
            each[name] += at
    return [began(run, at), *moved, ended(run, at + 99)]


def days_of(*entries: dict[str, Any], days: int = 4, now: float = T + 3 * DAY) -> Shown:
    return tally_of(lines_of(*entries), history=History.until(now, days))


A, B = "http://h.test/a", "http://h.test/b"


def got(url: str, status: int = 200, octets: int = 100) -> list[dict[str, Any]]:
    kind = "not_modified" if status == 304 else "fetched"
    one = asked(1, url=url, status=status, **({"octets": octets} if octets else {}))
    return [one, decided(kind, 2, url=url, status=status)]


def three_days() -> list[dict[str, Any]]:
    blocked = {"requirement": "R3", "verdict": "blocked_operator"}
    not_due = {"requirement": "R8", "verdict": "not_due"}
    return [
        *a_day(0, {**declared(A, 0), "at": T}, {**declared(B, 0), "at": T}, *got(A, octets=700)),
        *a_day(1, {**declared(A, 0), "at": T}, *got(A, 304, 0),
               decided("given_up", 3, url=B, wait=1.0), decided("refused", 4, url=A, **not_due)),
        *a_day(2, {**declared(A, 0), "at": T}, *got(A, 304, 0),
               decided("refused", 3, url=B, **blocked)),
    ]  # fmt: skip


def test_each_source_has_what_became_of_it_by_days():
    shown = days_of(*three_days())
    history = shown.report.history
    assert history is not None
    assert history.rows([]) == [
        (B, bytearray([0, FAILED, REFUSED, 0])), (A, bytearray([READ, UNCHANGED, UNCHANGED, 0])),
    ]  # fmt: skip
    assert [url for url, _ in history.rows([A])] == [A]
    assert len(history.rows(["http://else.test/"])) == 2
    text = " ".join(Read(page(*shown)).text.split())
    assert "4 days, 3 runs" in text
    assert "h.test/a ✓ = = · 1 2 0 0 0" in text
    assert "h.test/b · ✗ - · 0 0 1 1 0" in text
    assert "1 refused, 1 not due" in text  # a refusal is a site's or the operator's


def down(day: float, url: str, stage: str | None, **more: Any) -> list[dict[str, Any]]:
    """A day on which *url* was given up after an exchange that ended at *stage*."""
    one = asked(1, url=url, status=None, **({"unsent": stage} if stage else {}), **more)
    return [{**declared(url, day), "at": T}, one, decided("given_up", 2, url=url, wait=1.0)]


@pytest.mark.parametrize(
    ("entries", "outcome"),
    [
        (down(0, A, None), FAILED),
        (down(0, A, "ours"), OURS),
        (down(0, A, "proxy"), OURS),
        (down(0, A, None, proxy="p.test"), OURS),
        (down(0, A, "name"), OURS),  # nothing at all was answered in that run
        (down(0, A, "connection"), OURS),
        ([*got(B), *down(0, A, "name")], FAILED),
        ([*down(0, A, "connection"), *got(B, 503)[:1]], FAILED),
        ([*got(B), *down(0, A, "ours")], OURS),
        ([*down(0, A, "ours"), *got(A)], READ),
    ],
)
def test_an_outage_on_our_side_has_a_mark_of_its_own(
    entries: list[dict[str, Any]], outcome: int
) -> None:
    history = days_of(*a_day(0, {**declared(A, 0), "at": T}, *entries)).report.history
    assert history is not None
    (days,) = (days for url, days in history.rows([A, B]) if url == A)
    assert days[0] == outcome


def test_all_sources_have_a_row_and_long_spans_a_line_of_signs() -> None:
    urls = [f"http://h{number}.test/feed" for number in range(400)]
    entries = [entry for url in urls for entry in ({**declared(url, 0), "at": T}, *got(url))]
    html = page(*days_of(*a_day(0, *entries)))
    assert html.count('class="week"') == 400
    assert "The first" not in Read(html).text.partition("Day by day")[2].partition("What the")[0]
    long = page(*days_of(*three_days(), days=365))
    assert 'class="week"' not in long
    assert "✗-·" in long


def test_r3_an_opt_out_has_its_first_refusal():
    shown = days_of(*three_days())
    assert [host.opted_out for host in shown.report.hosts] == [T + 2 * DAY + 3]
    assert "refused since 2027-01-17 08:00:03 UTC" in Read(page(*shown)).text


def test_a_redirect_of_a_source_counts_for_it_and_a_sitemaps_children_do_not():
    moved = {**declared("http://h.test/new", 0, via=A), "at": T}
    child = {**declared("http://h.test/c", 0, by=A), "at": T}
    there = declared(A, 0) | {"at": T}
    report, _ = days_of(*a_day(0, there, moved, child, *got("http://h.test/new")))
    assert report.history is not None
    assert report.history.rows([]) == [(A, bytearray([READ, 0, 0, 0]))]


def test_days_are_those_of_utc_and_today_is_the_last():
    now = T + 3 * DAY
    history = History.until(now, 30)
    assert history.began % DAY == 0
    assert history.began + 29 * DAY <= now < history.began + 30 * DAY


def test_days_without_a_run_are_one_line_that_says_when_the_last_one_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(NoRun, match="the last one of this ledger began at 2027-01-17"):
        days_of(*three_days(), now=T + 90 * DAY)
    path = tmp_path / "other.jsonl"
    path.write_bytes(b"\n".join([*lines_of(*a_day(-2000)), b""]))
    assert main(["report", str(path), "--days", "3"]) == 2
    assert "no run began in these days" in capsys.readouterr().err
    assert time.time() > T - 2000 * DAY
