"""A storage profile creates volumes that only one node can mount.

**Why.** A volume without an access mode gets the access modes of the first set. Without
ReadWriteMany a VM with such a volume cannot live-migrate, so drains and updates have to stop it.

**Fix.** Put a set with ReadWriteMany first, if the storage supports it (often with
``volumeMode: Block``).
"""

from virt_admit.rule import STORAGE_PROFILE, Action, Context, Field, Finding, Findings, Object, rule


@rule(
    kinds=(STORAGE_PROFILE,),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Nodes",
        "OpenShift Virtualization, Node maintenance",
        (
            "kubevirt/containerized-data-importer:pkg/controller/datavolume/"
            "util.go#getDefaultVolumeAndAccessMode"
        ),
    ),
)
def check(profile: Object, _context: Context) -> Findings:
    sets = profile["spec"]["claimPropertySets"]
    shared = [_is_shared(claim_properties) for claim_properties in sets.items()]
    if not shared or shared[0]:
        return
    if any(shared):
        message = (
            "volumes without an access mode get the first set, which has no ReadWriteMany. Put a "
            "set with it first."
        )
    else:
        message = (
            "no set has ReadWriteMany, so VMs on such volumes cannot live-migrate. Add it if the "
            "storage supports it."
        )
    yield Finding(sets.path, message)


def _is_shared(claim_properties: Field) -> bool:
    return any(mode.value == "ReadWriteMany" for mode in claim_properties["accessModes"].items())
