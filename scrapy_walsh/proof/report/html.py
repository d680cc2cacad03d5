"""A report as one HTML file that needs nothing else: no script, no font, no request. Pure."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Outcome
from scrapy_walsh.policy import event as events
from scrapy_walsh.proof.report import pictures
from scrapy_walsh.proof.report.entries import text
from scrapy_walsh.proof.report.findings import findings, other_than_default
from scrapy_walsh.proof.report.markup import (
    Markup,
    code,
    element,
    foreign,
    instant,
    joined,
    octets,
    plural,
    seconds,
)
from scrapy_walsh.proof.report.rulings import decisions, documents, runs, sources_section
from scrapy_walsh.proof.report.sections import gaps, overview, timeline
from scrapy_walsh.proof.report.tables import Limits
from scrapy_walsh.spec import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.findings import Finding
    from scrapy_walsh.proof.report.model import Report
    from scrapy_walsh.proof.report.sources import Sources

#: Octets that a page may have; with less room it tells fewer lines, and says so.
LARGEST: Final = 4_500_000
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_SIGNS: Final = {
    Outcome.HELD: ("yes", "✓ holds"),
    Outcome.BROKEN: ("no", "✗ broken"),
    Outcome.UNSEEN: ("unseen", "? not seen"),
}
_PURPOSES: Final = (("target", "targets"), ("robots", "robots.txt"), ("operator", "operator's"))
_SETTINGS: Final = 40  # an honest run has fewer
_ROOM: Final = (1, 4, 16, 64)


def page(report: Report, sources: Sources | None = None) -> str:
    """The page; its size is bounded, whatever the ledger holds."""
    for share in _ROOM:
        limits = Limits(rows=1200 // share, title=600 // share)
        found = _page(report, sources, limits)
        if len(found.encode()) <= LARGEST:
            break
    return found


def _page(report: Report, sources: Sources | None, limits: Limits) -> str:
    style = Markup((files("scrapy_walsh.proof.report") / "style.css").read_text(encoding="utf-8"))
    sections = _sections(report, sources, limits)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="robots", content="noindex"),
        element("title", f"Walsh report: {_title(report)}"),
        element("style", style),
    )
    body = element(
        "body",
        pictures.DEFINITIONS,
        _header(report, sources, [(key, title) for key, title, _ in sections]),
        element("main", *(content for _, _, content in sections)),
        _footer(report),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _sections(
    report: Report, sources: Sources | None, limits: Limits
) -> list[tuple[str, str, Markup]]:
    found = [
        ("findings", "What the ledger shows", _findings(report, sources)),
        ("numbers", "In numbers", _numbers(report, sources)),
        ("overview", "The run as a whole", overview(report)),
        ("timeline", "Host by host", timeline(report, limits)),
        ("gaps", "Gaps", gaps(report, limits)),
        ("decisions", "Decisions and their rules", decisions(report, limits)),
    ]
    if sources is not None:
        found.append(("sources", "Sources", sources_section(sources, limits)))
    found.append(("documents", "Documents", documents(report, limits)))
    if len(report.runs) > 1:
        found.append(("runs", "Runs", runs(report, limits)))
    return [
        (
            key,
            title,
            element(
                "section",
                element("h2", title, id=f"h-{key}"),
                content,
                id=key,
                aria_labelledby=f"h-{key}",
            ),
        )
        for key, title, content in found
    ]


def _title(report: Report) -> str:
    if len(report.runs) == 1:
        return f"run {report.runs[0].name}"
    return plural(len(report.runs), "run")


def _header(report: Report, sources: Sources | None, links: list[tuple[str, str]]) -> Markup:
    first = report.runs[0] if len(report.runs) == 1 else None
    return element(
        "header",
        element("h1", "What the bot did: ", foreign(_title(report))),
        element(
            "p",
            f"{instant(report.began)}, {seconds(report.span)}.",
            f" It {_end(first.reason)}." if first is not None and first.ended is not None else None,
            class_="soft",
        ),
        _warning(report, sources),
        element("dl", *(_fact(name, value) for name, value in _facts(report)), class_="facts"),
        element(
            "nav",
            element(
                "ul", *(element("li", element("a", title, href=f"#{key}")) for key, title in links)
            ),
            aria_label="Parts of this page",
        ),
    )


def _end(reason: str) -> str:
    return "ended well (finished)" if reason == "finished" else f"ended with {reason!r}"


def _warning(report: Report, sources: Sources | None) -> Markup | None:
    wrong = [each for each in findings(report, sources) if each.outcome is Outcome.BROKEN]
    if not wrong:
        return None
    return element(
        "div",
        *(
            element("p", element("strong", "✗ Not so: "), f"{each.about}. ", each.text)
            for each in wrong
        ),
        class_="warn",
        role="alert",
    )


def _fact(name: str, value: object) -> Markup:
    return joined((element("dt", name), element("dd", value)))


def _facts(report: Report) -> Iterator[tuple[str, object]]:
    for run in report.runs[-1:]:
        yield "Asked as", foreign(text(run.terms, "user_agent") or "not said", 160)
        version = text(run.terms, "version") or "not said"
        yield (
            "By",
            foreign(f"scrapy-walsh {version}, {text(run.terms, 'spec') or 'no spec named'}", 120),
        )
        others = other_than_default(run)[:_SETTINGS]
        yield (
            "Settings",
            joined(_setting(name, value) for name, value in others)
            if others
            else "all as by default",
        )
        if run.setting("shared") is True:
            yield "Shared", "other machines' requests to the same hosts are in their own ledgers"
    number, head = report.head or (0, "none")
    yield (
        "Ledger",
        f"ends at line {number:,}"
        + (f"; {plural(report.others, 'other run')} in it" if report.others else ""),
    )
    yield "Its head", code(head, 72)


def _setting(name: str, value: str) -> Markup:
    return element("div", code(f"{name} = {value}", 140))


# -- findings and numbers -----------------------------------------------------------------


def _findings(report: Report, sources: Sources | None) -> Markup:
    listed = element("ul", *map(_finding, findings(report, sources)), class_="findings")
    note = element(
        "p",
        "This is what the ledger says of itself. Whether each decision follows from the documents,"
        " the other promises among them, is derived by ",
        element("code", "scrapy walsh verify"),
        ".",
        class_="soft",
    )
    return joined((listed, note))


def _finding(found: Finding) -> Markup:
    class_, words = _SIGNS[found.outcome]
    return element(
        "li",
        element("span", words, class_=f"say {class_}"),
        element("div", element("strong", found.about), element("br"), element("span", found.text)),
    )


def _numbers(report: Report, sources: Sources | None) -> Markup:
    kinds, purposes = report.kinds, report.purposes
    asked = [host for host in report.hosts if host.requests]
    told: list[tuple[str, object, str]] = [
        (
            "Requests",
            sum(purposes.values()),
            ", ".join(f"{words} {purposes.get(name, 0):,}" for name, words in _PURPOSES),
        ),
        ("Hosts asked", len(asked), f"of {len(report.hosts):,} in the run"),
        ("Declared", kinds.get("declared", 0), "targets (R6)"),
        ("Fetched", kinds.get(events.FETCHED, 0), "answers for the spider"),
        ("Not modified", kinds.get(events.NOT_MODIFIED, 0), "304, no new data (R7)"),
        ("Refused", kinds.get(events.REFUSED, 0), "never asked (R2, R3, R6, R8, settings)"),
        ("Held", kinds.get(events.HELD, 0), "times that targets waited (R4)"),
        ("Backed off", kinds.get(events.RETRIED, 0), "retries booked (R5)"),
        ("Given up", kinds.get(events.GIVEN_UP, 0), "retries used up (R5)"),
        ("Deferred", kinds.get(events.DEFERRED, 0), "left for a later run"),
    ]
    if redirected := kinds.get(events.TOO_MANY_REDIRECTS, 0):
        told.append(("Redirected too often", redirected, "not followed further (D5)"))
    if sources is not None:
        told.append(("Items", sources.items, "of the source report"))
        told.append(("Received", octets(sources.bytes), "bodies of sources"))
    return element("dl", *(_tile(*each) for each in told), class_="tiles")


def _tile(name: str, value: object, more: str) -> Markup:
    shown = f"{value:,}" if isinstance(value, int) else value
    return element("div", element("dt", name), element("dd", shown, element("small", more)))


def _footer(report: Report) -> Markup:
    unread = (
        f" {plural(report.unread, 'line')} could not be read for what it tells."
        if report.unread
        else ""
    )
    return element(
        "footer",
        element(
            "p",
            f"Made by scrapy walsh report {__version__} from ",
            f"{plural(report.count, 'ledger line')}.",
            " Times are UTC; those of requests go by the clock that pacing goes by.",
            unread,
        ),
    )
