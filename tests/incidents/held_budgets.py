"""Budgets that allow nothing now: a replica fits only the node that is drained,
or its node is being rebooted.
"""

import json

from tests.healthy.clusters import plain
from tests.healthy.machines import kubevirt, storage_class
from tests.healthy.parts import Object, ago, budget, conditions, deployment, namespaces, node, obj
from tests.healthy.releases import TAINT, WORKERS
from tests.healthy.storage import rook

from .machines import NO, YES, Incident, cordoned, find, guest

HARVESTER = "https://github.com/harvester/harvester/issues/7647"
KURED = "https://kured.dev/docs/operation"


def pending(items: list[Object], name: str, message: str, **age: float) -> Object:
    """Make a pod wait for a node."""
    pod = find(items, "Pod", name)
    pod["metadata"]["creationTimestamp"] = ago(**age)
    pod["spec"].pop("nodeName")
    placed = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    pod["status"] = {
        "phase": "Pending",
        "conditions": [placed | {"lastTransitionTime": ago(**age)}],
    }
    return pod


def demanding(pod: Object, key: str) -> None:
    """Let a pod run only on nodes with a label."""
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}


def refusing(items: list[Object], name: str) -> None:
    """Let a budget count one pod that is not ready."""
    found = find(items, "PodDisruptionBudget", name)["status"]
    found["currentHealthy"] -= 1
    found["disruptionsAllowed"] = 0


def components_on_the_only_master(*ask: str) -> Incident:
    """KubeVirt 1.3 and later demands control-plane nodes for them, and the only one is drained."""
    items = [*namespaces("vms", "kubevirt"), *storage_class("block", "rook-ceph.rbd.csi.ceph.com")]
    items += [
        node("m1", None, roles=("control-plane",), taints=TAINT),
        *(node(each) for each in WORKERS),
    ]
    items += kubevirt((1, 6), ["m1", "m1"], WORKERS) + guest("web", "w1")
    cordoned(items, "m1", minutes=54)
    words = (
        "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) didn't match Pod's node "
        "affinity/selector."
    )
    for name in ("virt-api", "virt-controller"):
        demanding(
            pending(items, f"{name}-5d8f-x1", words, minutes=52),
            "node-role.kubernetes.io/control-plane",
        )
        refusing(items, f"{name}-pdb")
    facts: tuple[str, ...] = (
        (
            r"virt-api-pdb: .*pod virt-api-5d8f-x1 has been Pending for 52 min: it demands a "
            r"control-plane node, and the only one is m1, which is drained\. The drain waits for "
            r"this pod and the pod for that node, so neither ends by itself"
        ),
        r"without spec\.infra\.nodePlacement of KubeVirt they demand control-plane nodes",
        (
            r"kubectl patch kubevirt kubevirt -n kubevirt --type=merge -p "
            r"'\{\"spec\":\{\"infra\":\{\"nodePlacement\":\{\}\}\}\}'"
        ),
        r"or, as a decision, give the drain of m1 up: kubectl uncordon m1",
        r"(?s)\A(?!.*Wait until its pods are ready)",
    )
    return Incident("-".join(("only-master", *ask)), HARVESTER, items, NO, facts, ask)


def replica_of_one_node() -> Incident:
    items = zoned()
    facts = (
        (
            r"pod registry-5d8f-x1 has been Pending for 20 min: no other node than w1 would take "
            r"it \(its node affinity demands zone\), which is drained"
        ),
        (
            r"Let it run on another node, or add a node that it accepts; or, as a decision, give "
            r"the drain of w1 up"
        ),
    )
    return Incident("replica-of-one-node", HARVESTER, items, NO, facts)


def replica_that_starts_elsewhere() -> Incident:
    """Another node has the label, too: kube-scheduler only has not looked yet."""
    items = zoned()
    find(items, "Node", "w2")["metadata"]["labels"]["zone"] = "a"
    facts = (
        r"pod registry-5d8f-x1 finds no node",
        r"(?s)\A(?!.*neither ends)(?!.*kubectl uncordon)",
    )
    return Incident("replica-elsewhere", HARVESTER, items, NO, facts)


def image_of_a_replica() -> Incident:
    """The pod that is not ready says why in its container."""
    items = zoned()
    pod = find(items, "Pod", "registry-5d8f-x1")
    pod["spec"]["nodeName"] = "w2"
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry/main:2"'}
    state = conditions(Initialized=True, Ready=False, ContainersReady=False, PodScheduled=True)
    pod["status"] = {"phase": "Pending", "conditions": state}
    pod["status"]["containerStatuses"] = [
        {"name": "main", "ready": False, "state": {"waiting": waiting}}
    ]
    facts = (
        r"registry-5d8f-x1 cannot start \(ImagePullBackOff: Back-off pulling image",
        r"kubectl describe pod registry",
    )
    return Incident("image-of-a-replica", HARVESTER, items, NO, facts)


def zoned() -> list[Object]:
    """Return a cluster with two replicas that demand the label of w1, which is drained;
    one waits for a node.
    """
    items = plain() + guest("web", "w2") + namespaces("images")
    find(items, "Node", "w1")["metadata"]["labels"]["zone"] = "a"
    labels = {"app": "registry"}
    items += [
        *deployment("registry", "images", ["w1", "w1"], labels),
        budget("registry", "images", labels, 2, available=1),
    ]
    cordoned(items, "w1", minutes=30)
    for pod in (find(items, "Pod", f"registry-5d8f-x{index}") for index in (0, 1)):
        demanding(pod, "zone")
    pending(items, "registry-5d8f-x1", "0/6 nodes are available", minutes=20)
    refusing(items, "registry")
    return items


def rebooting(**since: float) -> list[Object]:
    """Return a cluster with Rook whose node w2 kured reboots;
    its OSDs and its monitor wait for it.
    """
    items = plain() + guest("web", "w1") + rook(WORKERS, 3, "HEALTH_WARN")
    cordoned(items, "w2", minutes=5)
    found = find(items, "Node", "w2")
    for each in found["status"]["conditions"]:
        each |= {"status": "Unknown", "lastTransitionTime": ago(**since)}
    for effect in ("NoSchedule", "NoExecute"):
        found["spec"]["taints"].append({"key": "node.kubernetes.io/unreachable", "effect": effect})
    lock = {
        "nodeID": "w2",
        "metadata": {"unschedulable": False},
        "created": ago(minutes=5),
        "TTL": 1800 * 10**9,
    }
    daemon = deployment("kured", "kube-system", ["w1", "w3"], {"name": "kured"}, kind="DaemonSet")
    daemon[0]["metadata"]["annotations"] = {"weave.works/kured-node-lock": json.dumps(lock)}
    gone = [pod for pod in items if pod["kind"] == "Pod" and pod["spec"].get("nodeName") == "w2"]
    for pod in gone:
        if pod["spec"].get("nodeSelector"):
            pending(items, pod["metadata"]["name"], "0/6 nodes are available", minutes=4)
    refusing(items, "rook-ceph-mon-pdb")
    osds = find(items, "PodDisruptionBudget", "rook-ceph-osd")["status"]
    osds |= {"currentHealthy": osds["desiredHealthy"] - 1, "disruptionsAllowed": 0}
    return items + daemon


def monitor_of_a_node_that_is_rebooted(*ask: str) -> Incident:
    """A budget whose missing pod is of a node that is just being rebooted is a wait."""
    facts: tuple[str, ...] = (
        r"(?s)\A(?!.*stops at)(?!.*blocks now)(?!.*No: )(?!.*repair it: kubectl describe pod)",
    )
    if ask[0] == "drain":
        facts += (
            (
                r"waits for: PodDisruptionBudget rook-ceph/rook-ceph-mon-pdb: a Ceph monitor is "
                r"down\. That ends once w2 is back with pod rook-ceph-mon-b-5d8f-x0: DaemonSet "
                r"kured, whose update has been rebooting it for 45 s"
            ),
        )
    else:
        facts += (
            r"Yes: ",
            r"w2 has been rebooting for 45 s",
            r"kured goes on by itself once w2 is back and uncordoned",
        )
    items = rebooting(seconds=45)
    items = [each for each in items if each["metadata"]["name"] != "rook-ceph-osd"]
    return Incident("-".join(("rebooted", *ask)), KURED, items, YES, facts, ask)


def osds_while_a_node_is_rebooted() -> Incident:
    """Rook guards the OSDs of the other hosts until the node that kured reboots is back."""
    items = rebooting(seconds=45)
    ceph = find(items, "CephCluster", "rook-ceph-cluster")
    items = [each for each in items if each["metadata"]["name"] != "rook-ceph-osd"]
    find(items, "ConfigMap", "rook-ceph-pdbstatemap")["data"]["draining-failure-domain"] = "w2"
    for host in sorted(set(WORKERS) - {"w2"}):
        labels = {"app": "rook-ceph-osd", "topology-location-host": host}
        name = f"rook-ceph-osd-host-{host}"
        items.append(budget(name, "rook-ceph", labels, 2, unavailable=0, of=ceph))
        refusing(items, name)
    facts = (
        (
            r"waits for: PodDisruptionBudget rook-ceph/rook-ceph-osd-host-w1: Ceph waits until w2 "
            r"is back and its data is clean: DaemonSet kured, whose update has been rebooting it"
        ),
        r"(?s)\A(?!.*blocks now)",
    )
    return Incident("osds-while-rebooting", KURED, items, YES, facts, ("drain", "w1"))


def monitor_of_a_node_that_talos_reboots() -> Incident:
    """Talos marks the node; no object has the phases of its upgrade."""
    items = [each for each in rebooting(seconds=90) if each["metadata"]["name"] != "kured"]
    find(items, "Node", "w2")["metadata"]["annotations"]["talos.dev/cordoned"] = "true"
    items = [each for each in items if each["metadata"]["name"] != "rook-ceph-osd"]
    facts = (
        (
            r"waits for: PodDisruptionBudget rook-ceph/rook-ceph-mon-pdb: .* once w2 is back with "
            r"pod rook-ceph-mon-b-5d8f-x0: Talos, which upgrades or reboots it, since 90 s"
        ),
    )
    return Incident("talos-reboots", KURED, items, YES, facts)


def pod_that_crashes_on_a_node_under_update() -> Incident:
    """The node of the pod is Ready, so its return does not help."""
    items = zoned()
    cordoned(items, "w2", minutes=5)
    lock = {
        "nodeID": "w2",
        "metadata": {"unschedulable": False},
        "created": ago(minutes=5),
        "TTL": 0,
    }
    daemon = deployment("kured", "kube-system", ["w1", "w3"], {"name": "kured"}, kind="DaemonSet")
    daemon[0]["metadata"]["annotations"] = {"weave.works/kured-node-lock": json.dumps(lock)}
    pod = find(items, "Pod", "registry-5d8f-x1")
    pod["spec"]["nodeName"] = "w2"
    pod["status"] = {"phase": "Running", "conditions": conditions(Ready=False, PodScheduled=True)}
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    pod["status"]["containerStatuses"] = [
        {"name": "main", "ready": False, "state": waits, "lastState": ended}
    ]
    facts = (
        r"blocks now: .*registry-5d8f-x1 cannot start \(CrashLoopBackOff",
        r"(?s)\A(?!.*w2 is back with)",
    )
    return Incident("crash-under-update", KURED, items + daemon, NO, facts)


def monitor_of_a_node_that_does_not_come_back() -> Incident:
    """A reboot does not take three hours."""
    facts = (
        r"blocks now: PodDisruptionBudget rook-ceph/rook-ceph-mon-pdb: a Ceph monitor is down",
    )
    return Incident("not-rebooted", KURED, rebooting(hours=3), NO, facts)


def maintenance_of_another_node() -> Incident:
    """An administrator ends a maintenance, perhaps hours later: that blocks,
    and the node is named.
    """
    items = plain() + guest("web", "w1") + rook(WORKERS, 3, "HEALTH_OK")
    cordoned(items, "w2", hours=2)
    spec = {"nodeName": "w2"}
    status = {"phase": "Succeeded", "lastUpdate": ago(hours=2)}
    items.append(
        obj(
            "NodeMaintenance",
            "nodemaintenance.medik8s.io/v1beta1",
            "disks",
            spec=spec,
            status=status,
        )
    )
    pending(items, "rook-ceph-mon-b-5d8f-x0", "0/6 nodes are available", hours=2)
    refusing(items, "rook-ceph-mon-pdb")
    facts = (
        (
            r"blocks now: .*rook-ceph-mon-pdb: a Ceph monitor is down\. That ends once w2 is back "
            r"with pod rook-ceph-mon-b-5d8f-x0: NodeMaintenance disks updates it"
        ),
        r"to do: Wait until w2 is back",
    )
    return Incident("maintained", KURED, items, NO | YES, facts)


def incidents() -> list[Incident]:
    return [
        components_on_the_only_master("drain", "m1"),
        replica_of_one_node(),
        replica_that_starts_elsewhere(),
        image_of_a_replica(),
        monitor_of_a_node_that_is_rebooted("drain", "w1"),
        monitor_of_a_node_that_is_rebooted("upgrade"),
        osds_while_a_node_is_rebooted(),
        monitor_of_a_node_that_talos_reboots(),
        pod_that_crashes_on_a_node_under_update(),
        monitor_of_a_node_that_does_not_come_back(),
        maintenance_of_another_node(),
    ]
