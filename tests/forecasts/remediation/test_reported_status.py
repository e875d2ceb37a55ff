"""Machines that a check counts as unhealthy although their nodes are Ready,
and what the check says of itself.
"""

import pytest

from tests.health_checks import CAPI, capi, machine, make, mhc, node
from virt_admit.forecasts.outage import explanation
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.remediation import reported_status, unhealthy_objects
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import check_scope, health_checks

CAPI2 = "cluster.x-k8s.io/v1beta2"
NOW, EARLIER = "2026-01-01T12:00:00Z", "2026-01-01T09:00:00Z"
UNKNOWN = [{"type": "Ready", "status": "Unknown", "timeout": "5m"}]
OWNER = make(
    CAPI,
    "Cluster",
    "c",
    "c",
    status={
        "conditions": [
            {"type": kind, "status": "True"}
            for kind in ("InfrastructureReady", "ControlPlaneInitialized")
        ]
    },
)


def judged(status, reason="MachineHasFailure"):
    return [{"type": "HealthCheckSucceeded", "status": status, "reason": reason}]


def member(name, version=CAPI, **status):
    return machine(name, version, "c", nodeRef={"name": f"node-{name}"}, **status)


def check(limit="40%", **status):
    found = capi(unhealthyConditions=UNKNOWN, maxUnhealthy=limit)
    found.data["metadata"]["generation"] = 2
    found.data["status"] = status
    return found


def cluster(*objects, ready="True"):
    nodes = [node(f"node-m{number}", Ready=ready) for number in range(3)]
    return Snapshot([OWNER, *nodes, *objects], complete=["*"], time=NOW)


def sick(*objects, **options):
    view = health_checks.view(check())
    found = cluster(*objects, **options)
    selection = check_scope.selected_by(view, found)
    return [(each.name, each.why) for each in unhealthy_objects.unhealthy(view, selection, found)]


FAILED = {"failureReason": "CreateError", "failureMessage": "Failed to get a BaremetalHost"}


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (member("m0", **FAILED), "Failed: CreateError"),
        (member("m0", failureMessage="no host"), "Failed: no host"),
        (member("m0", **FAILED, conditions=judged("False")), "Failed: CreateError"),
        (member("m0", CAPI2, deprecated={"v1beta1": FAILED}, conditions=judged("True")), ""),
        (member("m0", CAPI2, deprecated={"v1beta1": FAILED | {"conditions": judged("False")}},
                conditions=judged("True")),
         "Failed: CreateError"),
        (member("m0", **FAILED, conditions=judged("True")), ""),
        (member("m0", conditions=judged("False", "UnhealthyNode")),
         "reports HealthCheckSucceeded=False (UnhealthyNode)"),
        (member("m0", v1beta2={"conditions": judged("False", "UnhealthyNode")}),
         "reports HealthCheckSucceeded=False (UnhealthyNode)"),
        (member("m0", conditions=judged("True")), ""),
    ],
)  # fmt: skip
def test_what_a_machine_says(one, why):
    assert sick(one) == ([("m0", why)] if why else [])


@pytest.mark.parametrize(
    ("template", "since", "counts"),
    [(True, NOW, False), (True, "2026-01-01T08:00:00Z", True), (False, NOW, True)],
)
def test_a_verdict_from_before_the_node_was_healthy_again(template, since, counts):
    """With a template, nothing takes it back; the check itself looks at the node alone."""
    verdict = judged("False", "UnhealthyNode")[0] | {"lastTransitionTime": EARLIER}
    healthy = {"type": "NodeHealthy", "status": "True", "lastTransitionTime": since}
    one = member("m0", conditions=[verdict, healthy])
    watch = check()
    if template:
        watch.data["spec"]["remediationTemplate"] = {
            "kind": "Metal3RemediationTemplate",
            "name": "t",
        }
    view, found = health_checks.view(watch), cluster(one)
    selection = check_scope.selected_by(view, found)
    assert any(unhealthy_objects.unhealthy(view, selection, found)) == counts


def test_a_cluster_whose_status_alone_says_that_it_is_initialized():
    status = {"initialization": {"controlPlaneInitialized": True}}
    assert unhealthy_objects.is_initialized(make(CAPI2, "Cluster", "c", "c", status=status))
    assert not unhealthy_objects.is_initialized(make(CAPI2, "Cluster", "c", "c", status={}))


def test_the_check_has_judged_a_machine_whose_node_is_in_another_cluster():
    view, found = health_checks.view(check()), Snapshot([OWNER], complete=["*"])
    one = make(
        CAPI,
        "Machine",
        "m0",
        "c",
        status={"nodeRef": {"name": "far"}, "conditions": judged("False", "NodeStartupTimeout")},
    )
    one.data["metadata"]["labels"] = {"pool": "a", "cluster.x-k8s.io/cluster-name": "c"}
    found = Snapshot([OWNER, one], complete=["*"])
    (sick_one,) = unhealthy_objects.unhealthy(view, check_scope.selected_by(view, found), found)
    assert sick_one.why == "reports HealthCheckSucceeded=False (NodeStartupTimeout)"


# --- outage and explain agree ---------------------------------------------------------------------

REFUSED = {
    "type": "RemediationAllowed",
    "status": "False",
    "reason": "TooManyUnhealthy",
    "message": "Remediation is not allowed (total: 3, unhealthy: 2, maxUnhealthy: 40%)",
    "lastTransitionTime": EARLIER,
}


def actor(one, *machines, ready="True"):
    (found,) = (
        outages(Question(("node-m0",)), cluster(one, *machines, ready=ready)).outages[0].actors
    )
    return found


def test_failed_machines_use_up_the_limit():
    objects = [member("m0"), member("m1", **FAILED), member("m2", **FAILED)]
    found = explanation.explain(check(), cluster(*objects))
    assert found.obstacles == ("2 are unhealthy or soon will be: more than 1",)
    (note,) = (note for note in found.notes if "failureReason" in note)
    assert note == (
        "clear failureReason and failureMessage of the infrastructure objects, then of Machine m1, "
        "m2: the nodes are Ready. A higher limit would delete them: kubectl patch "
        "machines.cluster.x-k8s.io m1 -n c --subresource=status --type=merge -p "
        """'{"status":{"failureReason":null,"failureMessage":null}}'"""
    )
    refusing = actor(check(), *objects)
    assert refusing.refuses == (
        "maxUnhealthy 40% allows 1 of 3 to be unhealthy, and 3 are (with node-m1, node-m2)"
    )
    assert refusing.remedy == note


def test_the_fields_of_the_later_version():
    objects = [member(name, CAPI2, deprecated={"v1beta1": FAILED}) for name in ("m0", "m1", "m2")]
    assert (
        '{"status":{"deprecated":{"v1beta1":{"failureReason":null'
        in actor(check(), *objects).remedy
    )


def test_a_failed_machine_whose_node_is_lost_too_is_not_repaired_that_way():
    objects = [member("m0"), member("m1", **FAILED), member("m2", **FAILED)]
    assert "failureReason" not in actor(check(), *objects, ready="Unknown").remedy


MEMBERS = [member(f"m{number}") for number in range(3)]


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        ({"expectedMachines": 3, "currentHealthy": 1, "observedGeneration": 2}, 2),
        ({"expectedMachines": 3, "currentHealthy": 1}, 2),
        ({"expectedMachines": 3, "currentHealthy": 3}, 0),
        # of an earlier spec
        ({"expectedMachines": 3, "currentHealthy": 1, "observedGeneration": 1}, None),
        ({"expectedMachines": 4, "currentHealthy": 1}, None),  # of other Machines
        ({"expectedMachines": 3}, None),
        ({}, None),
    ],
)
def test_what_a_status_counts(status, counts):
    view = health_checks.view(check(**status))
    assert reported_status.counted(view, check_scope.selected_by(view, cluster(*MEMBERS))) == counts


def test_the_check_counts_more_than_its_machines_show():
    one = check(expectedMachines=3, currentHealthy=1, conditions=[REFUSED])
    found = explanation.explain(one, cluster(*MEMBERS))
    assert found.unhealthy == ()
    assert found.obstacles == ("its status counts 2 of 3 as unhealthy: more than 1",)
    assert (
        "its condition RemediationAllowed is False for 3 h: Remediation is not allowed "
        "(total: 3, unhealthy: 2, maxUnhealthy: 40%)"
    ) in found.notes
    assert (
        actor(one, *MEMBERS).refuses == "maxUnhealthy 40% allows 1 of 3 to be unhealthy, and 2 are"
    )


def test_whether_the_lost_machine_is_one_of_those_it_counts():
    one = check(expectedMachines=3, currentHealthy=2)
    found = actor(one, *MEMBERS)
    assert found.refuses == ""
    assert found.unseen == (
        "which Machines MachineHealthCheck md counts as unhealthy: its status says 1",
    )
    one = check("70%", expectedMachines=3, currentHealthy=2)
    assert actor(one, *MEMBERS).certain


def test_a_healthy_check_is_not_accused():
    allowed = REFUSED | {"status": "True", "reason": "", "message": ""}
    one = check(expectedMachines=3, currentHealthy=3, remediationsAllowed=1, conditions=[allowed])
    machines = [member(f"m{number}", conditions=judged("True")) for number in range(3)]
    found = explanation.explain(one, cluster(*machines))
    assert (found.unhealthy, found.obstacles) == ((), ())
    assert not any("RemediationAllowed" in note for note in found.notes)
    assert actor(one, *machines).certain


def test_a_range_below_which_a_healthy_check_refuses():
    one = check(expectedMachines=3, currentHealthy=3, conditions=[REFUSED])
    one.data["spec"]["unhealthyRange"] = "[1-2]"
    assert not any(
        "RemediationAllowed" in note for note in explanation.explain(one, cluster(*MEMBERS)).notes
    )


def test_the_status_of_openshift():
    one = mhc(unhealthyConditions=UNKNOWN, maxUnhealthy=1)
    one.data["status"] = {"expectedMachines": 3, "currentHealthy": 1}
    machines = [machine(f"m{number}", nodeRef={"name": f"node-m{number}"}) for number in range(3)]
    assert (
        actor(one, *machines).refuses == "maxUnhealthy 1 allows 1 of 3 to be unhealthy, and 2 are"
    )


# --- owners that do not remediate -----------------------------------------------------------------

KUBEADM = ("KubeadmControlPlane", "cp")
QUORUM = "KCP can't remediate this machine because this could result in etcd loosing quorum"


def left(
    name,
    on=None,
    owner=KUBEADM,
    since=EARLIER,
    reason="WaitingForRemediation",
    message=QUORUM,
    status="False",
):
    condition = {"type": "OwnerRemediated", "status": status, "reason": reason, "message": message}
    conditions = [*judged("False", "NodeStartupTimeout"), condition | {"lastTransitionTime": since}]
    fields = {"nodeRef": {"name": on}} if on else {}
    return machine(name, CAPI, "c", owner=owner, conditions=conditions, **fields)


def owned(number, owner=KUBEADM):
    return machine(f"m{number}", CAPI, "c", owner=owner, nodeRef={"name": f"node-m{number}"})


def test_a_control_plane_that_refuses_for_the_sake_of_the_quorum():
    found = explanation.explain(check("100%"), cluster(owned(0), owned(1), left("m2")))
    assert (
        f"to m2: KubeadmControlPlane cp has not remediated it for 3 h: {QUORUM}" in found.obstacles
    )
    assert (
        "m2 has no node. If all other members of etcd are healthy, delete it by hand, so that "
        "KubeadmControlPlane cp creates another one: kubectl delete machines.cluster.x-k8s.io m2 "
        "-n c"
    ) in found.notes


def test_a_control_plane_machine_with_a_node_is_not_to_be_deleted_by_hand():
    found = explanation.explain(check("100%"), cluster(owned(0), owned(1), left("m2", "node-m2")))
    assert any("has not remediated it" in why for why in found.obstacles)
    assert not any("delete it by hand" in note for note in found.notes)


@pytest.mark.parametrize(
    "one",
    [
        left("m2", since="2026-01-01T11:55:00Z"),
        left("m2", status="True"),
        left("m2", reason="RemediationInProgress", message=""),
        left("m2", reason="MachineDeleting", message="Machine is deleting"),
        left("m2", since=None),
    ],
    ids=["just now", "done", "begun", "deleting", "since an unknown time"],
)
def test_owners_that_are_not_accused(one):
    found = explanation.explain(check("100%"), cluster(owned(0), owned(1), one))
    assert not any("has not remediated" in why for why in found.obstacles)
    assert actor(check("100%"), owned(0), owned(1), one).unseen == ()


def test_outage_does_not_promise_what_the_owner_defers():
    deferred = {
        "owner": ("MachineSet", "set"),
        "message": "* control plane is upgrading",
        "reason": "RemediationDeferred",
    }
    found = actor(check("100%"), owned(0, ("MachineSet", "set")), left("m2", "node-m2", **deferred))
    assert found.unseen == (
        (
            "whether MachineSet set remediates it: m2 waits for that for 3 h: * control plane is "
            "upgrading"
        ),
    )
    assert actor(check("100%"), owned(0, ("MachineSet", "set")), left("m2", "node-m2")).unseen == ()


# --- Machines that start --------------------------------------------------------------------------


def starting(name, created, **fields):
    found = machine(name, owner=("MachineSet", "set"), **fields)
    found.data["metadata"]["creationTimestamp"] = created
    return found


def explained(limit, *machines):
    nodes = [node(f"node-m{number}") for number in range(3)]
    for one in nodes:
        one.data["metadata"]["creationTimestamp"] = "2026-01-01T00:24:00Z"
    objects = Snapshot([*nodes, *machines], complete=["*"], time=NOW)
    return explanation.explain(mhc(unhealthyConditions=UNKNOWN, nodeStartupTimeout=limit), objects)


SLOW = [
    starting(f"m{number}", "2026-01-01T00:00:00Z", nodeRef={"name": f"node-m{number}"})
    for number in range(3)
]


@pytest.mark.parametrize(
    ("limit", "created", "why"),
    [
        ("45m", "2026-01-01T11:45:00Z", "starts: no node yet, after 15 min of 45m"),
        ("45m", "2026-01-01T11:00:00Z", "has no node"),
        ("0", "2026-01-01T11:45:00Z", "has no node"),
        ("45m", None, "has no node"),
    ],
)
def test_a_machine_that_starts_counts_and_is_not_called_ill(limit, created, why):
    assert explained(limit, starting("m-new", created)).unhealthy == (("m-new", why),)


def test_the_machine_that_is_not_deleted_is_named():
    waits = {
        "type": "Deleting",
        "status": "True",
        "reason": "DrainingNode",
        "message": "* Pod shop/db-0: cannot evict pod",
    }
    one = member("m0", conditions=[waits])
    hooked = member("m1")
    hooked.data["metadata"]["annotations"] = {
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/move": "storage"
    }
    silent, young = member("m2"), member("m3")
    for each in (one, hooked, silent, young):
        each.data["metadata"]["deletionTimestamp"] = (
            "2026-01-01T11:55:00Z" if each is young else "2026-01-01T11:00:00Z"
        )
    found = [
        note.partition(": kubectl")[0]
        for note in explanation.explain(check(), cluster(one, hooked, silent, young)).notes
    ]
    assert [note for note in found if "is being deleted" in note] == [
        (
            "Machine c/m0 is being deleted for 60 min: its drain waits: * Pod shop/db-0: cannot "
            "evict pod"
        ),
        "Machine c/m1 is being deleted for 60 min: its hook move of storage is set",
        "Machine c/m2 is being deleted for 60 min: its controller does not say why",
    ]


def test_a_check_that_remediates_machines_before_they_can_become_nodes():
    loop = (
        "nodeStartupTimeout 10m is too short for machines that take up to 24m here to become a "
        "node. A new machine is remediated before that, and so is the next one, in a loop. Set at "
        "least 30m"
    )
    assert loop in explained("10m", *SLOW).notes
    assert not any("in a loop" in note for note in explained("45m", *SLOW).notes)
    assert not any(
        "in a loop" in note
        for note in explained("10m", starting("m-new", "2026-01-01T11:58:00Z")).notes
    )
