"""A hotplugged volume does not reach a guest that runs.

**Why.** KubeVirt attaches a volume with a pod of its own on the VM's node. The API server refuses
this pod (a LimitRange, a quota, a webhook), or it is not placed or does not start. Before KubeVirt
1.8 such a pod does not tolerate a cordon of that node, and before 1.2 no taint that the VM
tolerates. KubeVirt tries again and again. Where the API server refuses the pod, or each other node
has such a taint, the VM cannot migrate either.

**Fix.** Resolve what the finding names. A LimitRange that the VM itself keeps may refuse the pod of
the volume, which requests little and has a higher limit: raise its ratio, or set
``supportContainerResources`` of KubeVirt for ``hotplug-disk``.
"""

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.placement import candidates, quotas
from virt_admit.forecasts.placement.refusals import static_cpus, unreached_settings
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.messages import advice_of, command_of, ended
from virt_admit.model.node_updates import cordoners
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, cut, rule, union


@rule(
    kinds=(VMI,),
    reads=union(
        stuck_starts.READS,
        quotas.READS,
        candidates.READS,
        cordoners.READS,
        changed_disks.READS,
        static_cpus.READS,
        unreached_settings.READS,
        {VMI: ()},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vmi/volume-hotplug.go",
        "https://github.com/kubevirt/kubevirt/issues/9302",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    if vmi.deleted or not any(
        each["hotplugVolume"].present for each in vmi.at("status", "volumeStatus").items()
    ):
        return
    # files alone have no such VMI
    from virt_admit.forecasts.drain.starts import unattached_volumes  # noqa: PLC0415

    for index, name, found in unattached_volumes.hotplugged(vmi, context.cluster):
        path = vmi.at("spec", "volumes", index, "name").path
        told = ended(f"volume {name} {found.reason.removeprefix('it ')}")
        advice = advice_of(found.remedy)
        brief = ended(cut(told, check.room(path) - len(advice) - 1))
        message = check.first_that_fits(path, f"{told} {advice}", f"{brief} {advice}")
        yield Finding(path, message, value=name, command=command_of(found.remedy))
