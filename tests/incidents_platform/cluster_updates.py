"""Updates of OpenShift that stop before the nodes, on them,
and a control-plane Machine that nothing replaces.
"""

from typing import Any

from tests.healthy.openshift import openshift_machine, pool
from tests.healthy.parts import Object, ago, namespaces, obj

from .case import NODES, Incident, only
from .openshift import MASTERS, degraded, failed, masters, workers

KEY = "ack-4.18-kube-1.32-api-removals-in-4.19"
ARTICLE = (
    "Kubernetes 1.32 and therefore OpenShift 4.19 remove several APIs which require admin "
    "consideration."
)
IMAGE = "quay.io/openshift-release-dev/ocp-release@sha256:"
REFUSED = (
    f'Preconditions failed for payload loaded version="4.19.9" image="{IMAGE}new": Precondition '
    f'"ClusterVersionUpgradeable" failed because of "AdminAckRequired": {ARTICLE}'
)


def condition(
    kind: str, status: bool, reason: str = "", message: str = "", **late: float
) -> Object:
    since = ago(**(late or {"hours": 5}))
    return {
        "type": kind,
        "status": str(status),
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }


def version(
    present: str, asked: str | None, *conditions: Object, state: str = "Completed"
) -> Object:
    """Return a ClusterVersion with what an administrator asked for."""
    spec: Object = {"channel": "stable-4.18"}
    if asked:
        spec["desiredUpdate"] = {
            "version": asked,
            "image": IMAGE + ("new" if asked != present else "old"),
            "force": False,
        }
    status = {
        "desired": {"version": present, "image": IMAGE + "old"},
        "history": [{"state": state, "version": present}],
        "conditions": list(conditions),
        "observedGeneration": 8,
    }
    return obj("ClusterVersion", "config.openshift.io/v1", "version", spec=spec, status=status)


def operator(name: str, release: str, **statuses: Any) -> Object:
    """Return a ClusterOperator; statuses: conditions that are not as usual, with their message."""
    usual = {"Available": True, "Progressing": False, "Degraded": False, "Upgradeable": True}
    said = [
        condition(kind, status, "AsExpected")
        for kind, status in usual.items()
        if kind not in statuses
    ]
    said += [
        condition(kind, not usual[kind], f"{kind}Reason", words, hours=44)
        for kind, words in statuses.items()
    ]
    status = {"conditions": said, "versions": [{"name": "operator", "version": release}]}
    return obj("ClusterOperator", "config.openshift.io/v1", name, status=status)


def at_rest() -> list[Object]:
    return [*workers(), *masters(), pool("master", MASTERS), pool("worker", NODES)]


def acknowledgement() -> Incident:
    refused = condition("ReleaseAccepted", False, "PreconditionChecks", REFUSED)
    own = version(
        "4.18.20", "4.19.9", condition("Upgradeable", False, "AdminAckRequired", ARTICLE), refused
    )
    gates = obj(
        "ConfigMap",
        "v1",
        "admin-gates",
        "openshift-config-managed",
        data={KEY: ARTICLE, "ack-4.19-x": "y"},
    )
    acks = obj(
        "ConfigMap",
        "v1",
        "admin-acks",
        "openshift-config",
        data={"ack-4.17-kube-1.31-api-removals-in-4.18": "true"},
    )
    says = (
        "No: the upgrade stops (1 cause)",
        (
            "no node is updated, as the update to 4.19.9 is not accepted (PreconditionChecks) for "
            "5 h: Precondition"
        ),
        ARTICLE.rstrip("."),
        (
            "kubectl patch configmap admin-acks -n openshift-config --type=merge -p "
            f"""'{{"data":{{"{KEY}":"true"}}}}'"""
        ),
        "none moves before it stops",
    )
    items = [
        *at_rest(),
        own,
        gates,
        acks,
        *namespaces("openshift-config", "openshift-config-managed"),
    ]
    never = ("begins now", "ack-4.19-x", "--force")
    return Incident(
        "https://github.com/openshift/enhancements/pull/828", items, "upgrade", 1, says, never
    )


def operator_that_is_too_old() -> Incident:
    """The Operator Lifecycle Manager refuses the next minor release for an installed operator that
    does not support it.
    """
    csv, space = "odf-operator.v4.18.11", "openshift-storage"
    most = f"- maximum supported OCP version for {space}/{csv} is 4.18"
    blocks = f"ClusterServiceVersions blocking minor version upgrades: {most}"
    why = (
        "Cluster operator operator-lifecycle-manager should not be upgraded between minor versions"
    )
    failed_check = (
        'Precondition "ClusterVersionUpgradeable" failed because of '
        f'"IncompatibleOperatorsInstalled": {why}: {blocks}'
    )
    words = (
        f'Preconditions failed for payload loaded version="4.19.9" image="{IMAGE}new": '
        f"{failed_check}"
    )
    own = version(
        "4.18.20", "4.19.9", condition("ReleaseAccepted", False, "PreconditionChecks", words)
    )
    spec = {"channel": "stable-4.18", "name": "odf-operator", "installPlanApproval": "Manual"}
    order = obj("Subscription", "operators.coreos.com/v1alpha1", "odf-operator", space, spec=spec)
    order["status"] = {"installedCSV": csv, "currentCSV": csv}
    says = (
        "No: the upgrade stops (1 cause)",
        (
            f"Set the channel of Subscription {space}/odf-operator, now stable-4.18, to a newer "
            "one such as stable-4.19, and approve its InstallPlan, as installPlanApproval is "
            "Manual. The ordered update starts by itself once"
        ),
        f"kubectl edit subscriptions.operators.coreos.com odf-operator -n {space}",
    )
    refuses = operator("operator-lifecycle-manager", "4.18.20", Upgradeable=blocks)
    items = [*at_rest(), own, refuses, order, *namespaces(space)]
    source = "https://github.com/openshift/operator-framework-olm/pull/120"
    return Incident(
        source, items, "upgrade", 1, says, ("begins now", "--force", "describe clusteroperator")
    )


def degraded_operator() -> Incident:
    why = 'The "default" ingress controller reports Degraded=True: 2 node(s) were unschedulable.'
    failing = condition(
        "Failing", True, "ClusterOperatorDegraded", "Cluster operator ingress is degraded", hours=4
    )
    own = version("4.20.6", "4.20.6", failing, condition("Progressing", True), state="Partial")
    sick = [operator("ingress", "4.20.1", Degraded=why), operator("machine-config", "4.20.1")]
    other = operator("monitoring", "4.20.1", Degraded="a dashboard is missing")
    says = (
        "No: the upgrade stops (1 cause)",
        (
            "the update to 4.20.6 waits for ClusterOperator ingress, which is degraded, and the "
            "nodes come after it: The"
        ),
        "2 node(s) were unschedulable",
        "kubectl describe clusteroperator ingress",
    )
    items = [*at_rest(), own, *sick, other]
    source = "https://github.com/openshift/cluster-version-operator/pull/482"
    return Incident(source, items, "upgrade", 1, says, ("begins now", "dashboard"))


def other_image_on_the_disk() -> Incident:
    images = f'expected target osImageURL "{IMAGE}a", have "{IMAGE}b"'
    why = f"unexpected on-disk state validating against rendered-worker-2: {images}"
    items = [*workers("n1", n1=failed(why)), degraded(why)]
    says = (
        "n1 did not boot what rendered-worker-2 names",
        "so /run/machine-config-daemon-force alone brings neither the image nor kernel arguments",
        (
            "Write MachineConfig rendered-worker-1 (oc get machineconfig rendered-worker-1 -o "
            "json) back into"
        ),
        "oc debug node/n1 -- chroot /host rpm-ostree status",
    )
    source = "https://github.com/openshift/machine-config-operator/issues/5133"
    return Incident(
        source, items, "upgrade", 1, says, ("see its conditions", "-- chroot /host touch")
    )


def configuration_that_was_deleted() -> Incident:
    """A node that is not the cause says why the upgrade of the cluster stops,
    in the words of the pool.
    """
    why = 'machineconfig.machineconfiguration.openshift.io "rendered-worker-0" not found'
    items = [*workers(n1=failed(why)), degraded(why)]
    says = (
        "possible no",
        "because MachineConfigPool worker is degraded: see above",
        '"rendered-worker-0" not found',
    )
    source = "https://github.com/openshift/machine-config-operator/issues/2010"
    return Incident(source, items, "explain node/n2", 0, says, ("is degraded: Degraded",))


def guarded_master() -> Incident:
    hook = {"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}
    found = [openshift_machine(name, None, "master") for name in MASTERS]
    for each in found:
        each["spec"]["lifecycleHooks"] = {"preDrain": [hook]}
    only(found, "Machine", "m1")["metadata"] |= {
        "deletionTimestamp": ago(hours=4),
        "finalizers": ["machine.openshift.io"],
    }
    space = "openshift-machine-api"
    idle = obj(
        "ControlPlaneMachineSet",
        "machine.openshift.io/v1",
        "cluster",
        space,
        spec={"replicas": 3, "state": "Inactive"},
    )
    says = (
        "the pre-drain hook EtcdQuorumOperator of clusteroperator/etcd is set",
        "The owner removes it after a replacement Machine has joined etcd",
        (
            "ControlPlaneMachineSet cluster is Inactive, so nothing makes that Machine, and this "
            "wait does not end by itself"
        ),
        (
            "kubectl patch controlplanemachineset cluster -n openshift-machine-api --type=merge -p "
            """'{"spec":{"state":"Active"}}'"""
        ),
    )
    items = [*workers(), *masters(), *found, idle, *namespaces(space)]
    never = ("kubectl drain m1", "Check the owner", "Do not drain")
    return Incident(
        "https://github.com/openshift/openshift-docs/pull/55175",
        items,
        "explain node/m1",
        0,
        says,
        never,
    )


def patch_update_with_overrides() -> Incident:
    """Not a fault: overrides hold another minor release alone,
    and the update is at its operators.
    """
    overrides = condition(
        "Upgradeable", False, "ClusterVersionOverridesSet", "Please remove overrides before a minor"
    )
    working = condition(
        "Progressing", True, "", "Working towards 4.22.3: 141 of 984 done (14% complete)"
    )
    own = version(
        "4.22.3", "4.22.3", condition("Failing", False), overrides, working, state="Partial"
    )
    own["status"]["history"][0]["startedTime"] = ago(minutes=14)
    says = (
        "The update to 4.22.3 has been under way for 14 min: Working towards 4.22.3: 141 of 984",
        "begins after the operators",
    )
    items = [*at_rest(), own, operator("machine-config", "4.22.1")]
    source = "https://github.com/openshift/cluster-version-operator/pull/1314"
    return Incident(source, items, "explain node/n1", 0, says, ("begins after 0 s", "overrides"))


def minor_release_that_is_refused() -> Incident:
    words = "Highly-available workload has a single point of failure"
    whole = f"Cluster operator monitoring should not be upgraded between minor versions: {words}"
    own = version(
        "4.8.18", None, condition("Upgradeable", False, "WorkloadSinglePointOfFailure", whole)
    )
    own["spec"]["channel"] = "stable-4.9"
    own["status"]["availableUpdates"] = [{"version": "4.8.19"}, {"version": "4.9.6"}]
    says = (
        "4.9.6 is refused, releases of 4.8 are not: ClusterOperator monitoring is not Upgradeable",
        words,
    )
    items = [*at_rest(), own, operator("monitoring", "4.8.18", Upgradeable=words)]
    source = "https://github.com/openshift/cluster-monitoring-operator/pull/1330"
    return Incident(source, items, "scan", 0, says, ("degraded", "not available", "Reported by"))


def incidents() -> list[Incident]:
    return [
        acknowledgement(),
        operator_that_is_too_old(),
        degraded_operator(),
        other_image_on_the_disk(),
        configuration_that_was_deleted(),
        guarded_master(),
        patch_update_with_overrides(),
        minor_release_that_is_refused(),
    ]
