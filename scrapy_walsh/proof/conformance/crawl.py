"""One real crawl: a project of its own, Scrapy in a subprocess, the sandbox as its proxy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.proof.conformance.evidence import LIST_URL, SCHEMA_URL, Run, read_told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scrapy_walsh.policy.identity import Identity
    from scrapy_walsh.proof.sandbox import Sandbox

#: Seconds that one crawl may take before it is cut off.
TIME_LIMIT: Final = 150.0
#: What R13's tags say in the sandbox.
IMPLEMENTATION: Final = "example/conformance@0123abc"

_PROXIES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
#: Of the environment, what would lead the crawl to another project or past the proxy.
_DROPPED: Final = ("SCRAPY_SETTINGS_MODULE", "SCRAPY_PROJECT", "all_proxy", "ALL_PROXY")
#: Octets of a command's output that are kept: its end.
_OUTPUT: Final = 16 * 4096
#: Seconds between asking a command to end and ending it.
_GRACE: Final = 5.0
#: The operator's documents, played by the sandbox.
MIRROR: Final = {"WALSH_BLOCKLIST_URL": LIST_URL, "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL}

_STOPPED: Final = Event()


class Stopped(WalshError):
    """The run was interrupted: no further crawl is begun."""


def stop() -> None:
    """Begin no further crawl in this process."""
    _STOPPED.set()


@dataclass(frozen=True)
class Bot:
    """Who crawls, and how.

    ``setting``: the value of WALSH_IDENTITY. ``overrides``: the other settings of the run, beside
    those that a scene needs. ``robots_pace``: seconds that WALSH_PACE_ROBOTS puts between the
    first robots.txt of a host and its target, 0 without it (T1).
    """

    identity: Identity
    setting: Any
    overrides: Mapping[str, Any] = field(default_factory=dict)
    robots_pace: float = 0.0


def make_project(directory: Path, bot: Bot, **settings: Any) -> Path:
    """Make a Scrapy project in *directory* whose operator is the identity's own."""
    directory.mkdir(parents=True)
    values = {
        "BOT_NAME": "conformance",
        "SPIDER_MODULES": ["scrapy_walsh.spiders", "scrapy_walsh.proof.conformance.probe"],
        "ADDONS": {"scrapy_walsh.Addon": 500},
        "LOG_LEVEL": "INFO",
        **bot.overrides,
        **settings,
        "WALSH_IDENTITY": bot.setting,
        "WALSH_TAG_REQUESTS": True,
    }
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    (directory / "conformance_settings.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (directory / "scrapy.cfg").write_text("[settings]\ndefault = conformance_settings\n")
    return directory


def mirrored(directory: Path) -> dict[str, Any]:
    """The settings of a project in *directory* whose operator is the sandbox's; with its state."""
    return {"WALSH_STATE_DIR": str(state_dir(directory)), "WALSH_IMPL": IMPLEMENTATION, **MIRROR}


def state_dir(project: Path) -> Path:
    """Where a project in the sandbox keeps its state."""
    return project / "state"


def environment(proxy: str | None) -> dict[str, str]:
    """The environment of a crawl; with *proxy*, all its requests go there."""
    found = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    if proxy is not None:
        found |= dict.fromkeys(_PROXIES, proxy) | {"no_proxy": "", "NO_PROXY": ""}
    return found


def probe(
    project: Path,
    box: Sandbox | None,
    urls: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    **task: Any,
) -> Run:
    """The probe's crawl of *urls*; *task*: what else it is to do."""
    account = project / "account.json"
    account.unlink(missing_ok=True)
    given = {"task": json.dumps({"urls": urls, "account": str(account), **task})}
    code, output, log = _scrapy(project, box, "walsh_conformance", given, settings or {})
    return Run(log, tuple(urls), read_told(account), (), output, code)


def metadata(project: Path, box: Sandbox, name: str, sources: str, declared: Sequence[str]) -> Run:
    """``scrapy crawl walsh_metadata`` in *project*, of *sources* as a file *name* has them."""
    items, file = project / "items.jsonl", project / name
    items.unlink(missing_ok=True)
    file.write_text(sources, encoding="utf-8")
    feeds = {"FEEDS": json.dumps({str(items): {"format": "jsonlines"}})}
    code, output, log = _scrapy(project, box, "walsh_metadata", {"sources": str(file)}, feeds)
    lines = items.read_text(encoding="utf-8").splitlines() if items.exists() else []
    found: list[dict[str, Any]] = []
    with suppress(ValueError):  # the last line of a crawl that was cut off
        found.extend(json.loads(line) for line in lines)
    return Run(log, tuple(declared), {}, found, output, code)


def _scrapy(
    project: Path,
    box: Sandbox | None,
    spider: str,
    arguments: Mapping[str, str],
    settings: Mapping[str, Any],
) -> tuple[int | None, str, Any]:
    """Exit code (None: cut off), the end of the output, and the sandbox's log of this run."""
    if _STOPPED.is_set():
        raise Stopped("stopped")
    command = [sys.executable, "-m", "scrapy", "crawl", spider]
    for option, pairs in (("-a", arguments), ("-s", settings)):
        for name, value in pairs.items():
            command += [option, f"{name}={value}"]
    if box is not None:
        box.clear()
    env = environment(None if box is None else box.proxy_url)
    code, output = run_command(command, env, TIME_LIMIT, project)
    return code, output, [] if box is None else box.log


def run_command(
    words: Sequence[str],
    env: Mapping[str, str],
    seconds: float,
    folder: Path | None = None,
    *,
    foreign: bool = False,
) -> tuple[int | None, str]:
    """Exit code (None: cut off) and the end of the output, both streams together.

    *foreign*: whatever the command has started is ended with it. Raises OSError.
    """
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(  # noqa: S603  our own command, or the user's
            words,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=foreign,
        )
        code = None
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
        finally:
            _end(process, group=foreign)
        out.seek(max(0, out.seek(0, os.SEEK_END) - _OUTPUT))
        return code, out.read().decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes], *, group: bool) -> None:
    """End a command if it goes on; *group*: and what else is of its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            return
