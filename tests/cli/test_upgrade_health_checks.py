"""``virt-admit upgrade``: the health checks that would act on a node that is only being updated."""

import pytest

from tests.builders import manifest
from tests.cli.rehearsals import upgrade
from tests.cli.test_upgrade import kubevirt, node, pool, rehearse
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.forecasts.upgrade.rehearsal import rehearse as simulated
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.upgrade import html

WORKER = {"node-role.kubernetes.io/worker": ""}
MACHINES = "openshift-machine-api"
CAPI = "cluster.x-k8s.io/v1beta1"
PAUSED = "cluster.x-k8s.io/paused"


def machine_health_check(seconds="300s", annotations=None, limit="100%"):
    conditions = [{"type": "Ready", "status": "Unknown", "timeout": seconds}]
    return manifest(
        "machine.openshift.io/v1beta1",
        "MachineHealthCheck",
        "workers",
        MACHINES,
        metadata={"annotations": annotations or {}},
        spec={
            "selector": {"matchLabels": {"role": "w"}},
            "unhealthyConditions": conditions,
            "maxUnhealthy": limit,
        },
    )


def machine(name):
    return manifest(
        "machine.openshift.io/v1beta1",
        "Machine",
        name,
        MACHINES,
        metadata={
            "labels": {"role": "w"},
            "ownerReferences": [{"kind": "MachineSet", "name": "s", "controller": True}],
        },
        status={"nodeRef": {"kind": "Node", "name": name}},
    )


def node_health_check(duration="300s", pauses=()):
    return manifest(
        "remediation.medik8s.io/v1alpha1",
        "NodeHealthCheck",
        "workers",
        spec={
            "selector": {"matchLabels": WORKER},
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": duration}],
            "pauseRequests": list(pauses),
            "remediationTemplate": {
                "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
                "kind": "SelfNodeRemediationTemplate",
                "namespace": "medik8s",
                "name": "automatic",
            },
        },
    )


def template():
    return manifest(
        "self-node-remediation.medik8s.io/v1alpha1",
        "SelfNodeRemediationTemplate",
        "automatic",
        "medik8s",
        spec={"template": {"spec": {"remediationStrategy": "Automatic"}}},
    )


def nodes():
    return [node("a", WORKER), node("b", WORKER)]


def only(data):
    (found,) = data["health_checks"]
    return found


@pytest.mark.parametrize(
    ("check", "acts", "after", "said"),
    [
        # 50 s until the node controller notices
        (machine_health_check(), None, 350, "Pause it before"),
        (machine_health_check("9m"), None, 590, "Pause it before"),
        (machine_health_check("10m"), False, 650, "takes 600"),
        (machine_health_check(annotations={PAUSED: ""}), False, 350, "paused"),
        (machine_health_check(limit=0), False, 350, "maxUnhealthy 0"),
    ],
)
def test_a_machine_health_check(check, acts, after, said):
    found = only(
        rehearse(nodes(), [machine("a"), machine("b")], check, pool(), kubevirt(), node_minutes=10)
    )

    assert (found["name"], found["nodes"], found["acts"], found["after"]) == (
        "workers",
        ["a", "b"],
        acts,
        after,
    )
    assert said in found["reason"]


@pytest.mark.parametrize(
    ("check", "driver", "acts", "said"),
    [
        (node_health_check(), Driver.PLAIN, None, "Pause it before"),
        (
            node_health_check(),
            Driver.MACHINE_CONFIG,
            False,
            "waits while the MachineConfig operator",
        ),
        (node_health_check(pauses=["update"]), Driver.PLAIN, False, "update"),
        (node_health_check("20m"), Driver.PLAIN, False, "takes 600"),
    ],
)
def test_a_node_health_check(check, driver, acts, said):
    found = only(rehearse(nodes(), check, template(), pool(), kubevirt(), driver=driver))

    assert found["acts"] is acts
    assert said in found["reason"]


@pytest.mark.parametrize(
    ("startup", "paused", "acts"),
    [("5m", False, True), ("20m", False, False), ("0s", False, False), ("5m", True, False)],
)
def test_cluster_api_replaces_machines(startup, paused, acts):
    """A new Machine has the startup time to become a node;
    the conditions of the old node do not matter.
    """
    labels = {"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/deployment-name": "md"}
    deployment = manifest(CAPI, "MachineDeployment", "md", "default", spec={"clusterName": "prod"})
    machines = [
        manifest(
            CAPI,
            "Machine",
            name,
            "default",
            metadata={"labels": labels},
            spec={"clusterName": "prod"},
            status={"nodeRef": {"name": name}},
        )
        for name in "ab"
    ]
    check = manifest(
        CAPI,
        "MachineHealthCheck",
        "md",
        "default",
        metadata={"annotations": {PAUSED: ""} if paused else {}},
        spec={
            "clusterName": "prod",
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "md"}},
            "nodeStartupTimeout": startup,
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "1s"}],
        },
    )
    data = rehearse(nodes(), deployment, machines, check, kubevirt())

    assert data["by"] == "cluster-api"
    assert only(data)["acts"] is acts


def test_checks_of_other_nodes_are_not_listed():
    data = rehearse(nodes(), machine("other"), machine_health_check(), pool(), kubevirt())

    assert data["health_checks"] == []


def test_machines_that_could_not_be_read():
    data = rehearse(
        nodes(),
        machine_health_check(),
        pool(),
        kubevirt(),
        unreadable=["machines.machine.openshift.io"],
    )

    assert only(data)["acts"] is None
    assert "machines" in only(data)["reason"]


def test_text_and_page_name_only_checks_that_may_act():
    cluster = Snapshot(
        [
            *nodes(),
            machine("a"),
            machine_health_check(),
            node_health_check(),
            template(),
            pool(),
            kubevirt(),
        ],
        ["*"],
    )
    text, _ = upgrade(cluster, Options(), "text")
    line = (
        "MachineHealthCheck openshift-machine-api/workers may act on a node that is only being "
        "updated"
    )

    assert line in text
    assert "NodeHealthCheck" not in text
    causes = [
        cause
        for cause in html.page(simulated(cluster, Options())).causes
        if "may act" in cause.word
    ]
    assert [[item.name for item in cause.items] for cause in causes] == [["a"]]
