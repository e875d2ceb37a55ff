"""Migrations of guests with the CPU model ``host-passthrough`` between different processors.

Such a guest has each feature and register of the processor of its node. KubeVirt selects no target
by its processor for it, and libvirt does not compare them, so QEMU on the target ends when it sets
the state of the guest. Sources: kubevirt/kubevirt:pkg/virt-controller/services/
nodeselectorrenderer.go#Render (no selector for this model); qemu/qemu:target/i386/kvm/kvm.c
#kvm_buf_set_msrs, #kvm_arch_put_registers; harvester/harvester#8298 and pull request 8425.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from virt_admit.forecasts.placement.common_model import common_model
from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, VM
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import cpu_models, migration_failures, vms
from virt_admit.model.kubevirt.settings.configuration import HOST_PASSTHROUGH
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates.rancher import repository_vms
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(repository_vms.READS, {NODE: ("metadata.labels",)})
_STATE: Final = re.compile(
    r"failed to set (?:MSR|XSAVE|XCR|special registers|CPUID)|kvm_buf_set_msrs"
    r"|error while loading state for instance 0x[0-9a-f]+ of device 'cpu(?:_common|/[a-z0-9_]+)?'",
    re.IGNORECASE,
)
"""What QEMU says where the processor of the target lacks what the guest has."""


def problem(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return that the nodes to which a VMI tried to migrate have another processor than its own;
    None: it failed for another reason, or their labels do not differ.
    """
    model = vmi.at("spec", "domain", "cpu", "model").text
    if model != HOST_PASSTHROUGH or not _STATE.search(failure):
        return None
    here = vmi.at("status", "nodeName").text or ""
    failed = migration_failures.in_a_row(vmi, cluster)
    targets = sorted({each.target for each in failed if _STATE.search(each.text)})
    own, theirs = _models(here, cluster), [_models(each, cluster) for each in targets]
    if not own or not theirs or not all(theirs) or own in theirs:
        return None
    alike = [name for name in _with_kubevirt(cluster) if _models(name, cluster) == own]
    alike = [name for name in alike if name != here]
    only = f" (only {names(alike)} has the same)" if alike else ""
    reason = (
        f"its CPU model {model} gives the guest the processor of {here} ({_words([own])}), and "
        f"{names(targets)} {'have' if len(targets) > 1 else 'has'} another one "
        f"({_words(theirs)}){only}: {cut_middle(failure, 160).rstrip('. ')}"
    )
    remedy = repository_vms.stopped(vmi, cluster) or _remedy(vmi, alike, cluster)
    return Problem(reason, remedy, ProblemCause.MIGRATION_FAILS)


def _models(node: str, cluster: Cluster) -> frozenset[str]:
    """Return what ``host-model`` means on a node; empty: not known."""
    found = find(cluster, NODE, "", node)
    labels = found.labels if found is not None else ()
    begin = cpu_models.HOST
    return frozenset(each.removeprefix(begin) for each in labels if each.startswith(begin))


def _with_kubevirt(cluster: Cluster) -> list[str]:
    return sorted(each.name for each in cluster.known(NODE) if SCHEDULABLE in each.labels)


def _words(models: Iterable[frozenset[str]]) -> str:
    return names(sorted(frozenset().union(*models)))


def _remedy(vmi: Object, alike: list[str], cluster: Cluster) -> str:
    """Return how a VM of an administrator leaves its node."""
    if alike:
        owner = vmi.owned_by(VM.kind)
        stop = virtctl("stop", owner, vms.namespace_of(vmi)) if owner else ""
        return typed("stop it for the drain", stop, f"or make room for it on {names(alike)}")
    model = common_model(cluster)
    which = f"set CPU model {model}, which all nodes offer," if model else "set a named CPU model"
    return f"{which} and restart the VM"
