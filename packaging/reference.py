"""What the documentation promises, as the checks of manifests and compose files want it: variables, ports, routes, commands."""

import pathlib
import re
import sys

here = pathlib.Path(__file__).parent
config = (here / "../docs/reference/config.md").read_text()
cli = (here / "../docs/reference/cli.md").read_text()

VARIABLES = set(re.findall(r"`(HOLDFAST_[A-Z0-9_]+)`", config)) | {"HOLDFAST_LOG_FORMAT"}
# Where each section listens unless it is told otherwise.
PORTS = {role.lower(): int(port) for port, role in re.findall(r"^\| `http\.listen` \| `127\.0\.0\.1:(\d+)` \| `HOLDFAST_(\w+)_HTTP_LISTEN`", config, re.M)}
UNITS = "\n".join(path.read_text() for path in (here / "systemd").glob("*.service"))


def fail(why):
    sys.exit(f"error: {why}")


def read_routes():
    """By the command of a role: its section of the configuration, and the paths that it answers to everyone."""
    roles = {}
    for section in re.split(r"^## ", (here / "../docs/reference/api.md").read_text(), flags=re.M)[1:]:
        if run := re.search(r"Run by `holdfast ([^`]+)`, at `(\w+)\.http\.listen`", section):
            beside = re.search(r"open to everyone: (.*?);", section)
            paths = re.findall(r"^\| GET \| `([^`]+)` \| everyone \|", section, re.M) + re.findall(r"`GET ([^`]+)`", beside[1] if beside else "")
            roles[run[1]] = (run[2], set(paths))
    return roles


ROUTES = read_routes()
if len(ROUTES) < 6 or len(PORTS) < 6:
    fail("docs/reference: the pages have lost their roles, or say them in another way")


def command_of(words):
    """The command without what it is given: `cloud run` of `cloud run --role relay`."""
    return " ".join(words[: next((at for at, word in enumerate(words) if word.startswith("-")), len(words))])


def check_variables(place, names):
    for name in names:
        if name.startswith("HOLDFAST_") and name not in VARIABLES and name.removesuffix("_FILE") not in VARIABLES:
            fail(f"{place}: {name} is in no reference")


def check_command(place, words):
    command = command_of(words)
    if f"/usr/bin/holdfast {command} " not in UNITS:
        fail(f"{place}: no unit runs holdfast {command}")
    page = re.search(rf"^#+ `holdfast {re.escape(command)}`\n(.*?)(?=^##)", cli, re.M | re.S)
    for option in [word for word in words if word.startswith("--")]:
        if not page or not re.search(rf"^\| `{option}[ `]", page[1], re.M):
            fail(f"{place}: holdfast {command} has no option {option}")


def check_probe(place, words, readiness, path, port):
    """A probe asks a path that the role answers without a token, at the port where it listens."""
    section, paths = ROUTES.get(command_of(words), (None, set()))
    if path not in paths:
        fail(f"{place}: a probe asks {path}, which holdfast {command_of(words)} does not answer to everyone (docs/reference/api.md)")
    if path != ("/readyz" if readiness else "/healthz"):
        fail(f"{place}: a probe asks {path}")
    if port != PORTS[section]:
        fail(f"{place}: {port} is not the port of {section}.http.listen, {PORTS[section]} (docs/reference/config.md)")
