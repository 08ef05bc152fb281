"""An asyncua server whose variables follow a JSON file: name -> [value, status code name, source time or null],
or a list of such, one after the other.

With a file client.der beside it, the server asks for security: it makes a certificate of its own (server.der) and trusts that client
alone.
"""

import asyncio
import json
import sys
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from asyncua import Server, ua
from asyncua.common.utils import ServiceError
from asyncua.crypto.permission_rules import User, UserRole
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

URI = "urn:holdfast:test:server"

KINDS = {
    "Kiln.Temperature": ua.VariantType.Double,
    "Kiln.Count": ua.VariantType.Int32,
    "Kiln.Running": ua.VariantType.Boolean,
    "Kiln.Text": ua.VariantType.String,
}


class Users:
    """Anybody without a name, and one with a password."""

    def get_user(self, iserver, username=None, password=None, certificate=None):
        known = username is None or (username, password) == ("operator", "canary-password")
        return User(role=UserRole.User) if known else None


def make_certificate(folder):
    """Writes server.der and server.pem, unless they are there from before a restart."""
    if (folder / "server.der").exists():
        return
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kiln")])
    now = datetime.now(timezone.utc)
    names = [x509.UniformResourceIdentifier(URI), x509.IPAddress(ip_address("127.0.0.1"))]
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=7))
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private)
    (folder / "server.der").write_bytes(made.public_bytes(serialization.Encoding.DER))


async def secure(server, folder):
    make_certificate(folder)
    client = (folder / "client.der").read_bytes()

    async def is_known(certificate, description):
        if certificate.public_bytes(serialization.Encoding.DER) != client:
            raise ServiceError(ua.StatusCodes.BadCertificateUntrusted)

    server.set_security_policy(
        [ua.SecurityPolicyType.Basic256Sha256_Sign, ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt]
    )
    await server.load_certificate(folder / "server.der")
    await server.load_private_key(folder / "server.pem")
    server.set_certificate_validator(is_known)


def changes(told):
    for name, what in told.items():
        for change in what if isinstance(what[0], list) else [what]:
            yield name, change


async def main(port, control):
    server = Server(user_manager=Users())
    await server.init()
    await server.set_application_uri(URI)
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/")
    folder = Path(control).parent
    if (folder / "client.der").exists():
        await secure(server, folder)
    else:
        server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    index = await server.register_namespace("urn:holdfast:test")
    variables = {}
    for name, kind in KINDS.items():
        first = "" if kind == ua.VariantType.String else 0
        node_id = ua.NodeId(name, index)
        variables[name] = await server.nodes.objects.add_variable(node_id, name, ua.Variant(first, kind))
    written = None
    async with server:
        while True:
            text = Path(control).read_text()
            if text != written:
                for name, (value, status, at) in changes(json.loads(text)):
                    kind = KINDS[name]
                    value = {ua.VariantType.Double: float, ua.VariantType.Boolean: bool}.get(kind, lambda v: v)(value)
                    time = datetime.fromisoformat(at) if at else None
                    code = ua.StatusCode(getattr(ua.StatusCodes, status))
                    data = ua.DataValue(ua.Variant(value, kind), StatusCode=code, SourceTimestamp=time)
                    await variables[name].write_value(data)
                written = text
            await asyncio.sleep(0.02)


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
