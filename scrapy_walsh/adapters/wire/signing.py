"""Signs the requests of one crawl (D25); the rules are those of ``policy/signing.py``.

RFC 9421 is done by the package ``http-message-signatures``: which octets are signed, and how the
parameters are written. It is given the values of what is covered, not the request: only the
download handler knows what is sent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from http_message_signatures import HTTPMessageSigner
from http_message_signatures.algorithms import ED25519

from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.keys import KeyUnusable, jwk_of, load_private_key
from scrapy_walsh.policy import signing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.policy.urls import Target


class _Values:
    """Tells the library the value of a component."""

    def __init__(self, message: SimpleNamespace) -> None:
        self._values: dict[str, str] = message.values

    def resolve(self, component: Any) -> str:
        """The value of *component*, an item of RFC 9651."""
        return self._values[str(component)]


class Signer:
    """Signs with one key. ``keyid``: its thumbprint; ``directory``: the URL where it is listed."""

    def __init__(self, key: Ed25519PrivateKey, directory: str) -> None:
        self._key = key
        self.keyid = jwk_of(key.public_key())["kid"]
        self.directory = directory
        self._library = HTTPMessageSigner(
            signature_algorithm=ED25519, component_resolver_class=_Values
        )

    def fields(self, target: Target, now: float) -> dict[str, str]:
        """The three header fields of a request to *target*, signed *now* (Unix seconds)."""
        created, expires = signing.window(now)
        # What the library signs: values of what is covered, and no header fields to read.
        message = SimpleNamespace(values=signing.covered_values(target, self.directory), headers={})
        prepared = self._library.prepare(
            message,
            key_id=self.keyid,
            created=datetime.fromtimestamp(created, UTC),
            expires=datetime.fromtimestamp(expires, UTC),
            tag=signing.TAG,
            include_alg=False,  # the key says it, and the draft does not ask for it
            covered_component_ids=signing.COVERED,
        )
        signature = self._key.sign(prepared.signature_base)
        return signing.header_fields(self.directory, prepared.signature_params, signature)


def signer_of(config: WalshConfig) -> Signer | None:
    """What signs the requests of a crawl with *config*; None where they are not signed.

    Raises ConfigError, in one line, where the key cannot be used.
    """
    if config.signing_key is None:
        return None
    try:
        key = load_private_key(config.signing_key)
    except KeyUnusable as error:
        raise ConfigError(f"WALSH_SIGNING_KEY: {error}") from None
    except OSError as error:
        raise ConfigError(
            f"WALSH_SIGNING_KEY: {config.signing_key} cannot be read ({error.strerror}): make a "
            "key with: walsh attest --keygen DIR"
        ) from None
    return Signer(key, signing.directory_url(config.identity.policy_url))
