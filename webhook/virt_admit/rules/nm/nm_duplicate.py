"""A node gets a second NodeMaintenance.

**Why.** Deleting *any* NodeMaintenance of a node uncordons it, also while the other one still stands. Of two
operators (``nodemaintenance.medik8s.io`` and the older ``nodemaintenance.kubevirt.io``) each undoes what the other does;
their own webhooks see only their own group.

**Fix.** Use the one that is there, or wait until it is gone.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen
from virt_admit.model.kinds import NM, NM_KUBEVIRT
from virt_admit.model.objects import Object
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Operation, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    node = maintenance.node(obj)
    if not node.text:
        return
    for other in maintenance.others(obj, context.cluster):
        if isinstance(other, Unseen):
            yield other
        elif maintenance.node(other).text == node.text:
            going = ", which is being deleted" if other.deleted else ""
            yield Finding(
                node.path,
                f"NodeMaintenance {other.name} ({other.group}) has node {node.text} already{going}; "
                "deleting either one uncordons it; use that one",
                cause=Cause.DUPLICATE,
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NM, NM_KUBEVIRT),
    reads={NM: (), NM_KUBEVIRT: ()},
    operations=(Operation.CREATE,),
    action=Action.DENY,
    check=check,
    sources=(
        "medik8s/node-maintenance-operator:api/v1beta1/nodemaintenance_webhook.go#validateNoNodeMaintenanceExists",
    ),
)
