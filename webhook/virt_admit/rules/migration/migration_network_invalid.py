"""The network of migrations is no name of a NetworkAttachmentDefinition.

**Why.** The value becomes a network annotation of the virt-handler pods on every node, as ``<value>@migration0``.
With an empty or malformed name those pods cannot get their network.

**Fix.** Write ``name`` or ``namespace/name``, or remove the field.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import migration_limits
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    network = migration_limits.block(obj)["network"]
    if network.present and migration_limits.network(obj) is None:
        yield Finding(
            network.path,
            f"{show(network.value)} names no network; write name or namespace/name in lower case, or remove the field",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/daemonsets.go",),
)
