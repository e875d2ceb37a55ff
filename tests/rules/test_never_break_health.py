"""Hazards of a webhook for health checks, nodes and machines that need no API server."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest

from tests.never_break import never_break
from tests.rules.never_break_world import (
    EMPTY,
    ENTRIES,
    RULES,
    VALIDATE,
    ask,
    cluster,
    instance,
    registered,
    said,
    silent,
)
from virt_admit.install import manifests
from virt_admit.install.manifests import MAY_FAIL, NAME
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING

HEALTH = (
    "capi",
    "condition",
    "far",
    "machine",
    "machineset",
    "mhc",
    "nhc",
    "nm",
    "node",
    "remediation",
    "snrc",
)


def node(name: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
    labels = {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": name}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def maintenance(name: str) -> dict[str, Any]:
    group = "nodemaintenance.medik8s.io/v1beta1"
    return {
        "apiVersion": group,
        "kind": "NodeMaintenance",
        "metadata": {"name": "m"},
        "spec": {"nodeName": name},
    }


def running(name: str, where: str, **spec: Any) -> dict[str, Any]:
    """An instance on that node that cannot migrate."""
    status = {
        "phase": "Running",
        "nodeName": where,
        "conditions": [
            {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
        ],
    }
    obj = instance(**{"evictionStrategy": "LiveMigrate", **spec}) | {"status": status}
    obj["metadata"] = {"name": name, "namespace": "shop", "labels": {"kubevirt.io/nodeName": where}}
    return obj


class TestHealth:
    """A webhook for health checks, nodes and machines."""

    @never_break("health", 1)
    def test_no_failure_policy_is_fail(self) -> None:
        assert {entry["failurePolicy"] for entry in ENTRIES} == {"Ignore"}
        may_fail = {group for group, _, _, name in registered() if name in MAY_FAIL}
        assert may_fail == {"kubevirt.io", "pool.kubevirt.io"}

    @never_break("health", 2)
    def test_heartbeats_and_leases_are_never_registered(self) -> None:
        resources = {(group, resource) for group, resource, _, _ in registered()}
        assert {resource.partition("/")[2] for _, resource in resources} == {"", "scale"}
        remediations = {
            "selfnoderemediations",
            "fenceagentsremediations",
            "machinedeletionremediations",
            "metal3remediations",
        }
        assert not {resource for _, resource in resources} & (remediations | {"leases", "pods"})

    @never_break("health", 3)
    def test_nodes_only_by_match_conditions_and_warned_of(self) -> None:
        (entry,) = [each for each in ENTRIES if each["name"] == "nodes.validate.virt-admit.io"]
        assert entry["timeoutSeconds"] <= 2
        assert any("system:nodes" in each["expression"] for each in entry["matchConditions"])
        assert kinds.NODE.never_denied
        assert RULES.by_kind[kinds.NODE]

    TERMINATING: ClassVar = {
        "selector": {"matchLabels": {"machine.openshift.io/interruptible-instance": ""}},
        "maxUnhealthy": "100%",
        "nodeStartupTimeout": "0",
        "unhealthyConditions": [{"type": "Terminating", "status": "True", "timeout": "0s"}],
    }
    INERT: ClassVar = {
        "selector": {"matchLabels": {"machine.openshift.io/cluster-api-machine-role": "infra"}},
        "unhealthyConditions": [
            {"type": "NonexistentCondition", "status": "NonexistentStatus", "timeout": "0s"}
        ],
    }
    HOSTED: ClassVar = {
        "clusterName": "guest-7xk2p",
        "selector": {"matchLabels": {"guest-7xk2p-guest-pool": "guest-7xk2p-guest-pool"}},
        "maxUnhealthy": 2,
        "nodeStartupTimeout": "20m0s",
        "unhealthyConditions": [
            {"type": "Ready", "status": "False", "timeout": "8m0s"},
            {"type": "Ready", "status": "Unknown", "timeout": "8m0s"},
        ],
    }

    @never_break("health", 6)
    @pytest.mark.parametrize(
        ("name", "group", "spec"),
        [
            (
                "openshift-machine-api/machine-api-termination-handler",
                "machine.openshift.io",
                TERMINATING,
            ),
            ("openshift-machine-api/inert", "machine.openshift.io", INERT),
            ("clusters-guest/guest", "cluster.x-k8s.io", HOSTED),
        ],
    )
    def test_what_the_cluster_ships(self, name: str, group: str, spec: dict[str, Any]) -> None:
        namespace, _, name = name.partition("/")
        names: dict[str, Any] = {"name": name, "namespace": namespace}
        shipped = {
            "apiVersion": f"{group}/v1beta1",
            "kind": "MachineHealthCheck",
            "metadata": names,
            "spec": spec,
        }
        for world in (EMPTY, NOTHING):
            assert silent(shipped, over=world)
        owner = {"apiVersion": "v1", "kind": "X", "name": "y", "uid": "z"}
        owned = shipped | {
            "metadata": {**names, "finalizers": ["example.com/x"], "ownerReferences": [owner]}
        }
        assert silent(owned, shipped)

    @never_break("health", 7)
    @pytest.mark.parametrize(
        ("ready", "allowed"), [("True", False), ("Unknown", True), ("False", True)]
    )
    def test_a_broken_node_can_be_maintained(self, ready: str, allowed: bool) -> None:
        world = cluster(node("n1", ready), node("n2"), running("db", "n1"))
        answer = ask(maintenance("n1"), over=world)
        assert answer["allowed"] == allowed
        assert "nm-vm-blocks-drain" in said(answer)

    @never_break("health", 8)
    def test_cluster_reads_never_decide(self) -> None:
        """What is denied with nothing in sight is denied by the object alone."""
        assert ask(maintenance("n1"), over=NOTHING)["allowed"]

    @never_break("health", 9)
    def test_no_secrets(self) -> None:
        granted = [rule for role in manifests.rbac(RULES) for rule in role.get("rules", ())]
        for rule in granted:
            if "secrets" in rule["resources"]:
                assert rule["resourceNames"] == [f"{NAME}-certs"]
            elif rule["apiGroups"] != ["admissionregistration.k8s.io"]:
                assert set(rule["verbs"]) <= {"get", "list", "watch"}

    @never_break("health", 10)
    def test_namespaces(self) -> None:
        """By rule, not by selector: MachineHealthChecks live in openshift-machine-api."""
        for entry in VALIDATE["webhooks"]:
            left_out = entry["namespaceSelector"]["matchExpressions"][0]["values"]
            assert {"kube-system", "virt-admit"} <= set(left_out)
            assert not [
                name
                for name in left_out
                if name.startswith("openshift-") and name != "openshift-cnv"
            ]

    @never_break("health", 11)
    def test_bounded_work(self) -> None:
        """A maintenance among 5,000 machines: the first look costs,
        the next ones look at one node only.
        """
        nodes = [node(f"n{number}") for number in range(100)]
        machines = [running(f"db-{number}", f"n{number % 100}") for number in range(5000)]
        world = cluster(*nodes, *machines)
        costs = []
        for number in range(6):
            start = time.process_time()
            assert "and 45 more" in said(ask(maintenance(f"n{number}"), over=world))
            costs.append(time.process_time() - start)
        first, *others = costs
        assert min(others) < first / 3

    @never_break("health", 12)
    @pytest.mark.parametrize(
        ("user", "speaks"),
        [
            ("jane", True),
            (
                "system:serviceaccount:openshift-machine-config-operator:machine-config-controller",
                False,
            ),
            ("system:serviceaccount:openshift-machine-api:machine-api-controllers", False),
        ],
    )
    def test_upgrade_storms(self, user: str, speaks: bool) -> None:
        world = cluster(node("n1"), node("n2"), running("db", "n1"))
        cordoned = node("n1", unschedulable=True)
        answer = ask(cordoned, node("n1"), over=world, userInfo={"username": user, "groups": []})
        assert answer["allowed"]
        assert ("node-cordon-blocked-by-vms" in said(answer)) == speaks
