"""Healthy clusters in the middle of something: a node update,
and a migration at its normal pace.
"""

from .case import COVERED, Healthy, all_yes
from .machines import claim, kubevirt, machine, storage_class
from .node_health import health_check
from .openshift import MASTERS, MIGRATE, WORKERS, cluster, pool
from .parts import Object, ago, namespaces, node, obj, snapshot
from .releases import TAINT


def draining(rebooting: bool) -> Healthy:
    """Return a worker update in the middle: w0 is done, w1 is away, w2 comes next."""
    new = "rendered-worker-2"
    done = {
        "currentConfig": new,
        "desiredConfig": new,
        "desiredDrain": f"uncordon-{new}",
        "lastAppliedDrain": f"uncordon-{new}",
    }
    away = {"desiredConfig": new, "desiredDrain": f"drain-{new}", "state": "Working"}
    if rebooting:
        away |= {"lastAppliedDrain": f"drain-{new}", "state": "Rebooting"}
    state: Object = {"unschedulable": True} | (
        {"ready": "False", "heartbeat": ago(minutes=2)} if rebooting else {}
    )
    items = cluster(worker_notes={"w0": done, "w1": away}, states={"w1": state})
    items += [
        pool("worker", WORKERS, target="2", updated=1, unavailable=1),
        health_check(),
        *storage_class("block", "csi.example.com"),
    ]
    placed = {"web": "w0", "db": "w0" if rebooting else "w1", "queue": "w2"}
    for name, place in placed.items():
        items += machine(name, place, effective="LiveMigrate", disks=[name]) + claim(name)
    if rebooting:
        for each in items:
            if (
                each["kind"] == "Pod"
                and each["spec"]["nodeName"] == "w1"
                and "virt-handler" not in each["metadata"]["name"]
            ):
                each["spec"]["nodeName"] = "w0"
    else:
        items = migrating(items, "db", "w1", "w0")
    source = (
        "openshift/machine-config-operator:pkg/controller/common/"
        "layered_node_state.go#IsUnavailableForUpdate"
    )
    name = "openshift-node-reboots" if rebooting else "openshift-node-drains"
    return Healthy(
        name,
        source,
        snapshot(items),
        all_yes(MASTERS + WORKERS),
        MIGRATE,
        findings=COVERED,
        wider=True,
    )


def _migration(name: str, source: str, target: str, evacuation: bool) -> Object:
    """Return the migration object, with the state that its VMI repeats."""
    notes = {"kubevirt.io/evacuationMigration": source} if evacuation else {}
    move = obj(
        "VirtualMachineInstanceMigration",
        "kubevirt.io/v1",
        f"kubevirt-evacuation-{name}",
        "vms",
        spec={"vmiName": name},
    )
    times = {
        "Pending": 40,
        "Scheduling": 39,
        "Scheduled": 28,
        "PreparingTarget": 26,
        "TargetReady": 22,
        "Running": 20,
    }
    phases = [
        {"phase": phase, "phaseTransitionTimestamp": ago(seconds=late)}
        for phase, late in times.items()
    ]
    state = {
        "migrationUid": move["metadata"]["uid"],
        "startTimestamp": ago(seconds=20),
        "mode": "PreCopy",
        "sourceNode": source,
        "targetNode": target,
    }
    state |= {
        "targetPod": f"virt-launcher-{name}-tgt",
        "sourcePod": f"virt-launcher-{name}-k2x7q",
        "targetNodeDomainReadyTimestamp": ago(seconds=22),
    }
    state["migrationConfiguration"] = {
        "completionTimeoutPerGiB": 150,
        "progressTimeout": 150,
        "allowPostCopy": False,
        "allowAutoConverge": False,
    }
    labels = {"kubevirt.io/vmi-name": name}
    move["metadata"] |= {
        "annotations": notes,
        "labels": labels,
        "creationTimestamp": ago(seconds=40),
    }
    move["status"] = {
        "phase": "Running",
        "phaseTransitionTimestamps": phases,
        "migrationState": state,
    }
    return move


def migrating(
    items: list[Object], name: str, source: str, target: str, evacuation: bool = True
) -> list[Object]:
    """Return the items with a migration that has copied memory for 20 seconds,
    and its target pod.
    """
    move = _migration(name, source, target, evacuation)
    launcher = machine(name, target, disks=[name], age=0)[2]
    launcher["metadata"] |= {
        "name": f"virt-launcher-{name}-tgt",
        "uid": f"uid-pod-vms-virt-launcher-{name}-tgt",
        "creationTimestamp": ago(seconds=39),
    }
    launcher["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = move["metadata"]["uid"]
    vmi = next(
        each
        for each in items
        if each["kind"] == "VirtualMachineInstance" and each["metadata"]["name"] == name
    )
    vmi["status"] |= {"migrationState": move["status"]["migrationState"]} | (
        {"evacuationNodeName": source} if evacuation else {}
    )
    vmi["status"]["activePods"][launcher["metadata"]["uid"]] = target
    return [*items, move, launcher]


TEMPLATE = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
    "namespace": "medik8s",
    "name": "self-node-remediation-automatic-strategy-template",
}


def by_hand() -> Healthy:
    """Return an upgrade of the nodes by hand: w3 was drained and reboots,
    and the health check is paused meanwhile.
    """
    masters = ["cp1", "cp2", "cp3"]
    new = [node(name, None, roles=("control-plane",), taints=TAINT) for name in masters] + [
        node("w1"),
        node("w2"),
    ]
    old = node("w3", unschedulable=True, ready="Unknown", heartbeat=ago(minutes=3))
    for each in new:
        each["status"]["nodeInfo"]["kubeletVersion"] = "v1.34.1"
    spec: Object = {
        "selector": {
            "matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]
        }
    }
    paused = spec | {
        "minHealthy": "51%",
        "pauseRequests": ["upgrade-1.34"],
        "remediationTemplate": TEMPLATE,
    }
    items = [*namespaces("vms", "kubevirt"), *new, old, *kubevirt((1, 6), masters, ["w1", "w2"])]
    items += [obj("NodeHealthCheck", "remediation.medik8s.io/v1alpha1", "workers", spec=paused)]
    template = {
        "metadata": {"namespace": "medik8s"},
        "spec": {"template": {"spec": {"remediationStrategy": "Automatic"}}},
    }
    items += [
        obj("SelfNodeRemediationTemplate", TEMPLATE["apiVersion"], TEMPLATE["name"], **template)
    ]
    items += [
        *storage_class("block", "csi.example.com"),
        *machine("web", "w1", strategy="LiveMigrate", disks=["web"]),
    ]
    source = "https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/upgrading-linux-nodes"
    names = [*masters, "w1", "w2", "w3"]
    return Healthy(
        "reboot-by-hand",
        source,
        snapshot([*items, *claim("web")]),
        all_yes(names),
        {"web": "migrates"},
        findings=COVERED,
        wider=True,
    )


def updates() -> list[Healthy]:
    return [draining(rebooting=False), draining(rebooting=True), by_hand()]
