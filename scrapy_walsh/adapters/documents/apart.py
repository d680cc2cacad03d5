"""R9: reads the answer of a source, without a pause of the crawl that anybody would notice.

The parsers hold the interpreter lock, and some answers take them minutes. A body larger than
``SMALL`` is read by the child process of :mod:`scrapy_walsh.adapters.documents.validate`, which is
killed at a limit of time and has a limit of memory. Its task has the members ``format``,
``content_type`` and ``url``; its answer is a line with ``"ok": true`` and the fields of
``Links``, and a line of JSON for each entry.
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

#: The largest body, in octets, that is read in the crawl's own process: at worst in 0.1 s.
SMALL: Final = 8 * 1024
#: Seconds. A plain feed of ``answers.MAX_BODY`` octets takes 6 s where nothing else runs.
TIME_LIMIT: Final = 60.0
#: Octets of memory of one child: some eight times what a plain feed of ``MAX_BODY`` takes.
_MEMORY: Final = 1024**3
#: Two children, so that one hostile answer does not keep all others waiting.
_CHILDREN: Final = DeferredSemaphore(2)


async def links_of(
    kind: str, body: bytes, content_type: str | None, url: str, timeout: float = TIME_LIMIT
) -> Links:
    """As ``policy.formats.links.links_of``, without blocking the event loop.

    Also raises DocumentTooCostly for a body that is not read within *timeout* seconds, and OwnFault
    where no child process can be had to read it.
    """
    if len(body) <= SMALL and not body.startswith(representation.GZIP_MAGIC):  # may be 8 MB
        return links.links_of(kind, body, content_type, url)
    await compat.future(_CHILDREN.acquire())
    try:
        return await compat.run_in_thread(lambda: _apart(kind, body, content_type, url, timeout))
    finally:
        _CHILDREN.release()


def _apart(kind: str, body: bytes, content_type: str | None, url: str, timeout: float) -> Links:
    task = {"format": kind, "content_type": content_type, "url": url}
    try:
        head, rest = ask_child(task, body, timeout, _MEMORY)
    except AtLimit as error:  # a child can be had: it was tested
        limits = f"{timeout:g} s and {_MEMORY >> 20} MiB"
        raise DocumentTooCostly(f"{url}: cannot be read within {limits}") from error
    entries = tuple(Entry(*json.loads(line)) for line in rest.splitlines())
    if head["children"] is not None:
        head["children"] = tuple(head["children"])
    head["headings"] = tuple(Heading(*heading) for heading in head["headings"])
    del head["ok"]
    return Links(entries, **head)
