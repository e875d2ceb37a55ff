"""Nodes that the cluster-autoscaler does not add for the pod of a VM."""

import pytest

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.healthy.parts import ago, obj
from tests.incidents.machines import event, find
from tests.incidents.starts import starting
from virt_admit.model.problems import ProblemCause

BEGIN = "pod didn't trigger scale-up: "
LABELS = "3 node(s) didn't match Pod's node affinity/selector"
DEVICE = "1 max node group size reached, 1 Insufficient devices.kubevirt.io/kvm"


def waiting(*said, age=60, change=lambda _: None):
    """Return what keeps a VM without room from starting.

    ``said``: reason, message and the seconds since then, of the autoscaler.
    """
    items = plain(memory="1Gi") + starting("web", "Scheduling")
    pod = next(each for each in items if each["metadata"]["name"].startswith("virt-launcher-web"))
    pod["metadata"]["creationTimestamp"] = ago(minutes=age)
    change(items)
    events = [
        event(pod, reason, message, "cluster-autoscaler", late=late) | {"type": "Normal"}
        for reason, message, late in said
    ]
    return stuck(items + events, "web")


def refused(words, late=15):
    return "NotTriggerScaleUp", f"{BEGIN}{words}", late


def test_a_group_without_nodes_does_not_tell_the_devices_of_kubevirt():
    found = waiting(refused(DEVICE))

    assert found.reason.startswith("no node can take it: memory: ")
    assert found.reason.endswith(
        f". The cluster-autoscaler adds no node for it (NotTriggerScaleUp, 20x): {DEVICE}. It does "
        "not start before that changes"
    )
    assert found.remedy.startswith(
        "if a node group for VMs has no node, keep one in it by a minimum size of 1, because "
    )
    assert "k8s.io/cluster-autoscaler/node-template/resources/" in found.remedy
    assert ", or raise the maximum of a node group for VMs" in found.remedy
    assert ": kubectl get configmap -A " in found.remedy
    assert "; or add a node with at least " in found.remedy


@pytest.mark.parametrize(
    ("words", "way"),
    [
        ("1 node(s) didn't match Pod's node affinity/selector", "if a node group for VMs has no"),
        (f"1 max node group size reached, {LABELS}", "raise the maximum of a node group for VMs"),
        ("2 max node group size reached", "raise the maximum of a node group for VMs"),
        ("max total nodes in cluster reached", "raise the maximum of the cluster that is reached"),
        ("1 max cluster memory limit reached", "raise the maximum of the cluster that is reached"),
        ("1 in backoff after failed scale-up", "see in the log of the cluster-autoscaler why"),
        ("2 Insufficient memory", "add a node with at least "),
    ],
)
def test_the_way_is_that_of_its_words(words, way):
    found = waiting(refused(words))

    assert f"(NotTriggerScaleUp, 20x): {words}. " in found.reason
    assert found.remedy.startswith(way)


@pytest.mark.parametrize(
    ("said", "age"),
    [
        ((), 60),
        ([refused(DEVICE, 400), ("TriggeredScaleUp", "pod triggered scale-up: [...]", 60)], 60),
        ([refused(DEVICE)], 3),
        ([refused(DEVICE, 3_000)], 60),
    ],
    ids=["it says nothing", "it adds a node since", "the pod is young", "it said so long ago"],
)
def test_it_may_add_a_node(said, age):
    found = waiting(*said, age=age)

    assert found.reason.endswith("It starts by itself once there is room")
    assert found.remedy.startswith("add a node with at least ")


def test_what_keeps_it_off_for_another_cause_is_told_as_well():
    def change(items):
        for name in ("w1", "w2", "w3"):
            find(items, "Node", name)["spec"]["taints"] = [{"key": "own", "effect": "NoSchedule"}]

    found = waiting(refused("1 Insufficient memory"), change=change)

    assert "The cluster-autoscaler adds no node for it" in found.reason
    assert "autoscaler" not in found.remedy


TEXT = """Cluster-autoscaler status at 2026-03-17 15:10:00.120034567 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=3 unready=0 registered=3 longUnregistered=0)
  ScaleUp:     NoActivity (ready=3 registered=3)

NodeGroups:
  Name:        https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/room
  Health:      Healthy (ready=1 registered=1 cloudProviderTarget=1 (minSize=1, maxSize=3))
  ScaleUp:     NoActivity (ready=1 cloudProviderTarget=1)

  Name:        always
  Health:      Healthy (ready=2 registered=2 cloudProviderTarget=2 (minSize=2, maxSize=2))
  ScaleUp:     NoActivity (ready=2 cloudProviderTarget=2)

  Name:        burst
  Health:      Healthy (ready=0 registered=0 cloudProviderTarget=0 (minSize=0, maxSize=4))
  ScaleUp:     NoActivity (ready=0 cloudProviderTarget=0)

"""
YAML = """time: 2026-03-17 15:10:00.120034567 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health:
    status: Healthy
nodeGroups:
- name: room
  health:
    nodeCounts: {registered: {total: 1, ready: 1}, longUnregistered: 0}
    cloudProviderTarget: 1
    minSize: 1
    maxSize: 3
  scaleUp:
    status: Backoff
    backoffInfo:
      errorCode: QUOTA_EXCEEDED
      errorMessage: 'Instance ''room-1'' creation failed: Quota ''CPUS''
        exceeded'
    lastProbeTime: "2026-03-17T15:10:00Z"
- health:
    cloudProviderTarget: 2
    minSize: 2
    maxSize: 2
  name: always
-
  name: "burst"
  health:
    cloudProviderTarget: 0
    minSize: 0
    maxSize: 4
"""


def knowing(status, words):
    def change(items):
        named = obj("ConfigMap", "v1", "cluster-autoscaler-status", "kube-system")
        items.append(named | {"data": {"status": status}})

    return waiting(refused(words), change=change)


@pytest.mark.parametrize("status", [TEXT, YAML])
def test_the_node_groups_of_its_status_have_names_and_sizes(status):
    found = knowing(status, DEVICE)

    assert f": {DEVICE} (node groups: always 2 of 2, burst 0 of 4, room 1 of 3). " in found.reason
    assert found.remedy.startswith("set the minimum size of burst to 1, if for VMs, because ")
    assert ", or raise the maximum of always, if for VMs; or add a node" in found.remedy
    assert "kubectl" not in found.remedy


def test_the_error_of_a_scale_up_is_told():
    found = knowing(YAML, "1 in backoff after failed scale-up")

    assert found.remedy.startswith(
        "repair what failed the last scale-up (room: QUOTA_EXCEEDED: Instance 'room-1' creation "
        "failed: Quota 'CPUS' exceeded)"
    )


@pytest.mark.parametrize(
    "status", ["", "Initializing", "nodeGroups:\n- name: a\n", "nodeGroups: []"]
)
def test_a_status_without_sizes_names_no_group(status):
    found = knowing(status, DEVICE)

    assert "node groups:" not in found.reason
    assert found.remedy.startswith("if a node group for VMs has no node, keep one in it")
    assert "kubectl get configmap -A " in found.remedy


SCALED = "pod triggered scale-up: [{MachineSet/mapi/w 3->4 (max: 8)}]"


def tried(times=7, begun=55, last=20, items=()):
    """Return what keeps a VM without room from starting, for which nodes were added."""

    def change(found):
        pod = next(each for each in found if each["metadata"]["name"].startswith("virt-launcher"))
        said = event(pod, "TriggeredScaleUp", SCALED, "cluster-autoscaler", late=last)
        said |= {"type": "Normal", "count": times, "firstTimestamp": ago(minutes=begun)}
        found.extend((said, *items))

    return waiting(change=change)


def machine(name, **status):
    spec = {"providerSpec": {"value": {"kind": "BareMetalMachineProviderSpec"}}}
    owner = [{"kind": "MachineSet", "name": "w", "controller": True}]
    found = obj("Machine", "machine.openshift.io/v1beta1", name, "mapi", spec=spec, status=status)
    found["metadata"] |= {"ownerReferences": owner, "creationTimestamp": ago(minutes=1)}
    return found


def host(name, consumer="", state="provisioned"):
    spec = {"consumerRef": {"name": consumer}} if consumer else {}
    status = {"provisioning": {"state": state}}
    return obj("BareMetalHost", "metal3.io/v1alpha1", name, "mapi", spec=spec, status=status)


FAILED = {
    "errorReason": "InsufficientResources",
    "errorMessage": "No available BareMetalHost found",
}


def machine_set():
    found = obj("MachineSet", "machine.openshift.io/v1beta1", "w", "mapi", spec={"replicas": 1})
    scaled = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
    by = {"autoscaling.openshift.io/machineautoscaler": "mapi/w-scaler", scaled: "8"}
    found["metadata"]["annotations"] = by
    return found


def test_it_adds_nodes_again_and_again_and_none_comes():
    found = tried()

    assert (
        "The cluster-autoscaler has scaled up 7 times in 55 min for it (MachineSet/mapi/w 3->4 "
        "(max: 8)), and no node has come. It does not start before that changes"
    ) in found.reason
    assert found.remedy.startswith("see in the log of the cluster-autoscaler why no node came")


def test_its_machine_has_no_host():
    found = tried(items=[machine("w-1", **FAILED), machine_set(), host("h1", "w-0")])

    assert (
        "Machine mapi/w-1 has no node for 60 s: InsufficientResources: No available "
        "BareMetalHost found: the only BareMetalHost is in use"
    ) in found.reason
    assert found.remedy.startswith(
        "register another BareMetalHost, and let it become available before the "
        "cluster-autoscaler scales up again"
    )
    assert "or raise minReplicas of MachineAutoscaler w-scaler" in found.remedy


def test_its_machine_is_deleted_and_no_host_is_free():
    taken = [machine("w-0", nodeRef={"name": "w1"}), host("h1", "w-0")]
    found = tried(items=taken)

    assert "and no node has come: the only BareMetalHost is in use" in found.reason
    assert found.remedy.startswith("register another BareMetalHost, and let it become available")


def test_a_host_is_on_its_way():
    found = tried(items=[machine("w-1", **FAILED), host("h1", state="inspecting")])

    assert "the next node is missing" not in found.reason
    assert "in use" not in found.reason
    assert found.remedy.startswith("see in the log of the cluster-autoscaler")


def joined(minutes):
    """Return a full node that joined so long ago."""
    room = {"cpu": "1", "memory": "1Mi", "pods": "10"}
    found = obj("Node", "v1", "w9", status={"allocatable": room, "capacity": room})
    found["metadata"]["creationTimestamp"] = ago(minutes=minutes)
    return found


def test_an_older_node_is_not_that_of_a_scale_up():
    assert "and no node has come" in tried(items=[joined(56)]).reason


@pytest.mark.parametrize(
    "scaled",
    [{"begun": 10}, {"last": 3_000}, {"times": 1, "last": 960}, {"items": [joined(30)]}],
    ids=["just begun", "long ago", "once", "a node came, which others took"],
)
def test_a_scale_up_may_succeed(scaled):
    found = tried(**scaled)

    assert "autoscaler" not in found.reason
    assert found.reason.endswith("It starts by itself once there is room")


COMING = {"times": 1, "begun": 14, "last": 840}


def new(name="w-9", made=13, **status):
    found = machine(name, **status)
    found["metadata"]["creationTimestamp"] = ago(minutes=made)
    return found


def test_the_node_of_a_scale_up_is_waited_for():
    found = tried(**COMING)

    assert found.reason == (
        "it waits for the node that the cluster-autoscaler has been adding for 14 min "
        "(MachineSet/mapi/w 3->4 (max: 8)). It starts by itself once there is room"
    )
    assert found.remedy.startswith("wait for that node. If it does not come within 30 min, see the")
    assert found.cause == ProblemCause.NODE_COMING


def test_the_machine_of_a_scale_up_has_longer():
    found = tried(**COMING | {"last": 1_500}, items=[new(made=25), host("h1", "w-9")])

    assert "Machine mapi/w-9 has no node for 25 min" in found.reason
    assert found.remedy.endswith("kubectl describe machines.machine.openshift.io w-9 -n mapi")


@pytest.mark.parametrize(
    ("scaled", "items"),
    [
        (COMING, [joined(5)]),
        (COMING | {"last": 1_860}, [new(made=30), host("h1", "w-9")]),
        (COMING, [new(**FAILED), host("h1", "w-9")]),
        (COMING, [new(), host("h1", "w-0")]),
        (COMING | {"last": 1_500}, [new("x-9", made=25), host("h1", "x-9")]),
        (COMING | {"last": 1_500}, [new(made=600), host("h1", "w-9")]),
    ],
    ids=[
        "a node came",
        "too long",
        "failed",
        "no host",
        "of another group",
        "older than the scale-up",
    ],
)
def test_a_node_that_may_not_come_is_not_waited_for(scaled, items):
    assert tried(**scaled, items=items).cause != ProblemCause.NODE_COMING


@pytest.mark.parametrize(
    ("replicas", "way"),
    [
        (4, "raise maxReplicas 4 of MachineAutoscaler w-scaler, if for VMs"),
        (3, "raise the maximum of a node group for VMs that is reached"),
    ],
)
def test_openshift_names_the_machine_autoscaler_at_its_maximum(replicas, way):
    spec = {"maxReplicas": 4, "scaleTargetRef": {"kind": "MachineSet", "name": "w"}}
    api = "autoscaling.openshift.io/v1beta1"
    scaler = obj("MachineAutoscaler", api, "w-scaler", "mapi", spec=spec)
    own = obj("MachineSet", "machine.openshift.io/v1beta1", "w", "mapi")
    own["spec"] = {"replicas": replicas}
    taken = [machine(f"w-{number}", nodeRef={"name": f"w{number}"}) for number in range(replicas)]
    found = waiting(
        refused("1 max node group size reached"),
        change=lambda items: items.extend((scaler, own, *taken)),
    )

    assert found.remedy.startswith(way)
