"""R4.6: one worker's line to Redis: questions with a time limit, the outage, and the clocks."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from scrapy_walsh.exceptions import StoreAway
from scrapy_walsh.fleet.scripts import GREET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

#: Seconds that one answer of Redis may take: the event loop waits for it. A booking takes a tenth
#: of a millisecond; when it takes longer than this, nothing may be asked anyway.
TIMEOUT: Final = 1.0
#: Seconds between two looks at Redis: while it answers, and at most while it does not.
BEAT: Final = 1.0
LONGEST_PAUSE: Final = 30.0
#: Seconds by which workers may differ over the start of an outage.
_MARGIN: Final = 3.0


class Greeting(NamedTuple):
    """``forgot``: Redis has lost what this worker told it. ``calm``: seconds without bookings."""

    forgot: bool
    calm: float


class Link:
    """The connection to the Redis at *url*; the keys begin with *prefix*.

    ``away``: why Redis cannot be relied on now, None while it can.
    """

    def __init__(
        self, url: str, prefix: str, wall: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self.name = _without_password(url)
        self.away: str | None = None
        self.asked = False
        self.epoch = ""
        self.epoch_keys = (f"{prefix}epoch", f"{prefix}calm")
        self._wall, self._monotonic = wall, monotonic
        self._ahead = 0.0  # Redis's clock minus the monotonic one
        self._away_since: float | None = None
        self._pause = BEAT
        self._scripts: dict[str, Any] = {}
        self.client: Any = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            # A connection that was idle for long may be gone: one more try, on a new one.
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )

    def ask(self, question: Callable[[], T]) -> T:
        """The answer of Redis; StoreAway where there is none, and at once during an outage."""
        if self.away is not None:
            raise StoreAway(self.outage())
        try:
            return question()
        except redis.RedisError as error:
            self.lose(error)
            raise StoreAway(self.outage()) from error

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """The answer of a script; ``redis.RedisError``."""
        if script not in self._scripts:
            self._scripts[script] = self.client.register_script(script)
        return self._scripts[script](keys=list(keys), args=list(arguments))

    def greet(self) -> Greeting:
        """Learn the epoch and the time; ``redis.RedisError``.

        Where Redis has lost its memory, it must leave all hosts alone for a while: any other
        worker looks again within as long as the outage has lasted, and then tells its holds.
        """
        known, self.asked = self.epoch, True
        calm = min(self._outage() + BEAT, LONGEST_PAUSE) + _MARGIN
        epoch, now, left = self.run(GREET, self.epoch_keys, [uuid.uuid4().hex, known, calm])
        self.set_time(now)
        self.epoch = epoch.decode()
        return Greeting(known not in ("", self.epoch), float(left))

    def lose(self, why: object) -> None:
        """Note that Redis cannot be relied on."""
        self.away = " ".join(str(why).split())[:200]
        if self._away_since is None:
            self._away_since = self._monotonic()

    def next_try(self) -> float:
        """Seconds until Redis is tried again: longer each time."""
        pause = self._pause
        self._pause = min(2 * pause, LONGEST_PAUSE)
        return pause

    def back(self) -> None:
        """Note that Redis can be relied on."""
        self.away, self._away_since, self._pause = None, None, BEAT

    def outage(self) -> str:
        """One line on why nothing can be booked."""
        return f"the shared store {self.name} cannot be relied on: {self.away}"

    def _outage(self) -> float:
        return 0.0 if self._away_since is None else self._monotonic() - self._away_since

    def set_time(self, now: bytes) -> None:
        """Take over Redis's time, as a script has just told it."""
        self._ahead = float(now) - self._monotonic()

    def to_shared(self, wall: float) -> float:
        """The time *wall* of this machine, by Redis's clock."""
        return wall - self._wall() + self._monotonic() + self._ahead

    def to_local(self, at: float) -> float:
        """The time *at* of Redis's clock, by that of this machine."""
        return at - self._monotonic() - self._ahead + self._wall()

    def past_to_local(self, at: float) -> float:
        """As :meth:`to_local`; what is past must not seem to come because an answer was slow."""
        local, now = self.to_local(at), self._wall()
        return now if now < local < now + TIMEOUT else local


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
