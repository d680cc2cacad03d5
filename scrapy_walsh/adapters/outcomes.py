"""The exceptions of requests that end without a response for their spider.

For example:

    >>> outcome = NotModified("https://site.example/feed")
    >>> print(outcome)
    https://site.example/feed: 304, not modified

docs/reference.md has an errback that handles them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy.exceptions import IgnoreRequest

from scrapy_walsh.adapters import compat

if TYPE_CHECKING:
    from scrapy_walsh.policy.verdict import Verdict


class Refused(IgnoreRequest):
    """A gate refused or deferred the request. ``verdict``: the gate's decision and its reason.

    ``due``: if it was deferred, the Unix seconds when a later run may send it; else None.
    ``proxy``: the host of its proxy, if that was refused and not the URL's host; else None.
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
    """The spider is closing, so the request does not wait. It stays in the JOBDIR, if any."""

    def __init__(self) -> None:
        super().__init__("the spider is closing")


class Halted(IgnoreRequest):
    """The crawl was refused, so nothing is sent."""


class NotYet(IgnoreRequest):
    """Another process has booked the host, so the request goes back to the queue (R4.6).

    If a document was requested, the other process may have stored it. ``wait``: seconds until the
    host may be booked; 0 if the shared store is away.
    """

    def __init__(self, host: str, wait: float) -> None:
        super().__init__(f"{host} may be requested in {wait:.3f} s")
        self.wait = wait


#: Exceptions that end a document's request on purpose before it is sent. They are no faults.
UNSENT: Final = (Refused, Closing, Halted, NotYet)


class NotModified(IgnoreRequest):
    """304: no new data (R7.3).

    ``content_type``: of the response with the validators that were sent; None if not known.
    """

    def __init__(self, url: str, content_type: str | None = None) -> None:
        super().__init__(f"{url}: 304, not modified")
        self.url = url
        self.content_type = content_type


class BodyTooLarge(IgnoreRequest, compat.OVER_LIMIT):  # type: ignore[misc,valid-type]
    """The body exceeds DOWNLOAD_MAXSIZE or ``download_maxsize``. It is Scrapy's error, too."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason


class TooManyRedirects(IgnoreRequest):
    """The answer is a sixth redirect (D5). ``status``: the status of that answer."""

    def __init__(self, url: str, reason: str, status: int) -> None:
        super().__init__(f"{url}: D5: {reason}")
        self.url = url
        self.reason = reason
        self.status = status


class GaveUp(IgnoreRequest):
    """The request has no retries left (R5). ``status``: of the last answer, or None."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"{url}: gave up: {reason}")
        self.url = url
        self.reason = reason
        self.status = status
