"""An asyncua server whose variables follow a JSON file: name -> [value, status code name, source time or null]."""

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path

from asyncua import Server, ua
from asyncua.crypto.permission_rules import User, UserRole

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


async def main(port, control):
    server = Server(user_manager=Users())
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/")
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
                for name, (value, status, at) in json.loads(text).items():
                    kind = KINDS[name]
                    value = {ua.VariantType.Double: float, ua.VariantType.Boolean: bool}.get(kind, lambda v: v)(value)
                    time = datetime.fromisoformat(at) if at else None
                    code = ua.StatusCode(getattr(ua.StatusCodes, status))
                    data = ua.DataValue(ua.Variant(value, kind), StatusCode=code, SourceTimestamp=time)
                    await variables[name].write_value(data)
                written = text
            await asyncio.sleep(0.02)


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
