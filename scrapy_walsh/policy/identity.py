"""The identity of the bot (R1; spec sections 5, 6 and 8).

There is no default identity, because Walsh-Research belongs to one operator, and others can install
this package too (T39).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NoReturn
from urllib.parse import urlsplit

from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.policy.urls import is_http_url, without_userinfo


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the bot. ``product``: ``Token/MAJOR.MINOR``. The URLs are absolute.

    ``schema_url``: of the standalone schema; None if every blocklist has its schema inline.
    """

    product: str
    policy_url: str
    blocklist_url: str
    schema_url: str | None = None

    @property
    def user_agent(self) -> str:
        """The User-Agent of every request (R1.1): one line of ASCII."""
        return f"Mozilla/5.0 (compatible; {self.product}; +{self.policy_url})"

    @property
    def token(self) -> str:
        """The product token that robots.txt groups are matched with, without the version."""
        return self.product.partition("/")[0]


WALSH_RESEARCH: Final = Identity(
    product="Walsh-Research/1.2",
    policy_url="https://wal.sh/bot/",
    blocklist_url="https://wal.sh/.well-known/walsh-research/blocklist.json",
    schema_url="https://wal.sh/.well-known/walsh-research/blocklist.schema.json",
)

#: R1.5: tokens, in lower case, that would pass for a browser.
BROWSERS: Final = frozenset({
    "applewebkit", "brave", "chrome", "chromium", "crios", "edg", "edge", "firefox", "fxios",
    "gecko", "headlesschrome", "mozilla", "msie", "opera", "opr", "safari", "samsungbrowser",
    "trident", "vivaldi", "webkit",
})  # fmt: skip
#: R1.5: a token may not even begin with these, since robots.txt groups match by prefix (R2.15).
CRAWLERS: Final = (
    "adsbot-google", "ahrefsbot", "amazonbot", "anthropic-ai", "applebot", "baiduspider",
    "bingbot", "bingpreview", "bytespider", "ccbot", "chatgpt-user", "claude-searchbot",
    "claude-user", "claudebot", "duckduckbot", "facebookbot", "facebookexternalhit",
    "feedfetcher-google", "google-extended", "google-inspectiontool", "googlebot", "googleother",
    "gptbot", "ia_archiver", "linkedinbot", "mediapartners-google", "meta-externalagent",
    "msnbot", "oai-searchbot", "perplexitybot", "petalbot", "semrushbot", "slurp", "twitterbot",
    "walsh-research", "yandex", "yeti",
)  # fmt: skip

#: Header fields that a spider may not set, in lower case. Some claim that another client makes the
#: request, for example ``Forwarded``. Others say how the message is framed, and only the download
#: handler knows that (RFC 9112 sections 6 and 9).
_NOT_SENT: Final = frozenset({
    "cf-connecting-ip", "client-ip", "connection", "content-length", "cookie", "expect",
    "fastly-client-ip", "forwarded", "from", "host", "http2-settings", "keep-alive", "te",
    "trailer", "transfer-encoding", "true-client-ip", "upgrade", "via", "x-client-ip",
    "x-cluster-client-ip", "x-original-forwarded-for", "x-originating-ip", "x-real-ip",
    "x-remote-addr", "x-remote-ip",
})  # fmt: skip
_NOT_SENT_PREFIXES: Final = (
    "device-stock-ua", "proxy-", "sec-ch-ua", "x-device-user-agent", "x-forwarded",
    "x-operamini", "x-original-user-agent", "x-ucbrowser",
)  # fmt: skip
#: RFC 9110 section 5.6.2.
_FIELD_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_REQUIRED: Final = ("product", "policy_url", "blocklist_url")
_KEYS: Final = (*_REQUIRED, "schema_url")
#: RFC 9309 section 2.2.1 says which letters a token may have, R1.3 what a version looks like.
_PRODUCT: Final = re.compile(r"[A-Za-z_-]+/[0-9]+\.[0-9]+")
#: A user name and a password in a URL: they are left out of messages.
_SECRET: Final = re.compile(r"//[^/\s]*@")
#: Characters that would end the User-Agent's comment, or split it.
_COMMENT_BREAKERS: Final = frozenset('();\\"<>')

_CHOICES: Final = (
    "run `walsh init`, or set it to a dict with product, policy_url, blocklist_url and, "
    'optionally, schema_url; to "walsh-research" only if you are the operator of wal.sh/bot'
)


def identity_from(value: object) -> Identity:
    """The identity that the setting ``WALSH_IDENTITY`` chooses.

    *value*: ``walsh-research``, or a mapping with the fields of :class:`Identity`. Raises
    ConfigError, in one line, for everything else, and for an identity that belongs to another
    operator (R1.5).
    """
    if value is None or value == "":
        raise ConfigError(f"WALSH_IDENTITY is not set: {_CHOICES}")
    if value == "walsh-research":
        return WALSH_RESEARCH
    if not isinstance(value, Mapping):
        _refuse(value, "is neither a known name nor a dict", _CHOICES)
    identity = Identity(**_fields(value))
    _check_owner(identity)
    return WALSH_RESEARCH if is_walsh(identity.token) else identity


@lru_cache(maxsize=256)
def may_send(name: bytes) -> bool:
    """R1: whether a request may have the header field *name* that a spider has set.

    It may not if the field misleads about who makes the request, or if only the download handler
    may set it. The same is true of a name that a server may take for one of those: with ``_`` in
    place of ``-``, or with octets that field names do not have.
    """
    if not _FIELD_NAME.fullmatch(name):
        return False
    text = name.decode("ascii").lower().replace("_", "-")
    if text == "user-agent":
        return name.lower() == b"user-agent"
    return text not in _NOT_SENT and not text.startswith(_NOT_SENT_PREFIXES)


def _fields(value: Mapping[object, object]) -> dict[str, str]:
    entries = {key: entry for key, entry in value.items() if entry is not None}
    unknown = [key for key in entries if key not in _KEYS]
    if unknown:
        _refuse(unknown[0], "is an unknown key", f"accepted are {', '.join(_KEYS)}")
    absent = [key for key in _REQUIRED if key not in entries]
    if absent:
        _refuse(dict(value), f"has no {' and no '.join(absent)}", _CHOICES)
    return {key: _check(key, entries[key]) for key in _KEYS if key in entries}


def _check(key: str, value: object) -> str:
    text, problem = value if isinstance(value, str) else "", ""
    if key == "product":
        if not _PRODUCT.fullmatch(text):
            problem = "it is Token/MAJOR.MINOR, the token of letters, _ and - only"
    elif not text.isascii() or not is_http_url(text) or without_userinfo(text) != text:
        problem = "it is an absolute http or https URL in ASCII"
    elif key == "policy_url" and not _COMMENT_BREAKERS.isdisjoint(text):
        problem = 'it goes into the User-Agent: percent-encode ( ) ; \\ " < >'
    if problem:
        _refuse(value, f"is not a valid {key}", problem)
    return text


def _check_owner(identity: Identity) -> None:
    """R1.5 and T39: refuse an identity that is partly Walsh-Research's, or is another bot's."""
    name = identity.token.lower()
    if is_walsh(name):
        schema_url = identity.schema_url or WALSH_RESEARCH.schema_url
        if replace(identity, schema_url=schema_url) != WALSH_RESEARCH:
            _refuse(identity.product, "belongs to the operator of wal.sh/bot", _CHOICES)
    elif name in BROWSERS or name.startswith(CRAWLERS):
        _refuse(identity.product, "is the name of a browser or of another crawler", "use your own")
    # D36: it reads only a URL of the settings, for a warning.
    elif urlsplit(identity.policy_url).hostname == "wal.sh":
        _refuse(identity.policy_url, "is another operator's policy page", "name your own")


def is_walsh(token: str) -> bool:
    """Whether *token* is that of the specification's own operator."""
    return token.lower() == WALSH_RESEARCH.token.lower()


def _refuse(value: object, problem: str, accepted: str) -> NoReturn:
    quoted = " ".join(_SECRET.sub("//", ascii(value)).split())
    raise ConfigError(f"WALSH_IDENTITY: {quoted[:200]} {problem}: {accepted}")
