"""``scrapy walsh attest`` (spec section 14): what a conformance run showed of this build, signed.

``evidence`` reads the conformance record, ``document`` makes the attestation from it, ``signature``
signs and verifies one, with the ``keys`` of the operator or those of a key set (``jwks``), which
``fetch`` gets from a URL. Signing is optional, and needs the extra ``attest``.

No gate reads an attestation (R14.2): only ``commands/`` imports this package.
"""
