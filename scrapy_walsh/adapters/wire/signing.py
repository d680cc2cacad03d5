"""Signs the requests of a crawl (D25). ``policy/signing.py`` has the rules.

The package ``http-message-signatures`` implements RFC 9421: it builds the signature base and the
parameters. We pass it the values of the covered components, not the Request object, because only
the download handler knows the values that are sent.
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
    """Gives the library the values of the covered components."""

    def __init__(self, message: SimpleNamespace) -> None:
        self._values: dict[str, str] = message.values

    def resolve(self, component: Any) -> str:
        """Return the value of *component*, an item of RFC 9651."""
        return self._values[str(component)]


class Signer:
    """Signs with one key. ``keyid``: its thumbprint. ``directory``: the URL of its directory."""

    def __init__(self, key: Ed25519PrivateKey, directory: str) -> None:
        self._key = key
        self.keyid = jwk_of(key.public_key())["kid"]
        self.directory = directory
        self._library = HTTPMessageSigner(
            signature_algorithm=ED25519, component_resolver_class=_Values
        )

    def fields(self, target: Target, now: float) -> dict[str, str]:
        """Return the three header fields of a request to *target*. *now*: Unix seconds."""
        created, expires = signing.window(now)
        # The library reads the values from here, and no header fields.
        message = SimpleNamespace(values=signing.covered_values(target, self.directory), headers={})
        prepared = self._library.prepare(
            message,
            key_id=self.keyid,
            created=datetime.fromtimestamp(created, UTC),
            expires=datetime.fromtimestamp(expires, UTC),
            tag=signing.TAG,
            include_alg=False,  # the key determines it, and the draft does not ask for it
            covered_component_ids=signing.COVERED,
        )
        signature = self._key.sign(prepared.signature_base)
        return signing.header_fields(self.directory, prepared.signature_params, signature)


def signer_of(config: WalshConfig) -> Signer | None:
    """Return the signer for a crawl with *config*, or None if its requests are not signed.

    Raises ConfigError if the key is unusable.
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
