"""Holds what kustomize puts together, or the files themselves, to what every workload must have. Called by ./check:

    manifests.py [--tls] FILE…
"""

import pathlib
import sys

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from reference import check_command, check_probe, check_variables, fail

# Asked while data does not move: nodes bring a backlog to the edge when the broker is away, sites deliver to the cloud and people look at
# alarms when the bus is. A pod that is not ready is taken from its Service, so these are ready when they answer.
ASKED_IN_AN_OUTAGE = {"cloud-ingestion", "edge", "historian"}
STOP_GRACE_S = 60

tls = "--tls" in sys.argv
things = [thing for file in sys.argv[1:] if file != "--tls" for thing in yaml.safe_load_all(open(file)) if thing]


def of_kind(*kinds):
    found = {}
    for thing in things:
        if thing["kind"] in kinds:
            name = thing["metadata"]["name"]
            if name in found:
                fail(f"{thing['kind']} {name} twice")
            found[name] = thing
    return found


services = of_kind("Service")
workloads = of_kind("Deployment", "StatefulSet")
jobs = of_kind("CronJob")
budgets = of_kind("PodDisruptionBudget")


def leads_to(thing, workload):
    selector = thing["spec"]["selector"]
    return selector.get("matchLabels", selector).items() <= workload["spec"]["template"]["metadata"]["labels"].items()


def check_pod(name, pod, claims=()):
    closed = pod["securityContext"]
    if not closed["runAsNonRoot"] or closed["seccompProfile"]["type"] != "RuntimeDefault" or pod["automountServiceAccountToken"]:
        fail(f"{name}: the pod is not closed")
    if pod.get("terminationGracePeriodSeconds", 30) < STOP_GRACE_S:
        fail(f"{name}: less time to end than stop_grace of its parts, or a dump's")
    volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"] for claim in claims}
    for one in pod["containers"]:
        closed = one["securityContext"]
        if closed["allowPrivilegeEscalation"] or not closed["readOnlyRootFilesystem"] or closed["capabilities"]["drop"] != ["ALL"]:
            fail(f"{name}: the container is not closed")
        if not {"cpu", "memory"} <= one["resources"]["requests"].keys() or "memory" not in one["resources"]["limits"]:
            fail(f"{name}: no resources")
        for mount in one["volumeMounts"]:
            if mount["name"] not in volumes:
                fail(f"{name}: no volume {mount['name']}")
        folders = [mount["mountPath"] + "/" for mount in one["volumeMounts"]]
        for variable in one["env"]:
            value = variable.get("value", "")
            if value.startswith("/") and not any(value.startswith(folder) for folder in folders):
                fail(f"{name}: {variable['name']} is {value}, where nothing is mounted")
        check_variables(name, [variable["name"] for variable in one["env"]])
        check_command(name, one["args"])


def check_asked(name, workload, one, value):
    """Probes over HTTP, and who may come."""
    ours = [service for service in services.values() if leads_to(service, workload)]
    (port,) = one["ports"]
    listen = [text for key, text in value.items() if key.endswith("_HTTP_LISTEN")]
    if listen != [f"0.0.0.0:{port['containerPort']}"]:
        fail(f"{name}: listens at {listen}, and the probes ask {port['containerPort']}")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        asks = one.get(probe, {}).get("httpGet", {})
        if asks.get("port") != port["name"]:
            fail(f"{name}: {probe} asks another port")
        if asks.get("scheme", "HTTP") != ("HTTPS" if tls else "HTTP"):
            fail(f"{name}: {probe} speaks {asks.get('scheme', 'HTTP')}")
        ready = probe == "readinessProbe" and name not in ASKED_IN_AN_OUTAGE
        check_probe(f"{name}, {probe}", one["args"], ready, asks.get("path"), port["containerPort"])
    for service in ours:
        if [(p["port"], p["targetPort"]) for p in service["spec"]["ports"]] != [(port["containerPort"], port["name"])]:
            fail(f"{name}: its Service leads to another port")
        # Endpoints are taken away while SIGTERM is sent; without a wait some requests meet a closed door.
        if "sleep" not in " ".join(one.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])):
            fail(f"{name}: ends before its Service has forgotten it: no preStop")
    keys = [key for key in value if key.endswith(("_TLS_CERT", "_TLS_KEY"))]
    if len(keys) != (2 if tls else 0):
        fail(f"{name}: of certificate and key it has {keys}")


def check_worker(name, one, value):
    """It opens no port, so it is asked by a command, which looks at the file that the worker is told to touch."""
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if one.get(probe, {}).get("exec", {}).get("command") != ["/usr/bin/holdfast", "schedule", "alive"]:
            fail(f"{name}: no port, and a probe that asks nobody")
    if not value.get("HOLDFAST_SCHEDULE_WORKER_HEARTBEAT_FILE", "").startswith("/tmp/"):
        fail(f"{name}: the worker leaves no sign of life where it may write")
    if value.get("HOLDFAST_SCHEDULE_EXTRACT_METHOD", "none") == "none" or value.get("HOLDFAST_SCHEDULE_DELIVER_TO", "none") == "none":
        fail(f"{name}: photographs are not read, or messages not delivered")


for name, workload in workloads.items():
    spec, pod = workload["spec"], workload["spec"]["template"]["spec"]
    if not leads_to(workload, workload):
        fail(f"{name}: the selector does not find its pods")
    check_pod(name, pod, spec.get("volumeClaimTemplates", []))
    for one in pod["containers"]:
        value = {variable["name"]: variable.get("value", "") for variable in one["env"]}
        check_asked(name, workload, one, value) if "ports" in one else check_worker(name, one, value)
    # A set that waits in order never replaces a pod that is not ready, so an outage could not be mended by a new address.
    if workload["kind"] == "StatefulSet" and spec.get("podManagementPolicy") != "Parallel":
        fail(f"{name}: a pod that is not ready could not be replaced")
    if spec["replicas"] > 1 and not any(leads_to(budget, workload) for budget in budgets.values()):
        fail(f"{name}: no PodDisruptionBudget")

for name, budget in budgets.items():
    if not any(leads_to(budget, workload) for workload in workloads.values()):
        fail(f"PodDisruptionBudget {name}: finds no pods")
    if budget["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
        fail(f"PodDisruptionBudget {name}: in an outage no machine could be emptied")

for name, job in jobs.items():
    if job["spec"]["concurrencyPolicy"] != "Forbid" or "timeZone" not in job["spec"]:
        fail(f"{name}: two at once, or at an hour that nobody knows")
    check_pod(name, job["spec"]["jobTemplate"]["spec"]["template"]["spec"])

print(f"{len(workloads)} workloads, {len(jobs)} jobs{', over TLS' if tls else ''}: ok")
