"""The parts of a page that show time: the run, each host, the gaps. Each picture has its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.proof.report import pictures
from scrapy_walsh.proof.report.lanes import POINTS, TROUBLE
from scrapy_walsh.proof.report.markup import (
    Markup,
    element,
    foreign,
    instant,
    joined,
    plural,
    seconds,
)
from scrapy_walsh.proof.report.spacing import EXEMPT, KEPT, SHORT, UNCLEAR
from scrapy_walsh.proof.report.tables import (
    WORDS,
    Limits,
    Number,
    figure,
    legend,
    picture_row,
    row,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.report.lanes import Column, Lane, Mark
    from scrapy_walsh.proof.report.model import Report
    from scrapy_walsh.proof.report.tally import Host


#: Hosts in the picture of the gaps.
_STRIPS: Final = 30


# -- the run as a whole -------------------------------------------------------------------


def overview(report: Report) -> Markup:
    """Requests over time."""
    if not report.purposes:
        return element("p", "No request was made.", class_="soft")
    columns = [column for column in report.overview if column.requests]
    return figure(
        "overview",
        "Requests to all hosts over the time of the run.",
        f"A column is {seconds(report.span / len(report.overview))}.",
        legend(("target", "target"), ("robots", "robots.txt"), ("operator", "operator's document")),
        pictures.overview(report.overview, report.span),
        pictures.axis(report.span),
        below=table(
            "Requests over time",
            ("From", "To", "#Targets", "#robots.txt", "#Operator's", "#429, 5xx, none"),
            (_column_row(column) for column in columns),
            len(columns),
            len(report.overview),
        ),
    )


def _column_row(column: Column) -> Markup:
    counts = column.counts
    kinds = ("target", "robots", "operator", TROUBLE)
    return row(
        f"+{seconds(column.at)}", f"+{seconds(column.until)}", *(counts[kind] for kind in kinds)
    )


# -- host by host -------------------------------------------------------------------------


def timeline(report: Report, limits: Limits) -> Markup:
    """A lane for each host that matters most."""
    if not report.lanes:
        return element("p", "No host was asked, and none was refused.", class_="soft")
    axis = picture_row("", pictures.axis(report.span), class_="row head")
    lanes = [
        picture_row(_lane_name(each), pictures.lane(each, report.span)) for each in report.lanes
    ]
    rows = list(_lane_rows(report.lanes))
    rest = len(report.hosts) - len(report.lanes)
    told = element("p", _undrawn(report, rest), class_="soft") if rest else None
    return joined(
        (
            told,
            figure(
                "timeline",
                "What each host saw, and how long it was left alone.",
                "A request is drawn at least five pixels wide, and what comes at once side by "
                "side. Where there are too many, a column stands for some, waits are not drawn, "
                "and R5 says that it answers one of them. None: no answer came.",
                legend(
                    ("target", "target"),
                    ("robots", "robots.txt"),
                    ("operator", "operator's document"),
                    ("wait", "spacing required (R4)"),
                    ("hold", "hold after 429, 503, no answer (R5)"),
                    ("held", "held in the queue"),
                    ("refused", "refused"),
                    ("deferred", "deferred"),
                    ("given_up", "given up"),
                    ("short", "asked too early"),
                ),
                axis,
                *lanes,
                below=table(
                    "Every mark of the picture",
                    ("#At", "What", "URL", "Answer", "#After", "Left alone", "#Line", "Note"),
                    rows,
                    len(rows),
                    limits.rows,
                ),
            ),
        )
    )


def _undrawn(report: Report, rest: int) -> str:
    drawn = {lane.host.name for lane in report.lanes}
    others = [host for host in report.hosts if host.name not in drawn]
    requests = sum(host.requests for host in others)
    troubles = sum(host.troubles > 0 for host in others)
    short = sum(host.gaps[SHORT] > 0 for host in others)
    return (
        f"{len(drawn)} of {plural(len(report.hosts), 'host')} are drawn: those asked too early, "
        f"backed off from, and asked most. The other {rest:,} saw {plural(requests, 'request')}; "
        f"{troubles:,} of them were backed off from, {short:,} asked too early."
    )


def _lane_name(lane: Lane) -> Markup:
    host = lane.host
    parts = [plural(host.requests, "request") if host.requests else "never asked"]
    if host.interval > 0:
        parts.append(f"every {seconds(host.interval)}")
    if lane.columns:
        most = max(column.requests for column in lane.columns)
        parts.append(f"up to {most:,} a column")
    if host.until is not None and host.counts[events.DEFERRED]:
        parts.append(f"hold to {instant(host.until, '%d %b %H:%M')}")
    return joined((element("b", foreign(host.name, 34)), element("small", " · ".join(parts))))


def _lane_rows(lanes: Sequence[Lane]) -> Iterator[Markup]:
    for lane in lanes:
        yield element(
            "tr",
            element("th", foreign(lane.host.name, 80), colspan=8, scope="rowgroup"),
            class_="part",
        )
        for mark in lane.marks:
            yield _mark_row(mark)
        for column in lane.columns:
            if column.counts.total():
                yield _lane_column_row(column)


def _mark_row(mark: Mark) -> Markup:
    alone = [f"{seconds(mark.spaced - mark.until)} (R4)"] if mark.spaced > mark.until else []
    alone += [] if mark.held is None else [f"{seconds(mark.held - mark.until)} (R5)"]
    early = "asked too early; " if mark.short else ""
    return row(
        Number(f"+{seconds(mark.at)}"),
        WORDS.get(mark.kind, mark.kind),
        foreign(mark.url),
        mark.answer,
        Number("" if mark.gap is None else seconds(mark.gap)),
        ", ".join(alone),
        mark.line,
        foreign(early + mark.note, 90),
    )


def _lane_column_row(column: Column) -> Markup:
    counts = column.counts
    points = [f"{counts[kind]:,} {WORDS[kind]}" for kind in POINTS if counts[kind]]
    points += [f"{counts[SHORT]:,} asked too early"] if counts[SHORT] else []
    return row(
        Number(f"+{seconds(column.at)}"),
        "column",
        f"{plural(column.requests, 'request')} to +{seconds(column.until)}",
        f"{counts[TROUBLE]:,} of 429, 5xx, none" if counts[TROUBLE] else "",
        "",
        "",
        "",
        ", ".join(points),
    )


# -- gaps ---------------------------------------------------------------------------------


def gaps(report: Report, limits: Limits) -> Markup:
    """Each host's closest gap against what was required."""
    hosts = [host for host in report.hosts if host.gaps.total()]
    if not hosts:
        return element("p", "No host was asked twice: there is no gap.", class_="soft")
    hosts.sort(key=lambda host: (-host.gaps[SHORT], _closest(host), host.name))
    shown = hosts[:_STRIPS]
    head = picture_row("", pictures.scale(), "", class_="row head")
    rows = [
        picture_row(element("b", foreign(host.name, 34)), pictures.strip(host), _beside(host))
        for host in shown
    ]
    more = f" The {len(shown)} closest of {len(hosts):,} hosts." if len(hosts) > len(shown) else ""
    return figure(
        "gaps",
        "The closest gap of each host, from the end of an answer to the next request.",
        f"The thick line is what was required: to its left is too early.{more}",
        legend(
            ("kept", "closest gap"),
            ("deferred", "beyond the scale"),
            ("short", "too early"),
            ("exempt", "first robots.txt and its target: exempt"),
        ),
        head,
        *rows,
        below=table(
            "Gaps by host",
            (
                "Host",
                "#Closest",
                "#Required",
                "#Times",
                "By",
                "#Kept",
                "#Too short",
                "#Exempt",
                "#Not seen",
                "#Line",
            ),
            map(_gap_row, hosts),
            len(hosts),
            limits.rows,
        ),
    )


def _closest(host: Host) -> float:
    return float("inf") if host.closest is None else host.closest.ratio


def _beside(host: Host) -> str:
    if host.closest is None:
        return "exempt alone" if host.exempt is not None else "not seen"
    early = "too early: " if host.closest.verdict == SHORT else ""
    return f"{early}{seconds(host.closest.seconds)} of {seconds(host.closest.required)}"


def _gap_row(host: Host) -> Markup:
    gap, counts = host.closest, host.gaps
    told: tuple[object, ...] = ("", "", "", "") if gap is None else (
        Number(seconds(gap.seconds)), Number(seconds(gap.required)), Number(f"{gap.ratio:.3f}"),
        "R5" if gap.held else "R4",
    )  # fmt: skip
    return row(
        foreign(host.name), *told, *(counts[name] for name in (KEPT, SHORT, EXEMPT, UNCLEAR)),
        "" if gap is None else gap.line,
    )  # fmt: skip
