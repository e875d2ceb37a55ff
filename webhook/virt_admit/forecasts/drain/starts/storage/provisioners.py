"""A provisioner that fails with a claim: what it says, and which of its pods says it.

Its events name it as ``driver_pod_uid``
(kubernetes-csi/external-provisioner:cmd/csi-provisioner/csi-provisioner.go, identity).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.starts.storage import lost_sources, refused_modes
from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    clock.READS,
    lost_sources.READS,
    refused_modes.READS,
    {STORAGE_CLASS: (), PVC: ("spec.storageClassName", "status.phase")},
)
_FAILED: Final = "ProvisioningFailed"
_RECENT: Final = timedelta(minutes=30)
"""A provisioner tries again, at the latest after five minutes."""
_LONGEST: Final = 200

_CLASS: Final = re.compile(r'^failed to provision volume with StorageClass "[^"]*": ')
"""The frame of an error. The remedy names the class."""


def of_vm(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which claim that a VM names is refused by its provisioner; None: none, as far as is known.

    A claim of a data volume is judged with that.
    """
    since = clock.ago(_RECENT, cluster)
    for volume in vms.vmi_spec(vm)["volumes"].items():
        name = volume.at("persistentVolumeClaim", "claimName").text
        claim = find(cluster, PVC, vms.namespace_of(vm), name) if name else None
        if claim is None or claim.at("status", "phase").text != "Pending":
            continue
        named = claim.at("spec", "storageClassName").text
        found = find(cluster, STORAGE_CLASS, "", named) if named else None
        failed = problem(claim, found, since, cluster) if found is not None else None
        if failed is not None:
            return failed._replace(reason=f"its claim {claim.name} is Pending: {failed.reason}")
    return None


def problem(claim: Object, storage_class: Object, since: datetime | None, cluster: Cluster) -> Problem | None:
    """Return why a claim gets no volume; None: its provisioner has not failed since then."""
    said = events.last_warning(claim, _FAILED, since, cluster)
    if not said:
        return None
    lost = lost_sources.of(claim, said, cluster)
    if lost is not None:
        return Problem(lost.reason, lost.remedy, ProblemCause.NOT_REPORTED)
    error = _CLASS.sub("", said)
    if refused := refused_modes.of(claim, storage_class, error, cluster):
        return Problem(refused.reason, refused.remedy, ProblemCause.NOT_REPORTED)
    why = cut_middle(error, _LONGEST)
    return Problem(why, _remedy(claim, storage_class, cluster), ProblemCause.NOT_REPORTED)


def _remedy(claim: Object, storage_class: Object, cluster: Cluster) -> str:
    """Return where the cause of an error is to be found: the provisioner may be healthy."""
    driver = storage_class["provisioner"].text or "?"
    pod = _reporter(claim, cluster) or node_pods.controller_of(driver, cluster)
    command = node_pods.logs(pod) if pod is not None else kubectl("describe", PVC, claim.name, claim.namespace)
    words = f"correct what provisioner {driver} refuses, in the claim, in class {storage_class.name} or in its storage"
    return typed(f"{words}; its logs may say more", command)


def _reporter(claim: Object, cluster: Cluster) -> Object | None:
    """Return the pod that reports the error, by the source of the event; None: it is not known."""
    own = (each for each in events.about(claim, None, cluster) if each["reason"].text == _FAILED)
    event = next(own, None)
    if event is None:
        return None
    component = event["reportingComponent"].text or event.at("source", "component").text or ""
    parts = component.split("_")[1:2]
    return next((pod for pod in cluster.known(POD) if pod.name in parts), None)
