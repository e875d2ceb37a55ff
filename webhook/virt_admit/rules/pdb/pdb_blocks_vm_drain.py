"""A PodDisruptionBudget over VMs has a form that never allows a disruption.

**Why.** ``maxUnavailable``, and ``minAvailable`` in percent, make the controller ask for the scale of whatever owns
the pods. A VMI has none: the budget cannot be computed, the disruptions that it allows stay 0, and every drain that
would shut one of these VMs down hangs.

**Fix.** Write ``minAvailable`` as an integer, or remove the budget: VMs that migrate need none.
"""

from collections.abc import Iterator

from virt_admit.model import selectors
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import PDB, VM, VMI
from virt_admit.model.kubevirt import disruption_budgets, vms
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(budget: Object, context: Context[NoParams]) -> Iterator[Finding]:
    selector = budget.at("spec", "selector")
    if (
        not selector.is_map
        or not disruption_budgets.needs_scale(budget)
        or not disruption_budgets.is_user_created(budget)
    ):
        return
    covers = _covers(selectors.parse(selector.value), vms.namespace_of(budget), context.cluster)
    if covers:
        limit = budget.at("spec", "maxUnavailable")
        limit = limit if limit.present else budget.at("spec", "minAvailable")
        yield Finding(
            limit.path,
            f"{show(limit.value)} needs a scale that VMs lack, so no disruption is ever allowed and drains hang "
            f"(it covers {covers}); write an integer minAvailable, or remove the budget",
        )


def _covers(selector: selectors.Selector, namespace: str, cluster: Cluster) -> str:
    """Which VMs a budget is about, in words; empty: none.

    Raises:
        Unseen: none that is known, but there may be others.
    """
    if "virt-launcher" in (selector.allowed_values("kubevirt.io") or ()):
        return "kubevirt.io=virt-launcher"
    unseen: Unseen | None = None
    for kind in (VMI, VM):
        try:
            for obj in cluster.list(kind, namespace):
                if selector.matches(disruption_budgets.launcher_labels(obj)):
                    return obj.full_name
        except Unseen as blind:
            unseen = unseen or blind
    if unseen is not None:
        raise unseen
    return ""


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(PDB,),
    reads={VMI: ("metadata.labels",), VM: ("spec.template.metadata.labels",)},
    action=Action.AUDIT,
    event="DrainBlocked",
    at_admission=False,
    check=check,
    sources=("kubevirt/kubevirt#18063", "kubevirt/kubevirt#13764"),
)
