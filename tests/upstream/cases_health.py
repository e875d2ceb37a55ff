"""Cases in which the controllers of health checks decide otherwise than a reader of their
documentation expects.

Each has the function of the controller that decides. The rules and ``explain`` have to agree with
it.
"""

from tests.health_checks import MHC, make, mhc, nhc, node

CAPI = "cluster.x-k8s.io/v1beta2"
FAR = "fence-agents-remediation.medik8s.io/v1alpha1"
SNR = "self-node-remediation.medik8s.io/v1alpha1"

TARGETS = (
    "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_targets.go"
)
CAPI_CONTROLLER = (
    "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/"
    "machinehealthcheck_controller.go"
)
CAPI_TYPES = "kubernetes-sigs/cluster-api:api/core/v1beta2/machinehealthcheck_types.go"
NHC_CONTROLLER = (
    "medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go"
)
MHC_CONTROLLER = (
    "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
    "machinehealthcheck_controller.go"
)
PRUNE = (
    "k8s.io/apiextensions-apiserver:pkg/apiserver/schema/defaulting/"
    "prunenulls.go#PruneNonNullableNullsWithoutDefaults"
)
FAR_TEMPLATE = "medik8s/fence-agents-remediation:pkg/template/template.go#RenderParameterTemplate"
SNR_WEBHOOK = (
    "medik8s/self-node-remediation:internal/webhook/v1alpha1/selfnoderemediationconfig_webhook.go"
)


def capi(**spec):
    return make(
        CAPI,
        "MachineHealthCheck",
        "md",
        "c",
        spec={"selector": {"matchLabels": {"pool": "a"}}, **spec},
    )


def far(**spec):
    spec = {"agent": "fence_ipmilan", "sharedparameters": {"--ip": "{{.NodeName}}"}, **spec}
    return make(
        FAR, "FenceAgentsRemediationTemplate", "auto", "wa", spec={"template": {"spec": spec}}
    )


def snr(**spec):
    return make(SNR, "SelfNodeRemediationConfig", "self-node-remediation-config", "wa", spec=spec)


TEMPLATE = {"apiVersion": "r.io/v1", "kind": "RTemplate"}
NULL = {"matchLabels": {"role": None}}
HANDLER = {"type": "Terminating", "status": True, "timeout": "0s"}
REFUSED = (
    (f"{PRUNE}", mhc(selector=NULL), "mhc-selector-invalid"),
    (f"{PRUNE}", nhc(selector=NULL), "nhc-selector-invalid"),
    (CAPI_TYPES, capi(clusterName="c", checks={}), "capi-mhc-field-empty"),
    (CAPI_TYPES, capi(clusterName="c", checks={"unhealthyNodeConditions": []}),
     "capi-mhc-field-empty"),
    (CAPI_TYPES, capi(), "capi-mhc-cluster-name"),
    (CAPI_TYPES, capi(clusterName="c", checks={"unhealthyMachineConditions": [{"type": "Worn"}]}),
     "condition-incomplete"),
    ("openshift/api:machine/v1beta1/types_machinehealthcheck.go",
     mhc(unhealthyConditions=[HANDLER]), "condition-incomplete"),
    (FAR_TEMPLATE, far(sharedparameters={"--ip": "{{NodeName}}"}), "far-template-syntax"),
    (FAR_TEMPLATE, far(sharedparameters={"--ip": "{{}}"}), "far-template-syntax"),
    (FAR_TEMPLATE, far(sharedparameters={"--ip": "{{end}}"}), "far-template-syntax"),
    ((
        "medik8s/fence-agents-remediation:api/v1alpha1/"
        "fenceagentsremediation_params.go#validateFenceAgentParams"
    ),
     far(sharedparameters={}, nodeparameters={"--ip": {}}), "far-parameters-missing"),
    ("medik8s/fence-agents-remediation:config/crd/bases", far(retryinterval=5),
     "far-retry-interval-invalid"),
    ("medik8s/fence-agents-remediation:config/crd/bases", far(retrycount="3"),
     "far-retry-count-not-positive"),
    ("medik8s/fence-agents-remediation:config/crd/bases",
     far(sharedparameters={"--ip": "{{.NodeName}}", "--ipport": 623}), "far-parameter-type"),
    (FAR_TEMPLATE, far(sharedparameters={"--ip": "{{.NodeName | quote}}"}), "far-template-syntax"),
    (FAR_TEMPLATE, far(sharedparameters={"--ip": "{{.NodeName | }}"}), "far-template-syntax"),
    ("medik8s/self-node-remediation:config/crd/bases", snr(hostPort=0), "snrc-field-invalid"),
    ("medik8s/self-node-remediation:config/crd/bases", snr(maxApiErrorThreshold="3"),
     "snrc-field-invalid"),
    (CAPI_TYPES, capi(clusterName="c", checks={"unhealthyConditions": []}), "capi-mhc-field-empty"),
    (CAPI_TYPES, capi(clusterName="c", remediation={"triggerIf": None}), "capi-mhc-field-empty"),
    (CAPI_TYPES, capi(clusterName="c", remediation={"templateRef": {**TEMPLATE, "name": "A_b"}}),
     "remediation-template-invalid"),
)  # fmt: skip
"""Source, object, and the rule that denies it."""

SCHEDULING = "customDsNodeSelectorRequirements"
ALLOWED = (
    (f"{CAPI_CONTROLLER}#isAllowedRemediation",
     capi(clusterName="c", remediation={"triggerIf": {"unhealthyInRange": "[0-0]"}}),
     "capi-mhc-unhealthy-range-never"),
    (f"{SNR_WEBHOOK}#validateNodeSelector",
     snr(**{SCHEDULING: [{"key": "a b", "operator": "Exists"}]}), "snrc-scheduling-invalid"),
)  # fmt: skip
"""Source, object that upstream accepts, and the rule that only warns."""

UPGRADE = make(
    "config.openshift.io/v1",
    "ClusterVersion",
    "version",
    status={"conditions": [{"type": "Progressing", "status": "True"}]},
)


def owner(*ready, **spec):
    kinds = ready or ("InfrastructureReady", "ControlPlaneInitialized")
    conditions = [{"type": kind, "status": "True"} for kind in kinds]
    return make(CAPI, "Cluster", "c", "c", spec=spec, status={"conditions": conditions})


def capi_machine(**annotations):
    obj = make(
        CAPI,
        "Machine",
        "m0",
        "c",
        {"pool": "a", "cluster.x-k8s.io/cluster-name": "c"},
        status={"nodeRef": {"name": "n0"}, "phase": "Failed"},
    )
    obj.data["metadata"]["annotations"] = annotations
    return obj


def machine(annotations, **status):
    status = {"nodeRef": {"name": "n0"}, **status}
    obj = make(MHC, "Machine", "m0", "openshift-machine-api", {"pool": "a"}, status=status)
    obj.data["metadata"]["annotations"] = annotations
    return obj


def power_cycled():
    obj = mhc()
    obj.data["metadata"]["annotations"] = {
        "machine.openshift.io/remediation-strategy": "external-baremetal"
    }
    return obj


def master(name):
    return make(
        "v1", "Node", name, labels={"pool": "a", "node-role.kubernetes.io/control-plane": ""}
    )


EXPLAINED = (
    (f"{NHC_CONTROLLER}#isControlPlaneRemediationAllowed", nhc(maxUnhealthy="100%"),
     [master("n0"), master("n1"), master("n2")], "on one control-plane node at a time"),
    (f"{MHC_CONTROLLER}#healthCheckTargets", mhc(),
     [machine({"host.metal3.io/external-remediation": ""}), node("n0")],
     "unhealthy now 1: m0 (waits for external remediation)"),
    (f"{TARGETS}#shouldSkipRemediation", capi(clusterName="c"),
     [owner(), capi_machine(**{"cluster.x-k8s.io/skip-remediation": ""})], "selects 0 machines"),
    (f"{TARGETS}#needsRemediation", capi(clusterName="c"),
     [owner(), node("n0"), capi_machine(**{"cluster.x-k8s.io/remediate-machine": ""})],
     "remediate-machine)"),
    (f"{TARGETS}#needsRemediation", capi(clusterName="c"), [owner(), node("n0"), capi_machine()],
     "unhealthy now none"),
    (f"{CAPI_CONTROLLER}#Reconcile", capi(clusterName="c"), [owner(paused=True)],
     "Cluster c/c is paused"),
    (f"{CAPI_CONTROLLER}#reconcile", capi(clusterName="c"),
     [owner("InfrastructureReady"), node("n0"), capi_machine()],
     "unhealthy now 1: m0 (its node is not read before the control plane is initialized)"),
    (f"{TARGETS}#getTargetsFromMHC", capi(clusterName="c"),
     [owner("ControlPlaneInitialized"), capi_machine()],
     "unhealthy now cannot be determined"),
    (f"{TARGETS}#needsRemediation", capi(clusterName="c"),
     [owner("ControlPlaneInitialized"), node("n0"),
      capi_machine(**{"cluster.x-k8s.io/remediate-machine": ""})],
     "does nothing to other machines: the infrastructure of Cluster c/c is not ready"),
    (f"{MHC_CONTROLLER}#internalRemediation", power_cycled(),
     [machine({}, phase="Failed"), node("n0")],
     "m0 (Failed: deleted in spite of external-baremetal)"),
    ("medik8s/node-healthcheck-operator:internal/controller/cluster/upgrade_checker.go#Check",
     nhc(), [UPGRADE],
     "it waits for the end of the cluster upgrade"),
)  # fmt: skip
"""Source, check, other objects of the cluster, and a part of the explanation."""
