"""R9: what one response to a request for a source, or its failure, means for that source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.documents.apart import links_of
from scrapy_walsh.adapters.outcomes import GaveUp, NotModified, Refused, TooManyRedirects
from scrapy_walsh.adapters.readings import moved_for_good
from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly, OwnFault
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats import sitemaps
from scrapy_walsh.policy.formats.feeds import Links
from scrapy_walsh.policy.readings import refusal_line
from scrapy_walsh.policy.verdict import DEFERRED, NOT_DUE
from scrapy_walsh.policy.words import one_line, plural
from scrapy_walsh.sources import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response

    from scrapy_walsh.policy.formats.representation import Step
    from scrapy_walsh.policy.robots.usage import Statement


MAX_BODY: Final = 10 * 1024 * 1024
"""Octets, after decompression: the download of a source's body that is longer is cancelled."""
_MAX_BODY: Final = {"sitemap": sitemaps.MAX_OCTETS}


_NOTHING: Final = Links(())


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought for its source.

    ``outcome``: of ``sources.report``; None where the answer was of no use and the next step (feed,
    page, llms.txt) is to be tried. ``failed``: there was no usable response at all, as against one
    in a format that is not used. ``links``: their ``published`` is None unless ``via`` is ``feed``
    or ``sitemap``; of a sitemap index there are only ``links.children``.
    ``due``: Unix seconds, where the request was deferred. ``forget``: the validators must not be
    kept, since a later 304 would not say what this answer was. ``refusal``: the rule and the
    document that refused the request, "" where none did. ``said``: what the site says about use.
    ``fault``: why the answer could not be read because of us, "" where nothing of ours failed.
    """

    outcome: str | None
    requirement: str = ""
    reason: str = ""
    via: str = ""
    links: Links = _NOTHING
    failed: bool = False
    moved_to: str | None = None
    suggested_feeds: tuple[str, ...] = ()
    due: float | None = None
    forget: bool = False
    refusal: str = ""
    said: tuple[Statement, ...] = ()
    fault: str = ""


def max_body(step: Step) -> int:
    """Octets of the longest body that is downloaded for *step*."""
    return _MAX_BODY.get(step.kind, MAX_BODY)


async def from_response(step: Step, response: Response) -> Answer:
    """What *response* means for *step*; a large body is read in a child process."""
    if response.status != 200:
        return _from_status(step, response)
    content_type = compat.header(response, "Content-Type")
    kind = formats.representation(content_type, response.body)
    answered = _usable(step, kind)
    if answered is None:
        return _from_other(step, response, kind, content_type)
    try:
        found = await links_of(kind, response.body, content_type, response.url)
    except DocumentTooCostly as error:
        reason = f"{_called(step)}: {error}"
        return Answer(report.FAILED, reason=reason, failed=True, forget=True)
    except DocumentInvalid as error:
        return Answer(None, reason=f"{_called(step)}: {error}", forget=True)
    except OwnFault as error:
        fault = f"{response.url}: not read because of us: {error}"
        reason = f"{_called(step)}: {fault}"
        return Answer(report.FAILED, reason=reason, failed=True, forget=True, fault=fault)
    return answered(step, response, found)


def from_failure(step: Step, error: BaseException) -> Answer:
    """What *error*, which an errback got in place of a response, means for *step*."""
    if isinstance(error, HttpError):
        return _from_status(step, error.response)
    if isinstance(error, Refused):
        verdict = error.verdict
        outcome = _BY_VERDICT.get(verdict.name, report.REFUSED)
        if error.due is not None:
            outcome = report.DEFERRED
        reason = f"{_called(step)}: {verdict.requirement} {verdict.reason}"
        refusal = refusal_line(verdict)
        return Answer(outcome, verdict.requirement, reason, due=error.due, refusal=refusal)
    if isinstance(error, NotModified):
        return _from_not_modified(step, error)
    if isinstance(error, GaveUp):
        return Answer(report.FAILED, "R5", f"{_called(step)}: {error.reason}", failed=True)
    if isinstance(error, TooManyRedirects):
        return Answer(report.FAILED, "D5", f"{_called(step)}: {error.reason}", failed=True)
    cancelled = type(error).__name__ in _CANCELLED
    why = (
        f"cancelled: a body over {max_body(step)} bytes"
        if cancelled
        else one_line(f"{type(error).__name__}: {error}")
    )
    return Answer(report.FAILED, reason=f"{_called(step)}: {why}", failed=True, forget=True)


# What Scrapy calls the error of a body that is too long, before 2.14 and since.
_CANCELLED: Final = frozenset({"CancelledError", "DownloadCancelledError"})
_BY_VERDICT: Final = {NOT_DUE: report.NOT_DUE, DEFERRED: report.DEFERRED}
_UNUSABLE: Final = {
    formats.HTML: "HTML, which is never scraped",
    formats.PLAIN: "plain text, not markdown",
    formats.SITEMAP: 'a sitemap, which is read where the source says sitemap = "URL"',
}


def _from_not_modified(step: Step, error: NotModified) -> Answer:
    # The page that has not changed may be HTML, which is of no use: then llms.txt is tried again.
    if _is_known_page(step, error.content_type):
        return Answer(None, reason=f"{_called(step)}: HTML as before (304)")
    return Answer(report.NOT_MODIFIED, "R7", f"{_called(step)}: 304, no new data")


def _is_known_page(step: Step, content_type: str | None) -> bool:
    return step.kind == "page" and formats.representation(content_type, b"") == formats.HTML


def _from_status(step: Step, response: Response) -> Answer:
    return Answer(None, reason=f"{_called(step)}: HTTP {response.status}", failed=True)


def _from_other(step: Step, response: Response, kind: str, content_type: str | None) -> Answer:
    found = content_type or "no Content-Type"
    return Answer(
        None,
        reason=f"{_called(step)}: {_UNUSABLE.get(kind, f'no format of R9 ({found})')}",
        moved_to=_moved_to(response),
        suggested_feeds=() if step.kind == "llms" else _suggested(response, kind),
        forget=not _is_known_page(step, content_type),
    )


def _usable(step: Step, kind: str) -> Callable[[Step, Response, Links], Answer] | None:
    """The function that makes an answer of a body of *kind*; None where *step* cannot use it."""
    if step.kind == "llms":
        return _from_llms if kind in (formats.MARKDOWN, formats.PLAIN) else None
    if step.kind == "sitemap" and kind in (formats.SITEMAP, formats.GZIP):
        return _from_sitemap
    return _READ.get(kind)


def _from_feed(step: Step, response: Response, found: Links) -> Answer:
    reason = "" if found.entries else "a feed without linked entries"
    moved_to = _moved_to(response)
    return Answer(
        report.FED,
        "R9",
        reason,
        "feed",
        found,
        moved_to=moved_to,
        suggested_feeds=(moved_to,) if moved_to else (),
        forget=_is_known_page(step, compat.header(response, "Content-Type")),
    )


def _from_sitemap(step: Step, response: Response, found: Links) -> Answer:  # noqa: ARG001
    moved_to = _moved_to(response)
    if found.children is not None:
        # A later 304 would not say which sitemaps it lists, so it is always requested in full.
        listed = plural(len(found.children), "sitemap")
        reason = "; ".join(filter(None, (f"an index of {listed}", found.note)))
        return Answer(None, "R9", reason, links=found, moved_to=moved_to, forget=True)
    reason = found.note or ("" if found.entries else "a sitemap without entries")
    return Answer(report.SITEMAP, "R9", reason, "sitemap", found, moved_to=moved_to)


def _from_markdown(step: Step, response: Response, found: Links) -> Answer:  # noqa: ARG001
    return Answer(
        report.NEGOTIATED,
        "R9",
        _of_markdown(found),
        "markdown",
        found,
        moved_to=_moved_to(response),
        suggested_feeds=_suggested(response, formats.MARKDOWN),
    )


def _from_llms(step: Step, response: Response, found: Links) -> Answer:  # noqa: ARG001
    return Answer(report.LLMS, "R9", _of_markdown(found), "llms.txt", found)


_READ: Final = {
    formats.FEED: _from_feed,
    formats.JSON_FEED: _from_feed,
    formats.MARKDOWN: _from_markdown,
}


def _of_markdown(found: Links) -> str:
    return found.note or ("" if found.entries else "markdown without absolute links")


def _called(step: Step) -> str:
    return "llms.txt" if step.kind == "llms" else step.kind


def _moved_to(response: Response) -> str | None:
    """The URL of *response*, if permanent redirects (301, 308), and no others, led to it."""
    return moved_for_good(response.request) if response.request else None


def _suggested(response: Response, kind: str) -> tuple[str, ...]:
    links = [value.decode("latin-1") for value in response.headers.getlist("Link")]
    html = ""
    if kind == formats.HTML:  # its head: a character has four octets at most
        head = response.body[: 4 * formats.MAX_HEAD]
        html = formats.text_of(head, compat.header(response, "Content-Type"))
    return tuple(formats.suggested_feeds(links, html, response.url))
