"""Sample health checks, and reviews of them with all rules."""

import copy

from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.policy import Policy
from virt_admit.rule import Operation
from virt_admit.rules import load_rules

READY = [
    {"type": "Ready", "status": "False", "timeout": "5m"},
    {"type": "Ready", "status": "Unknown", "timeout": "5m"},
]
READY_SECONDS = [
    {"type": "Ready", "status": "False", "timeoutSeconds": 300},
    {"type": "Ready", "status": "Unknown", "timeoutSeconds": 300},
]
MHC = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "workers", "namespace": "openshift-machine-api"},
    "spec": {
        "selector": {"matchLabels": {"pool": "blue"}},
        "unhealthyConditions": READY,
        "maxUnhealthy": 1,
        "nodeStartupTimeout": "10m",
    },
}
CAPI_V1BETA1 = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "md-0", "namespace": "tenants"},
    "spec": {
        "clusterName": "a",
        "selector": {"matchLabels": {"pool": "blue"}},
        "unhealthyConditions": READY,
        "maxUnhealthy": 1,
        "nodeStartupTimeout": "10m",
    },
}
CAPI_V1BETA2 = {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "md-0", "namespace": "tenants"},
    "spec": {
        "clusterName": "a",
        "selector": {"matchLabels": {"pool": "blue"}},
        "checks": {"unhealthyNodeConditions": READY_SECONDS, "nodeStartupTimeoutSeconds": 600},
        "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 1}},
    },
}
NHC = {
    "apiVersion": "remediation.medik8s.io/v1alpha1",
    "kind": "NodeHealthCheck",
    "metadata": {"name": "workers"},
    "spec": {
        "selector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        "minHealthy": "51%",
        "remediationTemplate": {
            "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
            "kind": "SelfNodeRemediationTemplate",
            "name": "auto",
            "namespace": "medik8s",
        },
    },
}
HANDLER = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "machine-api-termination-handler", "namespace": "openshift-machine-api"},
    "spec": {
        "selector": {"matchLabels": {"machine.openshift.io/interruptible-instance": ""}},
        "maxUnhealthy": "100%",
        "nodeStartupTimeout": "0",
        "unhealthyConditions": [{"type": "Terminating", "status": "True", "timeout": "0s"}],
    },
}
INERT = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {
        "name": "srep-management-cluster-node-recovery",
        "namespace": "openshift-machine-api",
    },
    "spec": {
        "selector": {
            "matchExpressions": [
                {
                    "key": "machine.openshift.io/cluster-api-machine-role",
                    "operator": "In",
                    "values": ["serving-1"],
                }
            ]
        },
        "unhealthyConditions": [
            {"type": "NonexistentCondition", "status": "NonexistentStatus", "timeout": "0s"}
        ],
        "maxUnhealthy": "100%",
        "nodeStartupTimeout": "25m",
    },
}
HOSTED = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "guest", "namespace": "clusters-guest"},
    "spec": {
        "clusterName": "guest-7xk2p",
        "selector": {"matchLabels": {"guest-7xk2p-guest": "guest-7xk2p-guest"}},
        "unhealthyConditions": [
            {"type": "Ready", "status": "False", "timeout": "8m0s"},
            {"type": "Ready", "status": "Unknown", "timeout": "8m0s"},
        ],
        "maxUnhealthy": 2,
        "nodeStartupTimeout": "20m0s",
    },
}


def changed(base, path, value):
    """Return the object with another value at a dotted path; ``...`` removes the field."""
    obj = copy.deepcopy(base)
    *parents, last = path.split(".")
    at = obj
    for step in parents:
        at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
    if value is ...:
        del at[last]
    else:
        at[int(last) if last.isdigit() else last] = value
    return obj


def review(data, old=None, cluster=NOTHING, **more):
    obj, before = Object(data), Object(old) if old else None
    operation = more.pop("operation", Operation.UPDATE if old else Operation.CREATE)
    if operation == Operation.DELETE:
        obj, before = None, obj
    kind = more.pop("kind", None) or kinds.of(obj or before)
    request = Request(operation, kind, obj, before, namespace=(obj or before).namespace, **more)
    response = engine.review(request, load_rules(), cluster, Policy())
    assert not response.errors
    return response


def verdicts(data, *args, **more):
    """Return action and rule of each verdict, without those on unknown fields,
    which most odd values bring.
    """
    found = {
        (str(verdict.action), verdict.rule.id) for verdict in review(data, *args, **more).verdicts
    }
    return {(action, rule) for action, rule in found if not rule.endswith("-field-unknown")}
