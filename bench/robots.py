"""robots.txt: parse and decide, ours against Protego, urllib.robotparser and robotspy, in one run.

    python bench/robots.py [--json FILE]

Ours is the strict layer and Protego together. The columns ``/ protego`` are the ratios to read;
milliseconds are this machine's
processor time. "no end" is a parse that was not tried because it would not end.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
import urllib.robotparser
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parent.parent)  # not bench/: robotspy's module is "robots" too

from protego import Protego  # noqa: E402

from scrapy_walsh.policy.robots.file import parse_robots  # noqa: E402

TOKEN = "Walsh-Research"  # noqa: S105
LIMIT = 500 * 1024
URLS = [
    "http://h.test/",
    "http://h.test/products/blue-shoes",
    "http://h.test/section-7/hidden/x",
    "http://h.test/a.html?sort=asc&page=2",
    "http://h.test/caf%C3%A9/menu",
    "http://h.test/2026/11/story-with-a-long-title-and-many-words.html",
]
LONG_URL = "http://h.test/" + "a" * 2000

Decide = Callable[[str], object]
Parser = Callable[[str], Decide]


def lines(shape: str, octets: int) -> str:
    """Lines of one shape, each with its own number, up to a size."""
    width = len(shape.replace("{}", "00000")) + 1
    return "\n".join(shape.replace("{}", f"{number:05x}") for number in range(octets // width))


def ordinary(octets: int) -> str:
    """A site's file: some stars, some anchors, a delay, other robots, one in eight an Allow."""
    head = "User-agent: *\nCrawl-delay: 1\nDisallow: /*?sort=\nDisallow: /*.pdf$\nAllow: /*.css$\n"
    tail = "\n\nUser-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n"
    count = (octets - len(head) - len(tail)) // 32
    rules = (
        f"{'Allow' if number % 8 == 7 else 'Disallow'}: /section-{number}/hidden/"
        for number in range(count)
    )
    return head + "\n".join(rules) + tail


def many(names: int, rule: str, rules: int) -> str:
    """A group of so many names and so many rules."""
    head = "".join(f"User-agent: {number:05x}\n" for number in range(names))
    return head + "\n".join(rule.replace("{}", f"{number:05d}") for number in range(rules))


FILES = {
    "2 KB": ordinary(2_000),
    "50 KB": ordinary(50_000),
    "500 KB": ordinary(LIMIT),
    "60 robots": "\n".join(f"User-agent: bot{n}" for n in range(60)) + "\nDisallow: /\n",
    "stars, one rule": "User-agent: *\nDisallow: /" + "*a" * 250_000 + "$",
    "stars, many rules": "User-agent: *\n" + lines("Disallow: /" + "*a" * 40 + "{}$", LIMIT),
    "starred rules": "User-agent: *\n" + lines("Disallow: *{}z", LIMIT),
    "escaped rules": "User-agent: *\n" + lines("Disallow: /%aa{}$", LIMIT),
    "padded values": "User-agent: *\n" + lines("Disallow:%{}\x0b", LIMIT),
    "groups": lines("User-agent: w{}\nDisallow: /{}", LIMIT),
    "names x rules": lines("User-agent: {}", LIMIT // 2) + lines("\nDisallow: /{}", LIMIT // 2),
    "300 names": lines("User-agent: {}", 300 * 18) + lines("\nDisallow: /{}", 330 * 17),
    "indexes": lines("User-agent: {}", 300 * 18) + lines("\nAllow: /{}$/index.html", 330 * 29),
    # These three are as slow as a file can be that Protego is still shown.
    "100 names": many(100, "Visit-time: {}", 495),
    "index.html": many(100, "Allow: /*{}/index.html", 165),
    "3 names": many(3, "Request-rate: 1/1{}s", 19_900),
    "versions": lines("User-agent: w/{}\nDisallow: /{}*a", LIMIT),
    "names twice": (lines("User-agent: {}", LIMIT // 2) + "\n") * 2,
    "near misses": "User-agent: *\n" + lines("Disallow: *" + "a" * 60 + "{}" + "a" * 60, LIMIT),
    "line ends": "\n" * LIMIT,
    "unknown fields": "a:b\n" * 150_000,
    "words": "a b\n" * 150_000,
}
NO_END = {("protego", "names x rules"), ("urllib", "names x rules"), ("robotspy", "names x rules")}


def ours(text: str) -> Decide:
    return parse_robots(text.encode(), TOKEN).decide


def protego(text: str) -> Decide:
    parsed = Protego.parse(text)
    return lambda url: parsed.can_fetch(url, TOKEN)


def urllib_robotparser(text: str) -> Decide:
    parsed = urllib.robotparser.RobotFileParser()
    parsed.parse(text.splitlines())
    return lambda url: parsed.can_fetch(TOKEN, url)


def parsers() -> dict[str, Parser]:
    found: dict[str, Parser] = {
        "ours": ours,
        "protego": protego,
        "urllib": urllib_robotparser,
    }
    try:
        robots = import_module("robots")
    except ImportError:
        return found

    def robotspy(text: str) -> Decide:
        parsed = robots.RobotsParser.from_string(text)
        return lambda url: parsed.can_fetch(TOKEN, url)

    return found | {"robotspy": robotspy}


def best(call: Callable[[], object], seconds: float = 0.3) -> float:
    """Shortest of some runs, of three at least, in milliseconds of processor time.

    The garbage collector rests meanwhile, as ``timeit`` has it: a crawl exempts what is there from
    its looks (``adapters/intake.py``).
    """
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        gc.collect()
        gc.disable()
        try:
            start = time.thread_time()
            call()
            times.append(time.thread_time() - start)
        finally:
            gc.enable()
    return min(times) * 1e3


def measure(text: str, parser: Parser) -> dict[str, float]:
    decide = parser(text)
    repeat = range(50 if len(text) < 60_000 else 1)

    def decide_all() -> None:
        for _ in repeat:
            for url in URLS:
                decide(url)

    return {
        "parse_ms": best(lambda: parser(text)),
        "decide_ms": best(decide_all) / len(repeat) / len(URLS),
        "long_url_ms": best(lambda: decide(LONG_URL), 0.05),
    }


def ratio(ours: float, base: float) -> float:
    """*ours* over *base*; infinite where *base* was too short for the clock."""
    return ours / base if base else math.inf


def rows() -> Iterator[dict[str, Any]]:
    for file, text in FILES.items():
        found: dict[str, dict[str, float]] = {
            name: measure(text, parser)
            for name, parser in parsers().items()
            if (name, file) not in NO_END
        }
        base = found.get("protego")
        for name, times in found.items():
            ratios = {f"{key}_ratio": ratio(times[key], base[key]) for key in times} if base else {}
            yield {"file": file, "octets": len(text), "parser": name, **times, **ratios}


def show(row: dict[str, Any]) -> str:
    cells = [f"{row['file']:18} {row['parser']:9}"]
    for key in ("parse_ms", "decide_ms", "long_url_ms"):
        ratio = row.get(f"{key}_ratio")
        cells.append(f"{row[key]:10.4f} {ratio:6.2f}x" if ratio else f"{row[key]:10.4f}  no end")
    return " ".join(cells)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--json", type=Path, help="also write the rows here")
    chosen = options.parse_args()
    print(
        f"{'file':18} {'parser':9} {'parse ms / protego':>18} {'decide ms / protego':>18} long URL"
    )
    found = []
    for row in rows():
        found.append(row)
        print(show(row), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
