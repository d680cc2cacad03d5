"""Signed requests (D25): targets, robots.txt, redirects, retries, and what a spider would sign."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.keys.files import make_keys
from scrapy_walsh.proof.conformance.part import operator_site, site
from scrapy_walsh.proof.conformance.scene import Scene, stage
from scrapy_walsh.proof.conformance.signing_rows import ROWS
from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.proof.sandbox.routes import TEXT
from scrapy_walsh.proof.signatures import directory_keys

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Bot
    from scrapy_walsh.proof.conformance.evidence import Evidence

_URLS: Final = (
    "http://signed.test/first",
    "http://signed.test/second",
    "http://signed.test/third",
    "http://signed-too.test/first",
    "http://signed-hop.test/page",
    "http://signed-busy.test/page",
)
_POST: Final = "http://signed.test/in"
#: What a spider might set, to be taken for another signer.
_HEADERS: Final = {
    "Signature-Agent": 'sig="https://other.test"',
    "Signature-Input": 'sig=("@path");tag="web-bot-auth"',
    "Signature": "sig=:AAAA:",
}


def _with_tls(bot: Bot) -> Bot:
    """*bot*, its policy page by https, as signing wants it; it is not requested here."""
    url = bot.identity.policy_url
    if url.startswith("https:"):
        return bot
    identity = replace(bot.identity, policy_url=f"https:{url.partition(':')[2]}")
    return replace(bot, identity=identity, setting=asdict(identity))


def _play(bot: Bot) -> Evidence:
    bot = _with_tls(bot)
    busy = Route(429, "later\n", TEXT, headers={"Retry-After": "1"})
    sites = [
        operator_site(),
        *map(site, ("signed.test", "signed-too.test")),
        site("signed-hop.test", page=Route(302, location="http://signed-too.test/second")),
        site("signed-busy.test", page=busy),
    ]
    settings = {"WALSH_SIGN_REQUESTS": True, "WALSH_MAX_RETRIES": 1}
    with stage(bot, sites, **settings) as here:
        made = make_keys(Path(here.project, "keys"))
        here.probe(
            *_URLS,
            posts=_POST,
            headers=json.dumps(_HEADERS),
            settings={"WALSH_SIGNING_KEY": str(made.key)},
        )
        return replace(here.evidence(), keys=directory_keys(made.directory.read_bytes()))


SIGNING: Final = Scene("signing", ("R1",), _play, ROWS)
