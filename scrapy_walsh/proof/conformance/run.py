"""The conformance run: its scenes, side by side, and everything they showed; and the lab."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.conformance import crawl, parts
from scrapy_walsh.proof.conformance.check import (
    Check,
    Part,
    Scene,
    in_order,
    judged,
)
from scrapy_walsh.proof.conformance.evidence import LIST_URL, Evidence, Run
from scrapy_walsh.proof.conformance.scene_operator import DOCUMENTS, OPERATOR
from scrapy_walsh.proof.conformance.scene_signing import SIGNING
from scrapy_walsh.proof.conformance.scenes import DAYS, EDGES, ITEMS, NEIGHBOUR, SPIDER
from scrapy_walsh.proof.conformance.vectors import VECTORS
from scrapy_walsh.proof.sandbox import Sandbox
from scrapy_walsh.proof.sandbox.routes import operator_site
from scrapy_walsh.proof.signatures import have_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_walsh.proof.conformance.crawl import Bot, Stage

_Chosen = TypeVar("_Chosen", bound=Part | Scene)

#: Nothing can be signed, and no signature verified, without the extra ``sign``.
SCENES: Final = (
    DOCUMENTS,
    EDGES,
    DAYS,
    NEIGHBOUR,
    OPERATOR,
    SPIDER,
    ITEMS,
    VECTORS,
    *((SIGNING,) if have_library() else ()),
)
#: Scenes at a time. Most of a scene is waiting for a host's time.
_SIDE_BY_SIDE: Final = 3


def names() -> list[str]:
    """What ``--only`` takes beside R1 to R13."""
    return [part.name for part in (*parts.PARTS, *SCENES)]


def chosen(candidates: Iterable[_Chosen], only: Sequence[str]) -> list[_Chosen]:
    """Those of *candidates* that *only* names, or that serve a requirement it names; or all."""
    selection = set(only)
    return [
        part
        for part in candidates
        if not only or selection & {part.name, *(row.requirement for row in part.rows)}
    ]


def run(
    bot: Bot, only: Sequence[str], progress: Callable[[str], None]
) -> tuple[list[Check], list[str]]:
    """Every check of the chosen parts and scenes, in order, and a line for each crawl that failed.

    *progress* is called with a line at the end of each scene.
    """
    scenes = chosen(SCENES, only)
    lab = chosen(parts.PARTS, only)
    if lab:
        scenes.insert(0, _lab_scene(lab))
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        try:
            played = list(pool.map(lambda scene: _play(scene, bot, progress), scenes))
        except KeyboardInterrupt:
            crawl.STOPPED.set()  # else every scene would go on to its end
            raise
    checks_of_all = [check for checks, _ in played for check in checks]
    if only and all(name.startswith("R") for name in only):
        checks_of_all = [check for check in checks_of_all if check.requirement in only]
    return in_order(checks_of_all), [line for _, lines in played for line in lines]


def _play(scene: Scene, bot: Bot, progress: Callable[[str], None]) -> tuple[list[Check], list[str]]:
    bot = scene.bot(bot)
    sites = [operator_site(), *scene.sites(bot.identity.token)]
    with (
        tempfile.TemporaryDirectory(prefix="walsh-conformance-") as folder,
        Sandbox(sites) as box,
    ):
        here = crawl.Stage(bot, Path(folder, "project"), box, **scene.settings)
        scene.play(here)
    evidence = Evidence(bot.identity.user_agent, here.runs, bot.robots_pace, here.keys)
    checks = judged(scene.rows, evidence)
    progress(f"{scene.name}: {plural(len(evidence.runs), 'crawl')}, {plural(len(checks), 'check')}")
    return checks, [f"{scene.name}: {problem}" for problem in problems(evidence.runs)]


def problems(runs: Sequence[Run]) -> Iterator[str]:
    """A line for each run that did not end well, with the last line of its output."""
    for number, run in enumerate(runs, 1):
        if run.code != 0:
            ending = "was cut off" if run.code is None else f"ended with code {run.code}"
            last_line = (run.output.strip().splitlines() or ["nothing was said"])[-1]
            yield f"run {number} {ending}: {last_line[:300]}"


def _lab_scene(lab: Sequence[Part]) -> Scene:
    """The lab's own hosts and judge, with this package as the crawler."""

    def play(here: Stage) -> None:
        for urls in parts.targets(lab):
            here.metadata("sources.txt", "\n".join(urls) + "\n", urls)

    table = {heading: judge for part in lab for heading, judge in part.table.items()}
    return Scene(name="lab", sites=partial(parts.sites, lab), play=play, table=table)


# The lab: any crawler's command, run twice against the sandbox, judged by the log alone.


class CommandFailed(WalshError):
    """The command cannot be judged: it did not start, or sent no request."""


def play(
    command: str,
    lab: Sequence[Part],
    token: str,
    seconds: float,
    progress: Callable[[str], None],
) -> list[Run]:
    """Have a shell run *command* twice with the targets of *lab*; *seconds*: for each run.

    Its environment has the targets (``WALSH_LAB_URLS``, by spaces), the operator's list
    (``WALSH_LAB_BLOCKLIST``) and the proxy (``http_proxy``); both runs share the directory
    ``WALSH_LAB_DIR``, empty at first, for what a bot stores.
    Raises CommandFailed.
    """
    runs: list[Run] = []
    sites = [operator_site(), *parts.sites(lab, token)]
    with Sandbox(sites) as box, tempfile.TemporaryDirectory() as folder:
        env = crawl.environment(box.proxy_url)
        env |= {"WALSH_LAB_DIR": folder, "WALSH_LAB_BLOCKLIST": LIST_URL}
        for number, urls in enumerate(parts.targets(lab), 1):
            box.clear()
            lab_urls = {"WALSH_LAB_URLS": " ".join(urls)}
            code, output = crawl.run_command(command, env | lab_urls, seconds)
            runs.append(Run(box.log, urls, output=output, code=code))
            ending = f"was cut off after {seconds:g} s" if code is None else f"ended with {code}"
            progress(f"run {number} {ending}; requests: {len(runs[-1].log)}")
    if not any(run.log for run in runs):
        last_line = (runs[0].output.strip().splitlines() or ["no output"])[-1]
        raise CommandFailed(
            f"the command sent no request through the proxy; its output: {last_line[:300]}"
        )
    return runs
