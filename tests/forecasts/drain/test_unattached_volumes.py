"""Hotplugged volumes that do not reach a guest: another node has the disk,
or the pod that attaches it waits.
"""

import pytest

from tests import builders
from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import ago
from tests.incidents.machines import cordoned, find, guest, marked
from virt_admit.forecasts.drain.starts import unattached_volumes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

ZONE = "topology.kubernetes.io/zone"
SAID = "0/6 nodes are available: 1 node(s) had no available disk"
CORDONED = (
    "0/6 nodes are available: 1 node(s) were unschedulable, 5 node(s) didn't match Pod's node "
    "affinity/selector"
)
PREEMPTION = ". preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling."


def shown(items, status):
    """Let the VMI have a status of its hotplugged volume."""
    find(items, "VirtualMachineInstance", "db")["status"]["volumeStatus"][-1].update(status)


def ready(items):
    """Let the guest have the volume."""
    shown(items, {"phase": "Ready", "target": "sda"})


def plugged(
    affinity, *, phase="Pending", minutes=51, placed=False, said=SAID, change=lambda items: None
):
    """Return what keeps the volume of a VM on w2 from being attached."""
    items = (
        plain()
        + guest("db", "w2", hotplugged=["data"])
        + claim("data", modes=("ReadWriteOnce",), affinity=affinity)
    )
    for name, zone in (("w1", "a"), ("w2", "b"), ("w3", "b")):
        find(items, "Node", name)["metadata"]["labels"][ZONE] = zone
    helper = find(items, "Pod", "hp-volume-db")
    helper["metadata"]["creationTimestamp"] = ago(minutes=minutes)
    helper["status"] = {"phase": phase}
    if not placed:
        del helper["spec"]["nodeName"]
        unplaced = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": said,
        }
        helper["status"]["conditions"] = [unplaced]
    shown(items, {"phase": "AttachedToNode", "target": ""})
    change(items)
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    vmi = Object(find(items, "VirtualMachineInstance", "db"))
    found = [each for _, _, each in unattached_volumes.hotplugged(vmi, cluster)]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("affinity", "place", "selector"),
    [
        ({"topology.topolvm.io/node": "w1"}, "on node w1", "kubernetes.io/hostname=w1"),
        ({ZONE: "a"}, "in zone a", f"{ZONE}=a"),
    ],
)
def test_a_volume_of_another_place_never_comes(affinity, place, selector):
    found = plugged(affinity)

    assert found.reason == (
        "it is not attached: pod hp-volume-db has been Pending for 51 min, because claim data is "
        f"{place} alone, and the VM runs on w2: KubeVirt places a VM without regard to its "
        "hotplugged volumes. This does not end by itself"
    )
    key, _, value = selector.partition("=")
    assert found.remedy == (
        f"give the VM node selector {selector}, which takes effect after its restart (virtctl "
        "restart db -n vms): kubectl patch vm db -n vms --type=merge -p "
        f"""'{{"spec":{{"template":{{"spec":{{"nodeSelector":{{"{key}":"{value}"}}}}}}}}}}'; """
        "or unplug the volume (virtctl removevolume db --volume-name=data --persist -n vms)"
    )


@pytest.mark.parametrize(("release", "persist"), [("v1.7.0", True), ("v1.8.0", False)])
@pytest.mark.parametrize("named", [True, False])
def test_a_volume_that_the_vm_names_is_unplugged_from_it_too(release, persist, named):
    owner = [{"kind": "VirtualMachine", "name": "db", "controller": True}]
    guest = builders.vmi(metadata={"ownerReferences": owner})
    volumes = (
        [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}]
        if named
        else []
    )
    vm = builders.vm({"spec": {"domain": {}, "volumes": volumes}}, name="db")
    world = Snapshot(
        [vm, builders.kubevirt({}, status={"observedKubeVirtVersion": release})], ["*"], time=ago()
    )

    assert ("--persist" in unattached_volumes.unplug(guest, "data", world)) is (persist and named)


def test_another_cause_is_quoted():
    found = plugged({ZONE: "b"}, said=f"{SAID}{PREEMPTION}")

    assert found.reason == (
        "it is not attached: pod hp-volume-db has been Pending for 51 min: kube-scheduler says "
        f"{SAID}"
    )
    assert found.remedy == "let w2 take pod hp-volume-db: kubectl describe pod hp-volume-db -n vms"


@pytest.mark.parametrize(
    "found", [{"minutes": 2}, {"phase": "Running", "placed": True}, {"placed": True}]
)
def test_a_volume_that_is_attached_or_may_be_soon(found):
    affinity = {ZONE: "a"} if "minutes" in found else {ZONE: "b"}
    assert plugged(affinity, **found) is None


AWAY = "migrate the VM to another node: virtctl migrate db -n vms"


def tolerating(key):
    """Return a change that lets the pod which attaches the volume tolerate a taint."""
    toleration = {"key": key, "operator": "Exists", "effect": "NoSchedule"}

    def change(items):
        spec = find(items, "Pod", "hp-volume-db")["spec"]
        spec["tolerations"] = [*spec.get("tolerations", ()), toleration]  # pods share their lists

    return change


def test_a_cordon_of_the_node_on_which_the_vm_runs():
    found = plugged(
        {ZONE: "b"}, said=f"{CORDONED}{PREEMPTION}", change=lambda items: cordoned(items, "w2")
    )

    assert found.reason == (
        "it is not attached: pod hp-volume-db has been Pending for 51 min, because w2, where the "
        "VM runs, is cordoned, which such pods tolerate only from KubeVirt 1.8 on"
    )
    assert found.remedy == (
        "uncordon w2, if its maintenance is over: kubectl uncordon w2; or migrate the VM to "
        "another node"
    )


def test_a_node_that_is_emptied_is_not_uncordoned_before():
    def drained(items):
        cordoned(items, "w2")
        marked(items, "db", "w2")

    found = plugged({ZONE: "b"}, said=CORDONED, change=drained)

    assert found.remedy.startswith(
        "uncordon w2 once its drain is over: kubectl uncordon w2; or migrate the VM to another node"
    )


def test_a_cordon_that_a_controller_ends_stays():
    def talos(items):
        cordoned(items, "w2")
        find(items, "Node", "w2")["metadata"].setdefault("annotations", {})[
            "talos.dev/cordoned"
        ] = "true"

    found = plugged({ZONE: "b"}, said=CORDONED, change=talos)

    assert "is cordoned by Talos, which upgrades or reboots it, which such pods" in found.reason
    assert found.remedy == (
        "migrate the VM to another node: virtctl migrate db -n vms; or wait until w2 is uncordoned"
    )


def test_a_cordon_that_the_pod_tolerates_is_not_the_cause():
    def tolerated(items):
        cordoned(items, "w2")
        tolerating("node.kubernetes.io/unschedulable")(items)

    found = plugged({ZONE: "b"}, change=tolerated)

    assert "cordon" not in found.reason + found.remedy


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        (
            "example.com/keep",
            (
                f"{AWAY}; or if other pods may come to w2 meanwhile, remove that taint until the "
                "pod runs, then set it again (example.com/keep=x:NoSchedule)"
            ),
        ),
        (
            "node.kubernetes.io/disk-pressure",
            f"{AWAY}; or repair what Kubernetes reports with that taint",
        ),
    ],
)
@pytest.mark.parametrize("named", [True, False], ids=["before 1.34", "1.34"])
def test_another_taint_of_that_node(key, remedy, named):
    taints = [{"key": key, "value": "x", "effect": "NoSchedule"}]
    taint = f"taint {{{key}: x}}" if named else "taint(s)"
    said = f"0/6 nodes are available: 1 node(s) had untolerated {taint}"
    found = plugged(
        {ZONE: "b"},
        said=said,
        change=lambda items: find(items, "Node", "w2")["spec"].update(taints=taints),
    )

    assert (
        f"w2, where the VM runs, has taint {key}, which the pod does not tolerate" in found.reason
    )
    assert found.remedy.startswith(remedy)


@pytest.mark.parametrize("key", ["kubevirt.io/drain", "example.com/drain"])
@pytest.mark.parametrize("owned", [False, True])
def test_the_taint_of_a_drain_stays_until_it_is_over(key, owned):
    def drained(items):
        node = find(items, "Node", "w2")
        node["spec"]["taints"] = [{"key": key, "value": "draining", "effect": "NoSchedule"}]
        settings = find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]
        settings.setdefault("migrations", {})["nodeDrainTaintKey"] = "example.com/drain"
        if owned:
            node["metadata"].setdefault("annotations", {})["talos.dev/cordoned"] = "true"
        marked(items, "db", "w2")

    found = plugged(
        {ZONE: "b"},
        said=f"0/6 nodes are available: 1 node(s) had untolerated taint {{{key}: draining}}",
        change=drained,
    )

    by = " by Talos, which upgrades or reboots it" if owned else ""
    assert f"w2, where the VM runs, is drained{by} (taint {key})" in found.reason
    then = (
        "wait until w2 has no such taint" if owned else "remove that taint once its drain is over"
    )
    assert found.remedy == f"{AWAY}; or {then}"


def test_that_node_has_no_room():
    found = plugged(
        {ZONE: "b"}, said="0/6 nodes are available: 1 Too many pods, 5 node(s) didn't match"
    )

    assert found.reason.endswith("w2, where the VM runs, has no room for it (Too many pods)")
    assert found.remedy == f"{AWAY}; or make room on w2"


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_the_vm_tolerates_what_such_pods_did_not_before_kubevirt_1_2(effect):
    taint = {"key": "pool", "value": "virt", "effect": effect}

    def old(items):
        for name in ("w1", "w2", "w3"):
            find(items, "Node", name)["spec"]["taints"] = [taint]
        find(items, "KubeVirt", "kubevirt")["status"]["observedKubeVirtVersion"] = "v1.1.0"
        vmi = find(items, "VirtualMachineInstance", "db")
        vmi["spec"]["tolerations"] = [{"key": "pool", "operator": "Exists"}]

    found = plugged({ZONE: "b"}, said="1 node(s) had untolerated taint {pool: virt}", change=old)

    assert found.reason.endswith(
        ", as KubeVirt gives such pods the tolerations of the VM only from 1.2.0 on"
    )
    assert found.remedy.startswith("unplug the volume until KubeVirt is updated to 1.2.0 or later")
    assert ": virtctl removevolume db --volume-name=data --persist -n vms" in found.remedy
    assert ("then set it again (pool=virt:NoSchedule)" in found.remedy) is (effect == "NoSchedule")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
@pytest.mark.parametrize("release", ["v1.1.0", "v1.7.0"])
def test_a_volume_that_the_guest_has_is_not_unplugged_where_its_pod_is_gone(effect, release):
    def evicted(items):
        taints = [{"key": "pool", "value": "virt", "effect": effect}]
        find(items, "Node", "w2")["spec"]["taints"] = taints
        find(items, "KubeVirt", "kubevirt")["status"]["observedKubeVirtVersion"] = release
        ready(items)

    found = plugged(
        {ZONE: "b"}, said="1 node(s) had untolerated taint {pool: virt}", change=evicted
    )

    assert found.reason.startswith(
        "it is in the guest (phase Ready), but pod hp-volume-db, which holds it on the node, has "
        "been Pending for 51 min, because w2, where the VM runs, has taint pool, "
    )
    assert found.remedy.startswith("if other pods may come to w2")
    assert found.remedy.endswith(
        f": kubectl taint nodes w2 pool:{effect}-; or shut the VM down in an orderly way"
    )


@pytest.mark.parametrize("found", [{"minutes": 2}, {"phase": "Running", "placed": True}])
def test_a_volume_that_the_guest_has_with_its_pod(found):
    assert plugged({ZONE: "b"}, change=ready, **found) is None


def test_a_cordon_of_the_node_of_a_volume_that_the_guest_has():
    def change(items):
        cordoned(items, "w2")
        ready(items)

    found = plugged({ZONE: "b"}, said=CORDONED, change=change)

    assert "not attached" not in found.reason
    assert found.remedy == "uncordon w2, if its maintenance is over: kubectl uncordon w2"
