"""Signed requests, so that no other client can claim to be this bot (R1, D25).

Web Bot Auth (draft-ietf-webbotauth-httpsig-protocol-01) on HTTP Message Signatures (RFC 9421). A
signed request has three more header fields, each a dictionary with one member, ``sig``:

- ``Signature-Agent``: the URL of the key directory, a JWKS that lists the public key;
- ``Signature-Input``: what is covered, and five parameters: ``created``, ``expires``, ``keyid``
  (the key's thumbprint, RFC 7638), ``tag``;
- ``Signature``: the Ed25519 signature over the lines of all that is covered.

The host, the method and the path are covered. So a stolen signature is of no use for another host,
method or path, nor after ``LIFETIME``. The query and the body are not covered: caches and proxies
order queries anew.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from scrapy_walsh.exceptions import ConfigError

if TYPE_CHECKING:
    from scrapy_walsh.policy.urls import Target

#: Where the key directory is on the host of the policy page, and the media type it is served with.
DIRECTORY_PATH: Final = "/.well-known/http-message-signatures-directory"
DIRECTORY_TYPE: Final = "application/http-message-signatures-directory+json"

AGENT: Final = "Signature-Agent"
INPUT: Final = "Signature-Input"
SIGNATURE: Final = "Signature"
#: The three fields, in the order of a server's log (:mod:`scrapy_walsh.proof.audit`).
FIELDS: Final = (AGENT, INPUT, SIGNATURE)
_NAMES: Final = frozenset(name.lower().encode() for name in FIELDS)

#: The member of each of the three dictionaries. The draft wants one name in all of them.
LABEL: Final = "sig"
TAG: Final = "web-bot-auth"
#: The components that our signatures cover, in this order (RFC 9421 section 2).
COVERED: Final = ('"@authority"', f'"signature-agent";key="{LABEL}"', '"@method"', '"@path"')

#: Seconds that a signature is valid. The draft recommends a day at most. A request may have to pass
#: a proxy's queue, and the clocks of two machines may differ.
LIFETIME: Final = 300


def directory_url(policy_url: str) -> str:
    """The URL of the key directory: on the host of the policy page, which says who signs.

    Raises ConfigError if that page is not https, because an interceptor could publish a key then.
    """
    # D36: it reads only a URL of the settings, and each Python finds the same authority.
    parts = urlsplit(policy_url)
    if parts.scheme != "https":
        raise ConfigError(
            f"WALSH_SIGN_REQUESTS is True, and the policy_url {policy_url} is not https; accepted: "
            "an identity whose policy page is https, since its host serves the key directory"
        )
    return f"https://{parts.netloc.rpartition('@')[2].lower()}{DIRECTORY_PATH}"


def window(now: float) -> tuple[int, int]:
    """``created`` and ``expires`` of a signature made *now*, in Unix seconds."""
    return int(now), int(now) + LIFETIME


def covered_values(sent: Target, directory: str) -> dict[str, str]:
    """The value of each of ``COVERED``, for a request to *sent*."""
    values = (sent.authority, _string(directory), sent.method, sent.path)
    return dict(zip(COVERED, values, strict=True))


def header_fields(directory: str, parameters: str, signature: bytes) -> dict[str, str]:
    """The three fields. *parameters*: the value of ``@signature-params`` (RFC 9421 section 2.3)."""
    value = base64.b64encode(signature).decode("ascii")
    fields = (f"{LABEL}={_string(directory)}", f"{LABEL}={parameters}", f"{LABEL}=:{value}:")
    return dict(zip(FIELDS, fields, strict=True))


def is_signature_field(name: bytes) -> bool:
    """Whether the header field *name* is one of the three, or a server may take it for one."""
    return name.lower().replace(b"_", b"-") in _NAMES


def _string(text: str) -> str:
    """*text* as a string of RFC 9651 section 4.1.6; a URL has neither quotes nor backslashes."""
    return f'"{text}"'
