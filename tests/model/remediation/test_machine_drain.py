"""When Cluster API ends the drain of a node whose Machine is being deleted."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import ago, launcher, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.endless import given_time_outs
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import machine_drain


def machine(spec, *, version="v1beta2", group="cluster.x-k8s.io", deleted=True, started=""):
    metadata = {"deletionTimestamp": ago(600)} if deleted else {}
    deletion = {"deletion": {"nodeDrainStartTime": started}} if started else {}
    status = {"nodeRef": {"name": "a"}, **deletion}
    return manifest(
        f"{group}/{version}",
        "Machine",
        "w",
        "machines",
        metadata=metadata,
        spec=spec,
        status=status,
    )


@pytest.mark.parametrize(
    ("found", "age"),
    [
        (machine({"deletion": {"nodeDrainTimeoutSeconds": 900}}), -300),
        (machine({"deletion": {"nodeDrainTimeoutSeconds": 900}}, started=ago(500)), -400),
        (machine({"nodeDrainTimeout": "10m0s"}, version="v1beta1"), 0),
        (machine({"deletion": {"nodeDrainTimeoutSeconds": 0}}), None),
        (machine({"nodeDrainTimeout": "soon"}, version="v1beta1"), None),
        (machine({"deletion": {"nodeDrainTimeoutSeconds": 10**18}}), None),
        (machine({}), None),
        (
            machine({"nodeDrainTimeout": "10m0s"}, group="machine.openshift.io", version="v1beta1"),
            None,
        ),
    ],
)
def test_the_end_of_the_drain(found, age):
    assert clock.stamp(machine_drain.ends(found)) == (ago(age) if age is not None else None)


def notes(found, *more):
    cluster = vm_motion.cluster(vmi(), launcher(), found, *more)
    return [note for note in drain_plan.plan(cluster, "a").nodes[0].notes if "Machine" in note]


def control_plane_notes(found):
    labels = {"node-role.kubernetes.io/control-plane": ""}
    own = manifest("v1", "Node", "a", metadata={"labels": labels})
    cluster = Snapshot([own, found], complete=["*"], time=ago(0))
    return [note for note in drain_plan.plan(cluster, "a").nodes[0].notes if "Machine" in note]


def test_a_drain_notes_what_happens_to_vms_that_are_left():
    limit = {"nodeDrainTimeoutSeconds": 900}
    attached = manifest(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "csi-1",
        spec={"nodeName": "a", "source": {"persistentVolumeName": "pvc-1"}},
        status={"attached": True},
    )
    (forever,) = notes(machine({"deletion": limit}), attached)
    assert "Cluster API ends the drain for Machine w at 11:05 UTC" in forever
    assert (
        "VMs with attached volumes that still run then keep the node waiting without limit"
        in forever
    )
    (lost,) = notes(
        machine({"deletion": limit | {"nodeVolumeDetachTimeoutSeconds": 300}}), attached
    )
    assert "VMs that still run 5 min later are lost with the node" in lost
    (bare,) = notes(machine({"deletion": limit}))
    assert "VMs that still run then are lost with the node" in bare
    (master,) = control_plane_notes(machine({"deletion": limit}))
    assert "no VM is there, and pods that still run then end with it" in master
    assert notes(machine({"deletion": limit}, deleted=False)) == []
    (over,) = notes(machine({"deletion": {"nodeDrainTimeoutSeconds": 60}}))
    assert over.startswith("The time of Cluster API's drain for Machine w was over at ")


@pytest.mark.parametrize(
    "spec",
    [{}, {"nodeDrainTimeout": "0s"}, {"deletion": {"nodeDrainTimeoutSeconds": 0}}],
    ids=["unset", "0s", "0"],
)
def test_a_drain_notes_that_nothing_ends_it(spec):
    (note,) = notes(machine(spec))
    assert "drains the node for Machine w without a limit" in note
    assert notes(machine(spec, deleted=False)) == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "nodeDrainTimeout is not set"),
        ({"deletion": {"nodeDrainTimeoutSeconds": 0}}, "nodeDrainTimeoutSeconds 0 means no limit"),
        ({"nodeDrainTimeout": "0s"}, "nodeDrainTimeout 0s means no limit"),
    ],
)
def test_why_a_drain_has_no_limit(spec, why):
    assert f"without a limit, as {why}: " in notes(machine(spec))[0]


def test_the_words_of_two_pods_are_not_joined():
    def said(name):
        return (
            f"Pod shop/virt-launcher-{name}: failed to evict Pod, admission webhook "
            '"virt-launcher-eviction-interceptor.kubevirt.io" denied the request: Evacuation in '
            f'progress: Eviction triggered evacuation of VMI "shop/{name}"'
        )

    found = machine({})
    begun = "Drain not completed yet (started at 2026-05-19T08:19:32Z):"
    found.data["status"]["conditions"] = [
        {
            "type": "Deleting",
            "status": "True",
            "reason": "DrainingNode",
            "message": f"{begun}\n* {said('one')} \n* {said('two')} ",
        }
    ]
    (note,) = notes(found)
    assert "virt-launcher-one: failed" in note
    assert note.endswith('of VMI "shop/one"; and 1 more cause.')
    assert "two" not in note
    assert machine_drain.brief(said("one"), 1000) == said("one")


def _owned(kind, name, **spec):
    found = machine(spec, version="v1beta1")
    own = {"kind": kind, "name": name, "controller": True}
    labels = {"cluster.x-k8s.io/deployment-name": "edge"} if kind == "MachineSet" else {}
    found.data["metadata"] |= {"ownerReferences": [own], "labels": labels}
    return found


def _owner(kind, name, group="cluster.x-k8s.io", **template):
    place = "template" if kind == "MachineSet" else "machineTemplate"
    return manifest(f"{group}/v1beta1", kind, name, "machines", spec={place: template})


def _controller(release):
    image = f"registry.k8s.io/cluster-api/cluster-api-controller:{release}"
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    return manifest("apps/v1", "Deployment", "capi-controller-manager", spec=spec)


_SET = _owner("MachineSet", "edge-1", spec={"nodeDrainTimeout": "15m0s"})
_KCP = _owner(
    "KubeadmControlPlane", "cp", "controlplane.cluster.x-k8s.io", nodeDrainTimeout="15m0s"
)


@pytest.mark.parametrize(
    ("found", "owner", "release", "where"),
    [
        (_owned("MachineSet", "edge-1"), _SET, "v1.7.1", "MachineDeployment edge sets 15 min"),
        (_owned("MachineSet", "edge-1"), _SET, "v1.8.0", ""),
        (_owned("MachineSet", "edge-1"), _owner("MachineSet", "edge-1"), "v1.7.1", ""),
        (_owned("KubeadmControlPlane", "cp"), _KCP, "v1.8.9", "KubeadmControlPlane cp sets 15 min"),
        (_owned("KubeadmControlPlane", "cp"), _KCP, "v1.9.0", ""),
        (_owned("MachineSet", "edge-1"), _SET, "latest", ""),
    ],
)
def test_a_limit_that_a_machine_in_deletion_does_not_get_is_set_on_it(found, owner, release, where):
    (note,) = notes(found, owner, _controller(release))
    assert "as nodeDrainTimeout is not set" in note
    assert (where in note) if where else (" sets " not in note)
    patch = """kubectl patch machines.cluster.x-k8s.io w -n machines --type=merge -p """
    own = patch + """'{"spec":{"nodeDrainTimeout":"15m0s"}}'"""
    assert (own in note) == bool(where)


@pytest.mark.parametrize(
    ("release", "deleted", "where"),
    [
        ("v1.3.9", False, "Machine w"),
        ("v1.7.1", False, "MachineDeployment edge"),
        ("v1.7.1", True, "Machine w"),
        ("v1.8.0", True, "MachineDeployment edge"),
    ],
)
def test_the_object_in_which_time_outs_are_set(release, deleted, where):
    found = _owned("MachineSet", "edge-1")
    if not deleted:
        del found.data["metadata"]["deletionTimestamp"]
    cluster = Snapshot([found, _SET, _controller(release)], complete=["*"], time=ago(0))
    assert given_time_outs.set_in(found, cluster) == where
    drains = given_time_outs.of_drain(found, cluster)
    assert drains == (None if where == "Machine w" else 900)
