"""A certificate authority that lives as long as the double, and the server's certificate by it."""

import base64
import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs one certificate, for 127.0.0.1."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-double")])
        self._own = self._sign(self._key, self._name, ca=True)
        self.pem: bytes = self._own.public_bytes(serialization.Encoding.PEM)

    @property
    def encoded(self) -> str:
        """As a kubeconfig has it."""
        return base64.b64encode(self.pem).decode()

    def server(self) -> ssl.SSLContext:
        """What the server shows."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        certificate = self._sign(key, name, ca=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "server.pem"
            file.touch(mode=0o600)
            file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
            context.load_cert_chain(file)
        return context

    def _sign(self, key: Any, name: x509.Name, *, ca: bool) -> x509.Certificate:
        start = datetime.now(UTC) - timedelta(hours=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=7))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            builder = builder.add_extension(alternative, critical=False)
        return builder.sign(self._key, hashes.SHA256())
