"""R13: the tags with which the operator's own URLs may be sent.

They are added in a conformance run (``WALSH_TAG_REQUESTS``) and in a shell, never in an ordinary
crawl. The gates see the URL without tags. Where robots.txt refuses the URL with tags, it is sent
without them (N3).
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.tagging import is_operator_url, tag_url
from scrapy_walsh.policy.verdict import NotKnown
from scrapy_walsh.spec import SPEC_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.policy.chain import Rules

#: The commit that a shell names (spec section 1.1).
_SHELL: Final = "dev"
_SHORT: Final = 7
_GIT_TIMEOUT: Final = 5.0  # seconds
#: ``organisation/repository`` at the end of a remote's address.
_REMOTE: Final = re.compile(r"[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", re.ASCII)


class Tags:
    """The tags of one crawl, made where requests are to have some. *shell*: of a person's.

    *robots*: returns the cached robots.txt rules of an origin, or None (``chain.Held.robots``).
    """

    def __init__(
        self, context: Context, robots: Callable[[str], Rules | NotKnown | None], *, shell: bool
    ) -> None:
        self._context = context
        self._robots = robots
        self._shell = shell
        config = context.config
        self._operator = [
            url
            for url in (config.blocklist_url, config.schema_url, config.identity.policy_url)
            if url is not None
        ]
        self._names: tuple[str | None, str | None] | None = None

    def sent_as(self, url: str) -> str:
        """*url* as it is to be sent: with tags, or as it is."""
        if not is_operator_url(url, self._operator):
            return url
        if self._names is None:
            self._names = implementation(self._context.config.impl, os.environ)
        impl, commit = self._names
        tagged = tag_url(url, impl, _SHELL if self._shell else commit, SPEC_VERSION)
        return tagged if self._allowed(url, tagged) else url

    def _allowed(self, url: str, tagged: str) -> bool:
        rules = self._robots(hosts.origin(url))
        if isinstance(rules, NotKnown):
            return False
        return rules is None or rules.decide(tagged).allowed


def implementation(
    setting: str | None, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """``organisation/repository`` and commit: from WALSH_IMPL, else GitHub's variables, else git.

    None for what is not known: then nothing is tagged, or the commit is left out.
    """
    if setting is not None:
        name, _, commit = setting.partition("@")
        return name, commit or None
    name = environment.get("GITHUB_REPOSITORY", "")
    if name:
        return name, environment.get("GITHUB_SHA", "")[:_SHORT] or None
    remote = _REMOTE.search(_git("remote", "get-url", "origin"))
    return (remote[1], _git("rev-parse", "--short", "HEAD") or None) if remote else (None, None)


def _git(*arguments: str) -> str:
    """What git prints; empty where there is no git, or it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            ["git", *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
