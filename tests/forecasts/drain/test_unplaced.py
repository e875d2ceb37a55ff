"""VMs for whose pod no node is left: a disk in one place, a node that is not ready, a TSC
frequency, room, labels.
"""

import pytest

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import obj
from tests.incidents.machines import find
from tests.incidents.starts import starting
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.running_release import may_be_managed

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
    assert found.remedy.startswith("free that much there, or add a node in zone b")


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
    assert found.remedy.startswith(
        f"{SETTING} to {HIGH} and stop and start the VM; or end virt-handler on w1"
    )
    assert found.remedy.endswith(
        "-p "
        f"""'{{"spec":{{"configuration":{{"developerConfiguration":{{"{MINIMUM}":{HIGH}}}}}}}}}'"""
    )


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
    assert found.remedy.endswith("kubectl label nodes w1 cpu-timer.node.kubevirt.io/tsc-frequency-")


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


def test_nodes_without_room():
    found = waiting(plain(memory="1Gi"))

    assert found.reason.startswith("no node can take it: memory: ")
    assert found.reason.endswith("It starts by itself once there is room")
    assert found.remedy == "add a node or free that much on one"


def test_a_taint_of_every_node():
    items = plain()
    tainted("dedicated", *WORKERS)(items)

    assert (
        waiting(items).remedy == "remove the taint from one of the nodes, or let the VM tolerate it"
    )


# --- a disk where the VM may not run --------------------------------------------------------------

AT_ONCE = "cdi.kubevirt.io/storage.bind.immediate.requested"
HONORED = ("HonorWaitForFirstConsumer",)


def misplaced(mode, gates=HONORED, disk=(), own=(), change=None):
    """Return what keeps a VM off w1, where its disk is: it demands a label that w2 has.

    ``disk``, ``own``: annotations of the DataVolume and of its claim.
    """
    items = plain()
    find(items, "Node", "w2")["metadata"]["labels"]["os"] = "windows"
    starts = [
        each
        for each in starting("web", "Scheduling")
        if not each["kind"].startswith("PersistentVolume")
    ]
    demand = {"key": "os", "operator": "In", "values": ["windows"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [demand]}]}
    vmi = find(starts, "VirtualMachineInstance", "web")
    vmi["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    filled, cdi = imported(*gates)[1], imported(*gates)[0]
    filled["metadata"]["annotations"] = dict.fromkeys(disk, "")
    claimed = on_node("web", "w1")
    claimed[0]["metadata"]["annotations"] = dict.fromkeys(own, "")
    classes = [
        obj("StorageClass", "storage.k8s.io/v1", name, provisioner="csi.example.com", **fields)
        for name, fields in (("local", {"volumeBindingMode": mode}), ("shared", {}))
    ]
    everywhere = claim("other", modes=("ReadWriteMany",), storage_class="shared")
    items = [*items, *starts, filled, cdi, *claimed, *classes, *everywhere]
    if change is not None:
        change(items)
    return stuck(items, "web")


def test_cdi_was_asked_not_to_wait_for_the_vm():
    found = misplaced("WaitForFirstConsumer", disk=[AT_ONCE], own=[AT_ONCE])

    assert found.reason == (
        "its claim web is on node w1 alone, where no node can run it (w1: node affinity): a pod of "
        f"CDI chose that place before the VM started, as DataVolume web has the annotation "
        f"{AT_ONCE}, so that StorageClass local (WaitForFirstConsumer) does not wait for the VM. "
        "It does not start before one can"
    )
    assert found.remedy == (
        f"leave out the annotation {AT_ONCE} and make disk web again for the VM: its pod may "
        "then go to w2. Import, upload or restore its data before you delete the old one: "
        "kubectl get datavolume web -n vms -o yaml; or use StorageClass shared, whose volumes "
        "every node reaches; or, if such VMs may run on w1, label it so (kubectl label node w1 "
        "os=windows)"
    )


@pytest.mark.parametrize(
    ("mode", "gates", "own", "says"),
    [
        ("Immediate", HONORED, (), "StorageClass local chooses where a volume lies before"),
        ("WaitForFirstConsumer", (), (AT_ONCE,), "(HonorWaitForFirstConsumer is off)"),
    ],
    ids=["by its class", "as for each disk"],
)
def test_a_place_was_chosen_without_the_vm(mode, gates, own, says):
    found = misplaced(mode, gates, own=own)

    assert says in found.reason
    assert AT_ONCE not in found.reason


def full(items):
    """Let the VM demand nothing that w1 lacks but memory."""
    find(items, "Node", "w1")["metadata"]["labels"]["os"] = "windows"
    find(items, "Node", "w1")["status"]["allocatable"]["memory"] = "1Gi"


def dedicated(items):
    """Let a taint alone keep the VM off w1: it may pass."""
    find(items, "Node", "w1")["metadata"]["labels"]["os"] = "windows"
    tainted("dedicated", "w1")(items)


def other(items):
    """Let w1 have another value of the label, which nothing may change."""
    find(items, "Node", "w1")["metadata"]["labels"]["os"] = "linux"


def networked(items):
    """Let the VM demand what a controller writes to nodes with a network."""
    key = "network.harvesterhci.io/vlan10"
    affinity = find(items, "VirtualMachineInstance", "web")["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    term["matchExpressions"] = [{"key": key, "operator": "In", "values": ["true"]}]
    find(items, "Node", "w2")["metadata"]["labels"][key] = "true"


@pytest.mark.parametrize(("change", "hint"), [(other, False), (networked, True)])
def test_a_label_with_another_value_or_of_a_controller_is_not_set(change, hint):
    found = misplaced("WaitForFirstConsumer", disk=[AT_ONCE], change=change)

    label = "network.harvesterhci.io/vlan10=true"
    why = f"or see why w1 has no label {label}, which a controller may write"
    assert found.remedy.endswith(why) is hint
    assert "a pod of CDI chose that place" in found.reason
    assert "kubectl label" not in found.remedy


@pytest.mark.parametrize(
    ("disk", "change"),
    [((), None), ((AT_ONCE,), full), ((AT_ONCE,), dedicated)],
    ids=["not asked", "w1 is full", "w1 has a taint"],
)
def test_the_vm_chose_the_place_of_its_disk_or_lacks_room_there(disk, change):
    found = misplaced("WaitForFirstConsumer", disk=disk, change=change)

    assert "is on node w1 alone, where no node can run it (" in found.reason
    assert "chose" not in found.reason
    assert "restore the disk on another node" in found.remedy


# --- disks on different nodes ---------------------------------------------------------------------


def on_node(name, node):
    """Return a claim of a class, bound to a volume of one node."""
    return claim(
        name,
        modes=("ReadWriteOnce",),
        affinity={"kubernetes.io/hostname": node},
        storage_class="local",
    )


def apart(mode, *more):
    """Return what keeps a VM from starting whose two disks are on different nodes."""
    own = [
        each
        for each in starting("web", "Scheduling")
        if not each["kind"].startswith("PersistentVolume")
    ]
    for kind in ("VirtualMachine", "VirtualMachineInstance"):
        spec = find(own, kind, "web")["spec"]
        spec = spec["template"]["spec"] if kind == "VirtualMachine" else spec
        spec["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in ("web", "web-data")
        ]
    local = obj("StorageClass", "storage.k8s.io/v1", "local", volumeBindingMode=mode)
    return stuck(
        [*plain(), *own, local, *on_node("web", "w1"), *on_node("web-data", "w2"), *more], "web"
    )


def imported(*gates):
    """Return CDI with these feature gates, and the DataVolumes of both disks."""
    cdi = obj(
        "CDI", "cdi.kubevirt.io/v1beta1", "cdi", spec={"config": {"featureGates": list(gates)}}
    )
    return [
        cdi,
        *(
            obj("DataVolume", "cdi.kubevirt.io/v1beta1", name, "vms")
            for name in ("web", "web-data")
        ),
    ]


def test_cdi_placed_each_disk_of_a_vm():
    found = apart("WaitForFirstConsumer", *imported("WebhookPvcRendering"))

    assert (
        "its claim web is on node w1 alone, its claim web-data is on node w2 alone" in found.reason
    )
    assert "WaitForFirstConsumer of StorageClass local has no effect" in found.reason
    assert found.remedy.startswith(
        "turn the feature gate HonorWaitForFirstConsumer of CDI on and make disk web-data again"
    )
    assert (
        "delete its DataVolume while the VM is stopped, if its data can be imported" in found.remedy
    )
    assert '"featureGates":["WebhookPvcRendering","HonorWaitForFirstConsumer"]' in found.remedy


def test_a_class_that_binds_at_once_placed_each_disk_of_a_vm():
    found = apart("Immediate")

    assert "StorageClass local chooses where a volume lies before the pod of" in found.reason
    assert found.remedy.startswith(
        "use a StorageClass with WaitForFirstConsumer and make disk web-data again"
    )


def test_a_disk_of_a_template_is_made_again_after_its_template_is_changed():
    own = {"kind": "VirtualMachine", "name": "web", "controller": True}
    made = imported()[1:]
    for each in made:
        each["metadata"]["ownerReferences"] = [own]
    waits = obj("StorageClass", "storage.k8s.io/v1", "late")
    waits["volumeBindingMode"] = "WaitForFirstConsumer"
    found = apart("Immediate", *made, waits)

    assert found.remedy == (
        "use a StorageClass with WaitForFirstConsumer (late) for disk web-data in the "
        "dataVolumeTemplates of the VM: kubectl edit vm web -n vms; then stop the VM, delete "
        "DataVolume web-data if its data can be imported or restored, and start the VM: KubeVirt "
        "makes it again, to lie where web does (node w1)"
    )


def test_cdi_was_asked_not_to_wait_for_one_disk():
    *rest, data = imported(*HONORED)
    data["metadata"]["annotations"] = {AT_ONCE: ""}
    found = apart("WaitForFirstConsumer", *rest, data)

    assert f"DataVolume web-data has the annotation {AT_ONCE}" in found.reason


@pytest.mark.parametrize("more", [[], imported("HonorWaitForFirstConsumer"), imported()[:2]])
def test_no_setting_is_blamed_for_disks_that_were_placed_otherwise(more):
    found = apart("WaitForFirstConsumer", *more)

    assert found.reason.endswith(
        "its claim web-data is on node w2 alone. It does not start before that changes"
    )
    assert found.remedy.startswith(
        "make disk web-data again, which is to lie where web does (node w1)"
    )


def test_hyperconverged_that_was_not_read_may_write_the_objects():
    cdi, kubevirt = Object(imported()[0]), Object(find(plain(), "KubeVirt", "kubevirt"))
    read = Snapshot([cdi, kubevirt], ["*"])
    unread = Snapshot([cdi, kubevirt], ["kubevirts.kubevirt.io", "cdis.cdi.kubevirt.io"])

    for written in (cdi, kubevirt):
        assert not may_be_managed(written, read)
        assert may_be_managed(written, unread)
