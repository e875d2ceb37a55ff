"""Harvester, Longhorn and Rook-Ceph: budgets, volumes and daemons that hold a drain up."""

from collections.abc import Iterable

from tests.healthy.machines import INFRA, claim, kubevirt, machine, storage_class
from tests.healthy.parts import Object, ago, budget, namespaces, node, obj
from tests.healthy.storage import HARVESTER, harvester, harvester_vm, longhorn_volume, rook

from .case import NODES, Incident, cluster, dead, only, unready

POLICY = "block-if-contains-last-replica"


def cordoned(items: list[Object], name: str) -> list[Object]:
    for each in items:
        if (each["kind"], each["apiVersion"], each["metadata"]["name"]) == ("Node", "v1", name):
            each["spec"]["unschedulable"] = True
    return items


def longhorn_cluster(*vms: tuple[str, str]) -> list[Object]:
    items = harvester((1, 3), HARVESTER, POLICY)
    for name, on in vms:
        items += harvester_vm(name, on, (1, 3))
    return cordoned(items, "h1")


def longhorn_release(value: str) -> Object:
    name = "current-longhorn-version"
    return obj("Setting", "longhorn.io/v1beta2", name, "longhorn-system", value=value)


def wrong_selector() -> Incident:
    items = [*longhorn_cluster(("web", "h2")), longhorn_release("v1.4.1")]
    items.remove(only(items, "PodDisruptionBudget", "instance-manager-h17c2a"))
    wrong = only(items, "PodDisruptionBudget", "instance-manager-h37c2a")
    wrong["spec"]["selector"]["matchLabels"]["longhorn.io/node"] = "h1"
    says = (
        (
            "Longhorn wrote it for the instance manager of h3, but it selects that of h1 (pod "
            "instance-manager-h17c2a), so cordoning h1 does not remove it. No data is at stake: "
            "Longhorn has removed the pod's own budget already"
        ),
        "to do: Update Longhorn (fixed in 1.3.3 and 1.4.2). Until then cordon h3",
        ": kubectl cordon h3",
    )
    return Incident(
        "https://github.com/longhorn/longhorn/issues/5680",
        items,
        "drain h1",
        1,
        says,
        ("A drain of h1 ends",),
    )


def no_longhorn_manager() -> Incident:
    items = longhorn_cluster(("web", "h2"))
    only(items, "InstanceManager", "instance-manager-h17c2a")["status"]["ownerID"] = "h2"
    release = longhorn_release("v1.4.1")
    says = ("no longhorn-manager runs on h1", "toleration")
    return Incident(
        "https://github.com/longhorn/longhorn/issues/5688", [*items, release], "drain h1", 1, says
    )


def orphaned_engine() -> Incident:
    items = longhorn_cluster(("web", "h2"))
    keeps = only(items, "InstanceManager", "instance-manager-h17c2a")
    keeps["status"]["instanceEngines"] = {"pvc-vms-web-e-0": {"status": {"state": "running"}}}
    says = ("still runs engine pvc-vms-web-e-0, whose volume is not attached on h1",)
    return Incident("https://github.com/longhorn/longhorn/issues/6552", items, "drain h1", 1, says)


def attached_by_hand() -> Incident:
    items = longhorn_cluster(("web", "h2")) + longhorn_volume("scratch", "h1", HARVESTER)
    only(items, "Volume", "pvc-vms-scratch")["status"]["kubernetesStatus"] = {
        "pvName": "",
        "workloadsStatus": None,
    }
    ticket = {"id": "longhorn-ui", "type": "longhorn-api", "nodeID": "h1"}
    spec = {"volume": "pvc-vms-scratch", "attachmentTickets": {"longhorn-ui": ticket}}
    items.append(
        obj(
            "VolumeAttachment",
            "longhorn.io/v1beta2",
            "pvc-vms-scratch",
            "longhorn-system",
            spec=spec,
        )
    )
    says = ("Longhorn volume pvc-vms-scratch was attached to h1 by hand", "Detach it")
    never = ("A drain of h1 ends",)
    return Incident(
        "https://github.com/harvester/harvester/issues/6264", items, "drain h1", 1, says, never
    )


def last_replica() -> Incident:
    items = longhorn_cluster() + harvester_vm("pg", "h1", (1, 3), replicas=("h1", "h2"))
    only(items, "Replica", "pvc-vms-pg-r-h2")["spec"]["failedAt"] = ago(hours=9)
    says = ("the only healthy copy of Longhorn volume pvc-vms-pg is on node h1",)
    return Incident(
        "https://github.com/devantler-tech/platform/issues/3388", items, "drain h1", 1, says
    )


def replicas_on_one_node() -> Incident:
    items = harvester((1, 4), HARVESTER, "allow-if-replica-is-stopped") + harvester_vm(
        "web", "h1", (1, 4)
    )
    only(items, "Volume", "pvc-vms-web")["status"]["kubernetesStatus"] = {
        "namespace": "vms",
        "pvcName": "web",
    }
    for each in items:
        if each["kind"] == "Replica":
            each["spec"]["nodeID"] = each["status"]["ownerID"] = "h1"
    says = (
        "all 3 healthy copies of Longhorn volume pvc-vms-web (claim vms/web) are on node h1",
        "VM vms/web needs them there after its migration",
    )
    source = "https://github.com/harvester/harvester/issues/2911"
    return Incident(source, items, "drain h1", 1, says, ("may stop when the VMs have left",))


def single_replica_of_a_stopped_vm() -> Incident:
    items = longhorn_cluster(("web", "h2")) + longhorn_volume("old", None, ["h1"])
    only(items, "Volume", "pvc-vms-old")["status"]["kubernetesStatus"] = {
        "namespace": "vms",
        "pvcName": "old-disk",
    }
    says = ("Longhorn volume pvc-vms-old (claim vms/old-disk, which no VM uses now) is on node h1",)
    return Incident(
        "https://github.com/harvester/harvester/issues/6266", items, "drain h1", 1, says
    )


def every_node_in_maintenance() -> Incident:
    """Harvester cordons each node again while the annotation is there."""
    items = harvester((1, 4), HARVESTER, "allow-if-replica-is-stopped") + harvester_vm(
        "web", "h1", (1, 4)
    )
    for each in items:
        if (each["kind"], each["apiVersion"]) == ("Node", "v1"):
            each["spec"]["unschedulable"] = True
            each["metadata"]["annotations"] = {"harvesterhci.io/drain-requested": "true"}
    says = (
        (
            "take its request off h2, because of which Harvester cordons it again after each "
            "uncordon, then uncordon it"
        ),
        (
            "the other healthy copies of Longhorn volume pvc-vms-web are on nodes that are "
            "cordoned (h2, h3)"
        ),
    )
    never = ("the only healthy copy", ": kubectl uncordon")
    return Incident(
        "https://github.com/harvester/harvester/issues/5598", items, "drain h1", 1, says, never
    )


def network_that_a_new_node_lacks() -> Incident:
    """The VlanConfig selects the nodes that existed,
    and no VM demands the label that only these have.
    """
    items = harvester((1, 2), HARVESTER, "allow-if-replica-is-stopped") + harvester_vm(
        "web", "h1", (1, 2)
    )
    only(items, "Node", "h1")["metadata"]["labels"]["network.harvesterhci.io/vlan"] = "true"
    labels = {
        "network.harvesterhci.io/clusternetwork": "vlan",
        "network.harvesterhci.io/type": "L2VlanNetwork",
    }
    items.append(
        obj(
            "NetworkAttachmentDefinition",
            "k8s.cni.cncf.io/v1",
            "vlan100",
            "vms",
            metadata={"labels": labels},
        )
    )
    for each in items:
        if each["kind"] in ("VirtualMachine", "VirtualMachineInstance"):
            inner = each["spec"].get("template", {}).get("spec", each["spec"])
            inner["networks"] = [{"name": "lan", "multus": {"networkName": "vms/vlan100"}}]
            inner["domain"]["devices"]["interfaces"] = [{"name": "lan", "bridge": {}}]
    says = (
        (
            "kube-scheduler chooses h2, which is without network vms/vlan100 (label "
            "network.harvesterhci.io/vlan)"
        ),
        "a VlanConfig that selects it",
        "It cannot be determined whether a drain of h1 ends",
    )
    return Incident(
        "https://github.com/harvester/harvester/issues/3223", items, "drain h1", 2, says
    )


def upgrade_of(states: Iterable[tuple[str, str]]) -> Object:
    status = {"nodeStatuses": {name: {"state": state} for name, state in states}, "conditions": []}
    upgrade = obj(
        "Upgrade", "harvesterhci.io/v1beta1", "hvst-upgrade-x", "harvester-system", status=status
    )
    upgrade["metadata"]["labels"] = {"harvesterhci.io/latestUpgrade": "true"}
    return upgrade


def witness() -> Incident:
    items = harvester(
        (1, 4), ("h1", "h2", "w1"), "allow-if-replica-is-stopped", drained=("h1", "h2")
    )
    items += harvester_vm("upgrade-repo", "h2", (1, 4), replicas=("h1", "h2"))
    volume = only(items, "Volume", "pvc-vms-upgrade-repo")
    volume["spec"]["numberOfReplicas"] = 3
    failing = {"type": "Scheduled", "status": "False", "reason": "ReplicaSchedulingFailure"}
    volume["status"] |= {"robustness": "degraded", "conditions": [failing]}
    items.append(
        upgrade_of([("h1", "Pre-draining"), ("h2", "Images preloaded"), ("w1", "Images preloaded")])
    )
    says = ("Longhorn volume pvc-vms-upgrade-repo stays degraded", "Harvester drains no node")
    return Incident("https://github.com/harvester/harvester/issues/7923", items, "upgrade", 1, says)


def one_management_node() -> Incident:
    space = "harvester-system"
    items = [
        node("h1", (1, 3), roles=("control-plane", "master")),
        *(node(name, (1, 3)) for name in HARVESTER[1:]),
    ]
    items += kubevirt((1, 3), ["h1"], HARVESTER, namespace=space, infra=INFRA) + namespaces(
        "vms", space
    )
    items += machine("web", "h1", (1, 3), strategy="LiveMigrate", disks=["web"]) + claim("web")
    says = ("virt-controller can run on h1 alone, and leaves it before the VMs",)
    return Incident(
        "https://github.com/harvester/harvester/issues/7647", items, "drain h1", 1, says
    )


def ceph(*cordoned_nodes: str) -> list[Object]:
    items = [
        node(name, unschedulable=name in cordoned_nodes, roles=("control-plane", "worker"))
        for name in NODES
    ]
    items += namespaces("vms") + kubevirt((1, 6), NODES, NODES) + rook(NODES, 3, "HEALTH_OK")
    return items + machine("web", "n2", strategy="LiveMigrate", disks=["web"]) + claim("web")


def failed_osd() -> Incident:
    items = ceph("n1")
    every = only(items, "PodDisruptionBudget", "rook-ceph-osd")
    items.remove(every)
    owner = every["metadata"]["ownerReferences"]
    for name in NODES[:2]:
        chosen = {"app": "rook-ceph-osd", "topology-location-host": name}
        keeps = budget(f"rook-ceph-osd-host-{name}", "rook-ceph", chosen, 2, unavailable=0)
        keeps["metadata"]["ownerReferences"] = owner
        items.append(keeps)
    failed = only(items, "Pod", "rook-ceph-osd-5-5d8f-x0")
    items[items.index(failed)] = unready(failed)
    says = ("OSD 5 on n3 is down although the node is up",)
    return Incident(
        "https://github.com/rook/rook/issues/15341",
        items,
        "drain n1",
        1,
        says,
        ("until n3 is back and",),
    )


def osd_of_the_cordoned_node() -> Incident:
    """Rook took the drain for one of another node,
    so that the next OSD of n1 may not leave and the first cannot start.
    """
    items = ceph("n1")
    every = only(items, "PodDisruptionBudget", "rook-ceph-osd")
    items.remove(every)
    for name in NODES:
        keeps = budget(
            f"rook-ceph-osd-host-{name}",
            "rook-ceph",
            {"app": "rook-ceph-osd", "topology-location-host": name},
            2,
            unavailable=0,
        )
        keeps["metadata"]["ownerReferences"] = every["metadata"]["ownerReferences"]
        items.append(keeps)
    gone = only(items, "Pod", "rook-ceph-osd-0-5d8f-x0")
    pending = unready(gone)
    pending["status"]["phase"] = "Pending"
    del pending["spec"]["nodeName"]
    items[items.index(gone)] = pending
    says = (
        "OSD 0 of n1 itself is down",
        "kubectl uncordon n1; then wait until Ceph's data is clean",
    )
    source = "https://github.com/rook/rook/issues/14730"
    return Incident(source, items, "drain n1", 1, says, ("another failure domain",))


def osd_without_data() -> Incident:
    items = ceph("n1")
    only(items, "PodDisruptionBudget", "rook-ceph-osd")["status"] |= {
        "currentHealthy": 5,
        "disruptionsAllowed": 0,
    }
    gone = only(items, "Pod", "rook-ceph-osd-0-5d8f-x0")
    pending = unready(gone, since=ago(minutes=45))
    pending["status"]["phase"] = "Pending"
    del pending["spec"]["nodeName"]
    items[items.index(gone)] = pending
    says = ("OSD 0 of n1 is, and Rook has not let the other OSDs of the node go",)
    return Incident(
        "https://github.com/rook/rook/issues/12375", items, "drain n1", 1, says, ("about 1 minute",)
    )


def upgrade_without_the_drain_taint() -> Incident:
    """Another controller removed the taint that makes KubeVirt move the VMs,
    and the upgrade waits for them.
    """
    items = harvester((1, 6), HARVESTER, POLICY) + harvester_vm("web", "h2", (1, 6))
    labels = {"harvesterhci.io/latestUpgrade": "true"}
    states = {
        "h1": {"state": "Succeeded"},
        "h2": {"state": "Pre-draining"},
        "h3": {"state": "Images preloaded"},
    }
    metadata = {"labels": labels, "creationTimestamp": ago(hours=3)}
    upgrade = obj(
        "Upgrade",
        "harvesterhci.io/v1beta1",
        "hvst-upgrade-x",
        "harvester-system",
        metadata=metadata,
    )
    items.append(upgrade | {"spec": {"version": "v1.7.0"}, "status": {"nodeStatuses": states}})
    says = (
        "Upgrade hvst-upgrade-x empties this node, but nothing asks vms/web to leave",
        "kubectl taint nodes h2 kubevirt.io/drain=draining:NoSchedule",
    )
    return Incident(
        "https://github.com/harvester/harvester/issues/9595", items, "drain h2", 0, says
    )


def upgrade_waits_for_the_replica_of_its_node() -> Incident:
    """The last node is cordoned, and a volume could place its third replica there alone: the job
    asks no VM to leave before that volume is healthy.
    """
    first = upgrade_without_the_drain_taint().items
    items = [
        each for each in cordoned(first, "h2") if each["metadata"]["name"] != "pvc-vms-web-r-h2"
    ]
    since = ago(minutes=90)
    volume = only(items, "Volume", "pvc-vms-web")
    volume["spec"]["numberOfReplicas"] = 3
    short = {"type": "Scheduled", "status": "False", "lastTransitionTime": since}
    volume["status"] |= {"robustness": "degraded", "conditions": [short]}
    closed = {"type": "Schedulable", "status": "False", "reason": "KubernetesNodeCordoned"}
    for each in items:
        if each["kind"] == "Node" and each["apiVersion"].startswith("longhorn"):
            each["spec"]["disks"] = {"d": {"allowScheduling": True}}
            here = each["metadata"]["name"] == "h2"
            each["status"] = {"conditions": [closed] if here else []}
    labels = {"harvesterhci.io/node": "h2", "harvesterhci.io/upgrade": "hvst-upgrade-x"}
    job = obj("Job", "batch/v1", "hvst-upgrade-x-pre-drain-h2", "harvester-system")
    job["metadata"]["labels"] = labels
    job["status"] = {"active": 1, "startTime": since}
    says = (
        "its Job hvst-upgrade-x-pre-drain-h2 waits for Longhorn volume pvc-vms-web",
        "as h2 is not schedulable (KubernetesNodeCordoned)",
        "Uncordon h2 until that volume is healthy",
        "kubectl uncordon h2",
        "set its numberOfReplicas to 2",
        "and waits for Longhorn volume pvc-vms-web (degraded)",
    )
    never = ("kubectl taint", "waits for vms/web")
    source = "https://github.com/harvester/harvester/issues/7067"
    return Incident(source, [*items, job], "upgrade", 1, says, never)


def volume_limit(command: str) -> Incident:
    """Five VMs that a drain shuts down, and four places for their volumes on the other nodes."""
    driver = "csi.hetzner.cloud"
    items = [node(name) for name in NODES]
    items += (
        kubevirt((1, 6), NODES, NODES, infra={})
        + namespaces("shop")
        + storage_class("cloud", driver)
    )
    limit = {
        "spec": {
            "drivers": [
                {"name": driver, "nodeID": "x", "topologyKeys": [], "allocatable": {"count": 3}}
            ]
        }
    }
    items += [obj("CSINode", "storage.k8s.io/v1", name, **limit) for name in NODES]
    places = [
        *((f"away{index}", name) for index, name in enumerate(("n2", "n3"))),
        *((name, "n1") for name in VMS),
    ]
    for name, on in places:
        items += machine(name, on, strategy="None", namespace="shop", disks=[name])
        items += claim(name, "shop", modes=("ReadWriteOnce",), storage_class="cloud", driver=driver)
    says = (
        "or another VM in its place stays Pending until n1 is back or another node has room: "
        "csi.hetzner.cloud attaches at most 3 volumes to a node, and n2 has 1, n3 has 1 already.",
        "node n1: 5 VMs: 5 restart elsewhere, 1 of them only once there is room"
        if command.startswith("drain")
        else "Node n1 can be drained as it is, but not without downtime.",
    )
    source = "https://github.com/hetznercloud/csi-driver/issues/240"
    return Incident(source, items, command, 0, says, ("Nothing to do",))


VMS = ("crm", "db", "mail", "web", "wiki")


def volume_of_a_dead_node() -> Incident:
    items = (
        cluster(vms=[]) + machine("db", "n3", disks=["db"]) + claim("db", modes=("ReadWriteOnce",))
    )
    vmi, pod = (
        only(items, "VirtualMachineInstance", "db"),
        only(items, "Pod", "virt-launcher-db-k2x7q"),
    )
    vmi["status"] = {
        "phase": "Scheduling",
        "activePods": {pod["metadata"]["uid"]: "n3"},
        "conditions": [],
    }
    for each in (vmi, pod):
        each["metadata"]["creationTimestamp"] = ago(minutes=26)
    pod["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    spec = {
        "attacher": "rook-ceph.rbd.csi.ceph.com",
        "nodeName": "n2",
        "source": {"persistentVolumeName": "pvc-vms-db"},
    }
    items.append(
        obj("VolumeAttachment", "storage.k8s.io/v1", "csi-1", spec=spec, status={"attached": True})
    )
    says = (
        "claim db is still attached to n2, which has not reported for 5 h",
        "kubectl taint nodes n2 node.kubernetes",
    )
    source = "https://github.com/longhorn/longhorn/issues/5345"
    return Incident(source, dead(items, "n2"), "explain vm/db -n vms", 0, says)


def incidents() -> list[Incident]:
    return [
        wrong_selector(),
        no_longhorn_manager(),
        orphaned_engine(),
        attached_by_hand(),
        last_replica(),
        replicas_on_one_node(),
        single_replica_of_a_stopped_vm(),
        every_node_in_maintenance(),
        network_that_a_new_node_lacks(),
        witness(),
        one_management_node(),
        failed_osd(),
        osd_of_the_cordoned_node(),
        osd_without_data(),
        upgrade_without_the_drain_taint(),
        upgrade_waits_for_the_replica_of_its_node(),
        volume_limit("drain n1"),
        volume_of_a_dead_node(),
    ]
