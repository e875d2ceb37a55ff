"""An object uses an API version that the next release does not serve.

**Why.** After the upgrade the API server answers that the kind does not exist. ``kubectl apply``
and GitOps tools then fail for this file. KubeVirt 1.6 ended v1alpha1 and v1alpha2 of instance types
and preferences; Kubernetes 1.25 ended policy/v1beta1.

**Fix.** Write the API version that both releases serve, before the upgrade.
"""

from virt_admit.model import releases
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import INSTANCETYPE, PDB, PREFERENCE
from virt_admit.model.releases import UpgradeTarget
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Path, rule


@rule(
    kinds=(INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE, PREFERENCE, kinds.CLUSTER_PREFERENCE, PDB),
    action=Action.WARN,
    at_admission=False,
    target={releases.KUBEVIRT: "1.6", releases.KUBERNETES: "1.25"},
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/"
            "crds.go#NewVirtualMachineInstancetypeCrd"
        ),
        "Kubernetes, Deprecated API Migration Guide",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    removal = _kubevirt(obj, context.target) or _kubernetes(obj, context.target)
    if removal:
        release, instead = removal
        gone = f"{release} does not serve {obj.api_version}, so this file cannot be applied"
        yield Finding(Path("apiVersion"), f"{gone}. Use {instead}.", cause=Cause.NOT_SUPPORTED)


def _kubevirt(obj: Object, target: UpgradeTarget) -> tuple[str, str] | None:
    if obj.group != INSTANCETYPE.group or not target.kubevirt:
        return None
    served = releases.about(releases.KUBEVIRT, target.kubevirt)["instancetype_versions"]
    oldest = releases.releases(releases.KUBEVIRT)[0]
    known = releases.about(releases.KUBEVIRT, oldest)["instancetype_versions"]
    if obj.version in served or obj.version not in known:
        return None
    return f"KubeVirt {target.kubevirt}", f"{obj.group}/{served[-1]}"


def _kubernetes(obj: Object, target: UpgradeTarget) -> tuple[str, str] | None:
    removed = releases.table(releases.KUBERNETES)["removed"].get(obj.api_version)
    if (
        not target.kubernetes
        or not removed
        or releases.order(removed["release"]) > releases.order(target.kubernetes)
    ):
        return None
    return f"Kubernetes {target.kubernetes}", removed["instead"]
