"""Budgets of Longhorn that stand although nothing on the cordoned node needs them any more."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import LONGHORN
from tests.forecasts.drain.test_operator_budgets import COPIES, blocker, drained, wait, without
from tests.forecasts.drain.test_stuck_operators import attachment, engine, manager


def cordoned(*objects, minutes, runs=None, unreadable=()):
    """A cluster whose node ``a`` has been cordoned so long, and what a drain of it meets."""
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    spec = {"unschedulable": True, "taints": [{**taint, "timeAdded": "2026-01-01T10:00:00Z"}]}
    every = world.longhorn(*COPIES, runs or manager("a"), *objects)
    found = without(every, ("Node", "a"))
    closed = manifest("v1", "Node", "a", spec=spec, status=world.READY)
    time = f"2026-01-01T10:{minutes}:00Z"
    return drained([*found, closed], unreadable=unreadable, time=time)


def never_attached(**status):
    seen = {"kubernetesStatus": {"namespace": "shop", "pvcName": "disk"}, "state": "detached"}
    objects = [world.replica("v2", on, healthy=False, state="stopped") for on in "ab"]
    spec, name = {"numberOfReplicas": 2}, "v2"
    kind = ("longhorn.io/v1beta2", "Volume")
    return [*objects, manifest(*kind, name, LONGHORN, spec=spec, status={**seen, **status})]


def never_attached_here_alone(replicas=1, **spec):
    spec = {"numberOfReplicas": replicas, **spec}
    seen = {"namespace": "shop", "pvcName": "disk"}
    status = {"kubernetesStatus": seen, "state": "detached"}
    volume = manifest("longhorn.io/v1beta2", "Volume", "v2", LONGHORN, spec=spec, status=status)
    return [volume, world.replica("v2", "a", healthy=False, state="stopped")]


def release(value):
    name = "current-longhorn-version"
    return manifest("longhorn.io/v1beta2", "Setting", name, LONGHORN, value=value)


USER = manifest(
    "kubevirt.io/v1",
    "VirtualMachine",
    "web",
    "shop",
    spec={
        "template": {
            "spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}]}
        }
    },
)


@pytest.mark.parametrize(
    ("user", "remedy"),
    [
        ([USER], "attach the volume on Longhorn's page): virtctl start web -n shop"),
        ([], "Attach it once to another node on Longhorn's page"),
    ],
)
@pytest.mark.parametrize(
    ("version", "says"),
    [([], "most likely because"), ([release("v1.3.0-rc3")], "Longhorn v1.3.0-rc3")],
)
def test_a_volume_that_was_never_attached_keeps_the_budget(version, says, user, remedy):
    found = cordoned(*never_attached(), *version, *user, minutes=38)
    (only,) = found["blockers"]
    assert (found["drainable"], only["now"]) == (False, True)
    assert "no volume has been attached to node a for 38 min" in only["reason"]
    assert "volume v2 (claim shop/disk) was never attached" in only["reason"]
    assert says in only["reason"]
    assert remedy in only["remedy"]


PATCH = f"kubectl patch volumes.longhorn.io v2 -n {LONGHORN} --type=merge -p "
UNNEEDED = "as a decision, delete its disk if empty and unneeded"


@pytest.mark.parametrize(
    ("objects", "remedy"),
    [
        (
            never_attached_here_alone(),
            "Add a replica on another node, then attach it once: "
            f"""{PATCH}'{{"spec":{{"numberOfReplicas":2}}}}'; or, {UNNEEDED}""",
        ),
        (
            [*never_attached_here_alone(2), world.replica("v2", "", healthy=False)],
            "See why Longhorn has no replica of it on another node, before anything attaches it: "
            f"kubectl describe volumes.longhorn.io v2 -n {LONGHORN}; or, {UNNEEDED}",
        ),
        (
            [*never_attached_here_alone(), world.replica("v2", "b", healthy=False, failed=True)],
            "Add a replica on another node",
        ),
        (
            never_attached_here_alone(dataLocality="strict-local"),
            f"A{UNNEEDED[1:]}: kubectl describe volumes.longhorn.io v2",
        ),
    ],
    ids=["one replica", "no place for the other", "the other failed", "strict-local"],
)
def test_a_volume_with_all_its_replicas_on_the_node_is_not_attached_first(objects, remedy):
    (only,) = cordoned(*objects, USER, minutes=38)["blockers"]
    assert only["remedy"].startswith(remedy)
    assert "virtctl" not in only["remedy"]


def test_a_release_that_demands_a_healthy_copy_of_each_volume_needs_no_cordon():
    objects = world.longhorn(*COPIES, *never_attached(), release("v1.1.1"))
    assert "Longhorn v1.1.1" in blocker(objects)["reason"]


@pytest.mark.parametrize("version", ["v1.1.2", "v1.2.0", "v1.3.0", "v1.10.1", "v2.0.0"])
def test_a_release_that_knows_unused_volumes_does_not_mind_them(version):
    assert wait(world.longhorn(*COPIES, *never_attached(), release(version)))
    found = cordoned(*never_attached(), release(version), minutes=38)
    (only,) = found["blockers"]
    assert "v2" not in only["reason"]
    assert "Longhorn keeps it all the same" in only["reason"]
    assert "log of longhorn-manager" in only["remedy"]


def attached_at(minutes):
    spec = {"nodeName": "b", "source": {"persistentVolumeName": "v1"}}
    created = {"creationTimestamp": f"2026-01-01T10:{minutes}:00Z"}
    kind = ("storage.k8s.io/v1", "VolumeAttachment", "csi-1")
    return manifest(*kind, metadata=created, spec=spec)


@pytest.mark.parametrize(
    ("minutes", "objects", "says"),
    [
        (11, [world.volume("v1", 2, "a")], "once the VMs and pods with its volumes have left"),
        ("09", never_attached(), "no volume is attached to node a any more"),
        (38, [attached_at(30)], "within minutes"),
        (38, never_attached(kubernetesStatus={"lastPodRefAt": "2026-01-01T10:30:00Z"}), "minutes"),
    ],
    ids=["a volume is attached", "cordoned a moment ago", "a VM came", "a VM was stopped"],
)
def test_longhorn_has_its_time_to_remove_a_budget(minutes, objects, says):
    (only,) = cordoned(*objects, minutes=minutes)["waits"]
    assert says in only["reason"]


def healthy_at(minute):
    found = world.replica("v1", "c")
    found.data["spec"]["healthyAt"] = f"2026-01-01T10:{minute}:00Z"
    return found


def test_a_copy_that_has_just_become_healthy_lets_longhorn_remove_the_budget():
    (only,) = cordoned(healthy_at(37), minutes=38)["waits"]
    assert "within minutes" in only["reason"]
    (only,) = cordoned(healthy_at(11), minutes=38)["blockers"]
    assert "no volume has been attached to node a for 27 min" in only["reason"]


@pytest.mark.parametrize(
    "plural", ["volumeattachments.longhorn.io", "volumeattachments.storage.k8s.io"]
)
def test_without_the_attachments_nothing_is_overdue(plural):
    (only,) = cordoned(minutes=38, unreadable=[plural])["waits"]
    assert "once the VMs and pods with its volumes have left" in only["reason"]


def orphaned(*objects, minutes=38, state="running", unreadable=()):
    """The drain of a node that was cordoned, whose instance manager has an engine of volume v1."""
    runs = manager("a", **{"v1-e-0": {"status": {"state": state}}})
    return cordoned(*objects, minutes=minutes, runs=runs, unreadable=unreadable)


def used(on="", spec=None, **seen):
    seen = {"namespace": "shop", "pvcName": "disk", "pvName": "pv-1", **seen}
    status = {"currentNodeID": on, "kubernetesStatus": seen}
    return manifest("longhorn.io/v1beta2", "Volume", "v1", LONGHORN, spec=spec, status=status)


def attached_to(node, volume):
    source = {"persistentVolumeName": volume}
    spec = {"attacher": "driver.longhorn.io", "nodeName": node, "source": source}
    created = {"creationTimestamp": "2026-01-01T09:00:00Z"}
    kind = ("storage.k8s.io/v1", "VolumeAttachment", "csi-1")
    return manifest(*kind, metadata=created, spec=spec)


def user(node):
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}]
    owner = {"kind": "VirtualMachineInstance", "name": "web", "controller": True}
    meta, spec = {"ownerReferences": [owner]}, {"nodeName": node, "volumes": volumes}
    return manifest("v1", "Pod", "p", "shop", metadata=meta, spec=spec, status=world.READY)


def moved(ended):
    state = {"sourceNode": "a", "targetNode": "b", "endTimestamp": f"2026-01-01T10:{ended}:00Z"}
    status = {"nodeName": "b", "phase": "Running", "migrationState": state}
    return manifest("kubevirt.io/v1", "VirtualMachineInstance", "web", "shop", status=status)


@pytest.mark.parametrize(
    "objects",
    [
        [],
        [used(), engine("v1-e-0", "", "stopped")],
        [used("b"), attached_to("b", "pv-1"), user("b"), attachment("v1", "csi-attacher", "b")],
        [used("b", lastPodRefAt="2026-01-01T10:20:00Z"), moved(15)],
    ],
    ids=["gone", "stopped", "used on another node", "long after the VM left"],
)
def test_an_orphaned_engine_is_ended_by_its_command(objects):
    (only,) = orphaned(*objects)["blockers"]
    assert (only["now"], "still runs engine v1-e-0" in only["reason"]) == (True, True)
    assert only["remedy"].endswith(
        f": kubectl exec instance-manager-a -n {LONGHORN} -- instance-manager process delete "
        "--name v1-e-0"
    )


@pytest.mark.parametrize(
    "objects",
    [
        [used("a")],
        [used("b", {"migrationNodeID": "a"})],
        [used(spec={"nodeID": "a"})],
        [used(), attached_to("a", "pv-1")],
        [attached_to("a", "v1")],
        [attachment("v1", "csi-attacher", "a")],
        [used(lastPodRefAt="2026-01-01T10:30:00Z")],
        [used("b"), moved(30)],
    ],
    ids=[
        "attached",
        "a migration comes",
        "wanted",
        "attached by Kubernetes",
        "attached and its volume is gone",
        "a ticket",
        "a VM has just ended",
        "a VM has just left",
    ],
)
def test_an_engine_whose_volume_names_the_node_is_not_orphaned(objects):
    found = orphaned(*objects)
    assert (found["drainable"], found["blockers"]) == (True, [])
    assert "Longhorn removes it" in found["waits"][0]["reason"]


def test_an_engine_whose_claim_has_a_pod_on_the_node_is_not_orphaned():
    found = orphaned(used(), user("a"))
    assert not [each for each in found["blockers"] if "engine" in each["reason"]]


@pytest.mark.parametrize("state", ["stopping", "starting", "stopped", "error"])
def test_an_engine_that_does_not_run_keeps_no_budget(state):
    found = orphaned(used(lastPodRefAt="2026-01-01T10:30:00Z"), state=state)
    assert (found["drainable"], found["blockers"]) == (True, [])


def test_an_orphan_on_a_node_that_was_just_cordoned_is_not_ended():
    (only,) = orphaned(minutes="05")["blockers"]
    assert only["remedy"].startswith("Ask again once a has been cordoned for 10 minutes")


@pytest.mark.parametrize(
    "plural",
    ["volumes.longhorn.io", "volumeattachments.longhorn.io", "volumeattachments.storage.k8s.io"],
)
def test_what_may_name_the_node_has_to_be_read(plural):
    found = orphaned(unreadable=[plural])
    assert (found["drainable"], found["blockers"]) == (None, [])
    assert plural in found["unseen"][0]
