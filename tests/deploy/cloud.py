"""Scrapy Cloud on loopback: its own job runner, the pipe it reads, its storage, and DotScrapy's S3.

Real are the runner (``start-crawl``) with its settings, extension, stats and log, the DotScrapy
add-on, and the storage's client; played are the platform around them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tests import zygote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

PROJECT = 12345
#: What an interpreter reads at its start: as here, so that one can be forked.
_PYTHON_S = ("PYTHON", "LC_", "LANG")
#: The AWS command line, as far as DotScrapy uses it: ``aws s3 sync [--delete] FROM TO``.
AWS = """#!/bin/sh
shift 2
delete=
if [ "$1" = --delete ]; then delete=yes; shift; fi
place() { case "$1" in s3://*) echo "$HOME/s3/${1#s3://}" ;; *) echo "$1" ;; esac; }
from=$(place "$1") to=$(place "$2")
if [ -n "$delete" ]; then rm -rf "$to"; fi
mkdir -p "$to"
if [ -d "$from" ]; then cp -a "$from/." "$to"; fi
"""
DOTSCRAPY = {
    "path": "scrapy_dotpersistence.DotScrapyPersistence",
    "type": "EXTENSIONS",
    "order": 0,
    "default_settings": {
        "DOTSCRAPY_ENABLED": True,
        "ADDONS_S3_BUCKET": "bucket",
        "ADDONS_AWS_ACCESS_KEY_ID": "id",
        "ADDONS_AWS_SECRET_ACCESS_KEY": "secret",
    },
}


@dataclass
class Job:
    """A finished job: what came through its pipe, by kind of line."""

    returncode: int
    output: str
    lines: list[tuple[str, Any]] = field(repr=False)

    def of(self, kind: str) -> list[Any]:
        return [payload for name, payload in self.lines if name == kind]

    @property
    def items(self) -> list[dict[str, Any]]:
        return self.of("ITM")

    @property
    def log(self) -> str:
        return "\n".join(entry["message"] for entry in self.of("LOG"))

    @property
    def stats(self) -> dict[str, Any]:
        return dict(self.of("STA")[-1]["stats"])

    @property
    def outcome(self) -> str | None:
        return next((payload["outcome"] for payload in self.of("FIN")), None)


@dataclass
class Container:
    """One job's machine: an empty folder with the project's egg, and what the platform hands it."""

    folder: Path
    egg: Path
    box: Sandbox
    home: Path
    storage: Storage | None = None

    def start(
        self,
        number: int,
        *,
        spider: str = "walsh_metadata",
        arguments: dict[str, str] | None = None,
        addons: tuple[dict[str, Any], ...] = (),
        **layers: dict[str, Any],
    ) -> Running:
        """Job *number*; *layers* are project_settings, spider_settings, job_settings."""
        self.folder.mkdir(parents=True, exist_ok=True)
        pipe = self.folder / f"pipe-{number}"
        os.mkfifo(pipe)
        data = {
            "key": f"{PROJECT}/1/{number}",
            "project": PROJECT,
            "spider": spider,
            "spider_type": "manual",
            "spider_args": arguments or {},
            "auth": "token",
            "tags": [],
        }
        settings = {"enabled_addons": list(addons), **layers}
        environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(_PYTHON_S)},
            "PATH": f"{self._tools()}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join([str(self.egg), os.environ.get("PYTHONPATH", "")]),
            "SCRAPY_SETTINGS_MODULE": "example_project.settings",
            "SHUB_JOBKEY": str(data["key"]),
            "SHUB_JOB_DATA": json.dumps(data),
            "SHUB_SETTINGS": json.dumps(settings),
            "SHUB_FIFO_PATH": str(pipe),
            "http_proxy": self.box.proxy_url,
            "https_proxy": self.box.proxy_url,
            "no_proxy": "127.0.0.1",
        }
        if self.storage is not None:
            environment["SHUB_STORAGE"] = self.storage.url
        process = zygote.Popen(
            [sys.executable, str(zygote.START_CRAWL)],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Running(process, pipe)

    def run(self, number: int, **options: Any) -> Job:
        return self.start(number, **options).wait()

    def _tools(self) -> Path:
        tools = self.home / "bin"
        tools.mkdir(parents=True, exist_ok=True)
        (tools / "aws").write_text(AWS)
        (tools / "aws").chmod(0o755)
        return tools


class Running:
    """A job under way, and the platform's end of its pipe."""

    def __init__(self, process: subprocess.Popen[str], pipe: Path) -> None:
        self._process = process
        self._pipe = pipe
        self._lines: list[tuple[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._pipe.open() as file:
            for line in file:
                kind, _, payload = line.partition(" ")
                self._lines.append((kind, json.loads(payload)))

    def until(self, text: str, timeout: float = 60) -> None:
        """Wait until *text* was logged."""
        end = time.monotonic() + timeout
        while not any(kind == "LOG" and text in entry["message"] for kind, entry in self._lines):
            assert time.monotonic() < end, f"{text!r} was not logged: {self._lines}"
            assert self._process.poll() is None, f"the job ended before: {self._lines}"
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Until the end, the job does nothing: it lasts as long as another needs to start."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float = 60) -> Job:
        try:
            output, _ = self._process.communicate(timeout=timeout)
        finally:
            self._process.kill()
            with suppress(OSError):  # a job that never opened its pipe leaves the reader waiting
                os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
        self._reader.join(5)
        return Job(self._process.returncode, output, self._lines)


class Storage:
    """The platform's storage, as far as collections go. ``leases`` is what they hold."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.status = 200
        handler = type("Handler", (_Handler,), {"storage": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    storage: ClassVar[Storage]

    def do_GET(self) -> None:
        records = self.storage.leases.values()
        self._answer("".join(f"{json.dumps(record)}\n" for record in records))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sent = [json.loads(line) for line in body.splitlines()]
        if self.storage.status == 200:
            for value in sent:
                if self.path.endswith("/deleted"):
                    self.storage.leases.pop(value, None)
                else:
                    self.storage.leases[value.pop("_key")] = value
        self._answer("")

    def _answer(self, body: str) -> None:
        known = self.path.startswith(f"/collections/{PROJECT}/s/walsh_leases")
        allowed = self.headers.get("Authorization", "").startswith("Basic ")
        status = self.storage.status if known and allowed else 404
        self.send_response(status)
        self.send_header("Content-Type", "application/x-jsonlines")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass
