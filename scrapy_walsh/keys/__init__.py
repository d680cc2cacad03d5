"""The operator's keys (Ed25519): in files, and as the JWKS that is published.

``attest`` signs documents with them, and a crawl its requests (:mod:`scrapy_walsh.policy.signing`).
"""
