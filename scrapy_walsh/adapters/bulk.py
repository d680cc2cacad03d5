"""R11: a blocklist too large for the crawl's own process is read and stored by a child (D3).

Writing it to SQLite and to its second copy would hold the interpreter lock while a hundred
megabytes are copied, and so pause every crawl of the process. The crawl gets the facts, the domains
in pieces, and whether everything was stored. The child is that of ``adapters.validate``.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh import fleet
from scrapy_walsh.adapters.validate import ask_child, line_of, lines_of, validation
from scrapy_walsh.exceptions import DocumentInvalid, StateError
from scrapy_walsh.ledger.documents import Documents
from scrapy_walsh.policy.schema import reread
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_walsh.adapters.validate import Output
    from scrapy_walsh.state.records import Store

    Started = Callable[[Callable[[], None]], None]

_TAKE_UP: Final = "take up"
_KEEP: Final = "keep"
_RENEW: Final = "renew"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the list of ``url`` is stored: what a child needs to open the store and the ledger.

    ``ledger``: the path of the ledger's documents, None without a ledger. ``file``: the number of
    the ledger's file.
    """

    url: str
    state_dir: str | None
    shared_state: str | None
    token: str
    ledger: str | None
    file: int

    def open(self) -> Store:
        """Open the store. Raises StateError."""
        directory = None if self.state_dir is None else Path(self.state_dir)
        return fleet.join(open_store(directory), self.shared_state, self.token)


# -- in the crawl's process; each blocks, so call it from a thread ----------------------------


def take_up(place: Place, not_before: float, timeout: float, started: Started) -> Output | None:
    """Read the stored list, with its record in the head, or None.

    None: there is none, or it was fetched before *not_before* (Unix seconds). It was validated when
    it was adopted, so only the floor checks are made again (D3). Raises as ``ask_child``.
    """
    task = {**_task(_TAKE_UP, place, None), "not_before": not_before}
    output = ask_child(task, b"", timeout, started)
    return None if output.head["count"] is None else output


def keep(
    place: Place,
    document: StoredDocument,
    fallback_schema: dict[str, Any] | None,
    timeout: float,
    started: Started,
) -> Output:
    """Validate the list in *document*, then store it with the ``refresh`` that it names.

    Raises as ``ask_child``; the tail of the output says what could not be stored.
    """
    task = {**_task(_KEEP, place, fallback_schema), "record": record_of(document)}
    return ask_child(task, document.body, timeout, started)


def renew(place: Place, fetched_at: float, timeout: float, started: Started) -> Output:
    """Set the fetch time of the stored list, in Unix seconds. Raises as ``ask_child``."""
    task = {**_task(_RENEW, place, None), "fetched_at": fetched_at}
    return ask_child(task, b"", timeout, started)


def require_text(document: StoredDocument) -> StoredDocument:
    """*document*; DocumentInvalid where the store has its record but no longer its text."""
    if not document.body:
        raise DocumentInvalid("no file of the state directory has its text any more")
    return document


def record_of(document: StoredDocument) -> dict[str, Any]:
    """*document* without its body, as JSON."""
    record = asdict(replace(document, body=b""))
    del record["body"]
    return record


def _task(name: str, place: Place, fallback_schema: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "task": name,
        "place": asdict(place),
        "fallback_schema": fallback_schema,
        "document": place.url,
    }


# -- in the child -----------------------------------------------------------------------------


def perform(task: dict[str, Any], body: bytes) -> Iterator[bytes]:
    """Yield the answer to *task*. Raises DocumentInvalid or StateError before its first line."""
    place = Place(**task["place"])
    return _TASKS[task["task"]](task, place, body)


def _take_up(task: dict[str, Any], place: Place, _: bytes) -> Iterator[bytes]:
    with closing(place.open()) as store:
        document = store.get(StoredDocument, BLOCKLIST, place.url)
        found = store.notices
    if document is None or (document.body and document.fetched_at < task["not_before"]):
        yield line_of({"ok": True, "count": None})
        yield line_of({"errors": found})
        return
    body = require_text(document).body
    head, domains = lines_of(reread(body), task, record=record_of(document))
    yield from (head, domains)
    yield _last_line(lambda: _write_down(place, body, head), found=found)


def _keep(task: dict[str, Any], place: Place, body: bytes) -> Iterator[bytes]:
    head, domains = validation(body, task)
    yield from (head, domains)
    record = {**task["record"], "refresh": json.loads(head)["refresh"]}
    document = StoredDocument(body=body, **record)
    yield _last_line(lambda: _write_down(place, body, head), lambda: _put(place, document))


def _renew(task: dict[str, Any], place: Place, _: bytes) -> Iterator[bytes]:
    yield line_of({"ok": True})
    yield _last_line(lambda: _put_again(place, task["fetched_at"]))


_TASKS: Final = {_TAKE_UP: _take_up, _KEEP: _keep, _RENEW: _renew}


def _write_down(place: Place, body: bytes, head: bytes) -> None:
    """Keep *body* for the ledger, whose events name it by its digest."""
    if place.ledger is not None:
        Documents(Path(place.ledger)).put(BLOCKLIST, body, json.loads(head)["digest"], place.file)


def _put(place: Place, document: StoredDocument) -> None:
    with closing(place.open()) as store:
        store.put(document)


def _put_again(place: Place, fetched_at: float) -> None:
    with closing(place.open()) as store:
        document = store.get(StoredDocument, BLOCKLIST, place.url)
        if document is not None:
            store.put(replace(document, fetched_at=fetched_at))


def _last_line(*steps: Callable[[], None], found: Sequence[str] = ()) -> bytes:
    """Take each step even where another fails; the line has what was *found* and what failed."""
    errors = list(found)
    for step in steps:
        try:
            step()
        except StateError as error:
            errors.append(str(error))
    return line_of({"errors": errors})
