"""Hazards of a webhook for health checks, nodes and machines, against a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.crds import install_crds
from tests.e2e.never_break.world import (
    FAULTY_CONFIGURATION,
    FAULTY_HEALTH,
    FREED,
    HELD,
    MACHINES,
    everything,
    health_check,
    instance,
    must_be_deletable,
    must_be_editable,
    must_pass_while_we_are_down,
    node,
    obj,
    quiet,
)
from tests.e2e.reach import BEFORE, Reach
from tests.never_break import never_break
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind

ROLL_OUTS = (
    "system:serviceaccount:openshift-machine-config-operator:machine-config-controller",
    f"system:serviceaccount:{MACHINES}:machine-api-controllers",
)

REMEDIATIONS = tuple(
    Kind(f"{name}.medik8s.io", ("v1alpha1",), f"{kind.lower()}s", kind)
    for name, kind in (
        ("self-node-remediation", "SelfNodeRemediation"),
        ("fence-agents-remediation", "FenceAgentsRemediation"),
        ("machine-deletion-remediation", "MachineDeletionRemediation"),
    )
)
"""What operators write to each other while a node is being remedied."""

KUBELET: dict[str, Any] = {"user": "system:node:n1", "groups": ("system:nodes",)}


class TestHealth:
    """A webhook for health checks, nodes and machines."""

    @never_break("health", 1)
    def test_no_failure_policy_is_fail(self, asker: Reach) -> None:
        must_pass_while_we_are_down(asker, [*FAULTY_HEALTH, *FAULTY_CONFIGURATION])

    @never_break("health", 2)
    def test_heartbeats_and_remediation_requests(self, asker: Reach) -> None:
        asker.send("create", node("n1"))
        asker.send("create", FAULTY_HEALTH, user=BEFORE)
        before = everything(asker)
        beat = {
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
            }
        }
        assert quiet(
            asker.kubectl(
                "patch --subresource=status", node("n1"), f"-p={json.dumps(beat)}", **KUBELET
            )
        )
        lease = obj(kinds.LEASE, "n1", spec={"holderIdentity": "n1"})
        for verb in ("create", "replace"):
            assert quiet(asker.send(verb, lease, **KUBELET))
        status = [each | {"status": {"conditions": []}} for each in FAULTY_HEALTH]
        assert asker.kubectl("replace --subresource=status", status, "--validate=ignore")[0] == 0
        install_crds(asker.plane, REMEDIATIONS)
        requests = [obj(kind, "n1", spec={"agent": "fence_ipmilan"}) for kind in REMEDIATIONS]
        assert asker.send("create", requests, fieldValidation="Ignore")[0] == 0
        assert quiet(asker.send("delete", [*requests, lease]))
        assert everything(asker) == before

    @never_break("health", 3)
    def test_nodes_only_by_match_conditions(self, asker: Reach) -> None:
        """A cordon by hand is looked at and never refused;
        kubelets and all other writes do not come.
        """
        asker.world([node("n1", status=READY), node("n2", status=READY), BLOCKER])
        asker.send("create", node("n1"))
        cordon, uncordon = ({"spec": {"unschedulable": value}} for value in (True, None))
        before = asker.requests("Node")
        for patch in ({"metadata": {"labels": {"feature": "x"}}}, cordon, uncordon):
            assert quiet(asker.send("patch", node("n1"), change=patch, **KUBELET))
        assert quiet(asker.kubectl("label", node("n1"), "feature=y", "--overwrite"))
        assert asker.requests("Node") == before
        by_hand = asker.send("patch", node("n1"), change=cordon)
        assert by_hand[0] == 0
        assert "[virt-admit/node-cordon-blocked-by-vms]" in by_hand[1]
        assert quiet(asker.send("patch", node("n1"), change=uncordon))
        assert asker.requests("Node") == before + 1

    @never_break("health", 4)
    def test_deletes_and_finalizers(self, asker: Reach) -> None:
        must_be_deletable(asker, [*FAULTY_HEALTH, *FAULTY_CONFIGURATION])

    @never_break("health", 5)
    def test_stored_violations_can_still_be_edited(self, asker: Reach) -> None:
        must_be_editable(asker, [*FAULTY_HEALTH, *FAULTY_CONFIGURATION])

    @never_break("health", 5)
    def test_a_faulty_health_check_can_be_paused(self, asker: Reach) -> None:
        """The emergency brakes."""
        checks = FAULTY_HEALTH[:3]
        asker.send("create", checks, user=BEFORE)
        paused = asker.kubectl("annotate", checks[:2], "cluster.x-k8s.io/paused=")
        stopped = asker.send("patch", checks[2], change={"spec": {"pauseRequests": ["storm"]}})
        repaired = asker.send(
            "patch", checks[0], change={"spec": {"selector": {"matchLabels": {"a": "b"}}}}
        )
        assert (paused[0], stopped[0], repaired[0]) == (0, 0, 0), (
            paused[1] + stopped[1] + repaired[1]
        )

    @never_break("health", 6)
    def test_what_the_cluster_ships(self, asker: Reach) -> None:
        handler = health_check(
            "machine-api-termination-handler",
            selector={"matchLabels": {"machine.openshift.io/interruptible-instance": ""}},
            maxUnhealthy="100%",
            nodeStartupTimeout="0",
            unhealthyConditions=[{"type": "Terminating", "status": "True", "timeout": "0s"}],
        )
        inert = health_check(
            "inert",
            selector={"matchLabels": {"machine.openshift.io/cluster-api-machine-role": "infra"}},
            unhealthyConditions=[
                {"type": "NonexistentCondition", "status": "NonexistentStatus", "timeout": "0s"}
            ],
        )
        try:
            assert quiet(asker.send("create", [handler, inert]))
            assert quiet(asker.send("patch", [handler, inert], **HELD))
        finally:
            asker.send("patch", [handler, inert], **FREED)
            asker.send("delete", [handler, inert])

    @never_break("health", 7)
    @pytest.mark.parametrize(("ready", "code"), [("True", 1), ("Unknown", 0)])
    def test_a_broken_node_can_be_maintained(self, asker: Reach, ready: str, code: int) -> None:
        broken = {"conditions": [{"type": "Ready", "status": ready}]}
        asker.world([node("n1", status=broken), node("n2", status=READY), BLOCKER])
        answer = asker.send("create", obj(kinds.NM, "m", spec={"nodeName": "n1"}), dryRun="All")
        assert answer[0] == code
        assert "[virt-admit/nm-vm-blocks-drain]" in answer[1]

    @never_break("health", 12)
    @pytest.mark.parametrize("user", ROLL_OUTS)
    def test_upgrade_storms(self, asker: Reach, user: str) -> None:
        asker.world([node("n1", status=READY), node("n2", status=READY), BLOCKER])
        asker.send("create", node("n1"))
        before = everything(asker)
        assert quiet(
            asker.send("patch", node("n1"), change={"spec": {"unschedulable": True}}, user=user)
        )
        assert everything(asker) == before


READY = {"conditions": [{"type": "Ready", "status": "True"}]}

BLOCKER = instance("db", evictionStrategy="LiveMigrate") | {
    "status": {
        "phase": "Running",
        "nodeName": "n1",
        "conditions": [
            {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
        ],
    }
}
