"""Judge a URL by documents that the caller passes (R3, R2).

    >>> rules = "User-agent: *\\nDisallow: /private/"
    >>> check("https://site.example/private/x", robots=rules, token="ExampleBot").allowed
    False
    >>> check("https://site.example/", robots=rules, token="ExampleBot").name
    'allowed_implicit'

Nothing is requested. :func:`check` is for Python code, the command ``walsh check`` for files. Both
call ``judge`` of :mod:`~scrapy_walsh.policy.chain`, as a crawl does. If a document was not given,
its gate is left out, and a verdict that allows says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from scrapy_walsh.policy import chain
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots.fetch import StandIn
from scrapy_walsh.policy.robots.file import Robots, parse_robots
from scrapy_walsh.policy.scope import Scope
from scrapy_walsh.policy.verdict import ALLOWED_IMPLICIT, BLOCKED_OPERATOR, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN: Final = re.compile(r"[!-.0-~]+")  # visible ASCII without "/"
_LINK: Final = re.compile(r"\+?https?://[^\s;)]*")
_PRODUCT: Final = re.compile(r"([\w.!#$%&'*+^`|~-]+)/\d", re.ASCII)
_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)


def check(
    url: str,
    *,
    robots: str | bytes | None = None,
    blocklist: str | bytes | None = None,
    token: str,
) -> Verdict:
    """Tell whether a bot named *token* may fetch *url*, by the documents given, and why.

    ``url``: absolute, http or https; one without a readable host is refused. ``robots``: the
    host's robots.txt, its octets as served, or its text. ``blocklist``: the operator's
    blocklist, likewise. None means that the document is not given: the verdict then leaves that
    gate out, and its ``reason`` says so. ``token``: the product token, such as ``ExampleBot``,
    without a version.

    R8 and the pacing of R4 are left out: they depend on earlier requests, and nothing is known of
    these here. Raises DocumentInvalid for a blocklist that must not be adopted (R3c), ValueError
    for what is not a product token. Validating a blocklist with a hostile schema may never end;
    ``walsh check`` does it in a child process, with a time limit.
    """
    from scrapy_walsh.policy.list.schema import parse_blocklist  # noqa: PLC0415  slow to load

    name = product_token(token)
    documents = Given(
        None if robots is None else parse_robots(octets(robots), name),
        # As `walsh check` does: a list without its own schema need only pass the floor checks.
        None if blocklist is None else parse_blocklist(octets(blocklist), {}),
    )
    return documents.judge(url, Gates())


def robots(text: str | bytes, token: str) -> Robots:
    """The rules of a robots.txt for a bot named *token*, read once for many URLs.

    ``text``: the file, its octets as served, or its text; what is beyond 500 KiB is not read.
    ``decide(url)`` of what is returned gives a Verdict (R2 alone) and raises nothing;
    ``crawl_delay`` is in seconds, or None; ``sitemaps`` are URLs as written. Raises ValueError for
    what is not a product token.
    """
    return parse_robots(octets(text), product_token(token))


def octets(text: str | bytes) -> bytes:
    """UTF-8; a lone surrogate becomes the octets that a server could have sent for it."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def product_token(token: Any) -> str:
    """Return *token*, which must be a name alone (spec section 4).

    Raises ValueError: a name with its version would select no group of a robots.txt, so that
    nothing would be refused.
    """
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        quoted = ascii(token)[:100]
        raise ValueError(
            f"{quoted} is not a product token: give the name alone, such as Walsh-Research"
        )
    return token


def tokens_of(user_agent: str) -> list[str]:
    """The names in a User-Agent field that a robots.txt may use (RFC 9110 section 10.1.5).

    They are the names with a version, in comments too, for example in ``Mozilla/5.0 (compatible;
    ExampleBot/1.0; +URL)``; else the first word.
    """
    text = _LINK.sub("", user_agent)
    return list(dict.fromkeys(_PRODUCT.findall(text) or _NAME.findall(text)[:1] or ["*"]))


@dataclass(frozen=True, slots=True)
class Given:
    """The documents given, as ``chain.Held``. Each may be None, and none is still to be fetched."""

    robots_txt: Robots | None = None
    operator_list: Blocklist | None = None

    def blocklist(self) -> Blocklist:
        """The given list, or an empty list."""
        return Blocklist() if self.operator_list is None else self.operator_list

    def robots(self, origin: str) -> chain.Rules:  # noqa: ARG002
        """The given rules, for any origin; if there are none, a stand-in that allows all."""
        if self.robots_txt is not None:
            return self.robots_txt
        has_list = self.operator_list is not None
        reason = "the host is not on the blocklist given" if has_list else "no document was given"
        return StandIn(Verdict(True, ALLOWED_IMPLICIT, "R3", reason))

    def last_visit(self, key: str) -> None:
        """None: R8 is left out."""

    def judge(self, url: str, gates: Gates) -> Verdict:
        """The gates' verdict on the absolute URL *url*, by the documents given."""
        try:
            answer = chain.judge(url, Scope(follow_links=True, typed=True), self, gates, 0.0)
        except ValueError as error:  # a host that can be read, with a port that cannot
            return Verdict(False, BLOCKED_OPERATOR, "R3", f"no readable host: {error}")
        verdict = cast("Verdict", answer)  # never NeedDocument, see blocklist() and robots()
        if not verdict.allowed:
            return verdict
        return replace(verdict, reason="; ".join([verdict.reason, *self._not_judged()]))

    def _not_judged(self) -> Iterator[str]:
        if self.robots_txt is None:
            yield "R2 is not judged: no robots.txt was given"
        if self.operator_list is None:
            yield "R3 is not judged: no blocklist was given"
