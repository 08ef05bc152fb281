"""Holds compose.yaml and the files that go over it to the configuration's reference, and secrets.sh to what they want of it."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent))
from reference import check_command, check_probe, check_variables, command_of, fail, ROUTES

compose = yaml.safe_load((here / "compose.yaml").read_text())
services, volumes, secrets = compose["services"], compose["volumes"], compose["secrets"]


def seconds(text):
    return int(text.removesuffix("s"))


def check_role(place, service):
    environment, given = service["environment"], service["secrets"]
    check_variables(place, environment)
    check_command(place, service["command"])
    for key, value in environment.items():
        if value.startswith("/run/secrets/") and value.removeprefix("/run/secrets/") not in given:
            fail(f"{place}: reads {value} and is not given it")
    if not service["read_only"] or service["cap_drop"] != ["ALL"] or seconds(service["stop_grace_period"]) < 60:
        fail(f"{place}: is not closed, or has less time to end than stop_grace of its parts")
    if command_of(service["command"]) in ROUTES:
        asked = re.search(r"127\.0\.0\.1/(\d+) .*GET (/\w+) ", service["healthcheck"]["test"][-1])
        listen = [value for key, value in environment.items() if key.endswith("_HTTP_LISTEN")]
        if not asked or listen != [f"0.0.0.0:{asked[1]}"]:
            fail(f"{place}: listens at {listen}, and its healthcheck asks another port")
        check_probe(place, service["command"], True, asked[2], int(asked[1]))


def mounted(service):
    return {mount.split(":")[0] for mount in service.get("volumes", [])}


owner = services["owner"]
if owner["entrypoint"] != ["chown", "10001:10001", *[mount.split(":")[1] for mount in owner["volumes"]]]:
    fail("compose.yaml, owner: gives away other folders than those of its volumes")
for name, service in services.items():
    place = f"compose.yaml, {name}"
    for secret in service.get("secrets", []):
        if secret not in secrets:
            fail(f"{place}: the secret {secret} is not there")
    for volume in mounted(service):
        if not volume.startswith(".") and volume not in volumes:
            fail(f"{place}: the volume {volume} is not there")
    for port in service.get("ports", []):
        if not port.startswith("127.0.0.1:"):
            fail(f"{place}: {port} is open to other machines, without TLS")
    if service["image"].startswith("holdfast"):
        check_role(place, service)
    # Docker makes the folder of a new volume for root. Whoever is not root needs it given to him first.
    ours = mounted(service) & mounted(owner)
    if str(service.get("user", "10001")).startswith("10001") and mounted(service) & volumes.keys():
        if service["image"].startswith(("holdfast", "eclipse-mosquitto")) and ours != mounted(service) & volumes.keys():
            fail(f"{place}: a volume that the service owner does not give to user 10001")
        if ours and service.get("depends_on", {}).get("owner", {}).get("condition") != "service_completed_successfully":
            fail(f"{place}: does not wait until its volumes are its own")
        if ours and not set(service["profiles"]) <= set(owner["profiles"]):
            fail(f"{place}: runs in a profile that the service owner does not run in")

# The Dockerfile is compared, not built: its targets are those that compose.yaml builds, and its compiler is the workspace's.
dockerfile, workspace = (here / "Dockerfile").read_text(), (here / "../../Cargo.toml").read_text()
targets = set(re.findall(r"^FROM \S+ AS (\w+)$", dockerfile, re.M))
for name, service in services.items():
    if "build" in service and service["build"]["target"] not in targets:
        fail(f"compose.yaml, {name}: the Dockerfile has no target {service['build']['target']}")
rust = re.search(r'^rust-version = "([\d.]+)"', workspace, re.M)[1]
if f"FROM rust:{rust}-" not in dockerfile:
    fail(f"Dockerfile: builds with another Rust than {rust}")

for file in here.glob("compose.*.yaml"):
    for name, service in yaml.safe_load(file.read_text())["services"].items():
        if name not in services:
            fail(f"{file.name}: {name} is no service of compose.yaml")
        check_variables(f"{file.name}, {name}", [key for key in service.get("environment", {})])

with tempfile.TemporaryDirectory() as folder:
    # Made anew in a folder of its own: every secret that is named, behind a folder that nobody else may enter.
    script, made = shutil.copy(here / "secrets.sh", folder), pathlib.Path(folder, "secrets")
    for _ in range(2):
        subprocess.run(["sh", script], check=True, stdout=subprocess.DEVNULL)
        if made.stat().st_mode & 0o777 != 0o700:
            fail(f"secrets.sh: the folder has mode {made.stat().st_mode & 0o777:o}: every user of the machine can read what is in it")
        made.chmod(0o755)  # what an older script left open is closed again
    for secret in secrets.values():
        file = pathlib.Path(folder, secret["file"])
        if not file.is_file() or not file.stat().st_mode & 0o004:
            fail(f"secrets.sh: {secret['file']} is not there, or the images' user cannot read it")

print(f"{len(services)} services of compose.yaml: ok")
