"""The lab: any crawler's command, run twice against the sandbox, judged by the log alone."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.proof.conformance import crawl, parts
from scrapy_walsh.proof.conformance.evidence import LIST_URL, Evidence, Run
from scrapy_walsh.proof.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_walsh.proof.conformance.part import Part

#: Seconds that each run of a command may take without ``--time-limit``.
TIME_LIMIT: Final = 180.0


class CommandFailed(WalshError):
    """The command cannot be judged: it did not start, or sent no request."""


def play(
    command: str,
    lab: Sequence[Part],
    *,
    user_agent: str,
    token: str,
    time_limit: float | None,
    progress: Callable[[str], None],
) -> Evidence:
    """Run *command* twice with the targets of *lab*; *time_limit*: seconds, for each run.

    Its environment has the targets (``WALSH_LAB_URLS``, by spaces; ``WALSH_LAB_FILE``, a line
    each), the operator's list (``WALSH_LAB_BLOCKLIST``) and the proxy (``http_proxy``); both runs
    share the directory ``WALSH_LAB_DIR``, empty at first, for what a bot stores.
    Raises CommandFailed.
    """
    words = _words(command)
    seconds = time_limit or TIME_LIMIT
    runs: list[Run] = []
    with Sandbox(parts.sites(lab, token)) as box, tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            box.clear()
            urls = parts.targets(lab, number)
            if not urls:
                continue
            added = _lab_environment(Path(folder), urls)
            env = {**crawl.environment(box.proxy_url), **added}
            try:
                code, output = crawl.run_command(words, env, seconds, foreign=True)
            except OSError as error:
                raise CommandFailed(f"the command cannot be run: {error}") from None
            runs.append(Run(box.log, urls, output=output, code=code))
            ended = f"was cut off after {seconds:g} s" if code is None else f"ended with {code}"
            progress(f"run {number + 1} {ended}; requests: {len(runs[-1].log)}")
    if not any(run.log for run in runs):
        last = (runs[0].output.strip().splitlines() or ["no output"])[-1]
        raise CommandFailed(f"the command asked nothing through the proxy; it said: {last[:300]}")
    return Evidence(user_agent, token, runs)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandFailed(f"--command {command!r} cannot be read: {error}") from None
    if not words:
        raise CommandFailed("--command is empty")
    return words


def _lab_environment(folder: Path, urls: Sequence[str]) -> dict[str, str]:
    listed = folder / "urls.txt"
    listed.write_text("\n".join(urls) + "\n", encoding="utf-8")
    own = folder / "bot"
    own.mkdir(exist_ok=True)
    return {
        "WALSH_LAB_URLS": " ".join(urls),
        "WALSH_LAB_FILE": str(listed),
        "WALSH_LAB_DIR": str(own),
        "WALSH_LAB_BLOCKLIST": LIST_URL,
    }
