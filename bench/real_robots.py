"""What a folder of real robots.txt files refuses to a bot, ours against Protego on the bare token.

    python -m bench.real_robots FOLDER [--json FILE] [--list] [--bot NAME ...]

Every file of the folder counts as the robots.txt of one site. For each bot's name and each kind of
page, the table says how many URLs Protego alone would allow, how many of those the package refuses,
and how many of the package's refusals are Protego's and no reading's of its own.
The files are not part of the project: https://github.com/scrapy/protego has some 4,200 of them in
``tests/test_data``.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from protego import Protego

from bench.report import show, write
from scrapy_walsh.policy.robots.file import parse_robots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_walsh.policy.verdict import Verdict

#: The specification's bot, a short name, a common word, and two names that begin as others do.
BOTS: Final = ("Walsh-Research", "Ant", "Download", "Mjolnir", "Webwatch")
PAGES: Final = {
    "homepages": ("/",),
    "feeds": ("/feed", "/feed/", "/feed.xml", "/rss", "/rss.xml", "/atom.xml", "/index.xml"),
    "sitemaps": ("/sitemap.xml", "/sitemap_index.xml"),
}
COLUMNS: Final = {
    "bot": "<15",
    "pages": "<10",
    "URLs": ">7",
    "allowed by Protego": ">7",
    "of those refused": ">7",
    "share": ">7.3%",
    "refused by Protego alone": ">7",
}


class Answer(NamedTuple):
    """What was said of one URL of one site to one bot."""

    site: str
    bot: str
    pages: str
    path: str
    by_protego: bool
    by_us: Verdict


def answers(folder: Path, bots: Iterable[str]) -> Iterator[Answer]:
    """Judge every URL of every site."""
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        body = file.read_bytes()
        protego = Protego.parse(body.decode("utf-8", "ignore").removeprefix("\ufeff"))
        for bot in bots:
            ours = parse_robots(body, bot)
            for pages, paths in PAGES.items():
                for path in paths:
                    url = f"https://site.test{path}"
                    allowed = protego.can_fetch(url, bot)
                    yield Answer(file.name, bot, pages, path, allowed, ours.decide(url))


def rows(found: Iterable[Answer]) -> list[dict[str, Any]]:
    """Return the lines of the table, and with each the refusals that it counts."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    named: dict[tuple[str, str], list[str]] = {}
    for answer in found:
        key = answer.bot, answer.pages
        ours, alone = answer.by_us, ("protego", False) in answer.by_us.readings
        denied = answer.by_protego and not ours.allowed
        sums.setdefault(key, Counter()).update(
            {
                "URLs": 1,
                "allowed by Protego": answer.by_protego,
                "of those refused": denied,
                "refused by Protego alone": alone,
            }
        )
        if denied or alone:
            named.setdefault(key, []).append(f"{answer.site} {answer.path}: {ours.reason}")
    return [
        {
            "bot": bot,
            "pages": pages,
            **count,
            "share": count["of those refused"] / max(1, count["allowed by Protego"]),
            "refusals": named.get((bot, pages), []),
        }
        for (bot, pages), count in sums.items()
    ]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--bot", action="append", help="a bot's name; may be repeated")
    options.add_argument("--list", action="store_true", help="also name what was refused, and why")
    options.add_argument("--json", type=Path, help="also write the rows here")
    chosen = options.parse_args()
    found = show(rows(answers(chosen.folder, chosen.bot or BOTS)), COLUMNS)
    for row in found if chosen.list else ():
        for line in row["refusals"]:
            print(f"{row['bot']}: {line}")
    write(chosen.json, rows=found)


if __name__ == "__main__":
    main()
