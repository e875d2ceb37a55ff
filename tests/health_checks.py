"""Builders of health checks, nodes and machines for tests."""

from tests.builders import manifest

NHC = "remediation.medik8s.io/v1alpha1"
MHC = "machine.openshift.io/v1beta1"
CAPI = "cluster.x-k8s.io/v1beta1"
SNR = "self-node-remediation.medik8s.io/v1alpha1"
FAR = "fence-agents-remediation.medik8s.io/v1alpha1"
POOL = {"matchLabels": {"pool": "a"}}


def make(api_version, kind, name, namespace="", labels=None, **fields):
    return manifest(api_version, kind, name, namespace, metadata={"labels": labels or {}}, **fields)


def nhc(name="workers", **spec):
    return make(NHC, "NodeHealthCheck", name, spec={"selector": POOL, **spec})


def mhc(name="workers", **spec):
    spec = {"selector": POOL, "clusterName": "c", **spec}
    return make(MHC, "MachineHealthCheck", name, "openshift-machine-api", spec=spec)


def capi(**spec):
    return make(
        CAPI, "MachineHealthCheck", "md", "c", spec={"selector": POOL, "clusterName": "c", **spec}
    )


def node(name, pool="a", **status):
    conditions = [
        {"type": kind, "status": value} for kind, value in (status or {"Ready": "True"}).items()
    ]
    return make("v1", "Node", name, labels={"pool": pool}, status={"conditions": conditions})


def machine(
    name,
    api_version=MHC,
    namespace="openshift-machine-api",
    pool="a",
    owner=("MachineSet", "set"),
    **status,
):
    labels = {"pool": pool, "cluster.x-k8s.io/cluster-name": "c"}
    made = make(api_version, "Machine", name, namespace, labels, status=status)
    if owner:
        kind, owner_name = owner
        made.data["metadata"]["ownerReferences"] = [
            {"kind": kind, "name": owner_name, "controller": True}
        ]
    return made


def template(kind=SNR, name="auto"):
    return {"apiVersion": kind, "kind": KIND[kind], "name": name, "namespace": "wa"}


FENCES = {"agent": "fence_aws", "sharedparameters": {"--plug": "{{.NodeName}}"}}
KIND = {
    SNR: "SelfNodeRemediationTemplate",
    FAR: "FenceAgentsRemediationTemplate",
    "r/v1": "RTemplate",
}


def ladder(*steps):
    return nhc(
        escalatingRemediations=[
            {"order": order, "timeout": timeout, "remediationTemplate": template(kind)}
            for order, timeout, kind in steps
        ]
    )
