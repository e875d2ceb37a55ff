"""Operators that do not become ready, or whose update is stuck, while every node is well."""

from tests.healthy.parts import Object, ago, conditions, namespaces, obj

from .case import Incident, cluster, only, unready

CNV = "openshift-cnv"
PACKAGE = "kubevirt-hyperconverged"
LOSS = (
    'risk of data loss updating "hyperconvergeds.hco.kubevirt.io": new CRD removes version '
    "v1alpha1 that is listed as a stored version on the existing CRD"
)
FAILED = ago(minutes=55)


def deploying(items: list[Object], release: str, **late: float) -> Object:
    """Let KubeVirt say that it is being deployed although its release is in place."""
    found = only(items, "KubeVirt", "kubevirt")
    found["status"] |= dict.fromkeys(
        ("observedKubeVirtVersion", "targetKubeVirtVersion", "operatorVersion"), release
    )
    for each in found["status"]["conditions"]:
        if each["type"] in ("Available", "Progressing"):
            each["status"] = "False" if each["type"] == "Available" else "True"
            each |= {"reason": "DeploymentInProgress", "message": f"Deploying version {release}"}
            each["lastTransitionTime"] = ago(**late)
    return found


def tainted(release: str = "v1.0.0", **late: float) -> list[Object]:
    """Return a cluster whose n3 got a taint that virt-handler, which still runs there,
    does not tolerate.
    """
    items = cluster()
    deploying(items, release, **(late or {"minutes": 40}))
    only(items, "Node", "n3")["spec"]["taints"] = [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    ]
    status = only(items, "DaemonSet", "virt-handler")["status"]
    status |= {"desiredNumberScheduled": 2, "numberReady": 2, "numberMisscheduled": 1}
    return items


def virt_handler_too_many(command: str = "upgrade", code: int = 1) -> Incident:
    says = (
        (
            "KubeVirt kubevirt/kubevirt is not available for 40 min (DeploymentInProgress): "
            "nothing is rolled out"
        ),
        "it still runs on n3, whose taint dedicated=gpu:NoSchedule it does not tolerate",
        "spec.workloads.nodePlacement of KubeVirt",
        "The nodes do not hold it up",
    )
    source = "https://github.com/kubevirt/kubevirt/pull/10254"
    return Incident(source, tainted(), command, code, says, ("is not ready",))


def component_that_crashes() -> Incident:
    items = cluster()
    deploying(items, "v1.6.0", hours=2)
    which = next(
        each
        for each in items
        if each["kind"] == "Pod" and each["metadata"]["name"].startswith("virt-controller")
    )
    broken = unready(which)
    broken["status"]["containerStatuses"] = [
        {
            "name": "virt-controller",
            "ready": False,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}},
        }
    ]
    items[items.index(which)] = broken
    says = ("KubeVirt kubevirt/kubevirt is not available for 2 h", "ImagePullBackOff")
    return Incident(
        "https://github.com/kubevirt/kubevirt/issues/5327",
        items,
        "upgrade",
        1,
        says,
        ("misscheduled",),
    )


def subscription(now: str, then: str, *said: Object) -> Object:
    status: Object = {
        "installedCSV": f"{PACKAGE}-operator.{now}",
        "currentCSV": f"{PACKAGE}-operator.{then}",
    }
    status |= {
        "installPlanRef": {"name": "install-7kq4d", "namespace": CNV},
        "conditions": list(said),
    }
    return obj(
        "Subscription",
        "operators.coreos.com/v1alpha1",
        "hco",
        CNV,
        spec={"name": PACKAGE},
        status=status,
    )


def install_plan(phase: str, message: str = "") -> Object:
    status: Object = {"phase": phase, "message": message}
    status["conditions"] = [
        {"type": "Installed", "status": "False", "message": message, "lastTransitionTime": FAILED}
    ]
    spec = {"approved": True, "clusterServiceVersionNames": [f"{PACKAGE}-operator.v4.8.0"]}
    return obj(
        "InstallPlan",
        "operators.coreos.com/v1alpha1",
        "install-7kq4d",
        CNV,
        spec=spec,
        status=status,
    )


def service_version(phase: str, message: str) -> Object:
    status = {"phase": phase, "message": message, "lastTransitionTime": FAILED}
    name = f"{PACKAGE}-operator.v4.8.0"
    return obj("ClusterServiceVersion", "operators.coreos.com/v1alpha1", name, CNV, status=status)


def stored_version(command: str = "upgrade", code: int = 1) -> Incident:
    items = [
        *cluster(),
        *namespaces(CNV),
        subscription("v2.6.5", "v4.8.0"),
        install_plan("Failed", LOSS),
    ]
    says = (
        f"The update of operator {PACKAGE} from v2.6.5 to v4.8.0 is stuck for 55 min",
        f"InstallPlan {CNV}/install-7kq4d failed: {LOSS}",
        "take v1alpha1 out of its status.storedVersions",
        f"kubectl delete installplan install-7kq4d -n {CNV}",
    )
    return Incident(
        "https://github.com/openshift/openshift-docs/pull/35054",
        items,
        command,
        code,
        says,
        ("approve",),
    )


def failed_service_version() -> Incident:
    why = "install failed: deployment virt-operator not ready before timeout"
    items = [
        *cluster(),
        *namespaces(CNV),
        subscription("v4.8.0", "v4.8.0"),
        install_plan("Complete"),
    ]
    items.append(service_version("Failed", why))
    says = (
        f"ClusterServiceVersion {CNV}/{PACKAGE}-operator.v4.8.0 failed: {why}",
        (
            "See why Deployment virt-operator has no ready pod, and repair it, after which OLM "
            f"goes on: kubectl describe deployment virt-operator -n {CNV}"
        ),
    )
    return Incident(
        "https://github.com/kubevirt/hyperconverged-cluster-operator/issues/1040",
        items,
        "upgrade",
        1,
        says,
    )


def unresolved() -> Incident:
    why = (
        "constraints not satisfiable: no operators found in channel stable of package "
        "kubevirt-hyperconverged"
    )
    said = {
        "type": "ResolutionFailed",
        "status": "True",
        "message": why,
        "lastTransitionTime": FAILED,
    }
    items = [
        *cluster(),
        *namespaces(CNV),
        subscription("v4.8.0", "v4.8.0", said),
        install_plan("Complete"),
    ]
    says = (f"Subscription {CNV}/hco cannot be resolved: {why}",)
    return Incident(
        "https://github.com/operator-framework/operator-lifecycle-manager/issues/2201",
        items,
        "upgrade",
        1,
        says,
    )


REFUSED = (
    "macvtap cannot be deployed together with passt, please remove macvtap from the configuration"
)


def versions_of_refused_update(told: Object) -> list[Object]:
    """Return the version that is replaced, the one that waits, and the condition that it reads."""
    old = service_version("Replacing", f"being replaced by csv: {PACKAGE}-operator.v4.9.0")
    new = service_version(
        "Pending",
        f"operator is not upgradeable: The operator is not upgradeable: {told['message']}",
    )
    new["metadata"]["name"] = f"{PACKAGE}-operator.v4.9.0"
    new["status"]["reason"] = "OperatorConditionNotUpgradeable"
    kind, version = "OperatorCondition", "operators.coreos.com/v2"
    own = {"conditions": [told]}
    return [old, new, obj(kind, version, f"{PACKAGE}-operator.v4.8.0", CNV, status=own)]


def not_upgradeable(command: str = "upgrade", *, versions: bool = True) -> Incident:
    """Return that a part of HyperConverged refuses the next release. versions: whether
    ClusterServiceVersions are known.
    """
    at = {"type": "Upgradeable", "status": "False", "lastTransitionTime": FAILED}
    told = at | {
        "reason": "NetworkAddonsConfigNotUpgradeable",
        "message": f"NetworkAddonsConfig is not upgradeable: {REFUSED}",
    }
    items = [
        *cluster(),
        *namespaces(CNV),
        subscription("v4.8.0", "v4.9.0"),
        install_plan("Complete"),
    ]
    only(items, "Subscription", "hco")["status"]["lastUpdated"] = FAILED
    items.append(
        obj(
            "HyperConverged", "hco.kubevirt.io/v1beta1", PACKAGE, CNV, status={"conditions": [told]}
        )
    )
    deployed = {"conditions": [at | {"reason": "InvalidConfiguration", "message": REFUSED}]}
    items.append(
        obj(
            "NetworkAddonsConfig",
            "networkaddonsoperator.network.kubevirt.io/v1",
            "cluster",
            "",
            status=deployed,
        )
    )
    if versions:
        items += versions_of_refused_update(told)
    waits = (
        f"ClusterServiceVersion {CNV}/{PACKAGE}-operator.v4.9.0 waits "
        "(OperatorConditionNotUpgradeable)"
    )
    says = (
        (
            "from v4.8.0 to v4.9.0 is stuck for 55 min: "
            f"{waits if versions else 'Subscription openshift-cnv/hco waits'}"
        ),
        f"NetworkAddonsConfig cluster is not upgradeable: {REFUSED}",
        "Remove macvtap from the configuration, after which OLM goes on by itself: "
        "kubectl describe networkaddonsconfig cluster",
    )
    source = (
        "https://github.com/kubevirt/cluster-network-addons-operator/pull/"
        f"{1334 if versions else 1292}"
    )
    return Incident(source, items, command, 1, says, ("being replaced",))


def catalog_that_does_not_answer() -> Incident:
    why = (
        "failed to populate resolver cache from source redhat-operators/openshift-marketplace: "
        "connection error"
    )
    said = {
        "type": "ResolutionFailed",
        "status": "True",
        "message": why,
        "lastTransitionTime": FAILED,
    }
    items = [
        *cluster(),
        *namespaces(CNV),
        subscription("v4.8.0", "v4.8.0", said),
        install_plan("Complete"),
    ]
    says = (
        "See why the pod of CatalogSource openshift-marketplace/redhat-operators does not answer",
        "kubectl describe catalogsource redhat-operators -n openshift-marketplace",
    )
    source = "https://github.com/operator-framework/operator-lifecycle-manager/issues/3009"
    return Incident(source, items, "upgrade", 1, says)


def incidents() -> list[Incident]:
    return [
        virt_handler_too_many(),
        component_that_crashes(),
        stored_version(),
        failed_service_version(),
        unresolved(),
        not_upgradeable(),
        not_upgradeable(versions=False),
        catalog_that_does_not_answer(),
    ]


def at_rest() -> list[list[Object]]:
    """Return clusters that look alike, with nothing to say: each has a reason to be as it is."""
    waits = [
        *cluster(),
        *namespaces(CNV),
        subscription("v4.8.0", "v4.9.0"),
        install_plan("RequiresApproval"),
    ]
    done = [
        *cluster(),
        *namespaces(CNV),
        subscription("v4.8.0", "v4.8.0"),
        install_plan("Complete"),
    ]
    done.append(service_version("Succeeded", "install strategy completed with no errors"))
    upgradeable = [
        each for each in not_upgradeable(versions=False).items if each["kind"] != "Subscription"
    ]
    upgradeable.append(subscription("v4.8.0", "v4.8.0"))
    later = tainted("v1.1.0")
    only(later, "KubeVirt", "kubevirt")["status"]["conditions"] = conditions(
        Available=True, Progressing=False
    )
    return [waits, done, upgradeable, later, tainted(minutes=5)]
