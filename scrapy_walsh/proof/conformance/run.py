"""The conformance run: its scenes, side by side, and everything they showed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.conformance import crawl, parts, vectors
from scrapy_walsh.proof.conformance.check import Check, in_order, judged
from scrapy_walsh.proof.conformance.crawl import Bot, stage
from scrapy_walsh.proof.conformance.part import Scene
from scrapy_walsh.proof.conformance.scene_edges import AGAIN_OWN, EDGES
from scrapy_walsh.proof.conformance.scene_formats import FORMATS_OWN
from scrapy_walsh.proof.conformance.scene_operator import DOCUMENTS, OPERATOR
from scrapy_walsh.proof.conformance.scene_signing import SIGNING
from scrapy_walsh.proof.conformance.scene_spider import SPIDER
from scrapy_walsh.proof.signatures import have_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_walsh.proof.conformance.evidence import Evidence
    from scrapy_walsh.proof.conformance.part import Part

_Chosen = TypeVar("_Chosen", bound="Part | Scene")

#: Nothing can be signed, and no signature verified, without the extra ``sign``.
SCENES: Final = (
    *(DOCUMENTS, EDGES, AGAIN_OWN, OPERATOR, SPIDER, FORMATS_OWN),
    *((SIGNING,) if have_library() else ()),
)
VECTORS: Final = "vectors"
#: Scenes at a time. Most of a scene is waiting for a host's time.
_SIDE_BY_SIDE: Final = 3


def names() -> list[str]:
    """What ``--only`` takes beside R1 to R13."""
    return [*(part.name for part in parts.PARTS), *(scene.name for scene in SCENES), VECTORS]


def chosen(candidates: Iterable[_Chosen], only: Sequence[str]) -> list[_Chosen]:
    """Those of *candidates* that *only* names, or that serve a requirement it names; or all."""
    wanted = set(only)
    return [
        each
        for each in candidates
        if not only or wanted & {each.name, *(row.requirement for row in each.rows)}
    ]


def run(
    bot: Bot, only: Sequence[str], progress: Callable[[str], None]
) -> tuple[list[Check], list[str]]:
    """Every check of the chosen parts and scenes, in order, and a line for each crawl that failed.

    *progress* is called with a line at the end of each scene.
    """
    scenes, lab = chosen(SCENES, only), chosen(parts.PARTS, only)
    if lab:
        scenes.insert(0, _lab_scene(lab))
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        try:
            played = list(pool.map(lambda scene: _play(scene, bot, progress), scenes))
        except KeyboardInterrupt:
            crawl.stop()  # else every scene would go on to its end
            raise
    found = [check for checks, _ in played for check in checks]
    if not only or any(name == VECTORS or _is_requirement(name) for name in only):
        found += vectors.checks()
    if only and all(map(_is_requirement, only)):
        found = [check for check in found if check.requirement in only]
    return in_order(found), [line for _, lines in played for line in lines]


def _is_requirement(name: str) -> bool:
    return name[:1] == "R"


def _play(scene: Scene, bot: Bot, progress: Callable[[str], None]) -> tuple[list[Check], list[str]]:
    evidence = scene.play(bot)
    checks = judged(scene.rows, evidence)
    progress(f"{scene.name}: {plural(len(evidence.runs), 'crawl')}, {plural(len(checks), 'check')}")
    return checks, [f"{scene.name}: {problem}" for problem in problems(evidence)]


def problems(evidence: Evidence) -> Iterator[str]:
    """A line for each run that did not end well, with the last line of its output."""
    for number, run in enumerate(evidence.runs, 1):
        if run.code != 0:
            ended = "was cut off" if run.code is None else f"ended with code {run.code}"
            last = (run.output.strip().splitlines() or ["nothing was said"])[-1]
            yield f"run {number} {ended}: {last[:300]}"


def _lab_scene(lab: Sequence[Part]) -> Scene:
    """The lab's own hosts and judge, with this package as the crawler."""

    def play(bot: Bot) -> Evidence:
        with stage(bot, parts.sites(lab, bot.identity.token)) as here:
            for number in range(2):
                if urls := parts.targets(lab, number):
                    here.metadata("sources.txt", "\n".join(urls) + "\n", urls)
            return here.evidence()

    table = {heading: judge for part in lab for heading, judge in part.table.items()}
    return Scene("lab", play, table)
