"""Workload updates are switched off.

**Why.** After an update of KubeVirt, running VMs keep their old launcher, with its bugs and
vulnerabilities, until their next migration or restart. The migrations for hotplugs of CPU and
memory and for copies of volumes come from the same controller, so these wait for one as well.

**Fix.** List ``LiveMigrate``. In HyperConverged you can also remove the whole field: the schema
then sets ``LiveMigrate``. Only an empty list switches updates off. Where Fleet writes KubeVirt, as
in Harvester, change the values of its ManagedChart. A list that ``kubectl`` has patched belongs to
that manager, and Fleet cannot write another one until its entry in ``managedFields`` is gone. Where
one node runs all VMs, none can migrate, and this rule is silent. KubeVirt is released without a
list, as is Harvester before 1.6. That is a note, and none while no VM is outdated and hotplugs wait
for nothing.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.commands import about
from virt_admit.model.evidence.writes import fleet_objects
from virt_admit.model.kubernetes import kinds, nodes
from virt_admit.model.kubernetes.cluster import each
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NODE, VMI
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.settings import configuration, live_updates
from virt_admit.model.node_updates.rancher import apply_conflicts
from virt_admit.rule import Action, Cluster, Context, Finding, Findings, Object, Unseen, cut, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    reads={KUBEVIRT: (), NODE: ("metadata.labels",), VMI: ("metadata.labels",)},
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Updates 6.2.2",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater_test.go",
        "kubevirt/kubevirt:manifests/generated/kubevirt-cr.yaml.in",
        "kubevirt/hyperconverged-cluster-operator:hack/check_defaults.sh",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if workload_updates.methods(obj) or any(workload_updates.listed(obj).items()):
        return
    if context.cluster.cached(nodes.alone):
        return
    number = _outdated(obj, context.cluster)
    now = f" ({number} now)" if number else ""
    alternative = ", or remove the field" if kinds.of(obj) is HCO else ""
    add = f"List LiveMigrate in workloadUpdateMethods{alternative}."
    if number:  # what keeps them from that is read by the other rule
        add = f"{add} See workload-outdated."
    command = ""
    if chart := fleet_objects.chart_of(obj):
        owner = apply_conflicts.owner_of(obj, _METHODS)
        add = _in_chart(chart, owner)
        command = about("edit", obj, KUBEVIRT, "--show-managed-fields") if owner else ""
    staged = live_updates.is_live(context.cluster) is False
    is_set = workload_updates.listed(obj).is_list
    if staged and not is_set and number == 0:  # KubeVirt as it is released, and nothing waits
        return
    plugs = "" if staged else " and hotplugs of CPU and memory"
    wait = f"outdated VMs{now}{plugs} wait for a migration or restart"
    yield Finding(
        workload_updates.block(obj).path,
        f"{wait}. {add}",
        value=(),
        max_action=Action.DENY if is_set else Action.AUDIT,
        command=command,
    )


_METHODS = ("spec", "workloadUpdateStrategy", "workloadUpdateMethods")


def _in_chart(chart: str, owner: str) -> str:
    """Return where LiveMigrate is listed if Fleet writes KubeVirt.

    The chart of Harvester switches updates off while Harvester is upgraded, and sets them again
    (harvester/harvester:package/upgrade/upgrade_manifests.sh
    #disable_kubevirt_workload_live_migration).
    """
    if owner:  # Fleet cannot write another list
        first = f"After an upgrade, take {cut(owner, 16)} out of managedFields"
        return f"{first}, then list LiveMigrate in ManagedChart {cut(chart, 14)}."
    of_harvester = chart == fleet_objects.HARVESTER
    done = "An upgrade of Harvester ends that; else list" if of_harvester else "List"
    return f"{done} LiveMigrate in spec.values of ManagedChart {cut(chart, 40)}."


def _outdated(obj: Object, cluster: Cluster) -> int | None:
    """Return the number of VMs with an outdated launcher, or None if it is unknown or zero."""
    try:
        kubevirt = obj if kinds.of(obj) is KUBEVIRT else configuration.kubevirt(cluster)
    except Unseen:
        kubevirt = None
    if kubevirt is not None:
        number = kubevirt.at("status", "outdatedVirtualMachineInstanceWorkloads").integer
        if number is not None:
            return number
    return sum(each(cluster, VMI, _is_outdated)) or None


def _is_outdated(vmi: Object) -> bool:
    return vmis.OUTDATED in vmi.labels
