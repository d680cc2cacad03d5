"""CPU that a signature adds to a request (D25), against one bare Ed25519 signature.

``python bench/sign.py [--json FILE] [--requests N] [--quick]``. ``sign``: what the download handler
does for each request: host and path as they are sent, the signature base, the signature, the three
fields. ``bare``: Ed25519 alone, over as many octets. ``verify``: what ``audit`` does for each line.
To reach: 300 us for ``sign``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from scrapy import Request  # noqa: E402

from bench import report  # noqa: E402
from scrapy_walsh.adapters import compat  # noqa: E402
from scrapy_walsh.adapters.wire.signing import Signer  # noqa: E402
from scrapy_walsh.keys import jwk_of  # noqa: E402
from scrapy_walsh.proof.keys import directory_of  # noqa: E402
from scrapy_walsh.proof.signatures import Seen, judge  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORY = "https://bot.example/.well-known/http-message-signatures-directory"
#: Octets of a signature base such as ours.
BASE = b"x" * 420
NOW = 1_800_000_000.0


class Handler:
    """What ``compat.sent_target`` takes for Scrapy's handler on Twisted."""

    _pool = object()


def cost(work: Callable[[Any], object], over: list[Any]) -> float:
    """Microseconds of CPU for each of *over*."""
    begin = time.process_time()
    for each in over:
        work(each)
    return (time.process_time() - begin) / len(over) * 1e6


def measure(count: int) -> dict[str, float]:
    key = Ed25519PrivateKey.generate()
    signer, keys, handler = (
        Signer(key, DIRECTORY),
        directory_of([jwk_of(key.public_key())]),
        Handler(),
    )
    requests = [Request(f"https://site.example/a/b/{number}?x=1") for number in range(count)]

    def sign(request: Request) -> Seen:
        sent = compat.sent_target(handler, request)
        fields = {name.lower(): [value] for name, value in signer.fields(sent, NOW).items()}
        return Seen(sent.method, sent.authority, sent.path, NOW, fields)

    seen = [sign(request) for request in requests]
    assert all(judge(each, keys).fault is None for each in seen)
    bare = cost(lambda _: key.sign(BASE), requests)
    whole = cost(sign, requests)
    return {
        "bare_us": bare,
        "sign_us": whole,
        "ratio": whole / bare,
        "verify_us": cost(lambda each: judge(each, keys), seen),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    count, rounds = (200, 1) if options.quick else (options.requests, options.rounds)
    figures = [measure(count) for _ in range(rounds)]
    median = {name: statistics.median(each[name] for each in figures) for name in figures[0]}
    columns = {"bare_us": ">8.1f", "sign_us": ">8.1f", "ratio": ">6.1f", "verify_us": ">10.1f"}
    report.write(options.json, rows=report.show([median], columns))


if __name__ == "__main__":
    main()
