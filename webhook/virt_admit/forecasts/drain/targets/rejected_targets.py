"""Target pods of migrations that kubelets reject, so that a drain repeats its migrations forever.

Kube-scheduler sees the sum of a node; the kubelet also judges its NUMA nodes, devices and labels.
So the scheduler picks the node again. Sources: kubernetes/kubernetes issue #84869;
kubernetes/kubernetes:pkg/kubelet/kubelet.go#rejectPod;
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.refusals import kubelet_rejections
from virt_admit.forecasts.placement.refusals.kubelet_rejections import Rejections
from virt_admit.model.commands import kubectl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = {
    POD: (
        *("metadata.creationTimestamp", "metadata.labels", "spec.nodeName"),
        *("status.phase", "status.reason", "status.message"),
    )
}
_SEVERAL: Final = 2
"""One rejection may be of a moment, as when two pods come at once."""
_REPEATED: Final = timedelta(hours=1)
"""KubeVirt repeats the migrations of a drain within minutes: without a newer one, none is asked
for, and the node may have changed.
"""
_OLD: Final = timedelta(days=1)


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that kubelets rejected the last target pods of a VMI, and what ends it; None:
    they did not, as far as is known.
    """
    pods = _rejected(vmi, cluster)
    newest = clock.instant(pods[-1].created) if len(pods) >= _SEVERAL else None
    if len(pods) < _SEVERAL or vm_states_times.is_older(newest, _OLD, cluster):
        return None
    last, ago = pods[-1], vm_states_times.ago(newest, cluster)
    found = Rejections(
        kubelet_rejections.reason_of(last),
        last.at("status", "message").words,
        len(pods),
        f", last{ago}" if ago else "",
        _nodes(pods),
    )
    where, said = names(sorted(found.nodes)), f": {found.message}" if found.message else ""
    reason = (
        f"the kubelet of {where} rejected its last {found.times} target pods{found.last} "
        f"({cut_middle(f'{found.reason}{said}', 150)}), which kube-scheduler does not foresee"
    )
    remedy = f"{kubelet_rejections.way(found)}, or stop the VM for the maintenance"
    command = kubectl("describe", POD, last.name, vms.namespace_of(last))
    return Problem(reason, remedy, ProblemCause.MIGRATION_FAILS, command=command)


def blocking(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return the same where the next migration fails too: they are repeated now,
    and no other node could take the VMI; None: that is not known.
    """
    pods, place, now = _rejected(vmi, cluster), target.placement, clock.now(cluster)
    created = clock.instant(pods[-1].created) if pods else None
    if len(pods) < migrations.RETRY_LOOP or created is None or now is None:
        return None
    others = {*place.candidates, *place.undetermined} - _nodes(pods)
    if others or not place.has_candidate or not place.is_certain or now - created > _REPEATED:
        return None
    return problem(vmi, cluster)


def doubt(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return the same where kube-scheduler may pick such a node again; None: it does not."""
    open_ones = {*target.placement.candidates, *target.placement.undetermined}
    found = problem(vmi, cluster) if open_ones & _nodes(_rejected(vmi, cluster)) else None
    return Problem(found.reason, found.remedy, command=found.command) if found else None


def _rejected(vmi: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the target pods of a VMI that were rejected since one was not, oldest first."""
    since, found = _moved(vmi, cluster), list[Object]()
    for pod in vm_states_motion.own_pods(vmi, cluster):
        created = clock.instant(pod.created)
        is_target = launcher_pod.MIGRATION_JOB in pod.labels and pod.at("spec", "nodeName").text
        if not is_target or (since and created and created <= since):
            continue
        if pod.at("status", "phase").text == "Failed" and kubelet_rejections.is_rejection(
            kubelet_rejections.reason_of(pod)
        ):
            found.append(pod)
        else:
            found.clear()
    return found


def _moved(vmi: Object, cluster: Cluster) -> datetime | None:
    """Return when the last migration of a VMI succeeded; None: none is known to have."""
    done = [
        clock.instant(migrations.entered(each, "Succeeded"))
        for each in migrations.own(vmi, cluster)
    ]
    state = vmi.at("status", "migrationState")
    if state["completed"].boolean and not state["failed"].boolean:
        done.append(vm_states_times.stamp_of(state, "end"))
    return max(filter(None, done), default=None)


def _nodes(pods: Sequence[Object]) -> frozenset[str]:
    return frozenset(pod.at("spec", "nodeName").text or "" for pod in pods)
