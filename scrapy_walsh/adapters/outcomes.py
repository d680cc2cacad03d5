"""The exceptions with which a request ends that has no response for its spider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy.exceptions import IgnoreRequest

from scrapy_walsh.adapters import compat

if TYPE_CHECKING:
    from scrapy_walsh.policy.verdict import Verdict


class Refused(IgnoreRequest):
    """A gate refused or deferred the request. ``verdict``: which gate, and why.

    ``due``: Unix seconds from which a later run may send it, where it is deferred; else None.
    ``proxy``: the host of the proxy that was refused in place of the URL's own; else None.
    """

    def __init__(
        self, url: str, verdict: Verdict, due: float | None = None, proxy: str | None = None
    ) -> None:
        super().__init__(f"{url}: {verdict.requirement} {verdict.name}: {verdict.reason}")
        self.url = url
        self.verdict = verdict
        self.due = due
        self.proxy = proxy


class Closing(IgnoreRequest):
    """The spider is being closed, so nothing waits. The request stays in the JOBDIR, if any."""

    def __init__(self) -> None:
        super().__init__("the spider is closing")


class Halted(IgnoreRequest):
    """The crawl was refused: nothing is sent, whatever waits."""


class NotYet(IgnoreRequest):
    """Another process has booked the host meanwhile: the request goes back to the queue (R4.6).

    For the fetch of a document it means: look whether that process has stored it. ``wait``: seconds
    until the host may be booked; 0 where the shared store is away.
    """

    def __init__(self, host: str, wait: float) -> None:
        super().__init__(f"{host} may be requested in {wait:.3f} s")
        self.wait = wait


#: What ends a document's request before it is sent, on purpose: no answer, and nobody's fault.
UNSENT: Final = (Refused, Closing, Halted, NotYet)


class NotModified(IgnoreRequest):
    """304: no new data (R7.3).

    ``content_type``: that of the response whose validators were replayed, where it is known.
    """

    def __init__(self, url: str, content_type: str | None = None) -> None:
        super().__init__(f"{url}: 304, not modified")
        self.url, self.content_type = url, content_type


class BodyTooLarge(IgnoreRequest, compat.OVER_LIMIT):  # type: ignore[misc,valid-type]
    """The body is over DOWNLOAD_MAXSIZE, or ``download_maxsize``; it is also Scrapy's error."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.url, self.reason = url, reason


class TooManyRedirects(IgnoreRequest):
    """The answer is a sixth redirect (D5). ``status``: of that answer."""

    def __init__(self, url: str, reason: str, status: int) -> None:
        super().__init__(f"{url}: D5: {reason}")
        self.url, self.reason, self.status = url, reason, status


class GaveUp(IgnoreRequest):
    """R5's retries are used up. ``status``: of the last answer, None without one."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"{url}: gave up: {reason}")
        self.url, self.reason, self.status = url, reason, status
