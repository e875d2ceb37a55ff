"""VMs must live-migrate, and there is only one node.

**Why.** A drain refuses to stop the VMs and cannot move them: it never ends. HyperConverged itself would choose
``None`` for a single node.

**Fix.** Set ``None``, or ``LiveMigrateIfPossible`` if more nodes are to come.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT, NODE
from virt_admit.model.kubevirt import configuration
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    strategy = setting(obj, Setting.EVICTION_STRATEGY)
    if strategy.value == "LiveMigrate" and configuration.highly_available(context.cluster, obj) is False:
        yield Finding(
            strategy.path,
            "there is no other node to migrate to, so a drain never ends; set None, or LiveMigrateIfPossible",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    reads=(HCO, NODE),
    action=Action.WARN,
    check=check,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/mutator/hyperConvergedMutator.go#mutateEvictionStrategy",
        "kubevirt/hyperconverged-cluster-operator:pkg/internal/nodeinfo/nodeinfo.go#processNodeInfo",
    ),
)
