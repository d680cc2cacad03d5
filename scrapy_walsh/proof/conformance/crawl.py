"""One real crawl: a project of its own, Scrapy in a subprocess, the sandbox as its proxy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.proof.conformance.evidence import (
    LIST_URL,
    SCHEMA_URL,
    Run,
    urls_of,
)
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import HostRecord, StoredDocument, VisitRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scrapy_walsh.policy.identity import Identity
    from scrapy_walsh.proof.sandbox import Route, Sandbox

#: The records that are no documents, by their kind in :meth:`Stage.age`.
_RECORDS: Final = {"host": HostRecord, "visit": VisitRecord}

#: The longest time of a crawl, seconds; then it is cut off.
TIME_LIMIT: Final = 150.0
#: What R13's tags say in the sandbox.
IMPLEMENTATION: Final = "example/conformance@0123abc"

_PROXIES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
#: Of the environment, what would lead the crawl to another project or past the proxy.
_DROPPED: Final = (
    "SCRAPY_SETTINGS_MODULE",
    "SCRAPY_PROJECT",
    "all_proxy",
    "ALL_PROXY",
)
#: Octets of a command's output that are kept: its end.
_OUTPUT: Final = 16 * 4096
#: Set: no further crawl is begun in this process.
STOPPED: Final = Event()


@dataclass(frozen=True)
class Bot:
    """The bot that crawls, and its settings.

    ``setting``: the value of WALSH_IDENTITY. ``overrides``: the other settings of the run, beside
    those that a scene needs. ``robots_pace``: seconds that WALSH_PACE_ROBOTS puts between the
    first robots.txt of a host and its target, 0 without it (T1).
    """

    identity: Identity
    setting: Any
    overrides: Mapping[str, Any] = field(default_factory=dict)
    robots_pace: float = 0.0


def environment(proxy: str | None) -> dict[str, str]:
    """The environment of a crawl; with *proxy*, all its requests go there."""
    variables = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    if proxy is not None:
        variables |= dict.fromkeys(_PROXIES, proxy) | {
            "no_proxy": "",
            "NO_PROXY": "",
        }
    return variables


class Stage:
    """A project that is crawled run after run; in the sandbox *box*, if there is one.

    *settings* are the project's. In the sandbox its operator is the sandbox's, and its state is its
    own; else they are those that the identity and *settings* name. ``keys``: of the bot's
    directory, if it signs its requests.
    """

    def __init__(
        self,
        bot: Bot,
        project: Path,
        box: Sandbox | None = None,
        **settings: Any,
    ) -> None:
        self.bot = bot
        self.keys: list[dict[str, Any]] = []
        self._box = box
        self._state = project / "state"
        self.project = project
        self.runs: list[Run] = []
        mirrored = {
            "WALSH_BLOCKLIST_URL": LIST_URL,
            "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL,
            "WALSH_STATE_DIR": str(self._state),
            "WALSH_IMPL": IMPLEMENTATION,
        }
        values = {
            "BOT_NAME": "conformance",
            "SPIDER_MODULES": [
                "scrapy_walsh.spiders",
                "scrapy_walsh.proof.conformance.probe",
            ],
            "ADDONS": {"scrapy_walsh.Addon": 500},
            "LOG_LEVEL": "INFO",
            **bot.overrides,
            **(mirrored if box is not None else {}),
            **settings,
            "WALSH_IDENTITY": bot.setting,
            "WALSH_TAG_REQUESTS": True,
        }
        lines = [f"{name} = {value!r}\n" for name, value in values.items()]
        project.mkdir(parents=True)
        (project / "conformance_settings.py").write_text("".join(lines), encoding="utf-8")
        (project / "scrapy.cfg").write_text("[settings]\ndefault = conformance_settings\n")

    def probe(self, urls: str, settings: Mapping[str, Any] | None = None, **task: Any) -> Run:
        """One more crawl by the probe of *urls*, by spaces; *task*: what else it does."""
        declared = urls_of(urls)
        arguments = json.dumps({"urls": declared, "account": str(self._file("account")), **task})
        return self._crawl("walsh_conformance", declared, settings or {}, task=arguments)

    def metadata(self, name: str, sources: str, declared: Sequence[str] = ()) -> Run:
        """One more crawl, by the spider ``walsh_metadata``, of *sources* in a file *name*."""
        file = self.project / name
        file.write_text(sources, encoding="utf-8")
        feeds = {"FEEDS": json.dumps({str(self._file("items")): {"format": "jsonlines"}})}
        return self._crawl("walsh_metadata", declared, feeds, sources=str(file))

    def _crawl(
        self,
        spider: str,
        declared: Sequence[str],
        settings: Mapping[str, Any],
        **arguments: str,
    ) -> Run:
        if STOPPED.is_set():
            raise WalshError("stopped")
        command = [sys.executable, "-m", "scrapy", "crawl", spider]
        for option, pairs in (("-a", arguments), ("-s", settings)):
            for name, value in pairs.items():
                command += [option, f"{name}={value}"]
        if self._box is not None:
            self._box.clear()
        env = environment(self._box.proxy_url if self._box else None)
        code, output = run_command(command, env, TIME_LIMIT, self.project)
        log = self._box.log if self._box else []
        accounts = _lines(self._file("account")) or [{}]
        items = _lines(self._file("items"))
        self.runs.append(Run(log, declared, accounts[0], items, output, code))
        return self.runs[-1]

    def _file(self, name: str) -> Path:
        """If the run that is under way, or the next, writes its account or its items."""
        return self.project / f"{name}-{len(self.runs)}.jsonl"

    def serve(self, host: str, path: str, route: Route) -> None:
        """From now on, answer requests for *path* of *host* by *route*."""
        if self._box is not None:
            self._box.set_route(host, path, route)

    def age(self, kind: str, key: str, seconds: float) -> None:
        """Make a stored document *seconds* older, as if so much time had passed.

        Of the *kind* ``host``: its last answer, and its hold (R4, R5). Of ``visit``: a source (R8).
        """
        key_of_record: Any = (StoredDocument, kind, key)
        if kind in _RECORDS:
            key_of_record = (_RECORDS[kind], key)
        with closing(open_store(self._state)) as store:
            if record := store.get(*key_of_record):
                names = ("last_end", "not_before", "fetched_at", "last_run_at", "counted_from")
                times = {name: getattr(record, name, None) for name in names}
                times_before = {name: at - seconds for name, at in times.items() if at is not None}
                store.put(replace(record, **times_before))


def _lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects in the lines of *path*; none if a run wrote it in part, or not at all."""
    with suppress(ValueError, OSError):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return []


def run_command(
    command: Sequence[str] | str,
    env: Mapping[str, str],
    seconds: float,
    folder: Path | None = None,
) -> tuple[int | None, str]:
    """Exit code (None: cut off) and the end of the output, both streams together.

    A *command* in one text is another crawler's, for a shell; whatever it has started ends with it.
    """
    foreign = isinstance(command, str)
    code = None
    output = b""
    with subprocess.Popen(  # noqa: S603  our own command, or the user's
        command,
        shell=foreign,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=foreign,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired as error:
            output = error.output or b""
        finally:
            with suppress(ProcessLookupError, PermissionError):
                if foreign:
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
    return code, output[-_OUTPUT:].decode("utf-8", "replace")
