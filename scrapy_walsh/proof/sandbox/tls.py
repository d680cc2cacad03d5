"""A certificate authority that exists as long as one sandbox: a certificate for any host name."""

from __future__ import annotations

import ssl


class Authority:
    """Makes server contexts, one a host. ``pem`` is its own certificate, for a client to trust."""

    def __init__(self) -> None:
        from trustme import CA  # noqa: PLC0415  slow, and no business of `walsh init`

        self._ca = CA(organization_name="scrapy-walsh sandbox")
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.pem = self._ca.cert_pem.bytes().decode()

    def context(self, host: str) -> ssl.SSLContext:
        """The server's context for a host name or an IP address; ValueError for what is neither."""
        if host not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._ca.issue_cert(host.strip("[]")).configure_cert(context)
            self._contexts[host] = context
        return self._contexts[host]
