"""The documents and records that a plan goes by: those of the store, and no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scrapy_walsh.adapters.validate import text_of
from scrapy_walsh.commands.check_answer import blocklist_of
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy.blocklist import Blocklist
from scrapy_walsh.policy.freshness import SCHEMA_TTL, is_fresh, robots_ttl
from scrapy_walsh.policy.robots import Robots, no_rules, parse_robots
from scrapy_walsh.policy.robots_fetch import NO_RULES
from scrapy_walsh.state.records import BLOCKLIST, ROBOTS, SCHEMA, SourceRun, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.policy.recrawl import Visit
    from scrapy_walsh.state.base import Store

FETCH: Final = "fetch"
REFRESH: Final = "refresh"
HELD: Final = "held"


@dataclass(frozen=True, slots=True)
class Document:
    """A document that the run needs. ``action``: ``fetch``, ``refresh``, or ``held``: cached."""

    kind: str
    key: str
    action: str
    fetched_at: float | None


class Remembered:
    """``chain.Held`` over the store alone: stale documents count too, and nothing is fetched."""

    def __init__(
        self, store: Store, config: WalshConfig, now: float, interval: Callable[[str], float]
    ) -> None:
        """*interval*: by origin, the seconds between two requests to its host, as stored."""
        self._interval = interval
        self.notices: list[str] = []
        self.documents: dict[tuple[str, str], Document] = {}
        self._store, self._config, self._now = store, config, now
        self._rules: dict[str, Robots | None] = {}
        self._list = self._load()

    def blocklist(self) -> Blocklist:
        """The cached list, however old; an empty one where there is none."""
        return self._list

    def robots(self, origin: str) -> Robots | None:
        """The cached rules, however old; None where there are none."""
        if origin not in self._rules:
            stored = self._store.get(StoredDocument, ROBOTS, origin)
            ttl = robots_ttl(self._config.robots_ttl, self._interval(origin))
            self._note(ROBOTS, origin, stored, ttl)
            self._rules[origin] = None if stored is None else self._parsed(stored)
        return self._rules[origin]

    def last_visit(self, key: str) -> Visit | None:
        """When the source *key* was last answered."""
        run = self._store.get(SourceRun, key)
        return None if run is None else run.visit

    def _parsed(self, stored: StoredDocument) -> Robots:
        if stored.outcome == NO_RULES:
            return no_rules(stored.url)
        return parse_robots(stored.body, self._config.identity.token, stored.url)

    def _load(self) -> Blocklist:
        url = self._config.blocklist_url
        stored = self._store.get(StoredDocument, BLOCKLIST, url)
        found = Blocklist.empty()
        try:
            if stored is not None:
                found = blocklist_of(text_of(stored), url)
        except WalshError as error:
            self.notices.append(f"the cached blocklist of {url} cannot be used: {error}")
            stored = None
        self._note(BLOCKLIST, url, stored, found.refresh)
        refreshed = self.documents[BLOCKLIST, url].action != HELD
        inline = stored is not None and found.inline
        schema = self._config.schema_url
        if refreshed and schema is not None and not inline:
            held = self._store.get(StoredDocument, SCHEMA, schema)
            self._note(SCHEMA, schema, held, SCHEMA_TTL)
        return found

    def _note(self, kind: str, key: str, stored: StoredDocument | None, keep: float) -> None:
        if stored is None:
            document = Document(kind, key, FETCH, None)
        else:
            fresh = is_fresh(stored.fetched_at, self._now, keep)
            document = Document(kind, key, HELD if fresh else REFRESH, stored.fetched_at)
        self.documents[kind, key] = document
