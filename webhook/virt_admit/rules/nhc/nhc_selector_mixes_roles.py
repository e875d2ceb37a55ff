"""A node health check selects control-plane nodes and workers together.

**Why.** The control plane is remediated one node at a time, workers as many as the limit allows: one limit fits only
one of them. In a compact cluster, where masters are workers too, a check for "workers" takes the control plane down.

**Fix.** One check per role. For workers: ``node-role.kubernetes.io/control-plane`` and
``node-role.kubernetes.io/master`` with ``DoesNotExist``.
"""

from collections.abc import Iterator

from virt_admit.model import nodes
from virt_admit.model.kinds import NHC, NODE
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, watching
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.model.selectors import EXISTS, IN
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    nhc = context.cached(health_checks.view, obj)
    selection = context.cached(watching.selected, obj)
    masters = [node.name for node in nodes.control_plane(selection).objects]
    path = nhc.selector_field.path
    advice = "exclude control-plane and master with DoesNotExist, use one check per role"
    if 0 < len(masters) < len(selection):
        yield Finding(path, f"selects control-plane nodes ({names(masters, 60)}) and workers together; {advice}")
        return
    selection.demand_all()
    if masters and _wants_workers(nhc):
        yield Finding(path, f"these workers are the control plane, too: {names(masters, 60)}; {advice}")


def _wants_workers(nhc: HealthCheck) -> bool:
    """Whether the selector asks for nodes with the worker's role."""
    return any(each.key == nodes.WORKER and each.operator in (IN, EXISTS) for each in nhc.selector.requirements)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    reads={NODE: ("metadata.labels",)},
    action=Action.WARN,
    check=check,
    sources=("medik8s/node-healthcheck-operator:docs/configuration.md#selector",),
)
