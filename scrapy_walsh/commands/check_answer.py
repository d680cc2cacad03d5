"""The answer of ``walsh check``, and how commands read what they are given. Prints nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.given import product_token
from scrapy_walsh.policy.words import visible
from scrapy_walsh.terminal import encodable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.policy.list.blocklist import Blocklist
    from scrapy_walsh.policy.verdict import Verdict

#: The most octets that are read: of a robots.txt (more than a crawl reads), of a list or a line.
ROBOTS_LIMIT: Final = 1024 * 1024
LIMIT: Final = 64 * 1024 * 1024
#: Seconds that the validator may take with a list that is not plainly harmless (D3).
VALIDATION_TIMEOUT: Final = 60.0

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?![0-9])")  # and not "host:8080"


class Misuse(WalshError):
    """What was given cannot be judged: exit code 2, one line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on ``url``, and its Crawl-delay in seconds; None where no rules are known."""

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


def token_of(token: Any) -> str:
    """*token*, if it is a product token; Misuse for a name with a version, or for none."""
    try:
        return product_token(token)
    except ValueError as error:
        raise Misuse(str(error)) from None


def blocklist_of(body: bytes, document: str | None) -> Blocklist:
    """The list in *body*; without a schema of its own it need only pass the floor checks (D3).

    Raises DocumentInvalid, Misuse; OwnFault where a child process is needed and none can be had.
    """
    if len(body) >= LIMIT:
        raise Misuse(f"blocklist is longer than {LIMIT} octets")
    # Slow to load (jsonschema), and most commands get no list to read.
    from scrapy_walsh.adapters.documents.validate import read_blocklist  # noqa: PLC0415

    return read_blocklist(body, {}, document, VALIDATION_TIMEOUT)


def read_file(path: str | Path, limit: int) -> bytes:
    """The first *limit* octets of the file at *path*. Misuse where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None


def absolute(written: str) -> str:
    """*written* as an absolute URL, https where it has no scheme; Misuse where it is not one."""
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
    """*error* as one line for a terminal; an OSError of a file as its name and the reason."""
    if isinstance(error, OSError) and error.filename is not None and error.filename2 is None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(str(error))


def printable(text: str) -> str:
    """*text* as it can stand in one line of a terminal, whatever its encoding."""
    return encodable(visible(text))
