"""Reads the answer of a source without blocking the crawl (R9).

The parsers hold the interpreter lock, and some answers take minutes. If a body is larger than
``SMALL``, the child process of :mod:`scrapy_walsh.adapters.documents.validate` reads it, within
limits of time and memory. Its task has the members ``format``, ``content_type`` and ``url``. Its
answer is a line with ``"ok": true`` and the fields of ``Links``, then a line for each entry.
"""

from __future__ import annotations

import json
from typing import Final

from twisted.internet.defer import DeferredSemaphore

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.documents.validate import AtLimit, ask_child
from scrapy_walsh.exceptions import DocumentTooCostly
from scrapy_walsh.policy.formats import links, representation
from scrapy_walsh.policy.formats.text import Entry, Heading, Links

#: The largest body, in octets, that the crawl's process reads itself. It takes 0.1 s at most.
SMALL: Final = 8 * 1024
#: Seconds of processor time. A plain feed of ``answers.MAX_BODY`` octets takes 6 s.
TIME_LIMIT: Final = 60.0
#: Octets of memory for one child, about eight times the need of a plain feed of ``MAX_BODY``.
_MEMORY: Final = 1024**3
#: Two children may run, so that one hostile answer does not block all others.
_CHILDREN: Final = DeferredSemaphore(2)


async def links_of(
    kind: str, body: bytes, content_type: str | None, url: str, timeout: float = TIME_LIMIT
) -> Links:
    """Like ``policy.formats.links.links_of``, but without blocking the event loop.

    Also raises DocumentTooCostly if the body is not read within *timeout* seconds of processor
    time, and OwnFault if no child process can be started, or this container has too little memory.
    """
    if len(body) <= SMALL and not body.startswith(
        representation.GZIP_MAGIC
    ):  # it may unpack to 8 MB
        return links.links_of(kind, body, content_type, url)
    await compat.future(_CHILDREN.acquire())
    try:
        return await compat.run_in_thread(
            lambda: _read_in_child(kind, body, content_type, url, timeout)
        )
    finally:
        _CHILDREN.release()


def _read_in_child(
    kind: str, body: bytes, content_type: str | None, url: str, timeout: float
) -> Links:
    task = {"format": kind, "content_type": content_type, "url": url}
    try:
        head, lines = ask_child(task, body, timeout, _MEMORY)
    except AtLimit as error:  # children do work, because ``ask_child`` has tested one
        limits = f"{timeout:g} s and {_MEMORY >> 20} MiB"
        raise DocumentTooCostly(f"{url}: cannot be read within {limits}") from error
    entries = tuple(Entry(*json.loads(line)) for line in lines.splitlines())
    if head["children"] is not None:
        head["children"] = tuple(head["children"])
    head["headings"] = tuple(Heading(*heading) for heading in head["headings"])
    del head["ok"]
    return Links(entries, **head)
