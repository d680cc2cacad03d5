"""R4.6: one worker's connection to Redis: calls with a time limit, outages, and two clocks.

Redis is *away* while it cannot be relied on. The *epoch* is a random word in Redis that changes
whenever its memory may have been lost (``fleet.scripts`` says how that is found out), so a worker
that knows another word knows that records were lost. *Calm* is the time for which all hosts are
then left alone.
"""

from __future__ import annotations

import hashlib
import math
import re
import ssl
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from scrapy_walsh.exceptions import ConfigError, one_line
from scrapy_walsh.fleet import scripts
from scrapy_walsh.spec import __version__
from scrapy_walsh.state.forms import FORM, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Returns Unix seconds.
Clock = Callable[[], float]
#: A command of Redis and its arguments.
Command = tuple[Any, ...]

#: Seconds that one answer of Redis may take; the event loop waits for it. A booking usually takes
#: a tenth of a millisecond. Without an answer no request may be sent anyway.
TIMEOUT: Final = 1.0
#: Seconds between two looks at Redis while it answers, and while it does not.
BEAT: Final = 1.0
LONGEST_PAUSE: Final = 5.0
#: Seconds: two workers may notice a loss at times that differ by this much more than their pauses.
_MARGIN: Final = 3.0
#: Seconds for which all hosts are left alone once records were lost: within that time each worker
#: looks at Redis, and writes back what it knows.
CALM: Final = LONGEST_PAUSE + _MARGIN
#: Seconds after which a worker gives up a Redis that cannot be used. A machine has started by then.
LONGEST_OUTAGE: Final = 600.0
#: Seconds without a failure after which the next one is a new outage.
_WELL: Final = 30.0

#: What another Redis costs.
_PRICE: Final = "in another Redis the holds and last requests of hosts are lost"
#: The declared types of times that have passed.
_PASSED: Final = ("Wall", "Steady")
#: What Redis refuses for a while only: it is full, saves, is busy, or lacks its replicas.
_PASSING: Final = "OOM|MISCONF|BUSY|NOREPLICAS|not enough good|max number of|loading|WRONGTYPE"
#: By script, the SHA-1 that Redis knows it by.
_DIGESTS: Final = {
    script: hashlib.sha1((scripts.LIBRARY + script).encode(), usedforsecurity=False).hexdigest()
    for script in scripts.ALL
}


class NewerRecords(redis.RedisError):
    """The records in Redis are of a later stored form than this worker knows (D16)."""


class Link:
    """The connection to the Redis at *url*; *token* is a part of ``prefix``, that of our keys.

    ``token`` has it in lower case.

    ``away``: why Redis cannot be relied on now, in one line; None while it can. ``asked``: whether
    a connection was ever tried. ``epoch``: the word by which this worker knows Redis, and ``word``:
    Redis's own when it was last asked. *wall*, *steady*: this machine's clocks, Unix seconds.
    ConfigError for a URL that Redis's client does not understand.
    """

    def __init__(
        self, url: str, token: str, wall: Clock = time.time, steady: Clock = time.time
    ) -> None:
        self.name = _without_password(url)
        self.away: str | None = None
        self.asked = False
        self._newer = False
        self.epoch = self.word = ""
        self.token = token.lower()
        self.prefix = f"walsh:{{{self.token}}}:"
        self.epoch_key = f"{self.prefix}epoch"
        #: By declared type of a time (``policy.times``), the clock that it is of.
        self._clocks = {"Wall": wall, "Due": wall, "Steady": steady, "Until": steady}
        self._ahead = 0.0  # Redis's clock minus the monotonic one
        #: Monotonic seconds: when what fails now began to, and when it last failed.
        self._failing_since, self._failed_at = 0.0, -math.inf
        limits: dict[str, Any] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
        # A connection that was idle for long may be gone: one more try, on a new one.
        retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
        try:
            self.client: Any = redis.Redis.from_url(url, retry=retry, **limits)
        except ValueError as error:
            raise self._mistake(error) from None

    # -- at the start ---------------------------------------------------------------------

    def begin(self) -> str | None:
        """Whether Redis does what is asked of it: a warning for the log, "" where there is none.

        None where it is not there yet. ConfigError where it answers and will not do: only an
        operator can mend that.
        """
        try:
            self.greet()
            return self._how_kept()
        except NewerRecords as error:
            raise ConfigError(f"WALSH_SHARED_STATE: {error}") from None
        except (redis.RedisError, TypeError) as error:
            if self._is_mistake(error):
                raise self._mistake(error) from None
            return None

    def _how_kept(self) -> str:
        """What is to be said of how Redis keeps its data; "" where that is well."""
        memory, kept = self.client.info("memory"), self.client.info("persistence")
        policy = memory.get("maxmemory_policy")
        if memory.get("maxmemory") and policy != "noeviction":
            raise ConfigError(
                f"WALSH_SHARED_STATE: {self.name} throws records away when its memory is full, "
                f"opt-outs and holds among them (maxmemory-policy {policy}): set noeviction"
            )
        if kept.get("aof_enabled"):
            return ""
        return (
            f"{self.name} forgets its latest records in a crash (appendonly no): what a worker "
            "that has ended knew of holds and last requests is lost then: set appendonly yes"
        )

    def _is_mistake(self, error: Exception) -> bool:
        """Whether time does not mend *error*. What Redis answers is meant, but for a few states."""
        if isinstance(error, (TypeError, redis.ResponseError, redis.AuthenticationError)):
            return not re.search(_PASSING, str(error))
        cause = error.__cause__ or error.__context__
        # Who speaks TLS alone ends a connection without it; who does not, waits.
        other = re.search("closed by server|reset by peer|handshake", f"{error} {cause}")
        return isinstance(cause, (ssl.SSLError, FileNotFoundError)) or other is not None

    def _mistake(self, error: object) -> ConfigError:
        return ConfigError(
            f"WALSH_SHARED_STATE: {self.name} cannot be used ({one_line(error, 200)}): correct "
            "its URL (user and password, rediss:// for TLS), or that Redis (docs/fleet.md)"
        )

    # -- while it is used -----------------------------------------------------------------

    def script(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Command:
        """The command that runs *script* in Redis."""
        return ("EVALSHA", _DIGESTS[script], len(keys), *keys, *arguments)

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send *commands* in this order, in one round trip, and return the answers to them.

        Where Redis refuses one, its error stands in place of an answer. Raises ``redis.RedisError``
        without answers.
        """
        with self.client.pipeline(transaction=False) as pipe:
            for each in commands:
                pipe.execute_command(*each)
            answers: list[Any] = pipe.execute(raise_on_error=False)
        return answers

    def greet(self) -> float:
        """Ask Redis whether it is the one that this worker knew: ``word`` is ``epoch`` then.

        Returns the seconds for which no host may be booked. Raises ``redis.RedisError``.
        """
        arguments = [uuid.uuid4().hex, self.epoch, CALM, _MARGIN, FORM, __version__]
        command = self.script(scripts.GREET, [self.epoch_key], arguments)
        if not self.word:  # at first, since it may know those of another version
            self._tell_scripts()
        try:
            found = self.client.execute_command(*command)
        except NoScriptError:  # it was started anew
            self._tell_scripts()
            found = self.client.execute_command(*command)
        self.set_time(found[1])
        self._check_form(*found[3:])
        self.word = found[0].decode()
        return float(found[2])

    def _check_form(self, form: bytes | None = None, writer: bytes | None = None) -> None:
        """Raise NewerRecords where the records have a stored *form* that is not known here."""
        number = int(form or 0)
        self._newer = number > FORM
        if self._newer:
            version = (writer or b"").decode("ascii", "replace") or None
            what = f"the records in {self.name} have the stored form"
            raise NewerRecords(refusal(what, number, version, _PRICE))

    def look(self) -> float:
        """As :meth:`greet`, for who only reads: nothing is written, not even a first epoch."""
        self._ask_time()
        names = ("word", "calm", "form", "writer")
        word, calm, form, writer = self.client.hmget(self.epoch_key, *names)
        self._check_form(form, writer)
        if self.epoch and (word or b"").decode() != self.epoch:
            return float(CALM)
        return max(0.0, float(calm or 0.0) - self.now())

    def _tell_scripts(self) -> None:
        for script in scripts.ALL:
            self.client.script_load(scripts.LIBRARY + script)

    def forget(self) -> None:
        """Have Redis count as one that has just lost records. Raises ``redis.RedisError``."""
        # An estimate of its time may lie before a booking that it has just made. That booking would
        # then count as later than the loss, and its host as free.
        self._ask_time()
        lost = {"word": uuid.uuid4().hex, "lost": self.now(), "calm": self.now() + CALM}
        self.client.hset(self.epoch_key, mapping=lost)

    def lose(self, why: object) -> None:
        """Note that Redis is away. *why*: what is put into one line."""
        self.away = one_line(why, 300)
        now = time.monotonic()
        if now - self._failed_at > _WELL:
            self._failing_since = now
        self._failed_at = now

    @property
    def given_up(self) -> bool:
        """Whether the worker is to end: Redis has failed for so long, again and again, or has
        records that only a later version reads.
        """
        return self._newer or self._failed_at - self._failing_since > LONGEST_OUTAGE

    def outage(self) -> str:
        """One line for the log: which Redis is away, and why."""
        return f"the shared store {self.name} cannot be relied on: {self.away}"

    def _ask_time(self) -> None:
        seconds, micros = self.client.time()
        self.set_time(f"{seconds}.{micros:06}".encode())

    def set_time(self, now: bytes) -> None:
        """Take over the time of Redis, *now*, that a script has just returned."""
        self._ahead = float(now) - time.monotonic()

    def now(self) -> float:
        """The time by Redis's clock."""
        return time.monotonic() + self._ahead

    def to_shared(self) -> Mapping[str, Callable[[float], float]]:
        """By declared type of a time of this machine, what makes it one of Redis's clock."""
        now = self.now()
        return {kind: partial(_moved, now - clock()) for kind, clock in self._clocks.items()}

    def to_local(self) -> Mapping[str, Callable[[float], float]]:
        """By declared type, what makes a time of Redis's clock one of this machine's.

        A slow answer must not move what has passed to the future.
        """
        now = self.now()
        return {
            kind: partial(_moved, clock() - now, latest=clock() if kind in _PASSED else math.inf)
            for kind, clock in self._clocks.items()
        }


def _moved(by: float, at: float, latest: float = math.inf) -> float:
    local = at + by
    return latest if latest < local < latest + TIMEOUT else local


def _without_password(url: str) -> str:
    # D36: the URL of Redis, for messages.
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
