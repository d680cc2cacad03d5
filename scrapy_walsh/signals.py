"""Scrapy signals, one for each kind of event: what a gate decided, and what became of a request.

Connect to them as to Scrapy's own, ``crawler.signals.connect(function, signals.walsh_refused)``.
docs/reference.md has the arguments. Importing this module loads neither Scrapy nor Twisted.
"""

from __future__ import annotations

from typing import Final, get_args

from scrapy_walsh.policy.event import EventKind

walsh_refused = object()
walsh_held = object()
walsh_fetched = object()
walsh_retried = object()
walsh_deferred = object()
walsh_given_up = object()
walsh_not_modified = object()
walsh_answered = object()
walsh_too_many_redirects = object()
walsh_adopted = object()
walsh_rejected = object()
walsh_taken_up = object()
#: A request was on the wire, and its exchange has ended; with ``exchange`` in place of ``event``.
walsh_asked = object()

#: The signal of each kind of event.
OF_KIND: Final[dict[EventKind, object]] = {
    kind: globals()[f"walsh_{kind}"] for kind in get_args(EventKind)
}
