"""R9 applied to one answer: what a source's response, or its absence, means for the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_walsh.adapters.outcomes import GaveUp, NotModified, Refused
from scrapy_walsh.errors import DocumentInvalid
from scrapy_walsh.policy import formats
from scrapy_walsh.policy.feeds import Entry, read_feed
from scrapy_walsh.policy.verdict import DEFERRED, NOT_DUE
from scrapy_walsh.spiders import report

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_walsh.policy.formats import Step


MAX_BODY: Final = 10 * 1024 * 1024
"""Octets of a source's body, decompressed, above which the download is cancelled."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought. ``outcome`` None: nothing usable, the next step is to be tried.

    ``failed``: there was no usable response at all (as against one in an unusable format).
    ``entries`` have ``published`` None unless ``via`` is ``feed``. ``due``: Unix seconds, of what
    is deferred. ``forget``: its validators are not to be kept, since a 304 would not say what
    this answer was.
    """

    outcome: str | None
    requirement: str = ""
    reason: str = ""
    via: str = ""
    entries: tuple[Entry, ...] = ()
    failed: bool = False
    moved_to: str | None = None
    suggested_feeds: tuple[str, ...] = ()
    due: float | None = None
    forget: bool = False


def from_response(step: Step, response: Response) -> Answer:
    """The answer that *response* is to *step*."""
    content_type = _header(response, "Content-Type")
    if response.status != 200:
        return Answer(None, reason=f"{_called(step)}: HTTP {response.status}", failed=True)
    kind = formats.representation(content_type, response.body)
    if kind in (formats.FEED, formats.JSON_FEED) and step.kind != "llms":
        return _from_feed(step, response, content_type)
    if kind == formats.MARKDOWN or (kind == formats.PLAIN and step.kind == "llms"):
        return _from_markdown(step, response, content_type)
    found = content_type or "no Content-Type"
    return Answer(
        None,
        reason=f"{_called(step)}: {_UNUSABLE.get(kind, f'no format of R9 ({found})')}",
        moved_to=_moved_to(response),
        suggested_feeds=() if step.kind == "llms" else _suggested(response, kind),
        forget=not _is_known_page(step, content_type),
    )


def from_failure(step: Step, error: BaseException) -> Answer:
    """The answer that *error*, which an errback got in place of a response, is to *step*."""
    if isinstance(error, HttpError):
        return from_response(step, error.response)
    if isinstance(error, Refused):
        verdict = error.verdict
        outcome = _BY_VERDICT.get(verdict.name, report.REFUSED)
        if error.due is not None:
            outcome = report.DEFERRED
        reason = f"{_called(step)}: {verdict.reason}"
        return Answer(outcome, verdict.requirement, reason, due=error.due)
    if isinstance(error, NotModified):
        return _from_not_modified(step, error)
    if isinstance(error, GaveUp):
        return Answer(report.FAILED, "R5", f"{_called(step)}: {error.reason}", failed=True)
    cancelled = type(error).__name__ in _CANCELLED
    why = f"cancelled: a body over {MAX_BODY} bytes" if cancelled else _one_line(error)
    return Answer(report.FAILED, reason=f"{_called(step)}: {why}", failed=True, forget=True)


# Scrapy's, before and since 2.14.
_CANCELLED: Final = frozenset({"CancelledError", "DownloadCancelledError"})
_BY_VERDICT: Final = {NOT_DUE: report.NOT_DUE, DEFERRED: report.DEFERRED}
_UNUSABLE: Final = {
    formats.HTML: "HTML, which is never scraped",
    formats.PLAIN: "plain text, not markdown",
}


def _from_not_modified(step: Step, error: NotModified) -> Answer:
    # What has not changed may be a page that was of no use: then llms.txt is asked as before.
    if _is_known_page(step, error.content_type):
        return Answer(None, reason=f"{_called(step)}: HTML as before (304)")
    return Answer(report.NOT_MODIFIED, "R7", f"{_called(step)}: 304, no new data")


def _is_known_page(step: Step, content_type: str | None) -> bool:
    return step.kind == "page" and formats.representation(content_type, b"") == formats.HTML


def _from_feed(step: Step, response: Response, content_type: str | None) -> Answer:
    try:
        entries = read_feed(response.body, content_type, response.url)
    except DocumentInvalid as error:
        return Answer(None, reason=f"{_called(step)}: {error}", forget=True)
    reason = "" if entries else "a feed without linked entries"
    moved_to = _moved_to(response)
    return Answer(
        report.FED,
        "R9",
        reason,
        "feed",
        tuple(entries),
        moved_to=moved_to,
        suggested_feeds=(moved_to,) if moved_to else (),
        forget=_is_known_page(step, content_type),
    )


def _from_markdown(step: Step, response: Response, content_type: str | None) -> Answer:
    text = formats.text_of(response.body, content_type)
    entries = tuple(Entry(title, url, None) for title, url in formats.markdown_links(text))
    reason = "" if entries else "markdown without absolute links"
    if len(text) > formats.MAX_MARKDOWN:
        reason = f"read up to {formats.MAX_MARKDOWN} characters"
    if step.kind == "llms":
        return Answer(report.LLMS, "R9", reason, "llms.txt", entries)
    return Answer(
        report.NEGOTIATED,
        "R9",
        reason,
        "markdown",
        entries,
        moved_to=_moved_to(response),
        suggested_feeds=_suggested(response, formats.MARKDOWN),
    )


def _called(step: Step) -> str:
    return "llms.txt" if step.kind == "llms" else step.kind


def _header(response: Response, name: str) -> str | None:
    value = response.headers.get(name)
    return value.decode("latin-1") if value is not None else None


def _moved_to(response: Response) -> str | None:
    """Where the response came from, when every hop to it said that the move is for good."""
    meta = response.request.meta if response.request else {}
    hops = meta.get("redirect_reasons", [])
    return response.url if hops and all(hop in (301, 308) for hop in hops) else None


def _suggested(response: Response, kind: str) -> tuple[str, ...]:
    links = [value.decode("latin-1") for value in response.headers.getlist("Link")]
    page = formats.text_of(response.body, _header(response, "Content-Type"))
    html = page if kind == formats.HTML else ""
    return tuple(formats.suggested_feeds(links, html, response.url))


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
