"""A node that a scale-in takes away is not replaced by a later update."""

import pytest

from tests.builders import complete, manifest, node
from tests.builders import vmi as running
from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.upgrade import rollouts
from virt_admit.forecasts.upgrade.pools import leaving_machines
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot

CAPI = "cluster.x-k8s.io/v1beta1"
NOW, JUST, LONG = "2026-01-01T12:00:00Z", "2026-01-01T11:57:00Z", "2026-01-01T10:00:00Z"


def machine(name, *, gone="", current="True"):
    metadata = {"labels": {"cluster.x-k8s.io/deployment-name": "md"}}
    if gone:
        metadata["deletionTimestamp"] = gone
    up_to_date = [{"type": "UpToDate", "status": current}]
    status = {"nodeRef": {"name": name}, "conditions": up_to_date}
    return manifest(CAPI, "Machine", f"m-{name}", "fleet", metadata=metadata, status=status)


def vmi(leaves="c", strategy="LiveMigrate", labels=None, **spec):
    """Return a VM that is asked to leave, and can migrate."""
    status = {"phase": "Running", "nodeName": "c", "evacuationNodeName": leaves}
    status["conditions"] = [
        {"type": each, "status": "True"} for each in ("LiveMigratable", "Ready")
    ]
    spec |= {"evictionStrategy": strategy, "domain": {"devices": {}}}
    return running(metadata={"labels": labels or {}}, status=status, **spec)


DEVICES = {f"devices.kubevirt.io/{name}": "110" for name in ("kvm", "tun", "vhost-net")}
ROOM = {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "9Gi", "pods": "110"} | DEVICES
GUEST = {"cluster.x-k8s.io/role": "worker"}
PINNED = {"nodeSelector": {"kubernetes.io/hostname": "c"}}


def deployment(replicas=2):
    return manifest(CAPI, "MachineDeployment", "md", "fleet", spec={"replicas": replicas})


@pytest.mark.parametrize(
    ("objects", "left"),
    [
        ([deployment(), machine("c", gone=JUST)], "ab"),
        ([deployment(), machine("c", gone=JUST), vmi()], "ab"),
        ([deployment(), machine("c", gone=JUST), vmi(leaves="")], "abc"),  # it stays
        ([deployment(), machine("c", gone=JUST), vmi(**PINNED)], "abc"),  # it cannot leave
        ([deployment(), machine("c", gone=JUST), vmi(strategy="External")], "abc"),
        ([deployment(), machine("c", gone=LONG), vmi()], "abc"),
        ([deployment(3), machine("c", gone=JUST)], "abc"),  # with a successor
        ([deployment(), machine("c", gone=JUST, current="False")], "abc"),  # by a roll-out
        ([deployment(3), machine("c")], "abc"),
    ],
    ids=["empty", "moves", "stays", "pinned", "external", "long", "replaced", "roll-out", "none"],
)
def test_a_node_that_a_scale_in_takes_away_is_not_updated(objects, left):
    nodes = [node(name, allocatable=ROOM) for name in "abc"]
    every = [*nodes, machine("a"), machine("b"), *objects]
    found = Snapshot(every, ["*"], time=NOW)

    (pool,) = rollouts.pools(Driver.CLUSTER_API, found, None, list("abc"))
    assert pool.nodes == tuple(left)
    said = list(leaving_machines.words(found))
    assert said == (["c is not counted: a scale-in deletes its Machine"] if left == "ab" else [])


def test_vms_that_cannot_be_read_may_stay():
    every = [node(name, runs_vms=False) for name in "abc"]
    every += [machine("a"), machine("b"), machine("c", gone=JUST), deployment()]
    assert leaving_machines.nodes(complete(*every)) == frozenset()  # at a time not known
    kinds = ["Machine", "MachineDeployment", "Node"]
    assert leaving_machines.nodes(Snapshot(every, kinds, time=NOW)) == frozenset()


OCP, SPACE = "machine.openshift.io/v1beta1", "openshift-machine-api"
PRE_DRAIN = {"lifecycleHooks": {"preDrain": [{"name": "backup", "owner": "ops"}]}}


def openshift_machine(gone=JUST, **spec):
    metadata, status = {"deletionTimestamp": gone}, {"nodeRef": {"name": "c"}}
    return manifest(OCP, "Machine", "m-c", SPACE, metadata=metadata, spec=spec, status=status)


def guarded_pod():
    pod = manifest("v1", "Pod", "p", "shop", metadata={"labels": {"app": "p"}})
    pod.data |= {"spec": {"nodeName": "c"}, "status": {"phase": "Running"}}
    selector = {"selector": {"matchLabels": {"app": "p"}}, "maxUnavailable": 0}
    budget = manifest("policy/v1", "PodDisruptionBudget", "p", "shop", spec=selector)
    budget.data["status"] = {"disruptionsAllowed": 0, "currentHealthy": 1, "expectedPods": 1}
    return [pod, budget]


def in_pool(*objects):
    """Return the nodes a, b and c, which is cordoned and has the only place of their pool."""
    labels = {"node-role.kubernetes.io/worker": ""}
    every = [node(name, labels, allocatable=ROOM) for name in "abc"]
    every[-1].data["spec"]["unschedulable"] = True
    spec = {"nodeSelector": {"matchLabels": labels}, "maxUnavailable": 1}
    pool = manifest("machineconfiguration.openshift.io/v1", "MachineConfigPool", "worker")
    pool.data |= {"spec": spec, "status": {"unavailableMachineCount": 1}}
    return [*every, pool, *objects]


@pytest.mark.parametrize(
    ("objects", "goes"),
    [
        ([openshift_machine()], True),
        ([openshift_machine(), vmi()], True),
        ([openshift_machine(), vmi(leaves="")], False),
        ([openshift_machine(), vmi(**PINNED)], False),  # it cannot leave
        ([openshift_machine(gone=LONG)], False),
        ([openshift_machine(**PRE_DRAIN)], False),  # no time-out ends that wait
        ([openshift_machine(), *guarded_pod()], False),
        ([], False),  # cordoned by hand
    ],
    ids=["empty", "moves", "stays", "pinned", "long", "hook", "budget", "no Machine"],
)
def test_the_next_update_of_a_pool_waits_for_a_node_that_goes_with_its_machine(objects, goes):
    every = in_pool(*objects)
    found = Snapshot(every, ["*"], time=NOW)

    (workers,) = rollouts.pools(Driver.MACHINE_CONFIG, found, None, list("abc"))
    assert (workers.obstacle is None) is goes
    assert workers.to_do == (("a", "b") if goes else workers.to_do)
    assert bool(list(leaving_machines.words_of_openshift(found))) is goes
    notes = [str(each) for each in node_notes.notes(every[0], found)]
    deleted = any("1 unavailable node: c, being deleted" in each for each in notes)
    assert deleted is bool(objects)


@pytest.mark.parametrize(
    ("vm", "possible"),
    [(vmi(), True), (vmi(**PINNED), False), (vmi(strategy="External", labels=GUEST), None)],
    ids=["moves", "pinned", "another controller has to move it"],
)
def test_an_update_needs_the_place_of_a_node_that_goes_with_its_machine(vm, possible):
    """The drain of c decides whether its place in the pool is free for another node."""
    found = rehearse(Snapshot(in_pool(openshift_machine(), vm), ["*"], time=NOW), Options())
    assert found.possible is possible
    for stop in found.stops:
        assert "the deletion of Machine" in stop.remedy
        assert "and waits for VM shop/db (LiveMigrate, but" in stop.remedy
    doubts = [each for each in found.unseen if "goes with its Machine" in each]
    assert len(doubts) == (possible is None)


def test_what_was_not_read_may_keep_the_node_of_a_machine():
    """Pods that cannot be read may keep the drain: the update is not certainly possible."""
    every = in_pool(openshift_machine(), vmi())
    found = Snapshot(every, ["nodes", "virtualmachineinstances.kubevirt.io"], time=NOW)
    assert "pods" in leaving_machines.unread(every[2], found)
    assert leaving_machines.of_openshift(found) == {}


def test_an_evicted_guest_that_takes_long_keeps_the_node_of_a_machine():
    labels = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "db"}
    ends = {"deletionTimestamp": "2026-01-01T22:01:30Z", "deletionGracePeriodSeconds": 43230}
    pod = manifest("v1", "Pod", "p", "shop", metadata={"labels": labels, **ends})
    pod.data |= {"spec": {"nodeName": "c"}, "status": {"phase": "Running"}}
    guest = vmi(leaves="", strategy="None", terminationGracePeriodSeconds=43200)
    every = in_pool(openshift_machine(gone=LONG), guest, pod)
    found = rehearse(Snapshot(every, ["*"], time=NOW), Options())

    assert found.possible is False
    assert "and waits for VM shop/db (its guest was told" in found.stops[0].remedy
