"""Attestation (spec section 14): what a conformance run showed of this build, signed if wanted.

No gate reads one (R14.2): nothing in ``policy/``, ``adapters/``, ``state/`` imports this package.
"""
