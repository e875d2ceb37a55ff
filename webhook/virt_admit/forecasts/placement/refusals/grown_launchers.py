"""Launcher pods that have grown above the limit of their namespace since the VM started, and what a
migration needs then.

KubeVirt multiplies what virt-launcher needs by ``additionalGuestMemoryOverheadRatio``, which
Harvester writes from a setting (1.5 unless it is changed), and takes the value of the moment for
each new pod. Harvester adds one pod to a quota of Rancher for a migration, on top of the limit of
the namespace: a running pod that is larger than that limit leaves too little, until Harvester 1.9
adds the difference.
Sources: kubevirt/kubevirt:pkg/hypervisor (GetMemoryOverhead); harvester/harvester:pkg/util/
resourcequota/calculator.go#CalculateScaleResourceQuotaWithVMI
#CalculateCompensationResourceQuotaWithVMI, :pkg/webhook/resources/namespace/validator.go, issue
9753.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.refusals.exceeded_quotas import ExceededQuota
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NAMESPACE, NODE, VMIM
from virt_admit.model.kubernetes.nodes import HARVESTER, has_harvester
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.resources import MEMORY, amount, show

READS: Final[Reads] = {
    KUBEVIRT: (),
    NAMESPACE: (f"metadata.annotations.{quota_writers.BASE}",),
    NODE: (f"metadata.labels.{HARVESTER}",),
}
_RATIO: Final = "additionalGuestMemoryOverheadRatio"
_LIMIT: Final = f"limits.{MEMORY}"
_MIB: Final = 2**20
_BACK: Final = (
    "as a decision, put that ratio back, with which launchers get less memory, and restart the VM"
)


def of(
    vmi: Object, migration: Object | None, exceeded: ExceededQuota, cluster: Cluster
) -> Problem | None:
    """Return why the pod of a VMI no longer fits into its quota, with the limit that is enough;
    None: the ratio has no part in it, or the limit of the namespace has room for one pod.
    """
    asked, own = exceeded.requested.get(_LIMIT, 0), _own(vmi)
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    ratio = kubevirt.at("spec", "configuration", _RATIO).text if kubevirt is not None else None
    base = _base(exceeded.quota, cluster)
    if exceeded.quota is None or not ratio or not own or not base or not own < asked > base:
        return None
    namespace, lacks = exceeded.quota.namespace, exceeded.lacking.get(_LIMIT, 0)
    harvester = has_harvester(cluster)
    by = " by setting additional-guest-memory-overhead-ratio of Harvester" if harvester else ""
    reason = (
        f"; {show(MEMORY, asked - own)} of these are what virt-launcher needs besides the VM with "
        f"{_RATIO} {ratio} (KubeVirt spec.configuration{by}). One such pod is larger than the "
        f"{show(MEMORY, base)} of namespace {namespace} ({quota_writers.BASE}), so it has grown "
        "since the VM started"
    )
    least = f"{-(-(base + lacks) // _MIB)}Mi"
    ways = (
        f"raise limitsMemory of namespace {namespace} in its Rancher project from "
        f"{show(MEMORY, base)} to at least {least} (Rancher overwrites ResourceQuota "
        f"{exceeded.quota.name}), and migrate again; or {_BACK}"
    )
    ways += "; or update Harvester to 1.9 or later, which adds the difference" * harvester
    if migration is None or migrations.is_automatic(migration):
        return Problem(reason, f"once no migration of the namespace is open, {ways}")
    end = kubectl("delete", VMIM, migration.name, migration.namespace)
    first = "end the migration that waits, as Harvester refuses other limits until then"
    return Problem(reason, typed(first, end, f"then {ways}"))


def _own(vmi: Object) -> int:
    """Return the limit on memory that the VM itself has; 0: it has none."""
    said = vmi.at("spec", "domain", "resources", "limits", MEMORY).text
    return amount(MEMORY, said) if said else 0


def _base(quota: Object | None, cluster: Cluster) -> int:
    """Return the limit on memory of the namespace, into which Harvester adds; 0: not known."""
    if (
        quota is None
        or not quota_writers.is_of_rancher(quota)
        or not quota_writers.is_raised(quota)
    ):
        return 0
    namespace = find(cluster, NAMESPACE, "", quota.namespace)
    said = namespace.annotations.get(quota_writers.BASE) if namespace is not None else None
    return amount(MEMORY, Field(json_codec.embedded(said)).at("limit", "limitsMemory").value)
