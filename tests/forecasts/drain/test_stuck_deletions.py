"""What is offered for VMs whose deletion does not end, and for copies of VMs that are refused."""

from tests.builders import complete, manifest
from tests.for_each import for_each
from virt_admit.forecasts.drain.control import held_copies, stuck_deletions

BEAT = [{"type": "Ready", "lastHeartbeatTime": "2026-03-01T10:30:00Z"}]
NOW = manifest("v1", "Node", "n", status={"conditions": BEAT})
SNAPSHOTS = "snapshot.kubevirt.io/v1beta1"
PROTECTED = "snapshot.kubevirt.io/snapshot-source-protection"


def deleted(name, finalizer, **status):
    metadata = {"deletionTimestamp": "2026-03-01T10:00:00Z", "finalizers": [finalizer]}
    return manifest(
        "kubevirt.io/v1", "VirtualMachine", name, "shop", metadata=metadata, status=status
    )


def snapshot(begun, **status):
    return manifest(
        SNAPSHOTS,
        "VirtualMachineSnapshot",
        "nightly",
        "shop",
        metadata={"creationTimestamp": begun},
        spec={"source": {"kind": "VirtualMachine", "name": "db"}},
        status=status,
    )


@for_each(
    "copy, verb, remedy",
    [
        (snapshot("2026-03-01T10:20:00Z", phase="InProgress"), "describe", "let it end"),
        (
            snapshot("2026-03-01T08:00:00Z", phase="InProgress"),
            "delete",
            "repair what keeps it, or delete it",
        ),
        (
            snapshot("2026-03-01T10:20:00Z", phase="Failed"),
            "delete",
            "repair what keeps it, or delete it",
        ),
    ],
)
def test_a_snapshot_is_only_deleted_if_it_does_not_end(copy, verb, remedy):
    vm = deleted("db", PROTECTED, snapshotInProgress="nightly")
    problem = stuck_deletions.of_vm(vm, complete(NOW, vm, copy)).problem
    assert problem.remedy == remedy
    assert problem.command.startswith(f"kubectl {verb} virtualmachinesnapshot nightly")


def test_the_pods_of_virt_controller_are_looked_for_once():
    vms = [deleted(name, stuck_deletions.OF_KUBEVIRT) for name in ("a", "b", "c")]
    cluster = complete(NOW, manifest("apps/v1", "Deployment", "virt-controller", "kubevirt"), *vms)
    known, asked = cluster.known, []
    cluster.known = lambda kind, *of: asked.append(kind.kind) or known(kind, *of)

    for vm in vms:
        assert "virt-controller has no Ready pod" in stuck_deletions.of_vm(vm, cluster).reason
        asked.append("next VM")
    assert "Pod" not in asked[asked.index("next VM") :]


def test_no_vm_is_deleted_for_its_address():
    said = (
        'admission webhook "mutatevirtualmachines.kubemacpool.io" denied the request: '
        "Failed to allocate mac to the vm object: failed to allocate it"
    )
    restore = manifest(
        SNAPSHOTS,
        "VirtualMachineRestore",
        "twin",
        "shop",
        metadata={"creationTimestamp": "2026-03-01T10:00:00Z"},
        spec={"target": {"kind": "VirtualMachine", "name": "db2"}},
        status={"conditions": [{"type": "Progressing", "status": "False", "reason": said}]},
    )
    found = held_copies.of(restore, complete(NOW, restore))
    assert found.remedy.endswith("with a patch that clears macAddress of each interface")


@for_each("grace, is_late", [(10**15, False), (-(10**15), True)])
def test_a_grace_period_out_of_range_ends_nothing(grace, is_late):
    vm = deleted("db", stuck_deletions.OF_KUBEVIRT)
    vm.data["spec"] = {"template": {"spec": {"terminationGracePeriodSeconds": grace}}}
    gone = {"metadata": {"deletionTimestamp": "2026-03-01T10:00:00Z"}}
    vmi = manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "db",
        "shop",
        spec={"terminationGracePeriodSeconds": grace},
    )
    cluster = complete(NOW, vm, vmi)
    assert (stuck_deletions.of_vm(vm, cluster) is not None) == is_late
    assert (
        stuck_deletions.of_namespace(manifest("v1", "Namespace", "shop", **gone), cluster) is None
    )
