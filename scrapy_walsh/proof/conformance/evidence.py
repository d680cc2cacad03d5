"""What the judges look at: the server's log of each run, and the bot's own account beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import LoggedRequest, host_key, requests
from scrapy_walsh.proof.sandbox.routes import LIST, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

OPERATOR_HOST: Final = "operator.test"
#: Its documents, as a log's place (``host/path``) and as a URL.
THE_LIST: Final = f"{OPERATOR_HOST}{LIST}"
THE_SCHEMA: Final = f"{OPERATOR_HOST}{SCHEMA}"
LIST_URL: Final = f"http://{THE_LIST}"
SCHEMA_URL: Final = f"http://{THE_SCHEMA}"


@dataclass(frozen=True)
class Run:
    """One finished run of a bot.

    ``log``: what the server saw, in order of arrival. ``declared``: the target URLs it was given.
    ``told``: the bot's own account, empty for another crawler. ``items``: what it yielded.
    ``output``: the end of its output or log. ``code``: exit code, None when it was cut off.
    """

    log: Sequence[LoggedRequest]
    declared: Sequence[str] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    items: Sequence[Mapping[str, Any]] = ()
    output: str = ""
    code: int | None = 0

    def asked(self, host: str) -> list[LoggedRequest]:
        """The requests to *host* (``host[:port]``), in order of arrival."""
        return requests(self.log, host)

    def paths(self, host: str) -> list[str]:
        """The paths requested from *host*."""
        return [each.path for each in self.asked(host)]

    def targets(self, host: str) -> list[LoggedRequest]:
        """The requests to *host*, but those for its robots.txt."""
        return [each for each in self.asked(host) if each.path != ROBOTS]

    def get(self, place: str) -> list[LoggedRequest]:
        """The requests for one path of a host: ``host/path``."""
        host, slash, path = place.partition("/")
        return [each for each in self.asked(host) if each.path == slash + path]

    def requested(self, url: str) -> bool:
        """Whether *url* was requested, its query included."""
        host, path = split(full(url))
        return any(target_of(each) == path for each in self.asked(host))

    def result(self, url: str) -> Mapping[str, Any] | None:
        """What the bot says became of its target *url*, or None."""
        return next(
            (each for each in self.told.get("results", ()) if each["url"] == full(url)), None
        )


@dataclass(frozen=True)
class Evidence:
    """What one scene showed: its runs, and the User-Agent and token that the bot must use.

    ``robots_pace``: seconds that a target may wait for after the first robots.txt (T1). ``keys``:
    of the bot's key directory, where its requests are to be signed.
    """

    user_agent: str
    token: str
    runs: Sequence[Run]
    robots_pace: float = 0.0
    keys: Sequence[dict[str, Any]] = ()

    @property
    def first(self) -> Run:
        """The first run."""
        return self.runs[0]

    @property
    def log(self) -> list[LoggedRequest]:
        """The requests of all runs."""
        return [each for run in self.runs for each in requests(run.log)]

    @property
    def cut_off(self) -> str:
        """Which run did not come to its end; empty when all did."""
        for number, run in enumerate(self.runs, 1):
            if run.code is None:
                return f"run {number} was cut off"
        return ""


def full(url: str) -> str:
    """*url*, which may lack the scheme of http."""
    return url if "://" in url else f"http://{url}"


def urls_of(given: str) -> list[str]:
    """The URLs in a text, by spaces."""
    return [full(url) for url in given.split()]


def split(url: str) -> tuple[str, str]:
    """The host (``host[:port]``, as the log's keys) and the path with query of *url*."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host_key(parts.scheme, parts.netloc), path


def target_of(request: LoggedRequest) -> str:
    """Path and query of a logged request, which may be anything that a client sent."""
    _, absolute, rest = request.target.partition("://")
    if not absolute:
        return request.target
    return "/" + rest.partition("/")[2].partition("#")[0]


def read_told(path: Path) -> Mapping[str, Any]:
    """The probe's account; empty where it wrote none, or not to its end."""
    try:
        told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told
