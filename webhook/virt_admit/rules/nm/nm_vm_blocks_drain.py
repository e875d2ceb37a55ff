"""A NodeMaintenance drains a node with a VM that cannot be evicted.

**Why.** KubeVirt refuses the eviction (HTTP 429) of a VM that must live-migrate and cannot. The
drain retries forever and the maintenance never starts. With ``External`` a controller outside
KubeVirt must move the VM.

**Fix.** For each VM choose one: fix the reason in its condition ``LiveMigratable``; set
``evictionStrategy: LiveMigrateIfPossible`` or ``None`` and restart it; or stop it during the
maintenance. To drain anyway, annotate the NodeMaintenance with
``virt-admit.io/exempt.nm-vm-blocks-drain: <reason>``.
"""

from typing import Final

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, Findings, Operation, Urgency, rule, union

_OVERRIDE: Final = "virt-admit.io/exempt.nm-vm-blocks-drain"
_REMEDY: Final = "Set {} and restart them, fix the reason, or stop them."


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads=union(vmi_evictions.EVICTION_READS, {NODE: CONDITIONS}),
    operations=(Operation.CREATE,),
    action=Action.DENY,
    urgency=Urgency.STUCK,
    event="DrainBlocked",
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "pod-eviction-admitter.go"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    node = maintenance.node(obj)
    evictions = vmi_evictions.evictions(context.cluster, node.text or "")
    yield from evictions.unseen
    if refused := evictions.having(Effect.REFUSED):
        remedy = changed_disks.endangered(refused, context.cluster) or _REMEDY.format(
            versions.shut_down_strategies(context.cluster)
        )
        reasons = names((_reason(vmi) for vmi in refused), 200)
        blocking = (reasons, names((vmi.full_name for vmi in refused), 100))
        texts = (f"these VMs would block the drain: {shown}. {remedy}" for shown in blocking)
        message = check.first_that_fits(node.path, *texts)
        if _is_ready(node.text or "", context.cluster):
            anyway = f"To drain anyway, annotate this object with {_OVERRIDE}: <reason>"
            yield Finding(node.path, f"{message} {anyway}")
        else:
            yield Finding(node.path, message, max_action=Action.WARN)
    if waiting := evictions.having(Effect.EXTERNAL):
        yield Finding(
            node.path,
            "External makes the drain wait until another controller moves these VMs: "
            f"{names((vmi.full_name for vmi in waiting), 80)}. Check that controller, or stop "
            "them.",
            max_action=Action.WARN,
        )
    now = [
        (vmi, found)
        for vmi, found in evictions.reactions
        if found.effect in (Effect.BUDGET, Effect.NO_MIGRATION)
    ]
    if now:
        reasons = names((f"{vmi.full_name} ({found.reason})" for vmi, found in now), 130)
        vms = names((vmi.full_name for vmi, _ in now), 80)
        texts = (
            f"these VMs block the drain now: {blocked}. To do: {now[0][1].remedy}."
            for blocked in (reasons, vms)
        )
        message = check.first_that_fits(node.path, *texts)
        yield Finding(node.path, message, max_action=Action.WARN)


def _reason(vmi: Object) -> str:
    return f"{vmi.full_name} ({vmis.blocking_reason(vmi)})"


def _is_ready(name: str, cluster: Cluster) -> bool:
    """Return whether the node is known to be Ready.

    The drain of a broken node must not be denied.
    """
    node = find(cluster, NODE, "", name)
    return node is not None and node.condition("Ready")["status"].value == "True"
