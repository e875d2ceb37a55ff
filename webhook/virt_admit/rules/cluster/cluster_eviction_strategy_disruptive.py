"""The cluster's eviction strategy stops VMs that could move, or waits for somebody outside.

**Why.** With ``None`` every drain stops each VM without a strategy of its own, although there are other nodes
to move to. With ``External`` KubeVirt refuses evictions and waits for a controller outside of it; without one each
drain hangs.

**Fix.** Set ``LiveMigrateIfPossible``, which moves what can move and stops the rest, or ``LiveMigrate``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT, NODE
from virt_admit.model.kubevirt import configuration
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    strategy = setting(obj, Setting.EVICTION_STRATEGY)
    if strategy.value == "External":
        yield Finding(
            strategy.path,
            "a drain waits for a controller outside KubeVirt, without one it hangs; set LiveMigrateIfPossible",
        )
    elif strategy.value == "None" and configuration.highly_available(context.cluster, obj):
        yield Finding(
            strategy.path,
            "a drain stops every VM without its own strategy, though it could move; set LiveMigrateIfPossible",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    reads=(HCO, NODE),
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go",
    ),
)
