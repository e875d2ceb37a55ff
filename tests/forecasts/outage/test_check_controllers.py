"""The controller of a health check, or of its remediator, does not run: no node is remediated."""

import pytest

from tests.builders import manifest
from tests.forecasts.placement.test_absent_controllers import pod
from tests.healthy.parts import ago
from virt_admit.forecasts.outage.checks import check_controllers
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import health_checks

OF_NHC = "node-healthcheck-controller-manager"
OF_SNR = "self-node-remediation-controller-manager"
SNR = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
    "name": "automatic",
    "namespace": "medik8s",
}
FAR = SNR | {
    "apiVersion": "fence-agents-remediation.medik8s.io/v1alpha1",
    "kind": "FenceAgentsRemediationTemplate",
}


def nhc(**spec):
    return manifest("remediation.medik8s.io/v1alpha1", "NodeHealthCheck", "workers", spec=spec)


SINGLE = nhc(remediationTemplate=SNR)
SEVERAL = nhc(
    escalatingRemediations=[
        {"remediationTemplate": each, "order": order, "timeout": "5m"}
        for order, each in enumerate((SNR, FAR))
    ]
)
MHC = manifest("cluster.x-k8s.io/v1beta2", "MachineHealthCheck", "workers", "fleet", spec={})


def down(name, *boxes, **fields):
    return pod(f"{name}-7c-x", *(boxes or ("!manager",)), owner=f"{name}-7c", **fields)


def stopped(check, *objects):
    cluster = Snapshot(objects, ["*"], time=ago(minutes=0))
    found = check_controllers.stopped(health_checks.view(check), cluster)
    return found and found.reason


@pytest.mark.parametrize(
    ("check", "name"),
    [(SINGLE, OF_NHC), (SINGLE, OF_SNR), (SEVERAL, OF_NHC), (MHC, "capi-controller-manager")],
)
def test_a_check_needs_its_controllers(check, name):
    reason = stopped(check, down(name))
    why = f"nothing carries it out, as {name} has no Ready pod"
    assert reason.startswith(f"{why} (pod {name}-7c-x is not ready for 60 min")


def test_a_controller_with_the_name_of_a_helper_and_one_that_is_scaled_to_0():
    assert stopped(SINGLE, down(OF_NHC, f"!{OF_NHC}")) is not None
    off = manifest("apps/v1", "Deployment", OF_NHC, "medik8s", spec={"replicas": 0})
    why = "nothing carries it out, as "
    assert stopped(SINGLE, off) == f"{why}Deployment medik8s/{OF_NHC} is scaled to 0"


@pytest.mark.parametrize(
    ("check", "objects"),
    [
        (SINGLE, []),
        (SINGLE, [down(OF_NHC), pod(f"{OF_NHC}-7c-y", "manager", owner=f"{OF_NHC}-7c")]),
        (SINGLE, [down(OF_NHC, since=3)]),
        (SINGLE, [down(OF_NHC, "manager", "!kube-rbac-proxy")]),
        (SINGLE, [down(OF_NHC), down(OF_NHC, namespace="hosted")]),
        (SINGLE, [down("fence-agents-remediation-controller-manager")]),
        (SEVERAL, [down(OF_SNR)]),
        (MHC, [down(OF_NHC)]),
    ],
    ids=[
        *("unknown", "another-runs", "young", "helper", "several-namespaces", "other-remediator"),
        *("another-remediator", "other-check"),
    ],
)
def test_checks_that_may_act(check, objects):
    assert stopped(check, *objects) is None
