"""What ``walsh check`` answers, and how it judges files: nobody is asked, nothing is printed."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from scrapy_walsh.adapters import validate
from scrapy_walsh.adapters.robots_txt import Always
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import chain, hosts, schema
from scrapy_walsh.policy.blocklist import Blocklist
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.text import visible
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.policy.chain import Gates, Rules
    from scrapy_walsh.policy.robots import Robots

#: Octets that are read: of a robots.txt more than count, of a list and a batch line the most.
ROBOTS_LIMIT: Final = 1024 * 1024
LIMIT: Final = 64 * 1024 * 1024
#: Seconds that the validator may take with a list that is large, or not plainly harmless (D3).
_VALIDATION_TIMEOUT: Final = 60.0

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?![0-9])")  # and not "host:8080"
_TOKEN: Final = re.compile(r"[!-.0-~]+")  # visible ASCII without "/"
_NO_LIST: Final = Blocklist.empty()
_UNLISTED: Final = Always(
    Verdict(True, ALLOWED_IMPLICIT, "R3", "the host is not on the blocklist given")
)


class Misuse(WalshError):
    """What was given cannot be judged: exit code 2, one line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The gates' answer about *url*; ``crawl_delay`` in seconds, where rules are held."""

    url: str
    verdict: Verdict
    crawl_delay: float | None = None

    def members(self) -> dict[str, Any]:
        """The answer as a JSON object; ``readings`` only where they differ."""
        verdict = self.verdict
        members: dict[str, Any] = {
            "url": self.url,
            "allowed": verdict.allowed,
            "verdict": verdict.name,
            "requirement": verdict.requirement,
            "reason": verdict.reason,
            "document": verdict.document,
            "line": verdict.line,
            "group": list(verdict.group),
            "crawl_delay": self.crawl_delay,
        }
        return {**members, "readings": dict(verdict.readings)} if verdict.readings else members

    def lines(self) -> Iterator[str]:
        """The answer for a person."""
        verdict = self.verdict
        yield f"{_permission(verdict.allowed)}: {printable(self.url)}"
        rows = {
            "verdict": f"{verdict.name} ({verdict.requirement})",
            "reason": verdict.reason,
            "document": verdict.document,
            "line": verdict.line,
            "group": ", ".join(verdict.group),
            "Crawl-delay": None if self.crawl_delay is None else f"{self.crawl_delay:g} s",
            "readings": "; ".join(f"{name}: {_permission(say)}" for name, say in verdict.readings),
        }
        for name, value in rows.items():
            if value not in (None, ""):
                yield f"  {name:<12} {printable(str(value))}"


@dataclass(frozen=True, slots=True)
class Given:
    """``chain.Held`` for what the user gave: nothing is missing, but one may be not judged."""

    robots_txt: Robots | None = None
    operator_list: Blocklist | None = None

    def blocklist(self) -> Blocklist:
        """The list given, or one that blocks nothing."""
        return _NO_LIST if self.operator_list is None else self.operator_list

    def robots(self, origin: str) -> Rules:  # noqa: ARG002
        """The rules given, for whatever origin; else R3 has the last word."""
        return _UNLISTED if self.robots_txt is None else self.robots_txt

    def last_visit(self, key: str) -> None:
        """R8 is not asked: a check is no visit."""

    def judge(self, url: str, gates: Gates) -> Answer:
        """The answer about the absolute URL *url*."""
        found = chain.judge(url, Scope(follow_links=True), self, gates, 0.0)
        verdict = cast(Verdict, found)  # it needs no document: both are held
        delay = None if self.robots_txt is None else self.robots_txt.crawl_delay
        if not verdict.allowed:
            return Answer(url, verdict, delay)
        reason = "; ".join([verdict.reason, *self._not_judged()])
        return Answer(url, replace(verdict, reason=reason), delay)

    def _not_judged(self) -> Iterator[str]:
        if self.robots_txt is None:
            yield "R2 is not judged: no robots.txt was given"
        if self.operator_list is None:
            yield "R3 is not judged: no blocklist was given"


def token_of(token: Any) -> str:
    """*token*, when it can be one; Misuse for a name with a version, or none."""
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        shown = ascii(token)[:100]
        raise Misuse(f"token {shown} is none: give the name alone, such as Walsh-Research")
    return token


def blocklist_of(body: bytes, document: str | None) -> Blocklist:
    """The list in *body*; one without a schema of its own passes the built-in checks alone."""
    if len(body) >= LIMIT:
        raise Misuse(f"blocklist is longer than {LIMIT} octets")
    if schema.is_tame(body, {}):
        return schema.parse_blocklist(body, {}, document)
    output = validate.validate_in_child(body, {}, document, _VALIDATION_TIMEOUT)
    builder = validate.builder_of(output)
    for domains in validate.blocklist_chunks(output):
        builder.add(domains)
    return builder.build()


def absolute(written: str) -> str:
    """*written* as an absolute URL, https where no scheme is given; Misuse where that is none."""
    text = written.strip()
    if text.startswith("//"):
        url = f"https:{text}"
    else:
        url = text if _SCHEME.match(text) else f"https://{text}"
    try:
        if urlsplit(url).netloc and hosts.host_key(url):
            return url
    except ValueError as error:
        raise Misuse(f"not a URL: {_shown(written)}: {error}") from None
    raise Misuse(f"no host in {_shown(written)}: give an absolute http or https URL")


def _permission(allowed: bool) -> str:
    return "allowed" if allowed else "denied"


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 200 else f"{text[:200]}...")


def told(error: Exception) -> str:
    """*error* as one line for a terminal; one of a file by its name and reason alone."""
    if isinstance(error, OSError) and error.filename is not None and error.filename2 is None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(str(error))


def printable(text: str) -> str:
    """*text* as it can stand in one line of a terminal, whatever its encoding."""
    encoding = (sys.stdout and sys.stdout.encoding) or "ascii"  # None where it was closed
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)
