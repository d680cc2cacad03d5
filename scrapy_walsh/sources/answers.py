"""R9: the meaning of a response, or of a failure, for the source that was requested.

For example, an HTML page offers no format of R9, so the answer has no outcome, and the spider tries
the source's next step.
"""

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
from scrapy_walsh.adapters.sources import moved_for_good, words_of
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
"""Octets, after decompression. The download of a longer body of a source is cancelled."""


_NOTHING: Final = Links(())
#: "OK", and the same if a proxy has transformed it (RFC 9110 15.3.4).
_SUCCESSES: Final = frozenset({200, 203})
#: "Not found", and "not in a format that you accept" (RFC 9110 15.5.5, 15.5.7).
_NO_PAGE: Final = frozenset({404, 406})


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request for a source.

    ``outcome``: of the source report; None if the answer is of no use, so that the next step (feed,
    page, llms.txt) is tried. ``failed``: there was no usable response, not even in another format.
    ``links``: their ``published`` is None unless ``via`` is ``feed`` or ``sitemap``; a sitemap
    index has ``links.children`` only. ``entries``: how many a feed or sitemap has; None for any
    other answer. ``due``: Unix seconds, if the request was deferred. ``forget``: do not store its
    validators, because a later 304 could not repeat this answer. ``refusal``: the verdict that
    refused the request, or None. ``said``: the site's statements about use. ``url``: the one that
    answered, if there are links. ``fault``: the own fault that kept us from reading the answer, or
    "". ``unreachable``: the host gave no answer. ``is_html``: it is HTML, which is of no use.
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
    url: str = ""
    fault: str = ""
    unreachable: bool = False
    is_html: bool = False

    @property
    def ending(self) -> str:
        """The outcome of its source if no other step is tried."""
        if self.outcome is not None:
            return self.outcome
        return FAILED if self.failed else LEFT_OUT


def max_body(step: formats.Step) -> int:
    """The most octets of a body that are downloaded for *step*."""
    return xmltext.MAX_OCTETS if step.kind == "sitemap" else MAX_BODY


async def from_response(step: formats.Step, response: Response) -> Answer:
    """The answer that *response* is to *step*. A large body is parsed in a child process."""
    if response.status not in _SUCCESSES:
        return _without_page(step, response)
    content_type = formats.header(response, "Content-Type")
    kind = formats.representation(content_type, response.body)
    if kind == formats.GZIP and step.kind == "feed":
        kind = formats.FEED
    use = _USES_OF.get(step.kind, _USES).get(kind)
    if use is None:
        no_format = f"no format of R9 ({content_type or 'no Content-Type'})"
        return _useless(
            step,
            _UNUSABLE.get(kind, no_format),
            moved_to=moved_for_good(response.request),
            suggested_feeds=() if step.kind == "llms" else _suggested(response, kind),
            forget=not _is_known_page(step, content_type),
            is_html=kind == formats.HTML,
        )
    try:
        links = await links_of(kind, response.body, content_type, response.url)
    except (DocumentTooCostly, OwnFault) as error:
        fault = ""
        if isinstance(error, OwnFault) and not isinstance(error, Stopped):
            fault = f"{response.url}: not read, error on our side: {error}"
        return _useless(step, fault or error, FAILED, failed=True, forget=True, fault=fault)
    except DocumentInvalid as error:
        return _useless(step, error, forget=True)
    if not links.entries and (links.linkless or links.ends_early):
        return _useless(step, f"no entry can be used: {links.note}", forget=True)
    return _from_links(step, response, use, links)


def without_stand_in(step: formats.Step, answer: Answer) -> Answer:
    """*answer*, unless it is markdown: the document of *step* was read before as it is declared."""
    if answer.outcome != report.NEGOTIATED:
        return answer
    return _useless(step, "markdown, where it was read as what it is declared", forget=True)


def unless_lost(answer: Answer, reading: Reading | None) -> Answer:
    """*answer*, unless its feed or sitemap was emptied or cut off since *reading*.

    In that case the source counts as unread. The links are emitted anyway, because each is whole.
    """
    if answer.entries is None:
        return answer
    reason = loss(reading, answer.entries, ends_early=answer.links.ends_early)
    if not reason:
        return answer
    return replace(answer, outcome=LEFT_OUT, reason=f"{answer.via}: {reason}", entries=None)


def from_failure(step: formats.Step, error: BaseException) -> Answer:
    """The answer to *step* if its errback got *error* in place of a response."""
    match error:
        case HttpError():
            return _without_page(step, error.response)
        case Refused():
            verdict = error.verdict
            outcome = outcome_of(verdict, error.due)
            requirement = verdict.requirement
            reason = f"{requirement} {verdict.brief or verdict.reason}"
            return _useless(step, reason, outcome, requirement, due=error.due, refusal=verdict)
        case NotModified() if _is_known_page(step, error.content_type):
            # The unchanged page is HTML, which is of no use, so llms.txt is tried again.
            return _useless(step, "HTML as before (304)", is_html=True)
        case NotModified():
            return _useless(step, "304, no new data", report.NOT_MODIFIED, "R7")
        case GaveUp() | TooManyRedirects():
            rule = "R5" if isinstance(error, GaveUp) else "D5"
            is_silent = error.status is None
            return _useless(step, error.reason, FAILED, rule, failed=True, unreachable=is_silent)
        case BodyTooLarge():
            reason = f"refused as too large: over {max_body(step)} bytes"
        case _:
            reason = one_line(f"{type(error).__name__}: {error}")
    return _useless(step, reason, FAILED, failed=True, forget=True)


def _without_page(step: formats.Step, response: Response) -> Answer:
    """The answer that a *response* without success is. A missing page offers no format (R9).

    A failed visit, or a closed door, ends the requests for its source. No other step stands in for
    it.
    """
    status = response.status
    is_closed = visits.retirement(status, words_of(response)) in visits.CLOSED
    if is_closed or visits.of_answer(status, unasked=True) != visits.ANSWERED:
        return _useless(step, f"HTTP {status}", FAILED, failed=True)
    return _useless(step, f"HTTP {status}", failed=step.kind != "page" or status not in _NO_PAGE)


def _useless(
    step: formats.Step,
    reason: object,
    outcome: str | None = None,
    requirement: str = "",
    **fields: Any,
) -> Answer:
    """An answer without links. *fields*: other fields of the answer."""
    name = "llms.txt" if step.kind == "llms" else step.kind
    return Answer(outcome, requirement, f"{name}: {reason}", **fields)


_UNUSABLE: Final = {
    formats.HTML: "HTML, which is never scraped",
    formats.PLAIN: "plain text, not markdown",
    formats.SITEMAP: 'a sitemap, which is read where the source says sitemap = "URL"',
}


def _is_known_page(step: formats.Step, content_type: str | None) -> bool:
    return step.kind == "page" and formats.representation(content_type, b"") == formats.HTML


class _Use(NamedTuple):
    """The names of an answer in a format of R9. ``empty``: the reason if it has no links."""

    outcome: str
    via: str
    empty: str


_FEED: Final = _Use(report.FED, "feed", "a feed without entries")
_SITEMAP: Final = _Use(report.SITEMAP, "sitemap", "a sitemap without entries")
_NO_LINKS: Final = "markdown without absolute links"
_MARKDOWN: Final = _Use(report.NEGOTIATED, "markdown", _NO_LINKS)
_LLMS: Final = _Use(report.LLMS, "llms.txt", _NO_LINKS)
_USES: Final = {formats.FEED: _FEED, formats.JSON_FEED: _FEED, formats.MARKDOWN: _MARKDOWN}
#: The formats of some steps. Only markdown and plain text answer a step for llms.txt.
_USES_OF: Final = {
    "llms": {formats.MARKDOWN: _LLMS, formats.PLAIN: _LLMS},
    "sitemap": {**_USES, formats.SITEMAP: _SITEMAP, formats.GZIP: _SITEMAP},
}


def _from_links(step: formats.Step, response: Response, use: _Use, links: Links) -> Answer:
    reason = links.note
    if not reason and not links.entries:
        reason = use.empty
    answer = Answer(use.outcome, "R9", reason, use.via, links, url=response.url)
    if use is _LLMS:
        return answer
    moved_to = moved_for_good(response.request)
    if links.children is not None:
        # A later 304 could not list its sitemaps, so we always request it in full.
        count = plural(len(links.children), "sitemap")
        reason = "; ".join(filter(None, (f"an index of {count}", links.note)))
        return Answer(None, "R9", reason, links=links, moved_to=moved_to, forget=True)
    feeds: tuple[str, ...] = (moved_to,) if moved_to and use is _FEED else ()
    if use is _MARKDOWN:
        feeds = _suggested(response, formats.MARKDOWN)
    forget = use is _FEED and _is_known_page(step, formats.header(response, "Content-Type"))
    if use is _FEED or use is _SITEMAP:
        answer = replace(answer, entries=len(links.entries))
        # A later 304 would report that an emptied or cut document has not changed.
        forget = forget or links.ends_early or not links.entries
    return replace(answer, moved_to=moved_to, suggested_feeds=feeds, forget=forget)


def _suggested(response: Response, kind: str) -> tuple[str, ...]:
    links = [value.decode("latin-1") for value in response.headers.getlist("Link")]
    html = ""
    if kind == formats.HTML:  # its head: a character has four octets at most
        head = response.body[: 4 * formats.MAX_PAGE]
        html = text_of(head, formats.header(response, "Content-Type"))
    return tuple(formats.suggested_feeds(links, html, response.url))
