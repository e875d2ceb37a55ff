"""A hotplugged volume does not reach a guest that runs.

**Why.** KubeVirt attaches a volume with a pod of its own on the VM's node. The API server refuses this pod (a LimitRange, a
quota, a webhook), or it is not placed or does not start. KubeVirt tries again and again, and the VM cannot migrate meanwhile.

**Fix.** Resolve what the finding names. A LimitRange that the VM itself keeps may refuse the pod of the volume, which requests
little and has a higher limit: raise its ratio, or set ``supportContainerResources`` of KubeVirt for ``hotplug-disk``.
"""

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.placement import candidates, quotas
from virt_admit.model.messages import command_of, ended
from virt_admit.rule import VMI, Action, Context, Finding, Findings, Object, cut, rule, union


@rule(
    kinds=(VMI,),
    reads=union(stuck_starts.READS, quotas.READS, candidates.READS, changed_disks.READS, {VMI: ()}),
    action=Action.WARN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vmi/volume-hotplug.go",
        "https://github.com/kubevirt/kubevirt/issues/9302",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    if vmi.deleted or not any(each["hotplugVolume"].present for each in vmi.at("status", "volumeStatus").items()):
        return
    from virt_admit.forecasts.drain.starts import unattached_volumes  # noqa: PLC0415 - files alone have no such VMI

    for index, name, found in unattached_volumes.hotplugged(vmi, context.cluster):
        path = vmi.at("spec", "volumes", index, "name").path
        words = found.reason.removeprefix("it ")
        remedy = found.remedy.partition(": ")[0].partition(", or ")[0]
        most = check.room(path) - len(f"volume {name} . {remedy}.")
        told = ended(cut(words, max(most, 40)))
        command = command_of(found.remedy)
        yield Finding(path, f"volume {name} {told} {remedy[:1].upper()}{remedy[1:]}.", value=name, command=command)
