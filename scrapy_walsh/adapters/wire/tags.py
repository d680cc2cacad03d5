"""R13: the tags with which the operator's own URLs may be sent.

They are added in a conformance run (``WALSH_TAG_REQUESTS``) and in a shell, never in an ordinary
crawl. The gates see the URL without tags. Where robots.txt refuses the URL with tags, it is sent
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

#: The commit that a shell names (spec section 1.1).
_SHELL: Final = "dev"
_SHORT: Final = 7


class Tags:
    """The tags of one crawl, made where requests are to have some. *shell*: of a person's.

    *robots*: returns the robots.txt rules for a URL that are in force, or None.
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
        """*url* as it is to be sent: with tags, or as it is."""
        if not is_operator_url(url, self._operator):
            return url
        tagged = tag_url(url, self._impl, self._commit, SPEC_VERSION)
        rules = self._robots(url)
        return tagged if rules is None or rules.decide(tagged).allowed else url


def implementation(
    setting: str | None, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """``organisation/repository`` and commit: from WALSH_IMPL, else from GitHub's variables.

    None for what is not known: then nothing is tagged, or the commit is left out.
    """
    if setting is not None:
        name, _, commit = setting.partition("@")
        return name, commit or None
    name, commit = (environment.get(f"GITHUB_{each}", "") for each in ("REPOSITORY", "SHA"))
    return name or None, commit[:_SHORT] or None
