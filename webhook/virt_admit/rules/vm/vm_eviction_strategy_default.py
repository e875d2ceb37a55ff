"""A virtual machine leaves it open what a node drain does to it.

**Why.** Without ``evictionStrategy`` a drain does what the cluster says, and where the cluster says nothing, it shuts
the guest down. ``LiveMigrate`` on a VM that cannot migrate blocks every drain and every upgrade, silently and for
ever; ``LiveMigrateIfPossible`` on one that can may shut it down in its first seconds, or once a device is added.

**Fix.** The one that fits is written when the VM is created: ``LiveMigrate`` where it is certain that the VM can
migrate, ``LiveMigrateIfPossible`` where it may, ``None`` for a VM that is tied to one host or that carries the
annotation ``virt-admit.io/never-migrate: "true"``. Nothing is written where the VM inherits the same from the cluster,
where the cluster says ``None`` or ``External``, and where there is only one node.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from virt_admit.model import nodes
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.json_patch import Patch
from virt_admit.model.kinds import POOL, VM, VMIRS
from virt_admit.model.kubevirt import configuration, effective, migratability, placement, versions, vms
from virt_admit.model.kubevirt.migratability import Migratable
from virt_admit.model.kubevirt.versions import Feature
from virt_admit.model.objects import Key, Object
from virt_admit.rule import Action, Cause, Context, Finding, Operation, Rule, param

MARK: Final = "virt-admit.io/never-migrate"

LIVE_MIGRATE: Final = "LiveMigrate"
IF_POSSIBLE: Final = "LiveMigrateIfPossible"
SHUT_DOWN: Final = "None"


@dataclass(frozen=True)
class Params:
    always: bool = param(False, "write the strategy also where the VM would inherit the same one from the cluster")


def check(obj: Object, context: Context[Params]) -> Iterator[Finding]:
    strategy = vms.vmi_spec(obj)["evictionStrategy"]
    if strategy.present or not vms.vmi_spec(obj).is_map:
        return
    cluster = context.cluster
    inherited = configuration.eviction_strategy(cluster)
    said = inherited.value if inherited.explicit else None
    if said in (SHUT_DOWN, "External") or (said is None and _has_one_node(cluster)):
        return
    wanted, why = _wanted(obj, context)
    if wanted == said:
        if not context.params.always:
            return
    elif said == IF_POSSIBLE and wanted != SHUT_DOWN:
        return
    yield Finding(
        strategy.path,
        f"no evictionStrategy; {wanted} fits: {why}",
        cause=Cause.REQUIRED,
        fix=(Patch("add", strategy.path, wanted),),
        why=f"because {why}",
    )


def _has_one_node(cluster: Cluster) -> bool:
    """Whether there is nowhere to migrate to: then KubeVirt's built-in None is right, and free to change."""
    try:
        return len(nodes.of_kubevirt(cluster)) == 1
    except Unseen:
        return False


def _wanted(obj: Object, context: Context[Params]) -> tuple[str, str]:
    """The strategy that fits an object, and why."""
    if _is_marked(obj):
        return SHUT_DOWN, f"it is marked {MARK}"
    pin = placement.pin(context.cached(effective.effective, obj))
    if pin is not None and pin.tight:
        return SHUT_DOWN, f"{pin.path} ties it to one host"
    assessment = context.cached(migratability.assess, obj)
    if assessment.migratable is Migratable.YES:
        return LIVE_MIGRATE, "it can migrate"
    if assessment.migratable is Migratable.NO:
        why = f"it cannot migrate ({', '.join(dict.fromkeys(reason.name for reason in assessment.reasons))})"
    else:
        why = f"it may be able to migrate, not seen: {', '.join(assessment.unseen)}"
    if versions.has_release(context.cluster, Feature.LIVE_MIGRATE_IF_POSSIBLE.since):
        return IF_POSSIBLE, why
    return SHUT_DOWN, f"{why}, and this KubeVirt does not know {IF_POSSIBLE}"


def _is_marked(obj: Object) -> bool:
    marks = (obj.annotation(MARK), vms.vmi_template(obj)["metadata"]["annotations"][Key(MARK)])
    return any((mark.text or "").lower() == "true" for mark in marks)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL, VMIRS),
    reads=migratability.READS,
    operations=(Operation.CREATE,),
    action=Action.AUDIT,
    params=Params(),
    fixable=True,
    fix_by_default=True,
    check=check,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",
        "kubevirt/kubevirt:pkg/defaults/defaults.go#setDefaultEvictionStrategy",
    ),
)
