"""Fewer than two nodes offer the default CPU model.

**Why.** Every VM that does not name its own model needs this one. If no node offers it, none of
these VMs starts. If only one node does, they start there and cannot migrate away. Names are
compared exactly.

**Fix.** Choose a model that at least two nodes carry as label ``cpu-model.node.kubevirt.io/…``, or
``host-model``.
"""

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE
from virt_admit.model.kubevirt.instances import cpu_models
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    reads={NODE: ("metadata.labels",)},
    action=Action.WARN,
    sources=("kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go",),
)
def check(obj: Object, context: Context) -> Findings:
    field = setting(obj, Setting.DEFAULT_CPU_MODEL)
    model = field.text
    if not model or model in (configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH):
        return
    if model in configuration.own_obsolete_models(obj):
        return
    offers = cpu_models.offers(context.cluster)
    nodes = offers.by(model)
    if not offers.conclusive or len(nodes) > 1:
        return
    if nodes:
        message = (
            f"only node {nodes[0]} offers {show(model)}; VMs that do not name their own model "
            "cannot migrate away. Choose a model that at least 2 nodes offer."
        )
    else:
        alike = offers.alike(model)
        hint = f"Did you mean {alike[0]}?" if alike else "Choose a model that the nodes offer."
        message = (
            f"no node offers {show(model)}; VMs that do not name their own model cannot start. "
            f"{hint}"
        )
    yield Finding(field.path, message)
