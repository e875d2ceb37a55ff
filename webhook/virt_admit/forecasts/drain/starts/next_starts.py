"""What a VM that is off would meet if it were started now.

Nothing has tried yet: no pod, no event and no condition says it. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#sync (a VMI waits for a claim that does
not exist), :pkg/instancetype/find/revision.go (a copy of an instance type that is gone);
kubernetes/kubernetes:pkg/controller/volume/attachdetach/reconciler/reconciler.go
#attachDesiredVolumes (no second node attaches a volume of one node).
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.forecasts.drain import ending_namespaces
from virt_admit.forecasts.drain.control import control_path, vm_writes
from virt_admit.forecasts.drain.failures import iommu_groups
from virt_admit.forecasts.drain.starts import unplaced
from virt_admit.forecasts.placement import (
    quotas,
    start_candidates,
    start_doubts,
    volume_attachments,
)
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.starts import priority_classes
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import AbsentObject, Cluster, Unseen
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, POD, PVC, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import expand, vms
from virt_admit.model.kubevirt.launcher import launcher_pod, vm_ledger
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause


def problem(vm: Object, cluster: Cluster) -> Problem | None:
    """Return what would keep a VM without a VMI from starting, the nearest cause first; None:
    nothing that is known.
    """
    return (
        ending_namespaces.of_start(vm, cluster)
        or _without_copy(vm, cluster)
        or _without_claim(vm, cluster)
        or _refused(vm, cluster)
        or _unplaced(vm, cluster)
        or iommu_groups.of_start(vm, cluster)
    )


def _refused(vm: Object, cluster: Cluster) -> Problem | None:
    """Return what makes no pod of a VM, or refuses it."""
    if (down := control_path.of_starts(cluster)) is not None:
        return down
    # the same webhooks of virt-api refuse both
    if vm_writes.refused_start(vm, cluster) is not None:
        return None
    refused = vm_writes.refused_pod(start_candidates.next_vmi(vm), cluster)
    refused = refused or priority_classes.absent(vm, cluster)
    return refused or quotas.start_refusal(vm, (), cluster)


# --- what it names --------------------------------------------------------------------------------


def _without_copy(vm: Object, cluster: Cluster) -> Problem | None:
    """Return that the copy of the instance type or the preference which a VM names is gone."""
    given = expand.expand(vm, cluster)
    for key, what in (
        ("instancetype", given.instancetype_unseen),
        ("preference", given.preference_unseen),
    ):
        revision = vms.vm_spec(vm)[key]["revisionName"]
        if not revision.text or not isinstance(what, AbsentObject):
            continue
        way = f"create it again from a backup, or remove {revision.path} to take {key} "
        way += f"{vms.vm_spec(vm)[key]['name'].text} as it is now"
        reason = f"its {revision.path} names {what}"
        edit = kubectl("edit", VM, vm.name, vms.namespace_of(vm))
        return Problem(reason, typed(way, edit), ProblemCause.NOT_CREATED)
    return None


def _without_claim(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which claim of a VM does not exist, and no DataVolume is to make."""
    namespace = vms.namespace_of(vm)
    made = {
        each.at("metadata", "name").text for each in vms.vm_spec(vm)["dataVolumeTemplates"].items()
    }
    for claim in launcher_pod.claims(vms.vmi_spec(vm)):
        if (
            claim not in made
            and is_absent(cluster, PVC, namespace, claim)
            and is_absent(cluster, DATA_VOLUME, namespace, claim)
        ):
            way = f"restore claim {claim} from a backup or a snapshot, or let the VM name another"
            return Problem(
                f"its claim {claim} does not exist, and no DataVolume makes it",
                typed(way, kubectl("edit", VM, vm.name, namespace)),
                ProblemCause.NOT_REPORTED,
            )
    return None


# --- where it could run ---------------------------------------------------------------------------


def _target(vm: Object, cluster: Cluster) -> SchedulingTarget | None:
    try:
        target = start_candidates.start_target(vm, cluster)
    except Unseen:
        return None
    return start_doubts.without_broken_nodes(target, cluster)


def _unplaced(vm: Object, cluster: Cluster) -> Problem | None:
    """Return why no node takes the pod of a VM, or could attach its volumes."""
    target = _target(vm, cluster)
    found = unplaced.problem(vm, target, cluster) if target is not None else None
    if found is None:
        return _in_use(vm, target, cluster, certain=True) if target is not None else None
    reason = found.reason
    for ending in unplaced.PASSES:  # of a VM that waits for a node
        reason = reason.removesuffix(f". {ending}")
    return found._replace(reason=reason)


def doubt(vm: Object, cluster: Cluster) -> Problem | None:
    """Return why the start of a VM fails on some of the nodes that take its pod; None: nothing
    says so.
    """
    target = _target(vm, cluster)
    return _in_use(vm, target, cluster, certain=False) if target is not None else None


def _in_use(
    vm: Object, target: SchedulingTarget, cluster: Cluster, *, certain: bool
) -> Problem | None:
    """Return which claim of a VM a pod on another node uses, so that its volume cannot be attached
    where kube-scheduler may place the VM.

    ``certain``: it takes none of the nodes that could.
    """
    for claim, node, pods in _used(vm, cluster):
        chosen = target.placement.candidates
        others = sorted(set(chosen) - {node})
        if not others or (certain and (node in chosen or not target.placement.is_certain)):
            continue
        who = names(_user(pod, cluster) for pod in pods)
        where = names(others)
        then = f"only {where} can take it" if certain else f"kube-scheduler may choose {where}"
        reason = (
            f"{who} on {node} uses its claim {claim}, whose volume one node at a time can attach, "
            f"and {then}"
        )
        command = kubectl("describe", POD, pods[0].name, vms.namespace_of(vm))
        way = typed(f"wait until {who} has ended, or stop it", command)
        return Problem(reason, way, ProblemCause.NOT_REPORTED)
    return None


def _used(vm: Object, cluster: Cluster) -> Iterator[tuple[str, str, list[Object]]]:
    """Yield the claims of a VM whose volume one node alone may have, with that node and the pods
    there. A pod that is ending leaves it soon.
    """
    namespace = vms.namespace_of(vm)
    for claim in launcher_pod.claims(vms.vmi_spec(vm)):
        found = find(cluster, PVC, namespace, claim)
        if found is None or not volume_attachments.is_of_one_node(found):
            continue
        pods = [
            pod
            for pod in volume_attachments.users(namespace, claim, cluster)
            if pod.at("spec", "nodeName").text and not pod.deleted
        ]
        node = pods[0].at("spec", "nodeName").text if pods else None
        if node:
            yield claim, node, pods


def _user(pod: Object, cluster: Cluster) -> str:
    """Return what uses a claim: a VM, what has made a pod, else the pod."""
    vmi = vm_ledger.vmi_of(pod, cluster)
    if vmi is not None:
        return f"VM {vmi.full_name}"
    owner = next(iter(pod.metadata["ownerReferences"].items()), None)
    of = f" of {owner['kind'].text} {owner['name'].text}" if owner is not None else ""
    return f"pod {pod.name}{of}"
