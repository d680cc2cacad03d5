"""Adds implementation tags to requests for the operator's own URLs (R13).

Tags are added in a conformance run (``WALSH_TAG_REQUESTS``) and in a shell, never in an ordinary
crawl. The gates judge the URL without tags. If robots.txt refuses the URL with tags, it is sent
without them (N3).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.tagging import is_operator_url, tag_url
from scrapy_walsh.spec import SPEC_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.policy.chain import Rules

#: The commit in the tags of a shell (spec section 1.1).
_SHELL: Final = "dev"
_SHORT: Final = 7


class Tags:
    """The tags of a crawl.

    *robots*: returns the robots.txt rules in force for a URL, or None. *shell*: whether a person
    works in a shell.
    """

    def __init__(
        self, context: Context, robots: Callable[[str], Rules | None], *, shell: bool
    ) -> None:
        self._robots = robots
        config = context.config
        urls = config.blocklist_url, config.schema_url, config.identity.policy_url
        self._operator = [url for url in urls if url is not None]
        self._impl, self._commit = implementation(config.impl, os.environ)
        if shell:
            self._commit = _SHELL

    def sent_as(self, url: str) -> str:
        """Return *url* with tags, if it may be sent with them."""
        if not is_operator_url(url, self._operator):
            return url
        tagged = tag_url(url, self._impl, self._commit, SPEC_VERSION)
        rules = self._robots(url)
        if rules is None or rules.decide(tagged).allowed:
            return tagged
        return url


def implementation(
    setting: str | None, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Return ``organisation/repository`` and commit, from WALSH_IMPL or GitHub's variables.

    If the repository is None, nothing is tagged. If the commit is None, it is left out.
    """
    if setting is not None:
        name, _, commit = setting.partition("@")
        return name, commit or None
    name = environment.get("GITHUB_REPOSITORY", "")
    commit = environment.get("GITHUB_SHA", "")
    return name or None, commit[:_SHORT] or None
