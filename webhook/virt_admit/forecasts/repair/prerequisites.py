"""What copies of disks need before them: settings of KubeVirt, and room in storage quotas.

Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#getUpdateData;
pkg/virt-controller/watch/vm/vm.go#handleVolumeUpdateRequest; k8s.io/kubernetes
pkg/quota/v1/evaluator/core/persistent_volume_claims.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.placement import quotas
from virt_admit.forecasts.repair import disk_sizes, queries, repair_plan
from virt_admit.forecasts.repair.found_problems import limits_owner
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, MIGRATION_POLICY, RESOURCE_QUOTA, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_timeouts
from virt_admit.model.kubevirt.settings import configuration, live_updates
from virt_admit.model.lookups import find

PREFIX: Final = "before-copies:"
_COPY_LABEL: Final = "virt-admit.io/copy"


def added(
    steps: Sequence[repair_plan.RepairStep], cluster: Cluster
) -> list[repair_plan.RepairStep]:
    """Return the steps with those that copies need, and with the ids of these in ``needs``."""
    result = [step for step in steps if not step.copies]
    copying = [step for step in steps if step.copies]
    general = list(_general(cluster)) if copying else []
    used: Counter[tuple[str, str]] = Counter()
    quota_steps: dict[str, repair_plan.RepairStep] = {}
    for step in copying:
        raised = list(_quotas(step.copies, used, cluster))
        quota_steps |= {each.id: each for each in raised}
        policies = list(_policy(step, cluster))
        result += policies
        needed = [each.id for each in (*general, *raised, *policies)]
        cost = replace(
            step.cost, quota_gib=max((each.cost.quota_gib for each in raised), default=0)
        )
        result.append(replace(step, cost=cost, needs=tuple(dict.fromkeys((*step.needs, *needed)))))
    return [*general, *quota_steps.values(), *result]


def _general(cluster: Cluster) -> Iterator[repair_plan.RepairStep]:
    subject = limits_owner(cluster)
    found = find(cluster, *subject)
    if found is not None and workload_updates.LIVE_MIGRATE not in workload_updates.methods(found):
        field = workload_updates.listed(found)
        value = [*(item.value for item in field.items()), workload_updates.LIVE_MIGRATE]
        risk = "KubeVirt also migrates VMs with an outdated launcher"
        edit = repair_plan.FieldEdit(tuple(field.path), value)
        yield _setting(subject, "methods", "add LiveMigrate to workloadUpdateMethods", edit, risk)
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    if kubevirt is not None and live_updates.is_staged(cluster):
        risk = (
            "changes that were staged for VMs with this strategy may take effect at once: look at "
            "RestartRequired"
        )
        owner = repair_plan.ObjectRef.of(KUBEVIRT, kubevirt)
        edit = repair_plan.FieldEdit(live_updates.STRATEGY, "LiveUpdate")
        yield _setting(owner, "rollout", "set vmRolloutStrategy LiveUpdate", edit, risk)


def _setting(
    subject: repair_plan.ObjectRef, name: str, title: str, edit: repair_plan.FieldEdit, risk: str
) -> repair_plan.RepairStep:
    return repair_plan.RepairStep(
        id=f"{PREFIX}{name}",
        stage=repair_plan.PlanStage.SETTINGS,
        title=title,
        subject=subject,
        changes=(repair_plan.ObjectChange(subject, repair_plan.Command.PATCH, (edit,)),),
        verify=(queries.check("the setting is written", subject, [edit]),),
        risk=risk,
    )


# --- storage quotas -------------------------------------------------------------------------------


def _quotas(
    copies: Iterable[repair_plan.DiskCopy], used: Counter[tuple[str, str]], cluster: Cluster
) -> Iterator[repair_plan.RepairStep]:
    """Yield a step for each quota that the copies so far do not fit into.

    ``used`` has what they take, by quota.
    """
    found = list(copies)
    for quota in cluster.known(RESOURCE_QUOTA, found[0].namespace):
        if quota.at("spec", "scopes").present or quota.at("spec", "scopeSelector").present:
            continue
        hard = quotas.hard_limits(quota)
        for name, more in _usage(found, cluster).items():
            used[quota.full_name, name] += more
        edits = [
            repair_plan.FieldEdit(("spec", "hard", name), disk_sizes.quantity(needed))
            for name, limit in sorted(hard.items())
            if used[quota.full_name, name]
            and (needed := _used(quota, name) + used[quota.full_name, name]) > limit
        ]
        if edits:
            yield _raised(quota, edits, hard)


def _raised(
    quota: Object, edits: list[repair_plan.FieldEdit], hard: Mapping[str, int]
) -> repair_plan.RepairStep:
    subject = repair_plan.ObjectRef.of(RESOURCE_QUOTA, quota)
    words = ", ".join(f"{edit.path[-1]} to {edit.value}" for edit in edits)
    more = max(
        (
            disk_sizes.parsed(edit.value) - hard[str(edit.path[-1])]
            for edit in edits
            if "storage" in str(edit.path[-1])
        ),
        default=0,
    )
    return repair_plan.RepairStep(
        id=f"{PREFIX}quota:{subject.full_name}",
        stage=repair_plan.PlanStage.QUOTAS,
        title=f"raise {words}",
        subject=subject,
        cost=repair_plan.StepCost(repair_plan.CostClass.NOTHING, quota_gib=disk_sizes.gib(more)),
        changes=(repair_plan.ObjectChange(subject, repair_plan.Command.PATCH, tuple(edits)),),
        verify=(queries.in_force(subject, edits),),
        risk=(
            "the tenant keeps the old disks until its owner removes them; the limit can be set "
            "back then"
        ),
    )


def _usage(copies: Iterable[repair_plan.DiskCopy], cluster: Cluster) -> Mapping[str, int]:
    """Return what a quota counts for new claims."""
    counted: Counter[str] = Counter()
    for copy in copies:
        size = disk_sizes.of_claim(copy, cluster)
        by_class = f"{copy.storage_class}.storageclass.storage.k8s.io"
        counted.update({"requests.storage": size, f"{by_class}/requests.storage": size})
        claims = (
            "persistentvolumeclaims",
            "count/persistentvolumeclaims",
            f"{by_class}/persistentvolumeclaims",
        )
        counted.update(dict.fromkeys(claims, 1))
    return counted


def _used(quota: Object, name: str) -> int:
    return disk_sizes.parsed(quota.at("status", "used").map.get(name, "0"))


# --- time -----------------------------------------------------------------------------------------


def _policy(step: repair_plan.RepairStep, cluster: Cluster) -> Iterator[repair_plan.RepairStep]:
    """Yield the migration policy without which a copy never ends:
    its limit is memory and disks × seconds per GiB.
    """
    vmi = find(cluster, VMI, step.subject.namespace, step.subject.name)
    settings = migration_timeouts.settings(vmi, vmi["-"], cluster) if vmi is not None else None
    if vmi is None or settings is None or not settings.completion:
        return
    bandwidth = settings.bandwidth
    if not bandwidth or bandwidth * settings.completion >= disk_sizes.GIB:
        return
    seconds = -(-disk_sizes.GIB * 3 // (int(bandwidth) * 2 or 1))
    name = f"virt-admit-copy-{step.subject.namespace}-{step.subject.name}"[:63].rstrip("-.")
    label = {_COPY_LABEL: step.subject.name[:63].rstrip("-.")}
    policy = repair_plan.ObjectRef(MIGRATION_POLICY, "", name)
    manifest = {
        "apiVersion": MIGRATION_POLICY.api_version,
        "kind": MIGRATION_POLICY.kind,
        "metadata": {"name": name},
        "spec": {
            "completionTimeoutPerGiB": seconds,
            "selectors": {
                "namespaceSelector": {"kubernetes.io/metadata.name": step.subject.namespace},
                "virtualMachineInstanceSelector": label,
            },
        },
    }
    own = repair_plan.ObjectRef(VMI, step.subject.namespace, step.subject.name)
    edit = repair_plan.FieldEdit(("metadata", "labels", _COPY_LABEL), label[_COPY_LABEL])
    yield repair_plan.RepairStep(
        id=f"{PREFIX}time:{step.subject.full_name}",
        stage=repair_plan.PlanStage.SETTINGS,
        title=f"allow its copy {seconds} seconds for each GiB",
        subject=policy,
        changes=(
            repair_plan.ObjectChange(policy, repair_plan.Command.APPLY, manifest=manifest),
            repair_plan.ObjectChange(own, repair_plan.Command.PATCH, (edit,)),
        ),
        verify=(queries.check("the VMI has the label", own, [edit]),),
    )
