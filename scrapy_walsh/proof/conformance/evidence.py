"""What the judges look at: the server's log of each run, and the bot's own account beside it.

Pure: values in, findings out. Times are the server's, from arrival to arrival: a bot that waits
from the end of an answer is then never judged by how late the server stamped it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.findings import Finding, broken, held, held_if, unseen
from scrapy_walsh.proof.exchanges import gaps
from scrapy_walsh.proof.sandbox import LoggedRequest, exchanged, host_key, hosts, requests
from scrapy_walsh.proof.sandbox.routes import LIST, SCHEMA
from scrapy_walsh.proof.spacing import THE_WIRE, is_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

OPERATOR_HOST: Final = "operator.test"
LIST_URL: Final = f"http://{OPERATOR_HOST}{LIST}"
SCHEMA_URL: Final = f"http://{OPERATOR_HOST}{SCHEMA}"


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

    def get(self, host: str, path: str) -> list[LoggedRequest]:
        """The requests for one path of *host*."""
        return [each for each in self.asked(host) if each.path == path]

    def result(self, url: str) -> Mapping[str, Any] | None:
        """What the bot says became of its target *url*, or None."""
        return next((each for each in self.told.get("results", ()) if each["url"] == url), None)


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


def asked_for(run: Run, url: str) -> bool:
    """Whether *run* requested *url*, its query included."""
    host, path = split(url)
    return any(target_of(each) == path for each in run.asked(host))


# -- findings that many rows share ------------------------------------------------------------


def never(run: Run, urls: Iterable[str], *controls: str) -> Finding:
    """None of *urls* was requested, though each of *controls* was; NOT SEEN without them."""
    wrong = [url for url in urls if asked_for(run, url)]
    if wrong:
        return broken(f"asked {wrong[0]}")
    missing = [url for url in controls if not asked_for(run, url)]
    return unseen(f"{missing[0]} was not asked either") if missing else held()


def nothing_of(run: Run, names: Iterable[str], control: str) -> Finding:
    """None of the hosts *names* had a request or a CONNECT, though *control* was requested."""
    reached = set(hosts(run.log))
    wrong = [name for name in names if name in reached]
    if wrong:
        return broken(f"{wrong[0]} was asked {', '.join(run.paths(wrong[0])) or 'CONNECT'}")
    return held() if asked_for(run, control) else unseen(f"{control} was not asked either")


def was_asked(run: Run, *urls: str) -> Finding:
    """Every one of *urls* was requested."""
    missing = [url for url in urls if not asked_for(run, url)]
    if missing and not run.log:
        return unseen("nothing was asked")
    return held_if(not missing, f"{missing[0]} was not asked" if missing else "")


def exact_user_agent(evidence: Evidence, asked: Iterable[LoggedRequest]) -> Finding:
    """Each request in *asked* had the bot's User-Agent, in one line; NOT SEEN without any."""
    looked_at = list(asked)
    wrong = [each for each in looked_at if each.values("User-Agent") != [evidence.user_agent]]
    if wrong:
        said = ", ".join(wrong[0].values("User-Agent")) or "none"
        return broken(f"{said!r} to {wrong[0].host}{wrong[0].path}")
    return held(f"requests={len(looked_at)}") if looked_at else unseen("not asked")


def intervals(asked: Sequence[LoggedRequest], *, exempt: bool = False) -> list[float]:
    """Seconds from each request of a host to its next one, by arrival; *exempt*: but T1's pair."""
    found = gaps(exchanged(asked))
    return [gap.apart for gap in found if not (exempt and gap.first_pair)]


def spaced(found: Sequence[float], seconds: float) -> Finding:
    """Every interval is at least *seconds*; NOT SEEN where there is none."""
    if not found:
        return unseen("no two requests to compare")
    return held_if(not is_short(min(found), seconds, THE_WIRE), f"gap={min(found):.3f}s")


def read_told(path: Path) -> Mapping[str, Any]:
    """The probe's account; empty where it wrote none, or not to its end."""
    try:
        told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told
