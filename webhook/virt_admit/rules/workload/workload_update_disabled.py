"""Workload updates are switched off.

**Why.** Running VMs keep their old launcher, with its bugs and holes, until somebody restarts them one by one.
CPU, memory and volume hotplug ride on the same controller and do not complete any more.

**Fix.** List ``LiveMigrate``. In HyperConverged removing the whole stanza does not switch updates off: the schema
puts ``LiveMigrate`` back; only an empty list does.
"""

from collections.abc import Iterator

from virt_admit.model import kinds
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubevirt import configuration, workload_updates
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    if workload_updates.methods(obj) or any(workload_updates.listed(obj).items()):
        return
    number = _outdated(obj, context.cluster)
    now = f" ({number} now)" if number else ""
    back = " (removing the stanza does that)" if kinds.of(obj) is HCO else ""
    yield Finding(
        workload_updates.block(obj).path,
        f"outdated VMs{now} stay so and hotplugs never complete until restarted by hand; list LiveMigrate{back}",
        value=(),
    )


def _outdated(obj: Object, cluster: Cluster) -> int | None:
    """How many VMs run an outdated launcher; None: nobody says so."""
    try:
        kubevirt = obj if kinds.of(obj) is KUBEVIRT else configuration.kubevirt(cluster)
    except Unseen:
        kubevirt = None
    if kubevirt is not None:
        number = kubevirt.at("status", "outdatedVirtualMachineInstanceWorkloads").integer
        if number is not None:
            return number
    return sum(workload_updates.OUTDATED in vmi.labels for vmi in cluster.known(VMI)) or None


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    reads={KUBEVIRT: (), VMI: ("metadata.labels",)},
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Updates 6.2.2",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater_test.go",
        "kubevirt/hyperconverged-cluster-operator:hack/check_defaults.sh",
    ),
)
