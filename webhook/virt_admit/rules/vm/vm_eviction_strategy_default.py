"""A virtual machine does not set an eviction strategy.

**Why.** Without ``evictionStrategy`` the cluster default decides what a drain does. Without a
cluster default the drain shuts the guest down. ``LiveMigrate`` on a VM that cannot migrate blocks
every drain and every upgrade forever, without a warning. ``LiveMigrateIfPossible`` on a VM that can
migrate may shut it down in its first seconds, or after a device is added.

**Fix.** virt-admit sets the strategy that fits when the VM is created: ``LiveMigrate`` if the VM
can certainly migrate, ``LiveMigrateIfPossible`` if it may be able to, ``None`` if it is pinned to
one host or has the annotation ``virt-admit.io/never-migrate: "true"``. It sets nothing if the VM
inherits the same value from the cluster, if the cluster sets ``None`` or ``External``, or if the
cluster has only one node.
"""

from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POOL, VM, VMIRS
from virt_admit.model.kubernetes.objects import Key
from virt_admit.model.kubevirt.instances import expand, migratability, vms
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.rule import (
    Action,
    Cause,
    Context,
    DrainAdvice,
    Finding,
    Findings,
    Object,
    Operation,
    Patch,
    param,
    rule,
)

MARK: Final = "virt-admit.io/never-migrate"

LIVE_MIGRATE: Final = "LiveMigrate"
IF_POSSIBLE: Final = versions.IF_POSSIBLE
SHUT_DOWN: Final = "None"


@dataclass(frozen=True)
class Params:
    always: bool = param(
        False, "set the strategy even if the VM would inherit the same one from the cluster"
    )


@rule(
    kinds=(VM, POOL, VMIRS),
    reads=migratability.READS,
    operations=(Operation.CREATE,),
    action=Action.AUDIT,
    drain_advice=DrainAdvice.STRATEGY,
    params=Params(),
    fixable=True,
    fix_by_default=True,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",
        "kubevirt/kubevirt:pkg/defaults/defaults.go#setDefaultEvictionStrategy",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    strategy = vms.vmi_spec(obj)["evictionStrategy"]
    if strategy.present or not vms.vmi_spec(obj).is_map:
        return
    cluster = context.cluster
    inherited = configuration.eviction_strategy(cluster)
    cluster_default = inherited.value if inherited.explicit else None
    if cluster_default in (SHUT_DOWN, "External") or (
        cluster_default is None and _has_one_node(cluster)
    ):
        return
    fitting, why = _fitting_strategy(obj, context)
    if fitting == cluster_default:
        if not context.params.always:
            return
    elif cluster_default == IF_POSSIBLE and fitting != SHUT_DOWN:
        return
    unset, decides = "no eviction strategy is set", "the cluster default decides what a drain does"
    yield Finding(
        strategy.path,
        check.first_that_fits(
            strategy.path,
            f"{unset}, so {decides}. Set {fitting} because {why}.",
            f"{unset}. Set {fitting} because {why}.",
            f"{unset}. Set {fitting}.",
        ),
        cause=Cause.REQUIRED,
        fix=(Patch("add", strategy.path, fitting),),
        why=why,
    )


def _has_one_node(cluster: Cluster) -> bool:
    """Return whether VMs have no second node to migrate to:
    KubeVirt's built-in default None is right then.
    """
    try:
        return len(nodes.of_kubevirt(cluster)) == 1
    except Unseen:
        return False


def _fitting_strategy(obj: Object, context: Context[Params]) -> tuple[str, str]:
    """Return the strategy that fits an object and the reason,
    as a clause that follows "because".
    """
    if _is_marked(obj):
        return SHUT_DOWN, f"the annotation {MARK} is set"
    pin = permanent_constraints.pin(context.cached(expand.expand, obj))
    if pin is not None and pin.tight:
        return SHUT_DOWN, f"{pin.path} pins the VM to one host"
    assessment = context.cached(migratability.assess, obj)
    if assessment.migratable is Migratable.YES:
        return LIVE_MIGRATE, "the VM can migrate"
    if assessment.migratable is Migratable.NO:
        reasons = ", ".join(dict.fromkeys(reason.name for reason in assessment.reasons))
        why = f"the VM cannot migrate ({reasons})"
    else:
        unread = ", ".join(assessment.unseen)
        why = f"it is unknown whether the VM can migrate (no data on {unread})"
    if versions.if_possible(context.cluster) == IF_POSSIBLE:
        return IF_POSSIBLE, why
    return SHUT_DOWN, f"{why} and this KubeVirt does not support {IF_POSSIBLE}"


def _is_marked(obj: Object) -> bool:
    marks = (obj.annotation(MARK), vms.vmi_template(obj)["metadata"]["annotations"][Key(MARK)])
    return any((mark.text or "").lower() == "true" for mark in marks)
