"""Machines: selection, ownership by a MachineSet, and scale-down."""

import pytest

from tests.for_each import for_each
from virt_admit.model.kubernetes import kinds, selectors
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import machines

ROLE = "machine.openshift.io/cluster-api-machine-role"
TYPE = "machine.openshift.io/cluster-api-machine-type"
CLUSTER = "cluster.x-k8s.io/cluster-name"


def machine(
    name="m", labels=None, *, group="machine.openshift.io/v1beta1", namespace="apis", **more
):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}} | more.pop(
        "metadata", {}
    )
    return Object({"apiVersion": group, "kind": "Machine", "metadata": metadata, **more})


def select(cluster, selector=None, kind=kinds.MACHINE, name=None):
    return machines.select(cluster, kind, "apis", selectors.parse(selector), name)


def names(selection):
    return [machine.name for machine in selection.objects]


# --- machines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected"),
    [({ROLE: "master"}, True), ({TYPE: "master"}, True), ({ROLE: "infra", TYPE: "master"}, True),
     ({ROLE: "worker"}, False), ({ROLE: "Master"}, False), ({"role": "master"}, False),
     ({ROLE: True}, False)],
)  # fmt: skip
def test_control_plane(labels, expected):
    cluster = Snapshot([machine("x", labels), machine("worker", {ROLE: "worker"})], complete=["*"])
    assert names(machines.control_plane(select(cluster))) == (["x"] if expected else [])


@for_each(
    "more, expected",
    [
        ({}, False),
        ({"metadata": {"annotations": {"machine.openshift.io/delete-machine": "true"}}}, True),
        ({"metadata": {"annotations": {"machine.openshift.io/delete-machine": "false"}}}, True),
        ({"metadata": {"annotations": {"machine.openshift.io/delete-machine": ""}}}, False),
        (
            {
                "metadata": {
                    "annotations": {"machine.openshift.io/cluster-api-delete-machine": "yes"}
                }
            },
            True,
        ),
        ({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}}, False),
        ({"metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"}}, True),
        ({"status": {"errorReason": "CreateError"}}, True),
        ({"status": {"errorMessage": "no quota"}}, True),
        ({"status": {"phase": "Failed", "nodeRef": None}}, False),
    ],
)
def test_machines_deleted_first(more, expected):
    assert machines.goes_first(machine(**more)) is expected


@pytest.mark.parametrize(
    ("status", "expected"), [({"nodeRef": {"name": "n"}}, "n"), ({}, ""), ({"nodeRef": "n"}, "")]
)
def test_node_of_a_machine(status, expected):
    assert machines.node_name(machine(status=status)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [({"platformStatus": {"type": "AWS"}, "platform": "None"}, "AWS"),
     ({"platform": "None"}, "None"), ({}, ""),
     (None, "")],
)  # fmt: skip
def test_platform(status, expected):
    infrastructure = {
        "apiVersion": "config.openshift.io/v1",
        "kind": "Infrastructure",
        "metadata": {"name": "cluster"},
    }
    assert machines.platform(Snapshot([Object(infrastructure | {"status": status})])) == expected


def test_platform_without_openshift():
    assert machines.platform(Snapshot(complete=["*"])) == ""
    with pytest.raises(Unseen):
        machines.platform(NOTHING)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {ROLE: "master"}}, True),
        ({"matchExpressions": [{"key": TYPE, "operator": "In", "values": ["master"]}]}, True),
        (
            {"matchExpressions": [{"key": TYPE, "operator": "In", "values": ["master", "master"]}]},
            True,
        ),
        (
            {"matchExpressions": [{"key": TYPE, "operator": "In", "values": ["master", "infra"]}]},
            False,
        ),
        ({"matchExpressions": [{"key": ROLE, "operator": "NotIn", "values": ["worker"]}]}, False),
        ({"matchExpressions": [{"key": ROLE, "operator": "Exists"}]}, False),
        ({"matchLabels": {"role": "master"}}, False),
        ({}, False),
    ],
)
def test_a_selector_for_the_control_plane(selector, expected):
    assert machines.selects_control_plane(selectors.parse(selector)) is expected


def test_machines_are_selected_in_one_namespace_and_of_one_kind():
    cluster = Snapshot(
        [
            machine("b", {"pool": "x"}),
            machine("a", {"pool": "x"}),
            machine("c", {"pool": "y"}),
            machine("d", {"pool": "x"}, namespace="other"),
            machine("e", {"pool": "x"}, group="cluster.x-k8s.io/v1beta1"),
        ],
        complete=["*"],
    )
    selection = select(cluster, {"matchLabels": {"pool": "x"}})
    assert names(selection) == ["a", "b"]
    assert len(selection) == 2
    selection.demand_all()


def test_an_incomplete_selection_is_marked():
    selection = select(Snapshot([machine("a", {"pool": "x"})]), {"matchLabels": {"pool": "x"}})
    assert names(selection) == ["a"]
    with pytest.raises(Unseen, match=r"machines\.machine\.openshift\.io"):
        selection.demand_all()


@pytest.mark.parametrize("group", ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"])
def test_machines_of_a_cluster_api_cluster(group):
    """The label decides, never ``spec.clusterName``
    (machinehealthcheck_targets.go#getMachinesFromMHC).
    """
    cluster = Snapshot(
        [
            machine("labelled", {CLUSTER: "a"}, group=group),
            machine("by-spec", group=group, spec={"clusterName": "a"}),
            machine("other", {CLUSTER: "b"}, group=group, spec={"clusterName": "a"}),
            machine("foreign", {CLUSTER: "a"}),
            machine("unnamed", group=group),
        ],
        complete=["*"],
    )
    assert names(select(cluster, kind=kinds.CAPI_MACHINE, name="a")) == ["labelled"]
    assert names(select(cluster, kind=kinds.CAPI_MACHINE, name="b")) == ["other"]
    assert names(select(cluster, kind=kinds.CAPI_MACHINE, name="c")) == []
    assert names(select(cluster, kind=kinds.CAPI_MACHINE)) == [
        "by-spec",
        "labelled",
        "other",
        "unnamed",
    ]


def test_a_malformed_selector_selects_nothing():
    cluster = Snapshot([machine("a", {"pool": "<x>"})], complete=["*"])
    assert not len(select(cluster, {"matchLabels": {"pool": "<x>"}}))


# --- machine sets ---------------------------------------------------------------------------------


def machine_set(name="set", replicas=None, namespace="apis"):
    spec = {"selector": {"matchLabels": {"set": "x"}}} | (
        {} if replicas is None else {"replicas": replicas}
    )
    metadata = {"name": name, "namespace": namespace}
    return Object(
        {
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "MachineSet",
            "metadata": metadata,
            "spec": spec,
        }
    )


def owned(kind, name):
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}]}


def test_machines_of_a_set():
    cluster = Snapshot(
        [
            machine("mine", {"set": "x"}, metadata=owned("MachineSet", "set")),
            machine("orphan", {"set": "x"}),
            machine("taken", {"set": "x"}, metadata=owned("MachineSet", "other")),
            machine("master", {"set": "x"}, metadata=owned("ControlPlaneMachineSet", "set")),
            machine("unlike", {"set": "y"}, metadata=owned("MachineSet", "set")),
            machine("far", {"set": "x"}, namespace="other"),
        ],
        complete=["*"],
    )
    assert names(machines.of_set(machine_set(), cluster)) == ["mine", "orphan"]


def scale(replicas=None):
    spec = {} if replicas is None else {"replicas": replicas}
    metadata = {"name": "set", "namespace": "apis"}
    return Object(
        {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec}
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(3, 1, (3, 1)), (3, None, (3, 1)), (1, None, None), (None, 0, (1, 0)), (1, 3, None),
     (2, 2, None), (3, "1", (3, 1)),
     (2, 0, (2, 0))],
)  # fmt: skip
def test_scaling_down_a_set(old, new, expected):
    change = machines.scale_down(machine_set(replicas=new), machine_set(replicas=old), "", NOTHING)
    assert (change and (change.before, change.after)) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(3, 1, (3, 1)), (3, None, (3, 0)), (None, 1, None), (1, 3, None), (None, None, None)],
)
def test_scaling_down_by_the_scale_subresource(old, new, expected):
    stored = machine_set(replicas=3)
    change = machines.scale_down(scale(new), scale(old), "scale", Snapshot([stored]))
    assert (change and (change.before, change.after)) == expected
    assert change is None or change.machine_set is stored


def test_scaling_down_a_deleted_or_unseen_set():
    assert machines.scale_down(scale(1), scale(2), "scale", Snapshot(complete=["*"])) is None
    with pytest.raises(Unseen):
        machines.scale_down(scale(1), scale(2), "scale", NOTHING)
    assert machines.scale_down(scale(1), None, "scale", NOTHING) is None
