"""R9: what one response to a request for a source, or its failure, means for that source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_walsh.adapters.documents.apart import links_of
from scrapy_walsh.adapters.documents.validate import Stopped
from scrapy_walsh.adapters.outcomes import (
    BodyTooLarge,
    GaveUp,
    NotModified,
    Refused,
    TooManyRedirects,
)
from scrapy_walsh.adapters.sources import moved_for_good
from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly, OwnFault, one_line
from scrapy_walsh.policy import visits
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.formats import xmltext
from scrapy_walsh.policy.formats.text import Links, text_of
from scrapy_walsh.policy.readings import FAILED, LEFT_OUT, loss, outcome_of
from scrapy_walsh.policy.words import plural
from scrapy_walsh.sources import report

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_walsh.policy.readings import Reading
    from scrapy_walsh.policy.robots.usage import Statement
    from scrapy_walsh.policy.verdict import Verdict


MAX_BODY: Final = 10 * 1024 * 1024
"""Octets, after decompression: the download of a source's body that is longer is cancelled."""


_NOTHING: Final = Links(())
#: "OK", and the same through a proxy that has transformed it (RFC 9110 15.3.4).
_SUCCESSES: Final = frozenset({200, 203})
#: "Not found", and "not in a format that you accept" (RFC 9110 15.5.5, 15.5.7).
_NO_PAGE: Final = frozenset({404, 406})


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought for its source.

    ``outcome``: of the source report; None where the answer was of no use and the next step (feed,
    page, llms.txt) is to be tried. ``failed``: there was no usable response at all, as against one
    in a format that is not used. ``links``: their ``published`` is None unless ``via`` is ``feed``
    or ``sitemap``; of a sitemap index there are only ``links.children``. ``entries``: how many a
    feed or sitemap has; None of any other answer.
    ``due``: Unix seconds, where the request was deferred. ``forget``: the validators must not be
    kept, since a later 304 would not say what this answer was. ``refusal``: the verdict
    that refused the request, None if none did. ``said``: what the site says about use.
    ``fault``: why the answer could not be read because of us, "" where nothing of ours failed.
    ``unreachable``: the host has given no answer at all.
    """

    outcome: str | None
    requirement: str = ""
    reason: str = ""
    via: str = ""
    links: Links = _NOTHING
    entries: int | None = None
    failed: bool = False
    moved_to: str | None = None
    suggested_feeds: tuple[str, ...] = ()
    due: float | None = None
    forget: bool = False
    refusal: Verdict | None = None
    said: tuple[Statement, ...] = ()
    fault: str = ""
    unreachable: bool = False

    @property
    def ending(self) -> str:
        """The outcome of a source for which nothing else is tried."""
        return self.outcome or (FAILED if self.failed else LEFT_OUT)


def max_body(step: formats.Step) -> int:
    """Octets of the longest body that is downloaded for *step*."""
    return xmltext.MAX_OCTETS if step.kind == "sitemap" else MAX_BODY


async def from_response(step: formats.Step, response: Response) -> Answer:
    """What *response* means for *step*; a large body is read in a child process."""
    if response.status not in _SUCCESSES:
        return _without_page(step, response.status)
    content_type = formats.header(response, "Content-Type")
    kind = formats.representation(content_type, response.body)
    if kind == formats.GZIP and step.kind == "feed":
        kind = formats.FEED
    use = _USES_OF.get(step.kind, _USES).get(kind)
    if use is None:
        no_format = f"no format of R9 ({content_type or 'no Content-Type'})"
        return _vain(
            step,
            _UNUSABLE.get(kind, no_format),
            moved_to=moved_for_good(response.request),
            suggested_feeds=() if step.kind == "llms" else _suggested(response, kind),
            forget=not _is_known_page(step, content_type),
        )
    try:
        found = await links_of(kind, response.body, content_type, response.url)
    except (DocumentTooCostly, OwnFault) as error:
        ours = isinstance(error, OwnFault) and not isinstance(error, Stopped)
        fault = f"{response.url}: not read because of us: {error}" if ours else ""
        return _vain(step, fault or error, FAILED, failed=True, forget=True, fault=fault)
    except DocumentInvalid as error:
        return _vain(step, error, forget=True)
    if not found.entries and (found.linkless or found.ends_early):
        return _vain(step, f"no entry can be used: {found.note}", forget=True)
    return _from_links(step, response, use, found)


def without_stand_in(step: formats.Step, answer: Answer) -> Answer:
    """*answer* to a *step* for a document that was read before: markdown is no such document."""
    if answer.outcome != report.NEGOTIATED:
        return answer
    return _vain(step, "markdown, where it was read as what it is declared", forget=True)


def unless_lost(answer: Answer, reading: Reading | None) -> Answer:
    """*answer*, if its feed or sitemap was not emptied or cut off since *reading*; else unread.

    Its links are emitted all the same: those that are there are whole.
    """
    if answer.entries is None:
        return answer
    why = loss(reading, answer.entries, ends_early=answer.links.ends_early)
    if not why:
        return answer
    return replace(answer, outcome=LEFT_OUT, reason=f"{answer.via}: {why}", entries=None)


def from_failure(step: formats.Step, error: BaseException) -> Answer:
    """What *error*, which an errback got in place of a response, means for *step*."""
    match error:
        case HttpError():
            return _without_page(step, error.response.status)
        case Refused():
            verdict, due = error.verdict, error.due
            outcome, by = outcome_of(verdict, due), verdict.requirement
            reason = f"{by} {verdict.brief or verdict.reason}"
            return _vain(step, reason, outcome, by, due=due, refusal=verdict)
        case NotModified() if _is_known_page(step, error.content_type):
            # The page that has not changed is HTML, which is of no use: llms.txt is tried again.
            return _vain(step, "HTML as before (304)")
        case NotModified():
            return _vain(step, "304, no new data", report.NOT_MODIFIED, "R7")
        case GaveUp() | TooManyRedirects():
            by = "R5" if isinstance(error, GaveUp) else "D5"
            none = error.status is None
            return _vain(step, error.reason, FAILED, by, failed=True, unreachable=none)
    why = one_line(f"{type(error).__name__}: {error}")
    if isinstance(error, BodyTooLarge):
        why = f"refused as too large: over {max_body(step)} bytes"
    return _vain(step, why, FAILED, failed=True, forget=True)


def _without_page(step: formats.Step, status: int) -> Answer:
    """What *status*, which is no success, means: a page that is not there offers no format (R9).

    A visit that failed ends what is requested of its source: nothing stands in for that.
    """
    if visits.of_answer(status, unasked=True) != visits.ANSWERED:
        return _vain(step, f"HTTP {status}", FAILED, failed=True)
    return _vain(step, f"HTTP {status}", failed=step.kind != "page" or status not in _NO_PAGE)


def _vain(
    step: formats.Step, why: object, outcome: str | None = None, requirement: str = "", **more: Any
) -> Answer:
    """An answer without links."""
    called = "llms.txt" if step.kind == "llms" else step.kind
    return Answer(outcome, requirement, f"{called}: {why}", **more)


_UNUSABLE: Final = {
    formats.HTML: "HTML, which is never scraped",
    formats.PLAIN: "plain text, not markdown",
    formats.SITEMAP: 'a sitemap, which is read where the source says sitemap = "URL"',
}


def _is_known_page(step: formats.Step, content_type: str | None) -> bool:
    return step.kind == "page" and formats.representation(content_type, b"") == formats.HTML


class _Use(NamedTuple):
    """What an answer in a format that is used is called. ``empty``: why it brought no links."""

    outcome: str
    via: str
    empty: str


_FEED: Final = _Use(report.FED, "feed", "a feed without entries")
_SITEMAP: Final = _Use(report.SITEMAP, "sitemap", "a sitemap without entries")
_NO_LINKS: Final = "markdown without absolute links"
_MARKDOWN: Final = _Use(report.NEGOTIATED, "markdown", _NO_LINKS)
_LLMS: Final = _Use(report.LLMS, "llms.txt", _NO_LINKS)
_USES: Final = {formats.FEED: _FEED, formats.JSON_FEED: _FEED, formats.MARKDOWN: _MARKDOWN}
#: What only such a step may use besides; the answer to a step for llms.txt may be nothing else.
_USES_OF: Final = {
    "llms": {formats.MARKDOWN: _LLMS, formats.PLAIN: _LLMS},
    "sitemap": {**_USES, formats.SITEMAP: _SITEMAP, formats.GZIP: _SITEMAP},
}


def _from_links(step: formats.Step, response: Response, use: _Use, found: Links) -> Answer:
    reason = found.note or ("" if found.entries else use.empty)
    answer = Answer(use.outcome, "R9", reason, use.via, found)
    if use is _LLMS:
        return answer
    moved_to = moved_for_good(response.request)
    if found.children is not None:
        # A later 304 would not say which sitemaps it lists, so it is always requested in full.
        listed = plural(len(found.children), "sitemap")
        reason = "; ".join(filter(None, (f"an index of {listed}", found.note)))
        return Answer(None, "R9", reason, links=found, moved_to=moved_to, forget=True)
    feeds: tuple[str, ...] = (moved_to,) if moved_to and use is _FEED else ()
    if use is _MARKDOWN:
        feeds = _suggested(response, formats.MARKDOWN)
    forget = use is _FEED and _is_known_page(step, formats.header(response, "Content-Type"))
    if use is _FEED or use is _SITEMAP:
        answer = replace(answer, entries=len(found.entries))
        # A later 304 would say that an emptied or cut document has not changed.
        forget = forget or found.ends_early or not found.entries
    return replace(answer, moved_to=moved_to, suggested_feeds=feeds, forget=forget)


def _suggested(response: Response, kind: str) -> tuple[str, ...]:
    links = [value.decode("latin-1") for value in response.headers.getlist("Link")]
    html = ""
    if kind == formats.HTML:  # its head: a character has four octets at most
        head = response.body[: 4 * formats.MAX_PAGE]
        html = text_of(head, formats.header(response, "Content-Type"))
    return tuple(formats.suggested_feeds(links, html, response.url))
