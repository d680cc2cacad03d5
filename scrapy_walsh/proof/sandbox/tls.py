"""A certificate authority that lives as long as one sandbox: a certificate for any host name."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = timedelta(days=2)


class Authority:
    """Makes server contexts, one a host. ``pem`` is its own certificate, for a client to trust."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name("scrapy-walsh sandbox")
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = self._sign(self._name, None)
        self.pem = certificate.public_bytes(serialization.Encoding.PEM).decode()

    def context(self, host: str) -> ssl.SSLContext:
        """The server's context for a host name or an IP address."""
        if host not in self._contexts:
            self._contexts[host] = self._context(host)
        return self._contexts[host]

    def _context(self, host: str) -> ssl.SSLContext:
        certificate = self._sign(_common_name(host[:64]), _alternative_name(host))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            # ssl loads a chain from a file only.
            chain = Path(folder, "chain.pem")
            chain.touch(mode=0o600)
            chain.write_bytes(
                self._key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
                + certificate.public_bytes(serialization.Encoding.PEM)
            )
            context.load_cert_chain(chain)
        return context

    def _sign(self, subject: x509.Name, name: x509.GeneralName | None) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _LIFE)
            .not_valid_after(now + _LIFE)
            .add_extension(x509.BasicConstraints(ca=name is None, path_length=None), critical=True)
            .add_extension(self._identifier, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier),
                critical=False,
            )
        )
        if name is None:
            builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host.encode("idna").decode() if not host.isascii() else host)
