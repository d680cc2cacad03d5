"""A worker's connection to Redis, with time limits, outages and two clocks (R4.6).

Redis is *away* if we cannot rely on it. The *epoch* is a random word in Redis. It changes when
Redis may have lost records (see ``fleet.scripts``), so a worker with another word knows that
records were lost. *Calm* is the time after that in which no host gets a request.
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

#: A function that returns Unix seconds.
Clock = Callable[[], float]
#: A command of Redis and its arguments.
Command = tuple[Any, ...]

#: The longest wait for an answer of Redis, in seconds. The event loop waits meanwhile, because no
#: request may be sent without the answer. A booking usually takes a tenth of a millisecond.
TIMEOUT: Final = 1.0
#: Seconds between two checks of Redis, while it answers and while it does not.
BEAT: Final = 1.0
LONGEST_PAUSE: Final = 5.0
#: Workers may notice a loss at different times: the longest pause, and these seconds.
_MARGIN: Final = 3.0
#: Seconds without requests after a loss of records. In that time each worker checks Redis, and
#: writes its own records back.
CALM: Final = LONGEST_PAUSE + _MARGIN
#: Seconds after which a worker gives up. A machine that restarts is back before that.
LONGEST_OUTAGE: Final = 600.0
#: Seconds without a failure after which the next one is a new outage.
_WELL: Final = 30.0

#: The price of using another Redis, for messages.
_PRICE: Final = "in another Redis the holds and last requests of hosts are lost"
#: The declared types of past times.
_PASSED: Final = ("Wall", "Steady")
#: Errors of Redis that may pass, for example because it is full, busy or without its replicas.
_PASSING: Final = "OOM|MISCONF|BUSY|NOREPLICAS|not enough good|max number of|loading|WRONGTYPE"
#: The SHA-1 by which Redis knows each script.
_DIGESTS: Final = {
    script: hashlib.sha1((scripts.LIBRARY + script).encode(), usedforsecurity=False).hexdigest()
    for script in scripts.ALL
}


class NewerRecords(redis.RedisError):
    """A newer version has written the records in Redis; this worker cannot read them (D16)."""


class Link:
    """The connection to the Redis at *url*.

    *token*: the bot's token. In lower case it is ``token``, and a part of ``prefix``. All our keys
    begin with that. *wall*, *steady*: this machine's clocks, Unix seconds.

    ``away``: the reason, in one line, if we cannot rely on Redis now; else None. ``asked``: whether
    a connection was ever tried. ``epoch``: the epoch that this worker knows. ``word``: the epoch of
    Redis at the last check. Raises ConfigError if Redis's client cannot read the URL.
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
        #: The clock for each declared type of time (``policy.times``).
        self._clocks = {"Wall": wall, "Due": wall, "Steady": steady, "Until": steady}
        self._ahead = 0.0  # Redis's clock minus the monotonic one
        #: Monotonic seconds: the beginning of the current outage, and the last failure.
        self._failing_since, self._failed_at = 0.0, -math.inf
        limits: dict[str, Any] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
        # An idle connection may be gone, so try once more on a new connection.
        retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
        try:
            self.client: Any = redis.Redis.from_url(url, retry=retry, **limits)
        except ValueError as error:
            raise self._mistake(error) from None

    # -- at the start ---------------------------------------------------------------------

    def begin(self) -> str | None:
        """Check Redis at the start of a crawl.

        Returns a warning for the log, "" if there is nothing to warn of, or None if Redis does not
        answer yet. Raises ConfigError if only an operator can correct the problem.
        """
        try:
            self.greet()
            return self._check_persistence()
        except NewerRecords as error:
            raise ConfigError(f"WALSH_SHARED_STATE: {error}") from None
        except (redis.RedisError, TypeError) as error:
            if self._is_mistake(error):
                raise self._mistake(error) from None
            return None

    def _check_persistence(self) -> str:
        """Return a warning if Redis may lose records in a crash, else "". Raises ConfigError."""
        memory = self.client.info("memory")
        persistence = self.client.info("persistence")
        policy = memory.get("maxmemory_policy")
        if memory.get("maxmemory") and policy != "noeviction":
            raise ConfigError(
                f"WALSH_SHARED_STATE: {self.name} deletes records when its memory is full, also "
                f"opt-outs and holds (maxmemory-policy {policy}): set noeviction"
            )
        if persistence.get("aof_enabled"):
            return ""
        return (
            f"{self.name} loses its latest records in a crash (appendonly no), and with them holds "
            "and last requests of workers that have ended: set appendonly yes"
        )

    def _is_mistake(self, error: Exception) -> bool:
        """Whether an operator must correct the cause of *error*, because it will not pass."""
        if isinstance(error, (TypeError, redis.ResponseError, redis.AuthenticationError)):
            return not re.search(_PASSING, str(error))
        cause = error.__cause__ or error.__context__
        # A server that only speaks TLS closes a connection without it.
        plain_tls = re.search("closed by server|reset by peer|handshake", f"{error} {cause}")
        return isinstance(cause, (ssl.SSLError, FileNotFoundError)) or plain_tls is not None

    def _mistake(self, error: object) -> ConfigError:
        return ConfigError(
            f"WALSH_SHARED_STATE: {self.name} cannot be used ({one_line(error, 200)}): correct "
            "its URL (user and password, rediss:// for TLS), or that Redis (docs/fleet.md)"
        )

    # -- during the crawl -----------------------------------------------------------------

    def script(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Command:
        """Return the command that runs *script* in Redis."""
        return ("EVALSHA", _DIGESTS[script], len(keys), *keys, *arguments)

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send *commands* in one round trip, and return their answers in the same order.

        If Redis refuses a command, its error takes the place of the answer. Raises
        ``redis.RedisError`` if Redis does not answer.
        """
        with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = pipe.execute(raise_on_error=False)
        return answers

    def greet(self) -> float:
        """Ask Redis for its epoch, and set ``word``. If it equals ``epoch``, nothing was lost.

        Returns the seconds in which no host may be booked. Raises ``redis.RedisError``.
        """
        arguments = [uuid.uuid4().hex, self.epoch, CALM, _MARGIN, FORM, __version__]
        command = self.script(scripts.GREET, [self.epoch_key], arguments)
        if not self.word:  # at the first call, because Redis may have another version's scripts
            self._tell_scripts()
        try:
            reply = self.client.execute_command(*command)
        except NoScriptError:  # Redis has restarted
            self._tell_scripts()
            reply = self.client.execute_command(*command)
        self.set_time(reply[1])
        self._check_form(*reply[3:])
        self.word = reply[0].decode()
        return float(reply[2])

    def _check_form(self, form: bytes | None = None, writer: bytes | None = None) -> None:
        """Raise NewerRecords if the records have a newer stored *form*."""
        number = int(form or 0)
        self._newer = number > FORM
        if self._newer:
            version = (writer or b"").decode("ascii", "replace") or None
            subject = f"the records in {self.name} have the stored form"
            raise NewerRecords(refusal(subject, number, version, _PRICE))

    def look(self) -> float:
        """Like :meth:`greet`, but for readers: it writes nothing, not even a first epoch."""
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
        """Note in Redis that records were lost just now. Raises ``redis.RedisError``."""
        # Ask for the time, because an estimate may lie before the last booking. That booking would
        # then seem to be later than the loss, and its host would seem to be free.
        self._ask_time()
        fields = {"word": uuid.uuid4().hex, "lost": self.now(), "calm": self.now() + CALM}
        self.client.hset(self.epoch_key, mapping=fields)

    def lose(self, reason: object) -> None:
        """Note that Redis is away. *reason*: an error or a text; it is shortened to one line."""
        self.away = one_line(reason, 300)
        now = time.monotonic()
        if now - self._failed_at > _WELL:
            self._failing_since = now
        self._failed_at = now

    @property
    def given_up(self) -> bool:
        """Whether the worker must end, because the outage lasts too long or records are newer."""
        return self._newer or self._failed_at - self._failing_since > LONGEST_OUTAGE

    def outage(self) -> str:
        """Return one line for the log: the name of Redis, and the reason of the outage."""
        return f"the shared store {self.name} cannot be relied on: {self.away}"

    def _ask_time(self) -> None:
        seconds, micros = self.client.time()
        self.set_time(f"{seconds}.{micros:06}".encode())

    def set_time(self, now: bytes) -> None:
        """Set the clock of Redis to *now*, which a script has just returned."""
        self._ahead = float(now) - time.monotonic()

    def now(self) -> float:
        """Return the time by Redis's clock, in Unix seconds."""
        return time.monotonic() + self._ahead

    def to_shared(self) -> Mapping[str, Callable[[float], float]]:
        """Return, by declared type, functions from this machine's times to those of Redis."""
        now = self.now()
        return {kind: partial(_moved, now - clock()) for kind, clock in self._clocks.items()}

    def to_local(self) -> Mapping[str, Callable[[float], float]]:
        """Return, by declared type, functions from times of Redis to this machine's times.

        After a slow answer, a past time must not lie in the future.
        """
        now = self.now()
        converters = {}
        for kind, clock in self._clocks.items():
            latest = clock() if kind in _PASSED else math.inf
            converters[kind] = partial(_moved, clock() - now, latest=latest)
        return converters


def _moved(by: float, at: float, latest: float = math.inf) -> float:
    local = at + by
    if latest < local < latest + TIMEOUT:
        return latest
    return local


def _without_password(url: str) -> str:
    # This text is only for messages (D36).
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
