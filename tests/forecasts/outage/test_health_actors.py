"""Who frees the pods of lost nodes, when, and why a health check does not."""

import pytest

from tests.forecasts.outage import losses
from tests.forecasts.outage.losses import (
    deployed,
    filler,
    lose,
    manifest,
    master,
    nhc,
    node,
    pod,
    snapshot,
    vm,
)
from virt_admit.forecasts.outage.outages import Question, outages

NODES = [node("n1"), node("n2"), node("n3")]
MDR = "machine-deletion-remediation.medik8s.io/v1alpha1"
DELETION = {"apiVersion": MDR, "kind": "MachineDeletionRemediationTemplate"}


def only_vm(found):
    (one,) = found.outages
    (row,) = one.vms
    return row


def parts(row):
    return {part.what: (part.low, part.high) for part in row.parts}


def deleting(*, then_self: bool = False):
    """A NodeHealthCheck that deletes Machines, then perhaps reboots the node."""
    reference = {**DELETION, "name": "mdr", "namespace": "medik8s"}
    check, template = nhc()
    spec = check["spec"]
    if then_self:
        second = {
            "remediationTemplate": spec.pop("remediationTemplate"),
            "order": 2,
            "timeout": "600s",
        }
        spec["escalatingRemediations"] = [
            {"remediationTemplate": reference, "order": 1, "timeout": "60s"},
            second,
        ]
    else:
        spec["remediationTemplate"] = reference
    own = {
        **DELETION,
        "metadata": {"name": "mdr", "namespace": "medik8s"},
        "spec": {"template": {"spec": {}}},
    }
    return [check, template, own]


def with_machines(*names):
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    for each in nodes:
        if (name := each["metadata"]["name"]) in names:
            machine = f"openshift-machine-api/machine-{name}"
            each["metadata"]["annotations"] = {"machine.openshift.io/machine": machine}
    return nodes, losses.machines(*names)[:-1]


def test_machine_deletion_removes_the_node():
    row = only_vm(lose(snapshot(with_machines("n1", "n2", "n3"), vm("db", "n1"), deleting()), "n1"))
    assert row.outcome == "restarts"
    assert parts(row)["pod gone"] == (40, 60)
    assert row.at == (400, None)


def test_machine_deletion_without_machines_that_were_read_is_not_certain():
    nodes, _ = with_machines("n1", "n2", "n3")
    unread = ("machines.machine.openshift.io",)
    found = lose(snapshot(nodes, vm("db", "n1"), deleting(), unreadable=unread), "n1")
    assert found.survives is None
    assert only_vm(found).outcome == "unknown"


@pytest.mark.parametrize("machines", [(), ("n2", "n3")])
def test_a_node_without_machine_waits_for_the_next_remediator(machines):
    row = only_vm(
        lose(snapshot(with_machines(*machines), vm("db", "n1"), deleting(then_self=True)), "n1")
    )
    assert row.outcome == "restarts"
    assert parts(row)["earlier remediators"] == (60, 60)
    assert parts(row)["remediated"] == (180, 180)


def test_the_api_without_a_majority_starts_no_vm():
    masters = [master("m1"), master("m2"), master("m3")]
    found = lose(snapshot(masters, NODES, vm("db", "n1"), nhc()), "m1", "m2", "n1")
    row = only_vm(found)
    assert found.survives is False
    assert (row.outcome, row.by_hand) == ("never restarts", None)
    assert row.reason == "the API stops: 1 of 3 control-plane nodes is left"
    assert found.outages[0].actors[0].refuses == row.reason


def test_control_plane_nodes_that_are_not_ready_decide():
    masters = [master("m1"), master("m2"), master("m3", ready="False")]
    found = lose(snapshot(masters, NODES, vm("db", "n1"), nhc()), "m1", "n1")
    assert found.survives is None
    assert only_vm(found).outcome == "unknown"


def test_control_plane_nodes_that_were_not_read_decide():
    found = lose(snapshot(NODES, vm("db", "n1"), nhc(), unreadable=("nodes",)), "n1")
    assert found.quorum == (0, 0, None)
    assert any("control-plane nodes that were not read" in why for why in found.because)


def control_plane(*more):
    nodes = [master(f"m{index}") for index in range(3)]
    for each in nodes:
        each["spec"] = {}
        each["metadata"]["labels"]["kubevirt.io/schedulable"] = "true"
    check, template = nhc()
    check["spec"]["selector"] = {}
    version = manifest(
        "config.openshift.io/v1", "ClusterVersion", "version", status={"conditions": []}
    )
    return nodes, check, template, version, vm("db", "m0"), more


def budget(name):
    return manifest(
        "policy/v1", "PodDisruptionBudget", name, "openshift-etcd", spec={"maxUnavailable": 1}
    )


@pytest.mark.parametrize(
    ("budgets", "unreadable", "survives"),
    [
        ([budget("guard")], (), True),
        ([], (), False),
        ([budget("guard"), budget("own")], (), False),
        ([], ("poddisruptionbudgets.policy",), None),
    ],
)
def test_the_budget_of_etcd_decides_on_control_plane_nodes(budgets, unreadable, survives):
    assert lose(snapshot(control_plane(*budgets), unreadable=unreadable), "m0").survives is survives


def test_a_storm_makes_the_check_wait():
    check, template = nhc()
    check["spec"]["stormCooldownDuration"] = "20m"
    check["status"] = {"conditions": [{"type": "StormActive", "status": "True"}]}
    row = only_vm(lose(snapshot(NODES, vm("db", "n1"), check, template), "n1"))
    assert row.outcome == "restarts"
    assert parts(row)["storm cooldown"] == (0, 1200)


def cluster_api(*, paused):
    owner = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineSet",
        "name": "workers",
        "controller": True,
        "uid": "ms",
    }
    labels = {"role": "worker", "cluster.x-k8s.io/cluster-name": "prod"}
    for name in ("n1", "n2", "n3"):
        yield manifest(
            "cluster.x-k8s.io/v1beta1",
            "Machine",
            f"machine-{name}",
            "capi",
            metadata={"labels": labels, "ownerReferences": [owner]},
            spec={"clusterName": "prod"},
            status={"nodeRef": {"kind": "Node", "name": name}, "phase": "Running"},
        )
    conditions = [
        {"type": "Ready", "status": status, "timeout": "60s"} for status in ("Unknown", "False")
    ]
    spec = {
        "clusterName": "prod",
        "selector": {"matchLabels": {"role": "worker"}},
        "unhealthyConditions": conditions,
    }
    yield manifest("cluster.x-k8s.io/v1beta1", "MachineHealthCheck", "workers", "capi", spec=spec)
    yield manifest("cluster.x-k8s.io/v1beta1", "Cluster", "prod", "capi", spec={"paused": paused})


@pytest.mark.parametrize(("paused", "outcome"), [(False, "restarts"), (True, "never restarts")])
def test_a_paused_cluster_is_not_remediated(paused, outcome):
    row = only_vm(lose(snapshot(NODES, vm("db", "n1"), list(cluster_api(paused=paused))), "n1"))
    assert row.outcome == outcome
    if paused:
        assert "Cluster capi/prod is paused" in row.reason


def test_the_drain_of_vms_with_an_unread_strategy_may_never_end():
    nodes = [node(f"n{index}") for index in range(9)]
    names = [f"n{index}" for index in range(5)]
    objects = (nodes, losses.machines(*(f"n{index}" for index in range(9))))
    parts_of_vm = vm("db", "n0", evictionStrategy=None)
    hidden = ("kubevirts.kubevirt.io",)
    read = lose(snapshot(objects, parts_of_vm), *names)
    unread = lose(snapshot(objects, parts_of_vm, unreadable=hidden, kubevirt=False), *names)
    assert only_vm(read).outcome == "restarts"
    assert only_vm(unread).outcome == "unknown"
    assert not unread.outages[0].actors[0].certain


def test_two_checks_of_which_one_has_no_known_end():
    external = losses.machines("n1", "n2", "n3")
    external[-1]["metadata"] |= {
        "name": "metal",
        "annotations": {"machine.openshift.io/remediation-strategy": "external-baremetal"},
    }
    found = lose(
        snapshot(NODES, vm("db", "n1"), losses.machines("n1", "n2", "n3"), external[-1]), "n1"
    )
    assert {actor.check for actor in found.outages[0].actors} == {
        "MachineHealthCheck workers",
        "MachineHealthCheck metal",
    }
    assert only_vm(found).outcome == "restarts"


@pytest.mark.parametrize(("version", "low"), [("v1.31.9", 40), ("v1.32.0", 50), (None, 50)])
def test_older_releases_notice_earlier(version, low):
    row = only_vm(lose(snapshot(NODES, vm("db", "n1"), nhc(), version=version), "n1"))
    assert parts(row)["detected"] == (low, low + 5)


def controllers(*nodes):
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "virt-controller",
        "controller": True,
        "uid": "rs",
    }
    labels = {"kubevirt.io": "virt-controller"}
    for index, name in enumerate(nodes):
        yield pod(
            f"virt-controller-{index}",
            name,
            "1Gi",
            metadata={"labels": labels, "ownerReferences": [owner]},
        )


@pytest.mark.parametrize(("on", "waits"), [(("n1", "n2"), False), (("n1", "n1"), True)])
def test_virt_controllers_that_are_lost_start_elsewhere_before_slow_remediators(on, waits):
    row = only_vm(lose(snapshot(NODES, vm("db", "n1"), nhc(), list(controllers(*on))), "n1"))
    assert "virt-controller started elsewhere" not in parts(row)
    assert row.by_hand == ((65, 315) if waits else (60, 195))


def test_other_pods_do_not_decide_where_no_vm_restarts():
    others = [deployed(f"web{index}", "n1", "20Gi") for index in range(3)]
    found = lose(snapshot(NODES, filler("n2", "40Gi"), filler("n3", "40Gi"), others, nhc()), "n1")
    assert found.survives is True


def test_a_vm_that_never_preempts_needs_room_next_to_lesser_pods():
    objects = [filler("n3", "64Gi"), filler("n2", "40Gi"), vm("db", "n1", "20Gi", priority=1000)]
    objects[2][-1]["spec"]["preemptionPolicy"] = "Never"
    found = outages(
        Question(nodes=("n1",)), snapshot(NODES, objects, deployed("web", "n1", "10Gi"), nhc())
    )
    assert found.survives is None


def capi(*, deleted="2026-01-01T09:00:00Z", timeout=None, waits_since="2026-01-01T11:00:00Z"):
    """A Machine of Cluster API that is being deleted, with its health check."""
    labels = {
        "cluster.x-k8s.io/deployment-name": "workers",
        "cluster.x-k8s.io/cluster-name": "prod",
    }
    owner = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineSet",
        "name": "workers",
        "controller": True,
    }
    waiting = {
        "type": "VolumeDetachSucceeded",
        "status": "False",
        "lastTransitionTime": waits_since,
    }
    machine = manifest(
        "cluster.x-k8s.io/v1beta1",
        "Machine",
        "machine-n1",
        "capi",
        metadata={"labels": labels, "ownerReferences": [owner], "deletionTimestamp": deleted},
        spec={"clusterName": "prod", **({"nodeVolumeDetachTimeout": timeout} if timeout else {})},
        status={"nodeRef": {"kind": "Node", "name": "n1"}, "conditions": [waiting]},
    )
    conditions = [{"type": "Ready", "status": "Unknown", "timeout": "60s"}]
    check = {
        "clusterName": "prod",
        "maxUnhealthy": "100%",
        "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "workers"}},
        "unhealthyConditions": conditions,
    }
    ready = [
        {"type": kind, "status": "True"}
        for kind in ("InfrastructureReady", "ControlPlaneInitialized")
    ]
    return [
        machine,
        manifest("cluster.x-k8s.io/v1beta1", "MachineHealthCheck", "workers", "capi", spec=check),
        manifest(
            "cluster.x-k8s.io/v1beta1",
            "Cluster",
            "prod",
            "capi",
            spec={},
            status={"conditions": ready},
        ),
    ]


@pytest.mark.parametrize(
    ("changed", "stuck"),
    [
        ({}, True),
        ({"timeout": "5m"}, False),
        ({"waits_since": "2026-01-01T11:55:00Z"}, False),
        ({"deleted": None}, False),
    ],
)
def test_a_machine_whose_deletion_waits_for_volumes_frees_no_pod(changed, stuck):
    dead = node("n1", ready="Unknown")
    seen = {"lastHeartbeatTime": "2026-01-01T12:00:00Z"}
    alive = [node("n2"), node("n3")]
    alive[0]["status"]["conditions"][0] |= seen
    found = lose(snapshot([dead, *alive], vm("db", "n1"), capi(**changed)), "n1")
    assert ("nodeVolumeDetachTimeout is not set" in only_vm(found).reason) is stuck
    assert (found.survives is False) is stuck


@pytest.mark.parametrize(
    ("labels", "namespace"),
    [({"component": "etcd"}, "kube-system"), ({"app": "etcd"}, "openshift-etcd")],
)
def test_a_member_of_etcd_that_is_down_counts_for_the_quorum(labels, namespace):
    masters = [master(name) for name in ("m0", "m1", "m2")]
    etcd = [pod(f"etcd-{name}", name, "1Gi") for name in ("m0", "m1", "m2")]
    for each in etcd:
        each["metadata"] |= {"labels": labels, "namespace": namespace}
        each["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert lose(snapshot(masters, NODES, etcd), "m1").quorum.kept is True
    etcd[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    etcd[0]["status"]["phase"] = "Succeeded"  # a job with the same label
    assert lose(snapshot(masters, NODES, etcd), "m1").quorum.kept is True
    etcd[0]["status"]["phase"] = "Running"
    found = lose(snapshot(masters, NODES, etcd), "m1")
    assert (found.quorum.kept, found.quorum.left) == (None, 2)
    assert any("etcd on m0 is not ready" in why for why in found.because)


@pytest.mark.parametrize(("timed_out", "acts"), [(["2026-01-01T12:00:00Z"], False), ([None], True)])
def test_a_node_whose_only_remediation_has_timed_out_is_left_alone(timed_out, acts):
    check, template = nhc()
    reference = check["spec"].pop("remediationTemplate")
    check["spec"]["escalatingRemediations"] = [
        {"remediationTemplate": reference, "order": 1, "timeout": "30m"}
    ]
    started = [
        {"started": "2026-01-01T11:30:00Z", **({"timedOut": at} if at else {})} for at in timed_out
    ]
    check["status"] = {"unhealthyNodes": [{"name": "n1", "remediations": started}]}
    nodes = [node("n1", ready="Unknown"), *NODES[1:]]
    row = only_vm(lose(snapshot(nodes, vm("db", "n1"), check, template), "n1"))
    assert ("all its remediators have timed out" in row.reason) is not acts
    assert (row.outcome == "restarts") is acts


@pytest.mark.parametrize(
    ("unhealthy", "label", "survives"),
    [
        (None, None, True),
        ("m1", None, False),  # it has a remediation, which stays
        ("m1", "remediation.medik8s.io/exclude-from-remediation", True),  # it never has one
    ],
)
def test_control_plane_nodes_are_remediated_one_at_a_time(unhealthy, label, survives):
    nodes, *others = control_plane(budget("guard"))
    nodes += [
        {**nodes[0], "metadata": {**nodes[0]["metadata"], "name": name}} for name in ("m3", "m4")
    ]
    for each in nodes:
        if each["metadata"]["name"] == unhealthy:
            each["status"] = {
                **each["status"],
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            }
            each["metadata"]["labels"] = each["metadata"]["labels"] | (
                {label: "true"} if label else {}
            )
    assert lose(snapshot(nodes, others), "m0").survives is survives


def test_which_of_two_lost_control_plane_nodes_is_remediated_is_not_known():
    nodes, *others = control_plane(budget("guard"))
    nodes += [
        {**nodes[0], "metadata": {**nodes[0]["metadata"], "name": name}} for name in ("m3", "m4")
    ]
    found = lose(snapshot(nodes, others), "m0", "m1")
    assert found.survives is None
    assert any("whether m0 or m1 is remediated" in what for what in found.unseen)
