"""R4.6: one worker's connection to Redis: calls with a time limit, outages, and two clocks.

Redis is *away* while it cannot be relied on. The *epoch* is a random word in Redis that is lost
together with its memory, so a worker that knows another word knows that records were lost. *Calm*
is the time for which all hosts are then left alone.
"""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from scrapy_walsh.exceptions import StoreAway
from scrapy_walsh.fleet.scripts import GREET
from scrapy_walsh.policy.words import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

#: A command of Redis and its arguments.
Command = tuple[Any, ...]

#: Seconds that one answer of Redis may take; the event loop waits for it. A booking usually takes
#: a tenth of a millisecond. Without an answer no request may be sent anyway.
TIMEOUT: Final = 1.0
#: Seconds between two looks at Redis while it answers, and the most while it does not.
BEAT: Final = 1.0
LONGEST_PAUSE: Final = 30.0
#: Seconds: two workers may notice the start of an outage at times that differ by this much.
_MARGIN: Final = 3.0


class Greeting(NamedTuple):
    """``forgot``: Redis lost what this worker wrote. ``calm``: seconds left without bookings."""

    forgot: bool
    calm: float


class Link:
    """The connection to the Redis at *url*, where the names of our keys begin with *prefix*.

    ``away``: why Redis cannot be relied on now, in one line; None while it can. ``asked``: whether
    a connection was ever tried. *wall*, *monotonic*, *steady*: this machine's clocks, seconds.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        steady: Callable[[], float] = time.time,
    ) -> None:
        self.name = _without_password(url)
        self.away: str | None = None
        self.asked = False
        self.epoch = ""
        self.epoch_keys = (f"{prefix}epoch", f"{prefix}calm")
        self._monotonic = monotonic
        #: By declared type of a time (``policy.times``), the clock that it is of.
        self._clocks = {"Wall": wall, "Due": wall, "Steady": steady, "Until": steady}
        self._ahead = 0.0  # Redis's clock minus the monotonic one
        self._away_since: float | None = None
        self._pause = BEAT
        #: The scripts, by their SHA-1, which Redis knows them by.
        self._scripts: dict[str, str] = {}
        self.client: Any = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            # A connection that was idle for long may be gone: one more try, on a new one.
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )

    def ask(self, question: Callable[[], T]) -> T:
        """Call *question*, which calls Redis. StoreAway without an answer, or while it is away."""
        if self.away is not None:
            raise StoreAway(self.outage())
        try:
            return question()
        except redis.RedisError as error:
            self.lose(error)
            raise StoreAway(self.outage()) from error

    def script(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Command:
        """The command that runs *script* in Redis."""
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._scripts[digest] = script
        return ("EVALSHA", digest, len(keys), *keys, *arguments)

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send *commands* in this order, in one round trip, and return the answers to them.

        Where Redis refuses one, its error stands in place of an answer. Raises ``redis.RedisError``
        without answers.
        """
        with self.client.pipeline(transaction=False) as pipe:
            for each in commands:
                pipe.execute_command(*each)
            answers: list[Any] = pipe.execute(raise_on_error=False)
        unknown = [n for n, each in enumerate(answers) if isinstance(each, NoScriptError)]
        if unknown:  # at first, and where Redis was started anew
            for digest in {commands[n][1] for n in unknown}:
                self.client.script_load(self._scripts[digest])
            # What only reads or deletes, and came after, comes after them once more.
            simple = [n for n, each in enumerate(commands) if each[0] != "EVALSHA"]
            left = sorted({*unknown, *(n for n in simple if n > unknown[0])})
            again = self.exchange([commands[n] for n in left])
            for n, answer in zip(left, again, strict=True):
                answers[n] = answer
        return answers

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run *script* in Redis and return its answer. Raises ``redis.RedisError``."""
        (answer,) = self.exchange([self.script(script, keys, arguments)])
        if isinstance(answer, redis.RedisError):
            raise answer
        return answer

    def greet(self) -> Greeting:
        """Ask Redis for the epoch and its time. Raises ``redis.RedisError``.

        Where Redis has lost its memory, no worker may book a host for a while. That is as long as
        the outage has lasted: within that time each other worker looks again, and then writes the
        holds that it knows.
        """
        known, self.asked = self.epoch, True
        calm = min(self._outage() + BEAT, LONGEST_PAUSE) + _MARGIN
        epoch, now, left = self.run(GREET, self.epoch_keys, [uuid.uuid4().hex, known, calm])
        self.set_time(now)
        self.epoch = epoch.decode()
        return Greeting(known not in ("", self.epoch), float(left))

    def lose(self, why: object) -> None:
        """Note that Redis is away. *why*: what is put into one line."""
        self.away = one_line(why, 200)
        if self._away_since is None:
            self._away_since = self._monotonic()

    def next_try(self) -> float:
        """Seconds until Redis is to be tried again; each time twice as long, up to a limit."""
        pause = self._pause
        self._pause = min(2 * pause, LONGEST_PAUSE)
        return pause

    def back(self) -> None:
        """Note that Redis is back."""
        self.away, self._away_since, self._pause = None, None, BEAT

    def outage(self) -> str:
        """One line for the log: which Redis is away, and why."""
        return f"the shared store {self.name} cannot be relied on: {self.away}"

    def _outage(self) -> float:
        return 0.0 if self._away_since is None else self._monotonic() - self._away_since

    def set_time(self, now: bytes) -> None:
        """Take over the time of Redis, *now*, that a script has just returned."""
        self._ahead = float(now) - self._monotonic()

    def now(self) -> float:
        """The time by Redis's clock."""
        return self._monotonic() + self._ahead

    def to_shared(self) -> Mapping[str, Callable[[float], float]]:
        """By declared type of a time of this machine, what makes it one of Redis's clock."""
        now = self.now()
        return {kind: partial(_moved, now - clock()) for kind, clock in self._clocks.items()}

    def to_local(self) -> Mapping[str, Callable[[float], float]]:
        """By declared type, what makes a time of Redis's clock one of this machine's.

        A slow answer must not move what has passed to the future.
        """
        now = self.now()
        found: dict[str, Callable[[float], float]] = {}
        for kind, clock in self._clocks.items():
            here = clock()
            latest = here if kind in ("Wall", "Steady") else math.inf
            found[kind] = partial(_moved, here - now, latest=latest)
        return found


def _moved(by: float, at: float, latest: float = math.inf) -> float:
    local = at + by
    return latest if latest < local < latest + TIMEOUT else local


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
