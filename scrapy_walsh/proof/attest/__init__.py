"""``scrapy walsh attest`` (spec section 14): what a conformance run showed of this build, signed.

``document`` makes the attestation from the conformance record, ``signature`` signs it, or verifies
one, with the operator's key or a key set (:mod:`scrapy_walsh.keys`). Signing is optional, and needs
the extra ``attest``.

No gate reads an attestation (R14.2): only ``commands/`` imports this package.
"""
