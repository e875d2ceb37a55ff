"""VMs for whose pod no node is left: a disk in one place, a node that is not ready, a TSC
frequency, room, labels.
"""

import pytest

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import ago, obj, pod, snapshot
from tests.incidents.machines import find
from tests.incidents.starts import starting
from virt_admit.forecasts.placement import start_doubts
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of

WORKERS = ("w1", "w2", "w3")
ZONE = "topology.kubernetes.io/zone"


def waiting(items, **fields):
    return stuck(items + starting("web", "Scheduling", **fields), "web")


def of_disk(zones, affinity, change=lambda _: None):
    """Return what keeps a VM from starting whose disk has a node affinity.

    ``zones``: of the workers.
    """
    items = plain()
    for name, zone in zip(WORKERS, zones, strict=True):
        find(items, "Node", name)["metadata"]["labels"][ZONE] = zone
    change(items)
    own = [
        each
        for each in starting("web", "Scheduling")
        if not each["kind"].startswith("PersistentVolume")
    ]
    return stuck([*items, *own, *claim("web", modes=("ReadWriteOnce",), affinity=affinity)], "web")


def tainted(key, *nodes):
    def change(items):
        for name in nodes:
            find(items, "Node", name)["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]

    return change


def test_a_disk_in_a_zone_without_a_node():
    found = of_disk(("a", "a", "c"), {ZONE: "b"})

    assert found.reason == (
        "its claim web is in zone b alone, where no node can run it. It does not start before "
        "one can"
    )
    assert found.remedy.startswith(
        f"add a node in zone b ({ZONE}=b), or restore the disk elsewhere: kubectl describe"
    )


def test_a_disk_in_a_zone_whose_only_node_has_no_room():
    def full(items):
        find(items, "Node", "w2")["status"]["allocatable"]["memory"] = "1Gi"

    found = of_disk(("a", "b", "c"), {ZONE: "b"}, full)

    assert "in zone b alone, where no node can run it (w2: memory: " in found.reason
    assert found.remedy.startswith("make the VM smaller, or add a node in zone b")


def test_a_disk_of_a_node_that_is_gone():
    found = of_disk(("a", "b", "c"), {"topology.topolvm.io/node": "w9"})

    assert found.reason.startswith("its claim web is on node w9 alone, and no such node exists. ")
    assert found.remedy.startswith(
        "bring that node back (topology.topolvm.io/node=w9), or restore the disk"
    )


def test_a_disk_that_a_node_reaches_is_no_obstacle():
    assert of_disk(("a", "b", "c"), {ZONE: "b"}) is None


@pytest.mark.parametrize(
    ("key", "what", "remedy"),
    [
        ("disk-pressure", "disk pressure", "free disk space on w2"),
        ("memory-pressure", "memory pressure", "free memory on w2"),
        ("pid-pressure", "too many processes", "end the processes on w2"),
    ],
)
def test_the_only_node_with_its_disk_is_under_pressure(key, what, remedy):
    found = of_disk(("a", "b", "c"), {ZONE: "b"}, tainted(f"node.kubernetes.io/{key}", "w2"))

    assert found.reason.startswith(
        f"no node that could take it is schedulable now: w2 ({what}), and its volume of claim web "
        "is in"
    )
    assert found.reason.endswith("It starts by itself once one is ready")
    assert found.remedy.startswith(remedy)
    assert "kubectl describe node w2" in found.remedy


def test_the_only_node_with_its_disk_is_cordoned():
    def cordon(items):
        find(items, "Node", "w2")["spec"]["unschedulable"] = True

    found = of_disk(("a", "b", "c"), {ZONE: "b"}, cordon)

    assert found.reason.startswith("no node that could take it is schedulable now: w2")
    assert found.remedy == "uncordon w2, if its maintenance is over: kubectl uncordon w2"


# --- the time stamp counter -----------------------------------------------------------------------

HYPERCONVERGED = obj("HyperConverged", "hco.kubevirt.io/v1beta1", "hco", "cnv")
MINIMUM = "minimumClusterTSCFrequency"
SETTING = f"set {MINIMUM} (spec.configuration.developerConfiguration) of KubeVirt"
LOW, HIGH = "1995312000", "2294608000"


def clocks(items, frequencies):
    for name, frequency in frequencies.items():
        labels = find(items, "Node", name)["metadata"]["labels"]
        for key in [each for each in labels if "tsc-frequency" in each]:
            del labels[key]
        labels["cpu-timer.node.kubevirt.io/tsc-frequency"] = frequency
        labels[f"scheduling.node.kubevirt.io/tsc-frequency-{frequency}"] = "true"
        labels["cpu-timer.node.kubevirt.io/tsc-scalable"] = "false"
    return items


def with_frequency(items):
    own = starting("win", "Scheduling")
    for kind in ("VirtualMachine", "VirtualMachineInstance"):
        spec = find(own, kind, "win")["spec"]
        spec = spec["template"]["spec"] if "template" in spec else spec
        spec["domain"]["features"] = {"hyperv": {"reenlightenment": {"enabled": True}}}
    find(own, "VirtualMachineInstance", "win")["status"]["topologyHints"] = {
        "tscFrequency": int(LOW)
    }
    return stuck(items + own, "win")


def test_a_tsc_frequency_of_nodes_where_no_vm_may_run():
    items = clocks(plain(), {"w1": LOW, "w2": HIGH, "w3": HIGH})
    tainted("infra", "w1")(items)
    found = with_frequency(items)

    assert found.reason.startswith(f"no node that could take it has the TSC frequency {LOW}")
    assert (
        f"w2, w3 have {HIGH}. It takes the lowest one of the nodes with virt-handler, that of w1"
        in found.reason
    )
    assert (
        "where this VM cannot run (taint infra). It does not start before that changes"
        in found.reason
    )
    assert found.remedy.startswith(f"{SETTING} to {HIGH} and stop and start the VM: kubectl patch ")
    assert (
        "-p "
        f"""'{{"spec":{{"configuration":{{"developerConfiguration":{{"{MINIMUM}":{HIGH}}}}}}}}}'"""
        "; or end virt-handler on w1"
    ) in found.remedy


def test_hyperconverged_has_no_lowest_tsc_frequency():
    items = clocks(plain(), {"w1": LOW, "w2": HIGH, "w3": HIGH})
    tainted("infra", "w1")(items)
    found = with_frequency([*items, HYPERCONVERGED])

    assert found.remedy.startswith("end virt-handler on w1")
    assert MINIMUM not in found.remedy


def test_before_1_0_1_the_label_of_a_node_counts_where_no_vm_may_run():
    items = clocks(plain(), {"w1": LOW, "w2": HIGH, "w3": "3294608000"})
    tainted("infra", "w1")(items)
    find(items, "KubeVirt", "kubevirt")["status"]["observedKubeVirtVersion"] = "v1.0.0"
    found = with_frequency(items)

    assert "the lowest one of the nodes with such a label, that of w1" in found.reason
    assert found.remedy.startswith(
        "end virt-handler on w1 (nodePlacement of its workloads), then update KubeVirt to 1.0.1"
    )
    assert command_of(found.remedy) == (
        "kubectl label nodes w1 cpu-timer.node.kubevirt.io/tsc-frequency-"
    )


def test_a_tsc_frequency_that_no_node_has_any_more():
    found = with_frequency(clocks(plain(), dict.fromkeys(WORKERS, HIGH)))

    assert found.reason.endswith("and no node brings it now. It does not start before that changes")
    assert found.remedy.startswith("stop and start the VM")


def test_a_tsc_frequency_that_is_set_too_low():
    items = clocks(plain(), dict.fromkeys(WORKERS, HIGH))
    settings = find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]
    settings.setdefault("developerConfiguration", {})["minimumClusterTSCFrequency"] = int(LOW)
    found = with_frequency(items)

    assert "It is set in KubeVirt (minimumClusterTSCFrequency)" in found.reason
    assert found.remedy.startswith(
        f"{SETTING} to {HIGH} and stop and start the VM: kubectl patch kubevirt"
    )


def as_control_plane(items, *names, at="2026-01-01T00:00:00Z", role="control-plane"):
    """Cordon nodes for good."""
    for name in names:
        node = find(items, "Node", name)
        node["metadata"]["labels"][f"node-role.kubernetes.io/{role}"] = ""
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        node["spec"] |= {"unschedulable": True, "taints": [taint | {"timeAdded": at}]}
    return items


def test_a_tsc_frequency_of_control_plane_nodes_that_are_kept_cordoned():
    items = as_control_plane(clocks(plain(), {"w1": LOW, "w2": HIGH, "w3": HIGH}), "w1")
    find(items, "KubeVirt", "kubevirt")["status"]["observedKubeVirtVersion"] = "v1.0.0"
    found = with_frequency(items)

    assert "(status.topologyHints.tscFrequency, for hyperv.reenlightenment): w2, w3" in found.reason
    assert "that of the control plane (w1), which is kept cordoned" in found.reason
    assert "uncordon" not in found.remedy
    assert found.remedy.startswith(f"{SETTING} to {HIGH} and stop and start the VM: kubectl patch ")
    assert "; or end virt-handler on w1 (nodePlacement of its workloads), then update" in (
        found.remedy
    )
    assert found.remedy.endswith("remove hyperv.reenlightenment from the VM")


@pytest.mark.parametrize(
    "closed",
    [{"at": ago(hours=2)}, {"role": "worker"}],
    ids=["it was cordoned today", "it is a worker"],
)
def test_a_tsc_frequency_of_a_node_in_maintenance(closed):
    items = as_control_plane(clocks(plain(), {"w1": LOW, "w2": HIGH, "w3": HIGH}), "w1", **closed)
    found = with_frequency(items)

    assert found.reason.startswith("no node that could take it is schedulable now: w1 (cordoned)")
    assert f"others lack its TSC frequency {LOW} (status.topologyHints.tscF" in found.reason
    assert found.remedy == "uncordon w1, if its maintenance is over: kubectl uncordon w1"


def test_a_control_plane_that_runs_vms_too_is_in_maintenance():
    items = as_control_plane(clocks(plain(), {"w1": LOW, "w2": HIGH, "w3": HIGH}), "w1")
    label = "node-role.kubernetes.io/control-plane"
    find(items, "Node", "w2")["metadata"]["labels"][label] = ""

    assert "uncordon w1" in with_frequency(items).remedy


@pytest.mark.parametrize(("at", "is_kept"), [("2026-01-01T00:00:00Z", True), (ago(hours=2), False)])
def test_no_kept_control_plane_node_is_uncordoned_for_another_pod(at, is_kept):
    read = snapshot(as_control_plane(plain(), "w1", at=at))
    cluster = Snapshot(map(Object, read["items"]), complete=["*"], time=read["time"])
    way = start_doubts.opens("on w1 is cordoned", "", cluster)

    assert way.endswith("add a node that takes it")
    assert ("uncordon" not in way) is is_kept


def test_no_kept_control_plane_node_is_uncordoned_for_room():
    items = as_control_plane(plain(), "w1")
    for name in ("w2", "w3"):
        find(items, "Node", name)["status"]["allocatable"]["memory"] = "1Gi"
    found = waiting(items)

    assert "uncordon" not in found.remedy
    assert "memory" in found.reason


def test_a_node_with_its_tsc_frequency_that_is_full_keeps_its_virt_handler():
    items = clocks(plain(), {"w1": LOW, "w2": HIGH, "w3": HIGH})
    find(items, "Node", "w1")["status"]["allocatable"]["memory"] = "1Gi"
    found = with_frequency(items)

    assert "virt-handler" not in found.remedy


# --- all others -----------------------------------------------------------------------------------


def test_a_node_selector_that_no_node_has():
    found = waiting(plain(), spec={"nodeSelector": {"disk": "fast"}})

    assert (
        found.reason
        == "no node can take it: node selector disk=fast. It does not start before that changes"
    )
    assert (
        found.remedy
        == "set the label disk=fast on another node, or remove the node selector from the VM"
    )


def taken(*nodes):
    """Return pods that use all memory of nodes with 16Gi."""
    use = {"memory": "15Gi"}
    return [pod(f"taken-{name}", "vms", name, {}, None, requests=use) for name in nodes]


LARGER = (
    "add a node with at least 4Gi of memory (w1, the largest of these, has 1Gi), or make the VM"
)


@pytest.mark.parametrize(
    ("small", "remedy"),
    [
        ((), "free the missing memory on another node first, then set the label disk=fast on that"),
        (("w1", "w3"), "free the missing memory on w2 first, then set the label disk=fast on that"),
        (WORKERS, f"{LARGER} smaller, then set the label disk=fast on that node, or remove the"),
    ],
    ids=["each node is large enough", "one node is large enough", "none is large enough"],
)
def test_a_label_alone_does_not_help_where_memory_is_missing_too(small, remedy):
    items = plain(memory="16Gi")
    for name in small:
        find(items, "Node", name)["status"]["allocatable"]["memory"] = "1Gi"
    items += taken(*(name for name in WORKERS if name not in small))

    found = waiting(items, spec={"nodeSelector": {"disk": "fast"}})
    assert found.remedy.startswith(remedy)


def test_nodes_without_room():
    found = waiting(plain(memory="16Gi") + taken(*WORKERS))

    assert found.reason.startswith("no node can take it: memory: ")
    assert found.reason.endswith("It starts by itself once there is room")
    assert found.remedy == "add a node or free that much on one"


def test_nodes_that_are_too_small():
    assert waiting(plain(memory="1Gi")).remedy == f"{LARGER} smaller"


def test_a_taint_of_every_node():
    items = plain()
    tainted("dedicated", *WORKERS)(items)

    assert (
        waiting(items).remedy == "remove the taint from one of the nodes, or let the VM tolerate it"
    )
