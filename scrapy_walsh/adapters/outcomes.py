"""How a request ends without a response for its spider: exceptions that its errback gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from scrapy_walsh.policy.verdict import Verdict


class Refused(IgnoreRequest):
    """A gate said no, or not now. ``verdict`` says which, and why.

    ``due``: Unix seconds from which a later run may ask for what is deferred.
    """

    def __init__(self, url: str, verdict: Verdict, due: float | None = None) -> None:
        super().__init__(f"{url}: {verdict.requirement} {verdict.name}: {verdict.reason}")
        self.url = url
        self.verdict = verdict
        self.due = due


class Closing(IgnoreRequest):
    """The spider is being closed, so nothing waits any more. A JOBDIR keeps the request."""

    def __init__(self) -> None:
        super().__init__("the spider is closing")


class NotYet(IgnoreRequest):
    """Another process has asked the host meanwhile: the queue takes the request back (R4.6).

    Who waits for a document looks whether that process has brought it. ``wait``: seconds, 0
    where the shared store is away.
    """

    def __init__(self, host: str, wait: float) -> None:
        super().__init__(f"{host} may be asked in {wait:.3f} s")
        self.wait = wait


class NotModified(IgnoreRequest):
    """304: no new data (R7.3).

    ``content_type``: that of the response whose validators were replayed, where it is known.
    """

    def __init__(self, url: str, content_type: str | None = None) -> None:
        super().__init__(f"{url}: 304, not modified")
        self.url = url
        self.content_type = content_type


class TooManyRedirects(IgnoreRequest):
    """D5: the answer redirects once more than is followed. ``status``: of that answer."""

    def __init__(self, url: str, reason: str, status: int) -> None:
        super().__init__(f"{url}: D5: {reason}")
        self.url = url
        self.reason = reason
        self.status = status


class GaveUp(IgnoreRequest):
    """R5's retries are spent. ``status``: the last one, None for a transport error."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"{url}: gave up: {reason}")
        self.url = url
        self.reason = reason
        self.status = status
