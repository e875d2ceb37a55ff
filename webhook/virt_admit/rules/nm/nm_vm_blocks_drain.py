"""A node is to be drained, and a VM on it refuses to go.

**Why.** KubeVirt answers the eviction of a VM that must live-migrate and cannot with 429, again and again, and nothing
else happens: the maintenance never begins. With ``External`` a controller outside KubeVirt has to move the VM.

**Fix.** For each VM: repair the reason that its condition ``LiveMigratable`` gives, or set ``evictionStrategy:
LiveMigrateIfPossible`` or ``None`` and restart it, or stop it for the time of the maintenance. To go on all the same,
annotate the NodeMaintenance with ``virt-admit.io/exempt.nm-vm-blocks-drain: <reason>``.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubevirt import drain, effective, vmis
from virt_admit.model.kubevirt.lifecycle import Eviction
from virt_admit.model.messages import first_that_fits, names
from virt_admit.model.objects import Object
from virt_admit.model.reads import CONDITIONS, union
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, NoParams, Operation, Rule

_OVERRIDE: Final = "virt-admit.io/exempt.nm-vm-blocks-drain"


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    node = maintenance.node(obj)
    evictions = drain.evictions(context.cluster, node.text or "")
    yield from evictions.unseen
    if refused := evictions.having(Eviction.REFUSED):
        remedy = "set LiveMigrateIfPossible or None and restart them, repair that, or stop them"
        message = first_that_fits(
            node.path,
            RULE.id,
            f"the drain hangs on {names((_reason(vmi) for vmi in refused), 200)}; {remedy}",
            f"the drain hangs on {names((vmi.full_name for vmi in refused), 100)}; {remedy}",
        )
        if _is_ready(node.text or "", context.cluster):
            yield Finding(node.path, f"{message}; to go on, annotate it with {_OVERRIDE}: <reason>")
        else:
            yield Finding(node.path, message, max_action=Action.WARN)
    if waiting := evictions.having(Eviction.WAITS):
        yield Finding(
            node.path,
            f"strategy External: the drain waits until something moves {names(vmi.full_name for vmi in waiting)}",
            max_action=Action.WARN,
        )


def _reason(vmi: Object) -> str:
    return f"{vmi.full_name} ({vmis.blocking_reason(vmi)})"


def _is_ready(node: str, cluster: Cluster) -> bool:
    """Whether the node is known to be Ready: at a broken one nobody should stand in the way."""
    try:
        found = cluster.get(NODE, "", node)
    except Unseen:
        return False
    return found is not None and found.condition("Ready")["status"].value == "True"


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NM, NM_KUBEVIRT),
    reads=union(vmis.READS, effective.STRATEGY_READS, {NODE: CONDITIONS}),
    operations=(Operation.CREATE,),
    action=Action.DENY,
    event="DrainBlocked",
    check=check,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go",
    ),
)
