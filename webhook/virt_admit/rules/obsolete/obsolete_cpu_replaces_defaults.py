"""KubeVirt's list of obsolete CPU models omits predefined models.

**Why.** In KubeVirt the map replaces the predefined list instead of adding to it. Only
HyperConverged merges the two. Nodes then offer models again that are too old for secure guests.

**Fix.** Add the predefined models to the map. An empty map means the predefined list.
"""

from virt_admit.model.kubevirt.settings.configuration import PREDEFINED_OBSOLETE, Setting, setting
from virt_admit.rule import KUBEVIRT, Action, Context, Finding, Findings, Object, count, names, rule

MANAGED_BY = "app.kubernetes.io/managed-by"


@rule(
    kinds=(KUBEVIRT,),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/util/util.go#DefaultObsoleteCPUModels",
        (
            "kubevirt/hyperconverged-cluster-operator:controllers/handlers/"
            "kubevirt.go#getObsoleteCPUConfig"
        ),
    ),
)
def check(kubevirt: Object, _context: Context) -> Findings:
    models = setting(kubevirt, Setting.OBSOLETE_CPU_MODELS)
    missing = sorted(PREDEFINED_OBSOLETE.difference(models.map))
    if models.map and missing and kubevirt.labels.get(MANAGED_BY) != "hco-operator":
        yield Finding(
            models.path,
            f"this map replaces the predefined list, so {count(len(missing), 'obsolete model')} "
            f"would be offered again. Add them: {names(missing, 60)}",
            value=tuple(missing),
        )
