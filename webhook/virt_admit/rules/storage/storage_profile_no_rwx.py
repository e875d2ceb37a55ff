"""A storage profile gives volumes that cannot be shared.

**Why.** A volume that names no access mode gets those of the first set. Without ReadWriteMany a VM on such a
volume cannot live-migrate, and drains and updates have to stop it.

**Fix.** Put a set with ReadWriteMany first, if the storage can do that (often with ``volumeMode: Block``).
"""

from collections.abc import Iterator

from virt_admit.model.kinds import STORAGE_PROFILE
from virt_admit.model.objects import Field, Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(profile: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    sets = profile["spec"]["claimPropertySets"]
    shared = [_shared(each) for each in sets.items()]
    if not shared or shared[0]:
        return
    if any(shared):
        text = "the first set, which volumes without access mode get, has no ReadWriteMany; put one with it first"
    else:
        text = "no set has ReadWriteMany, so VMs on such volumes cannot live-migrate; add it if the storage can"
    yield Finding(sets.path, text)


def _shared(claim_properties: Field) -> bool:
    return any(mode.value == "ReadWriteMany" for mode in claim_properties["accessModes"].items())


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(STORAGE_PROFILE,),
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Nodes",
        "OpenShift Virtualization, Node maintenance",
        "kubevirt/containerized-data-importer:pkg/controller/datavolume/util.go#getDefaultVolumeAndAccessMode",
    ),
)
