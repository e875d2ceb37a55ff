"""A provisioner that fails with a claim: what it says, and which of its pods says it.

Its events name it as ``driver_pod_uid``
(kubernetes-csi/external-provisioner:cmd/csi-provisioner/csi-provisioner.go, identity). Some make a
volume by a pod in their own namespace
(rancher/local-path-provisioner:provisioner.go#createHelperPod).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.control import small_claims
from virt_admit.forecasts.drain.starts import foreign_clones
from virt_admit.forecasts.drain.starts.storage import (
    linstor_places,
    lost_sources,
    refused_modes,
    state_claims,
)
from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.drivers import refusing_storage, trident_backends
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence import forbidden_pods
from virt_admit.model.evidence.forbidden_pods import ForbiddenPod
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, POD, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, cut_middle
from virt_admit.model.problems import Problem, ProblemCause

_CHOSEN: Final = "volume.kubernetes.io/selected-node"
READS: Final[Reads] = union(
    clock.READS,
    foreign_clones.READS,
    lost_sources.READS,
    refused_modes.READS,
    state_claims.READS,
    small_claims.READS,
    forbidden_pods.READS,
    trident_backends.READS,
    {CEPH_CLUSTER: ("metadata.ownerReferences", "spec.storage.fullRatio", "status.ceph")},
    {
        STORAGE_CLASS: (),
        PVC: (
            f"metadata.annotations.{_CHOSEN}",
            "metadata.creationTimestamp",
            "spec.selector",
            "spec.storageClassName",
            "status.phase",
        ),
    },
)
_FAILED: Final = "ProvisioningFailed"
_RECENT: Final = timedelta(minutes=30)
"""A provisioner tries again, at the latest after five minutes."""
_LONGEST: Final = 200

_CLASS: Final = re.compile(r'^failed to provision volume with StorageClass "[^"]*": ')
"""The frame of an error. The remedy names the class."""


def of_state(pod: Object, cluster: Cluster) -> Problem | None:
    """Return why a pod waits for a claim of vTPM or EFI state, which no VM names; None: it does
    not, or that has just begun.
    """
    since = clock.ago(_RECENT, cluster)
    for claim in state_claims.of_pod(pod, cluster):
        if claim.at("status", "phase").text != "Pending":
            continue
        failed = _failed(claim, since, cluster) or _late(claim, cluster)
        if failed is not None:
            lasts = clock.lasting(claim.created, cluster)
            begin = f"claim {claim.name} of its vTPM or EFI state is Pending{lasts}"
            return failed._replace(reason=f"{begin}: {failed.reason}")
    return None


def _late(claim: Object, cluster: Cluster) -> Problem | None:
    """Return that a claim of such state is Pending for long though no node has to be chosen."""
    if not clock.has_lasted(claim.created, _PATIENCE, cluster):
        return None
    named = claim.at("spec", "storageClassName").text or ""
    storage_class = find(cluster, STORAGE_CLASS, "", named)
    if storage_class is None:
        if unlisted(cluster, STORAGE_CLASS):
            return None
        reason, remedy = f"StorageClass {named} does not exist", state_claims.remedy(claim, cluster)
        return Problem(reason, remedy, ProblemCause.NOT_REPORTED)
    if _waits_for_node(claim, storage_class):
        return None
    modes = " and ".join(each.text or "" for each in claim.at("spec", "accessModes").items())
    reason = (
        f"provisioner {storage_class['provisioner'].text or '?'} of class {named} has made no "
        f"volume with {modes} and volumeMode {claim.at('spec', 'volumeMode').text}"
    )
    return Problem(reason, _remedy(claim, storage_class, cluster), ProblemCause.NOT_REPORTED)


def _waits_for_node(claim: Object, storage_class: Object) -> bool:
    """Return whether no volume is made before a node is chosen for the first pod."""
    at_once = storage_class["volumeBindingMode"].text != "WaitForFirstConsumer"
    return not (at_once or claim.annotations.get(_CHOSEN))


def of_vm(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which claim that a VM names is refused by its provisioner; None: none,
    as far as is known.

    A claim of a data volume is judged with that.
    """
    names = (
        volume.at("persistentVolumeClaim", "claimName").text
        for volume in vms.vmi_spec(vm)["volumes"].items()
    )
    failed = of_claims(vms.namespace_of(vm), names, cluster)
    if failed is None:
        return None
    brief = f"its {failed.brief}" if failed.brief else ""
    return failed._replace(reason=f"its {failed.reason}", brief=brief)


def of_claims(namespace: str, names: Iterable[str | None], cluster: Cluster) -> Problem | None:
    """Return which of these claims is refused by its provisioner; None: none is known to be."""
    since = clock.ago(_RECENT, cluster)
    for name in names:
        claim = find(cluster, PVC, namespace, name)
        if claim is None or claim.at("status", "phase").text != "Pending":
            continue
        failed = _failed(claim, since, cluster)
        if failed is not None:
            begin = f"claim {claim.name} is Pending"
            brief = f"{begin}: {failed.brief}" if failed.brief else ""
            return failed._replace(reason=f"{begin}: {failed.reason}", brief=brief)
    return None


def of_filled(claim: Object, cluster: Cluster) -> Problem | None:
    """Return why a claim gets no volume, or the temporary one that CDI fills for it
    (``prime-UID``); None: not known.
    """
    prime = find(cluster, PVC, claim.namespace, f"prime-{claim.metadata['uid'].text}")
    since = clock.ago(_RECENT, cluster)
    found = (_failed(each, since, cluster) for each in (claim, prime) if each is not None)
    return next(filter(None, found), None)


def _failed(claim: Object, since: datetime | None, cluster: Cluster) -> Problem | None:
    """Return why a claim gets no volume; None: its provisioner has not failed, or is not known."""
    found = find(cluster, STORAGE_CLASS, "", claim.at("spec", "storageClassName").text)
    return problem(claim, found, since, cluster) if found is not None else None


def problem(
    claim: Object, storage_class: Object, since: datetime | None, cluster: Cluster
) -> Problem | None:
    """Return why a claim gets no volume; None: its provisioner has not failed since then."""
    said = _said(claim, since, cluster)
    if not said:
        return _full(claim, storage_class, cluster)
    lost = lost_sources.of(claim, said, cluster) or small_claims.of(claim, said, cluster)
    if lost is not None:
        way = typed(lost.remedy, lost.command)
        return Problem(lost.reason, way, ProblemCause.NOT_REPORTED, brief=lost.brief)
    if _SELECTOR.search(said) and claim.at("spec", "selector").is_map:
        return _selective(claim, storage_class)
    if (pod := forbidden_pods.of(said)) is not None:
        return _forbidden(claim, storage_class, pod, cluster)
    error = _CLASS.sub("", said)
    if (places := linstor_places.of(storage_class, error)) is not None:
        return places
    if refused := refused_modes.of(claim, storage_class, error, cluster):
        return refused._replace(cause=ProblemCause.NOT_REPORTED)
    if (offline := trident_backends.of_class(storage_class, error, cluster)) is not None:
        reason = f"Trident has no backend for class {storage_class.name}: {offline.reason}"
        return Problem(reason, offline.remedy, ProblemCause.NOT_REPORTED)
    why = cut_middle(error, _LONGEST)
    if (foreign := foreign_clones.of(claim, why, cluster)) is not None:
        return foreign
    if refusing_storage.HANGS.search(said):
        return _unanswered(claim, storage_class, why, cluster)
    return Problem(why, _remedy(claim, storage_class, cluster), ProblemCause.NOT_REPORTED)


def _said(claim: Object, since: datetime | None, cluster: Cluster) -> str:
    """Return the last error of the provisioner of a claim, but not that an earlier call runs."""
    last = events.last_warning(claim, _FAILED, since, cluster)
    if not refusing_storage.RUNS.search(last):
        return last
    said = (text for why, text in events.warnings(claim, None, cluster) if why == _FAILED)
    return next((text for text in said if not refusing_storage.RUNS.search(text)), last)


def _full(claim: Object, storage_class: Object, cluster: Cluster) -> Problem | None:
    """Return that a storage is full from which a claim is to get its volume for a while; None: no.

    Live clusters are not asked for events.
    """
    if not clock.has_lasted(claim.created, _PATIENCE, cluster):
        return None
    if _waits_for_node(claim, storage_class):
        return None
    fault = refusing_storage.of_class(storage_class, cluster)
    return fault._replace(cause=ProblemCause.NOT_REPORTED) if fault is not None else None


_PATIENCE: Final = timedelta(minutes=10)


def _unanswered(claim: Object, storage_class: Object, why: str, cluster: Cluster) -> Problem:
    """Return that the storage does not answer a provisioner, and its fault if it reports one."""
    driver = storage_class["provisioner"].text or "?"
    fault = refusing_storage.of_class(storage_class, cluster)
    waits = f"provisioner {driver} gets no answer from its storage"
    if fault is not None:
        reason = f"{fault.reason}, so {waits}: {why}"
        return Problem(reason, fault.remedy, ProblemCause.NOT_REPORTED, brief=fault.reason)
    pod = _provisioner(claim, driver, cluster)
    described = kubectl("describe", PVC, claim.name, claim.namespace)
    see = node_pods.logs(pod) if pod is not None else described
    of = f"the storage of class {storage_class.name}"
    words = f"see whether {of} works, is full, and can be reached"
    return Problem(f"{waits}: {why}", typed(words, see), ProblemCause.NOT_REPORTED)


def _remedy(claim: Object, storage_class: Object, cluster: Cluster) -> str:
    """Return where the cause of an error is to be found: the provisioner may be healthy."""
    driver = storage_class["provisioner"].text or "?"
    pod = _provisioner(claim, driver, cluster)
    command = (
        node_pods.logs(pod)
        if pod is not None
        else kubectl("describe", PVC, claim.name, claim.namespace)
    )
    words = (
        f"correct what provisioner {driver} refuses, in the claim, in class {storage_class.name} "
        "or in its storage"
    )
    return typed(f"{words}; its logs may say more", command)


_SELECTOR: Final = re.compile(r"claim Selector is not supported", re.IGNORECASE)
"""kubernetes-csi/external-provisioner:pkg/controller/controller.go#prepareProvision."""


def _selective(claim: Object, storage_class: Object) -> Problem:
    """Return that a provisioner makes no volume for a claim with a selector, which another
    controller may have written on purpose: it waits for a volume with these labels.
    """
    labels = claim.at("spec", "selector", "matchLabels").map
    listed = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    selector = cut(f"spec.selector {listed}" if listed else "spec.selector", _LONGEST)
    reason = (
        f"it waits for a PersistentVolume with the labels of its {selector}, because provisioner "
        f"{storage_class['provisioner'].text or '?'} makes none for a claim with a selector"
    )
    words = (
        "see which controller or user wrote that selector (managedFields), and let it make that "
        "volume. Without the selector the claim would get an empty one"
    )
    shown = kubectl("get", PVC, claim.name, claim.namespace, "-o", "yaml", "--show-managed-fields")
    return Problem(reason, typed(words, shown), ProblemCause.NOT_REPORTED)


def _forbidden(claim: Object, of: Object, forbidden: ForbiddenPod, cluster: Cluster) -> Problem:
    """Return that a provisioner cannot make the pod that makes the volume: mostly beside itself."""
    driver = of["provisioner"].text or "?"
    own = _provisioner(claim, driver, cluster)
    where = f" in namespace {own.namespace}" if own is not None else ""
    begin = f"provisioner {driver} cannot create its pod {forbidden.pod}".rstrip()
    why = cut_middle(forbidden.why, _LONGEST)
    reason = f'{begin}{where}, which violates PodSecurity "{forbidden.level}": {why}'
    described = kubectl("describe", PVC, claim.name, claim.namespace)
    if own is None:
        remedy = typed(f"label the namespace of that provisioner {forbidden_pods.LABEL}", described)
    elif forbidden_pods.is_allowed(own.namespace, cluster):
        reason = f"{reason}. That namespace allows it by now"
        remedy = typed("wait until the provisioner tries again", described)
    else:
        then = ", after which the next try makes the volume"
        remedy = forbidden_pods.remedy(own.namespace, then)
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED)


def _provisioner(claim: Object, driver: str, cluster: Cluster) -> Object | None:
    return _reporter(claim, cluster) or node_pods.controller_of(driver, cluster)


def _reporter(claim: Object, cluster: Cluster) -> Object | None:
    """Return the pod that reports the error, by the source of the event; None: it is not known."""
    own = (each for each in events.about(claim, None, cluster) if each["reason"].text == _FAILED)
    event = next(own, None)
    if event is None:
        return None
    component = event["reportingComponent"].text or event.at("source", "component").text or ""
    parts = component.split("_")[1:2]
    return next((pod for pod in cluster.known(POD) if pod.name in parts), None)
