"""The objects that a health check counts as unhealthy, and the reasons why it does nothing."""

import pytest

from tests.for_each import for_each
from tests.health_checks import SNR, machine, make, mhc, nhc, node, template
from virt_admit.forecasts.remediation import inactive_reasons, remediation_steps, unhealthy_objects
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.remediation import check_scope, health_checks


def of(check, *objects, complete=("*",)):
    cluster = Snapshot(objects, complete=complete)
    view = health_checks.view(check)
    return view, check_scope.selected_by(view, cluster), cluster


def sick(view, selection, cluster):
    """The names and reasons of the unhealthy objects."""
    return [
        (target.name, target.why)
        for target in unhealthy_objects.unhealthy(view, selection, cluster)
    ]


def blocked(check, *objects, complete=("*",)):
    """The obstacles of a check."""
    view, selection, cluster = of(check, *objects, complete=complete)
    unhealthy = [
        target
        for target in unhealthy_objects.unhealthy(view, selection, cluster)
        if not isinstance(target, Unseen)
    ]
    return list(inactive_reasons.obstacles(view, selection, unhealthy, cluster))


def snr_template():
    return make(SNR, "SelfNodeRemediationTemplate", "auto", "wa", spec={"template": {"spec": {}}})


@pytest.mark.parametrize(
    ("check", "objects", "parts"),
    [
        (nhc(remediationTemplate=template()), [snr_template()], []),
        (nhc(remediationTemplate=template()), [],
         ["SelfNodeRemediationTemplate wa/auto does not exist"]),
        (nhc(pauseRequests=["upgrade"]), [], ["paused: upgrade"]),
        (nhc(), [mhc("custom")], ["openshift-machine-api/custom"]),
        (nhc(selector={"matchLabels": {"pool": "a b"}}), [], ["malformed"]),
        (mhc(), [], []),
        (mhc(remediationTemplate=template()), [snr_template()],
         ["SelfNodeRemediationTemplate openshift-machine-api/auto does not exist"]),
    ],
)  # fmt: skip
def test_obstacles(check, objects, parts):
    found = blocked(check, *objects)
    assert len(found) == len(parts)
    assert all(part in text for part, text in zip(parts, found, strict=True))


def test_a_paused_machine_health_check():
    check = mhc()
    check.data["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": "false"}
    assert "paused" in blocked(check)[0]


def test_unseen_obstacles():
    assert list(map(str, blocked(nhc(remediationTemplate=template()), complete=()))) == [
        "machinehealthchecks.machine.openshift.io",
        "selfnoderemediationtemplates.self-node-remediation.medik8s.io wa/auto",
        "clusterversions.config.openshift.io",
    ]


# --- who is unhealthy -----------------------------------------------------------------------------


def test_unhealthy_nodes_by_default_conditions():
    view, selection, cluster = of(
        nhc(),
        node("n0"),
        node("n1", Ready="Unknown"),
        node("n2", Ready="False"),
        node("n3", DiskPressure="True"),
    )
    assert sick(view, selection, cluster) == [("n1", "Ready=Unknown"), ("n2", "Ready=False")]


def test_unhealthy_machines():
    conditions = [{"type": "Ready", "status": "Unknown", "timeout": "5m"}]
    view, selection, cluster = of(
        mhc(unhealthyConditions=conditions),
        node("n0"), node("n1", Ready="Unknown"),
        machine("m0", nodeRef={"name": "n0"}), machine("m1", nodeRef={"name": "n1"}),
        machine("m2"), machine("m3", nodeRef={"name": "n3"}),
        machine("m4", nodeRef={"name": "n0"}, phase="Failed"),
    )  # fmt: skip
    assert sick(view, selection, cluster) == [
        ("m1", "Ready=Unknown"), ("m2", "has no node"), ("m3", "its node does not exist"),
        ("m4", "Failed"),
    ]  # fmt: skip
    assert list(remediation_steps.nodes_of(view, selection, cluster)) == ["n0", "n1", "n3", "n0"]


def test_unhealthy_machines_with_unseen_nodes():
    view, selection, cluster = of(mhc(), machine("m0", nodeRef={"name": "n0"}), complete=())
    assert [type(result) for result in unhealthy_objects.unhealthy(view, selection, cluster)] == [
        Unseen
    ]


# --- MachineHealthCheck: machinehealthcheck_controller.go#healthCheckTargets ----------------------

READY = [{"type": "Ready", "status": "False", "timeout": "5m"}]


def annotated(obj, **annotations):
    """The object with these annotations; a name with underscores stands for one with dashes."""
    obj.data["metadata"].setdefault("annotations", {}).update(annotations)
    return obj


def deleted(obj):
    obj.data["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return obj


def test_machines_under_remediation_use_up_the_limit():
    found = sick(*of(
        mhc(unhealthyConditions=READY),
        node("n0"),
        deleted(machine("m0", nodeRef={"name": "n0"})),
        annotated(machine("m1", nodeRef={"name": "n0"}),
                  **{"host.metal3.io/external-remediation": ""}),
        machine("m2", nodeRef={"name": "n0"}),
    ))  # fmt: skip
    assert found == [("m0", "is being deleted"), ("m1", "waits for external remediation")]


TWICE = [{"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (mhc(unhealthyConditions=READY), ["m0"]),
        (nhc(unhealthyConditions=[{**READY[0], "duration": "5m"}]), []),
    ],
)
def test_the_first_of_two_equal_types_counts_for_machines_and_the_last_for_nodes(check, expected):
    twice = node("n0")
    twice.data["status"]["conditions"] = TWICE
    assert [
        name for name, _ in sick(*of(check, twice, machine("m0", nodeRef={"name": "n0"})))
    ] == expected


# --- Cluster API: machinehealthcheck_targets.go ---------------------------------------------------

CAPI2 = "cluster.x-k8s.io/v1beta2"


def md(**checks):
    """A check in version v1beta2."""
    spec = {"selector": {"matchLabels": {"pool": "a"}}, "clusterName": "c", "checks": checks}
    return make(CAPI2, "MachineHealthCheck", "md", "c", spec=spec)


def capi_machine(name, conditions=(), **annotations):
    obj = machine(
        name,
        CAPI2,
        "c",
        nodeRef={"name": f"node-{name}"},
        conditions=list(conditions),
        phase="Failed",
    )
    return annotated(obj, **annotations)


def owner(paused=None, **conditions):
    conditions = {"InfrastructureReady": "True", "ControlPlaneInitialized": "True", **conditions}
    listed = [{"type": kind, "status": status} for kind, status in conditions.items()]
    return make(CAPI2, "Cluster", "c", "c", spec={"paused": paused}, status={"conditions": listed})


WORN = {"type": "Worn", "status": "True", "timeoutSeconds": 60}
NOT_READY = {"type": "Ready", "status": "False", "timeoutSeconds": 300}


def test_machines_that_are_skipped_leave_the_count():
    _, selection, _ = of(
        md(),
        capi_machine("m0", **{"cluster.x-k8s.io/skip-remediation": ""}),
        capi_machine("m1", **{"cluster.x-k8s.io/paused": "false"}),
        capi_machine("m2"),
    )
    assert [obj.name for obj in selection.objects] == ["m2"]


def test_machines_without_the_label_of_the_cluster_are_not_selected():
    unlabelled = capi_machine("m0")
    unlabelled.data["metadata"]["labels"].pop("cluster.x-k8s.io/cluster-name")
    unlabelled.data["spec"] = {"clusterName": "c"}
    assert len(of(md(), unlabelled)[1]) == 0


@pytest.mark.parametrize(
    ("obj", "cluster", "expected"),
    [
        (capi_machine("m0"), owner(), []),
        (capi_machine("m0", [WORN]), owner(), [("m0", "reports Worn=True")]),
        (capi_machine("m0", [WORN]), owner(InfrastructureReady="False"), []),
        (capi_machine("m0", [WORN]), owner(ControlPlaneInitialized="False"),
         [("m0", "its node is not read before the control plane is initialized")]),
        (capi_machine("m0", [{"type": "Worn", "status": "False"}, WORN]), owner(), []),
        (capi_machine("m0", **{"cluster.x-k8s.io/remediate-machine": ""}),
         owner(InfrastructureReady="False"),
         [("m0", "has the annotation cluster.x-k8s.io/remediate-machine")]),
        (deleted(capi_machine("m0")), owner(), [("m0", "is being deleted")]),
        (machine("m0", CAPI2, "c"), owner(), [("m0", "has no node")]),
    ],
)  # fmt: skip
def test_unhealthy_machines_of_cluster_api(obj, cluster, expected):
    check = md(unhealthyNodeConditions=[NOT_READY], unhealthyMachineConditions=[WORN])
    assert sick(*of(check, obj, cluster, node("node-m0"))) == expected


def test_a_control_plane_machine_is_judged_before_the_control_plane_is_initialized():
    first = capi_machine("m0", [WORN])
    first.data["metadata"]["labels"]["cluster.x-k8s.io/control-plane"] = ""
    check = md(unhealthyMachineConditions=[WORN])
    assert sick(*of(check, first, owner(ControlPlaneInitialized="False"))) == [
        ("m0", "reports Worn=True")
    ]


@pytest.mark.parametrize(
    "other", [[], [annotated(node("node-m0"), **{"cluster.x-k8s.io/machine": "other"})]]
)
def test_the_nodes_of_a_workload_cluster_are_unseen(other):
    view, selection, cluster = of(
        md(unhealthyNodeConditions=[NOT_READY]), capi_machine("m0"), owner(), *other
    )
    (unseen,) = unhealthy_objects.unhealthy(view, selection, cluster)
    assert str(unseen) == "node node-m0 of the workload cluster"


def test_the_conditions_of_the_older_version():
    older = owner()
    older.data |= {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "status": {"v1beta2": older.data["status"]},
    }
    assert unhealthy_objects.is_true(older, "InfrastructureReady")
    assert not unhealthy_objects.is_true(
        owner(InfrastructureReady="Unknown"), "InfrastructureReady"
    )


@pytest.mark.parametrize(
    ("objects", "parts"),
    [
        ([owner()], []),
        ([], ["Cluster c/c does not exist"]),
        ([owner(paused=True)], ["Cluster c/c is paused"]),
        ([owner(InfrastructureReady="False")], ["infrastructure of Cluster c/c is not ready"]),
        (
            [owner(ControlPlaneInitialized="False")],
            ["control plane of Cluster c/c is not initialized"],
        ),
    ],
)
def test_the_cluster_of_a_check(objects, parts):
    found = blocked(md(), *objects)
    assert len(found) == len(parts)
    assert all(part in text for part, text in zip(parts, found, strict=True))
    assert "clusters.cluster.x-k8s.io c/c" in map(str, blocked(md(), complete=()))


def test_a_remediation_request_keeps_other_machines_waiting():
    check = md()
    check.data["spec"]["remediation"] = {
        "templateRef": {"apiVersion": "r/v1", "kind": "RTemplate", "name": "r"}
    }
    remedy = make("r/v1", "RTemplate", "r", "c", spec={"template": {}})
    machines = [machine("m0", CAPI2, "c"), machine("m1", CAPI2, "c")]
    request = make("r/v1", "R", "m0", "c")
    assert blocked(check, owner(), remedy, *machines, request) == [
        "to m1, possibly: the check stops at the request R m0"
    ]
    assert blocked(check, owner(), remedy, machines[0], request) == []
    assert blocked(check, owner(), remedy, *machines) == []


# --- NodeHealthCheck: nodehealthcheck_controller.go#Reconcile -------------------------------------

HANDLER = mhc(
    "handler", unhealthyConditions=[{"type": "Terminating", "status": "True", "timeout": "0s"}]
)


def test_terminating_nodes_are_left_to_the_termination_handler():
    dying = node("n0", Ready="Unknown", Terminating="True")
    assert sick(*of(nhc(), dying)) == [("n0", "Ready=Unknown")]
    assert sick(*of(nhc(), dying, HANDLER)) == []
    view, selection, cluster = of(nhc(), dying, complete=["nodes"])
    assert [type(found) for found in unhealthy_objects.unhealthy(view, selection, cluster)] == [
        Unseen
    ]


def updated(name, desired, **status):
    configs = {
        "machineconfiguration.openshift.io/currentConfig": "a",
        "machineconfiguration.openshift.io/desiredConfig": desired,
    }
    return annotated(node(name, **status), **configs)


def progressing(status):
    conditions = [{"type": "Progressing", "status": status}]
    return make(
        "config.openshift.io/v1", "ClusterVersion", "version", status={"conditions": conditions}
    )


def in_storm(**spec):
    check = nhc(**spec)
    check.data["status"] = {"conditions": [{"type": "StormActive", "status": "True"}]}
    return check


def operator(tag):
    container = {"name": "manager", "image": f"quay.io/medik8s/node-healthcheck-operator:{tag}"}
    return make("v1", "Pod", "nhc", "medik8s", spec={"containers": [container]})


def excluded(value):
    obj = node("n0")
    obj.data["metadata"]["labels"]["remediation.medik8s.io/exclude-from-remediation"] = value
    return obj


@for_each("check, objects, parts", [
        (nhc(), [progressing("True")], ["end of the cluster upgrade"]),
        (nhc(), [progressing("False")], []),
        (nhc(), [updated("n0", "b", Ready="Unknown"), node("n1", Ready="Unknown")],
         ["the update of n0"]),
        (nhc(), [updated("n0", "a", Ready="Unknown")], []),
        (nhc(), [updated("n0", "", Ready="Unknown")], []),
        (nhc(), [updated("n0", "b")], []),
        (in_storm(stormCooldownDuration="10m"), [], ["stormCooldownDuration has not passed"]),
        (in_storm(), [], []),
        (nhc(), [excluded("true")],
         ["to n0: the label remediation.medik8s.io/exclude-from-remediation excludes it"]),
        (nhc(), [excluded(""), operator("v0.12.0")], []),
        (nhc(), [excluded(""), operator("v0.11.0")],
         ["release 0.11 of Node Health Check does not read its value ''"]),
        (nhc(remediationTemplate=template()),
         [make(SNR, "SelfNodeRemediationTemplate", "auto", "wa")],
         ["wa/auto has no spec.template"]),
        (mhc(), [progressing("True")], []),
    ])  # fmt: skip
def test_what_postpones_a_remediation(check, objects, parts):
    found = blocked(check, *objects)
    assert len(found) == len(parts)
    assert all(part in text for part, text in zip(parts, found, strict=True))


def test_what_ends_by_itself_is_not_lasting():
    cluster = Snapshot([progressing("True"), excluded("true")], complete=["*"])
    assert list(inactive_reasons.lasting(health_checks.view(nhc()), cluster)) == []


def masters(count):
    nodes = [node(f"n{number}") for number in range(count)]
    for each in nodes:
        each.data["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = ""
    return nodes


def test_control_plane_nodes_are_remediated_one_at_a_time():
    """nodehealthcheck_controller.go#isControlPlaneRemediationAllowed."""
    view, selection, _ = of(nhc(maxUnhealthy="100%"), *masters(3))
    budget = remediation_steps.budget(view, selection)
    assert (budget.most, budget.one_by_one, budget.everything) == (3, 3, False)
    single, workers = (
        of(nhc(maxUnhealthy="100%"), *masters(1)),
        of(nhc(maxUnhealthy="100%"), node("n0"), node("n1")),
    )
    assert remediation_steps.budget(single[0], single[1]).everything
    assert remediation_steps.budget(workers[0], workers[1]).everything


HEARTBEAT = "2026-11-01T12:00:00Z"


def terminating(since):
    made = node("n0", Ready="Unknown", Terminating="True")
    for condition in made.data["status"]["conditions"]:
        condition.update(
            {"lastHeartbeatTime": HEARTBEAT} | ({"lastTransitionTime": since} if since else {})
        )
    return made


@pytest.mark.parametrize(
    ("since", "found"),
    [("2026-11-01T11:00:00Z", []), ("2026-11-01T11:59:00Z", [("n0", "Ready=Unknown")]), (None, [])],
)
def test_a_terminating_node_counts_until_its_time_is_over(since, found):
    assert sick(*of(nhc(), terminating(since), mhc("custom"))) == found


def test_without_a_clock_a_terminating_node_cannot_be_judged():
    made = terminating("2026-11-01T11:59:00Z")
    for condition in made.data["status"]["conditions"]:
        del condition["lastHeartbeatTime"]
    (found,) = unhealthy_objects.unhealthy(*of(nhc(), made, mhc("custom")))
    assert isinstance(found, Unseen)


@pytest.mark.parametrize("under_way", [False, True])
def test_the_guard_of_etcd_that_could_not_be_read_is_named(under_way):
    master = node("m0", Ready="False")
    master.data["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = ""
    check = nhc(remediationTemplate=template())
    if under_way:
        check.data["status"] = {
            "unhealthyNodes": [
                {"name": "m0", "remediations": [{"started": "2026-01-01T11:30:00Z"}]}
            ]
        }
    openshift = make("config.openshift.io/v1", "ClusterVersion", "version")
    known = [
        "clusterversions.config.openshift.io",
        "machinehealthchecks.machine.openshift.io",
        "nodes",
    ]
    found = blocked(check, master, snr_template(), openshift, complete=known)
    assert [
        "poddisruptionbudgets.policy" in each.what for each in found if isinstance(each, Unseen)
    ] == [True] * (not under_way)


@pytest.mark.parametrize(
    ("status", "initialized"),
    [
        ({"controlPlaneReady": True}, True),
        ({"conditions": [{"type": "ControlPlaneInitialized", "status": "True"}]}, True),
        ({}, False),
        (
            {
                "controlPlaneReady": True,
                "conditions": [{"type": "ControlPlaneInitialized", "status": "False"}],
            },
            False,
        ),
    ],
)
def test_a_control_plane_that_is_ready_was_initialized(status, initialized):
    owner = make("cluster.x-k8s.io/v1beta1", "Cluster", "prod", "metal3", status=status)
    assert unhealthy_objects.is_initialized(owner) is initialized
