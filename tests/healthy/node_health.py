"""Health checks of the nodes of OpenShift: of its Machines, and those of medik8s."""

from collections.abc import Sequence

from .parts import Object, conditions, deployment, namespaces, obj


def health_check() -> Object:
    bad = [
        {"type": "Ready", "status": status, "timeout": "300s"} for status in ("False", "Unknown")
    ]
    selector = {"matchLabels": {"machine.openshift.io/cluster-api-machine-role": "worker"}}
    spec = {
        "selector": selector,
        "unhealthyConditions": bad,
        "maxUnhealthy": "40%",
        "nodeStartupTimeout": "10m",
    }
    status = {
        "currentHealthy": 3,
        "expectedMachines": 3,
        "remediationsAllowed": 1,
        "conditions": conditions(RemediationAllowed=True),
    }
    return obj(
        "MachineHealthCheck",
        "machine.openshift.io/v1beta1",
        "workers",
        "openshift-machine-api",
        spec=spec,
        status=status,
    )


def medik8s(nodes: Sequence[str]) -> list[Object]:
    """Return NodeHealthCheck and self-node-remediation, whose pods run on these nodes."""
    space, group = "openshift-workload-availability", "self-node-remediation.medik8s.io"
    template = {"spec": {"template": {"spec": {"remediationStrategy": "Automatic"}}}}
    reference = {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "SelfNodeRemediationTemplate",
        "name": "automatic",
        "namespace": space,
    }
    workers = {
        "matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]
    }
    bad = [
        {"type": "Ready", "status": status, "duration": "300s"} for status in ("False", "Unknown")
    ]
    spec = {
        "selector": workers,
        "minHealthy": "51%",
        "unhealthyConditions": bad,
        "remediationTemplate": reference,
    }
    status = {
        "phase": "Enabled",
        "healthyNodes": 3,
        "observedNodes": 3,
        "conditions": conditions(Disabled=False),
    }
    found = [
        obj(
            "NodeHealthCheck",
            "remediation.medik8s.io/v1alpha1",
            "workers",
            spec=spec,
            status=status,
        )
    ]
    found.append(
        obj("SelfNodeRemediationTemplate", f"{group}/v1alpha1", "automatic", space, **template)
    )
    timing = {
        "safeTimeToAssumeNodeRebootedSeconds": 180,
        "isSoftwareRebootEnabled": True,
        "watchdogFilePath": "/dev/watchdog",
    }
    found.append(
        obj(
            "SelfNodeRemediationConfig",
            f"{group}/v1alpha1",
            "self-node-remediation-config",
            space,
            spec=timing,
        )
    )
    return (
        found
        + namespaces(space)
        + deployment("self-node-remediation-ds", space, nodes, {"app": "snr"}, kind="DaemonSet")
    )
