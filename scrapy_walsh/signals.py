"""Scrapy signals, one for each kind of event: a gate's decision, or the end of a request.

Connect to them as to Scrapy's own. For example, with ``crawler.signals`` as the manager:

    >>> from scrapy.signalmanager import SignalManager
    >>> manager = SignalManager()
    >>> def on_refused(event):
    ...     print(event)
    >>> manager.connect(on_refused, walsh_refused)
    >>> _ = manager.send_catch_log(walsh_refused, event="site.example is on the blocklist")
    site.example is on the blocklist

docs/reference.md has the arguments. To import this module loads neither Scrapy nor Twisted.
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
#: An exchange has ended. Its argument is ``exchange``, not ``event``.
walsh_asked = object()

#: The signal of each kind of event.
OF_KIND: Final[dict[EventKind, object]] = {
    kind: globals()[f"walsh_{kind}"] for kind in get_args(EventKind)
}
