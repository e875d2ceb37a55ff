"""KubeVirt's list of obsolete CPU models brings predefined ones back.

**Why.** In KubeVirt a map replaces the predefined list, it does not add to it; only HyperConverged merges the two.
Models that are too old for safe guests are offered again.

**Fix.** Write the predefined models into the map as well. An empty map means the predefined ones.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import KUBEVIRT
from virt_admit.model.kubevirt.configuration import PREDEFINED_OBSOLETE, Setting, setting
from virt_admit.model.messages import count, names
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

MANAGED_BY = "app.kubernetes.io/managed-by"


def check(kubevirt: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    models = setting(kubevirt, Setting.OBSOLETE_CPU_MODELS)
    back = sorted(PREDEFINED_OBSOLETE.difference(models.map))
    if models.map and back and kubevirt.labels.get(MANAGED_BY) != "hco-operator":
        yield Finding(
            models.path,
            f"the map replaces the predefined list: {count(len(back), 'model')} will come back; "
            f"add them if you do not mean that: {names(back, 60)}",
            value=tuple(back),
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(KUBEVIRT,),
    action=Action.WARN,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/util/util.go#DefaultObsoleteCPUModels",
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#getObsoleteCPUConfig",
    ),
)
