"""Controllers of health checks and remediators that do not run: no lost node is remediated.

Sources: medik8s/node-healthcheck-operator:config/default/kustomization.yaml;
medik8s/self-node-remediation:config/default/kustomization.yaml, :internal/controller/
selfnoderemediation_controller.go#Reconcile; medik8s/fence-agents-remediation:config/default/
kustomization.yaml; kubernetes-sigs/cluster-api:internal/controllers/machinehealthcheck.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.problems import Problem
from virt_admit.model.remediation.health_checks import HealthCheck

READS: Final[Reads] = stopped_workloads.READS
STOPPED: Final = "nothing carries it out, as "
"""How each reason begins."""
_OF_CHECKS: Final[Mapping[kinds.Kind, str]] = {
    kinds.NHC: "node-healthcheck-controller-manager",
    kinds.CAPI_MHC: "capi-controller-manager",
}
"""That of OpenShift's MachineHealthChecks is one container of a pod with others."""
_OF_REMEDIATORS: Final[Mapping[str, str]] = {
    "SelfNodeRemediationTemplate": "self-node-remediation-controller-manager",
    "FenceAgentsRemediationTemplate": "fence-agents-remediation-controller-manager",
    "MachineDeletionRemediationTemplate": "machine-deletion-remediation-controller-manager",
}


def stopped(check: HealthCheck, cluster: Cluster) -> Problem | None:
    """Return that the controller of a check, or of each of its remediators, does not work; None:
    one may, or that is not known.

    The reason: ``nothing carries it out, as M has no Ready pod (pod P is not ready for 90 min)``.
    """
    own = _OF_CHECKS.get(check.kind)
    if own is not None and (found := _stopped(own, cluster)) is not None:
        return found
    names = [_OF_REMEDIATORS.get(each.kind_name) for each in remediation_steps.steps(check)]
    down = [_stopped(each, cluster) if each else None for each in names]
    return down[0] if down and all(down) else None


def _stopped(name: str, cluster: Cluster) -> Problem | None:
    found = stopped_workloads.of_one(name, cluster)
    return Problem(f"{STOPPED}{found.named(name)}", found.remedy) if found is not None else None
