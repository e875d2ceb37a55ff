"""A Plan of Forklift (Migration Toolkit for Virtualization) cannot be started.

**Why.** A condition of category Critical or Error keeps the Plan from becoming Ready: none of its
VMs can be migrated, also those that the condition does not name. No event says so, and the other
objects of the migration are Ready. The trial of the VDDK image does so as well until it ends, and
it never does if its Job gets no pod.

**Fix.** Correct what the condition names. What only a warm migration demands, a cold one does not:
its VMs are shut down while their disks are copied. A VDDK image is pulled by a pod in the target
namespace of the Plan, with the pull secrets of the service account of that pod. A ResourceQuota
there that demands requests or limits refuses the pods of Forklift before 2.7.7, which sets none,
unless a LimitRange has defaults.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.model import vddk_validators
from virt_admit.model.commands import about, kubectl
from virt_admit.model.evidence import demanding_quotas, status_errors
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.kinds import FORKLIFT_PLAN, JOB, RESOURCE_QUOTA
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.messages import cut_middle, ended, names
from virt_admit.model.vddk_validators import UnpulledImage
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, Urgency, rule

_BLOCKS: Final = ("Critical", "Error")
_OVER: Final = frozenset(("Archived", "Executing", "Succeeded"))
"""The Plan needs no start any more."""
_VM: Final = re.compile(r"id:(\S*)(?: name:'([^']*)')?")
"""How Forklift names a VM of the source (pkg/apis/forklift/v1beta1/ref/ref.go#String)."""
_OF_WARM: Final = frozenset(
    (
        "NetAppShiftWarmNotSupported",
        "VMHasSnapshots",
        "VMMissingChangedBlockTracking",
        "WarmMigrationNotReady",
    )
)
_TRIAL: Final = "ValidatingVDDK"
_PATIENCE: Final = timedelta(hours=1)
"""To pull an image and to look at one file takes minutes."""
_NOT_PULLED: Final = "VDDKInitImageUnavailable"
_REMEDIES: Final = {
    "NetworkMapNotReady": "Repair the NetworkMap{network}",
    "StorageMapNotReady": "Repair the StorageMap{storage}",
    "VDDKInitImageUnavailable": "Correct settings.vddkInitImage of the Provider{source}",
    "VDDKInvalid": "Set an image with the VDDK in settings.vddkInitImage of the Provider{source}",
    "VMAlreadyExists": "Give it another name in the Plan, or take it out of the Plan",
    "VMHasSnapshots": "Remove its snapshots at the source",
    "VMMissingChangedBlockTracking": "Enable Changed Block Tracking of this VM in vSphere",
    "VMNetworksNotMapped": "Map its networks in the NetworkMap{network}",
    "VMStorageNotMapped": "Map its storage in the StorageMap{storage}",
}


@rule(
    kinds=(FORKLIFT_PLAN,),
    reads=union(clock.READS, vddk_validators.READS, demanding_quotas.READS, {FORKLIFT_PLAN: ()}),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubev2v/forklift:pkg/controller/plan/validation.go",
        "kubev2v/forklift:pkg/lib/condition/condition.go#HasBlockerCondition",
    ),
)
def check(plan: Object, context: Context) -> Findings:
    conditions = plan.at("status", "conditions").items()
    given = [each for each in conditions if each["status"].text == "True"]
    if plan.at("spec", "archived").boolean or any(each["type"].text in _OVER for each in given):
        return
    unpulled = any(each["type"].text == _NOT_PULLED for each in given)
    for each in given:
        if each["type"].text == _TRIAL:  # it goes on while the image cannot be pulled
            yield from _of_trial(plan, each, context) if not unpulled else ()
        elif each["category"].text in _BLOCKS:
            since = clock.lasting(each["lastTransitionTime"].text, context.cluster)
            path, kind = each["type"].path, each["type"].text
            image = vddk_validators.unpulled(plan, context.cluster) if kind == _NOT_PULLED else None
            command = image.command if image is not None else about("describe", plan, FORKLIFT_PLAN)
            texts = (
                _of_image(plan, image, since) if image is not None else _texts(plan, each, since)
            )
            yield Finding(path, check.first_that_fits(path, *texts), value=kind, command=command)


def _of_trial(plan: Object, condition: Field, context: Context) -> Findings:
    """Yield that the trial of the VDDK image does not end, with what keeps its Job."""
    cluster, since = context.cluster, condition["lastTransitionTime"].text
    job = vddk_validators.job(plan, cluster)
    if not clock.has_lasted(since, _PATIENCE, cluster):
        return
    begin = f"migrations of Plan {plan.name} cannot start ({_TRIAL}{clock.lasting(since, cluster)})"
    quota = demanding_quotas.of_job(job, cluster) if job is not None else None
    if quota is not None and job is not None:
        command = kubectl("describe", RESOURCE_QUOTA, quota.quota, quota.namespace)
        add = "Add one with defaults that are enough for the VMs there"
        newer = f"{add}, or install Forklift 2.7.7 or later, whose pods set them"
        texts = [
            f"{begin}: Job {job.full_name} has no pod, as {quota.brief}. {newer}",
            f"{begin}: {quota.brief}. {add}, or a newer Forklift",
            f"{begin}: {quota.brief}. {add}",
        ]
    elif job is not None:
        command = about("describe", job, JOB)
        why = next((said for _, said in events.warnings(job, None, cluster)), "")
        told = f": {cut_middle(status_errors.plain(why), 90).rstrip('.')}" if why else ""
        is_over = job.is_true("Complete") or job.is_true("Failed")
        what, way = (
            ("has ended", "See the log of forklift-controller")
            if is_over
            else ("does not end", "Repair it")
        )
        texts = [f"{begin}: Job {job.full_name} {what}{each}. {way}" for each in (told, "")]
    else:
        command = about("describe", plan, FORKLIFT_PLAN)
        texts = [f"{begin}: Forklift tries the VDDK image, and no Job of it is known"]
    path = condition["type"].path
    message = check.first_that_fits(path, *map(ended, texts))
    yield Finding(path, message, value=_TRIAL, command=command)


def _of_image(plan: Object, image: UnpulledImage, since: str) -> Iterator[str]:
    for reason in image.reasons:
        begin = f"migrations of Plan {plan.name} cannot start ({_NOT_PULLED}{since})"
        yield f"{begin}, as {reason}. {image.remedy}"


def _texts(plan: Object, condition: Field, since: str) -> Iterator[str]:
    """Yield the message, the longest form first."""
    kind, items = condition["type"].text or "?", list(_items(condition))
    message = condition["message"].text or condition["reason"].text or ""
    said = " ".join(message.split()).rstrip(".")
    remedy = _remedy(plan, kind, condition["suggestion"].text or "")
    for length, width in ((240, 120), (120, 80), (60, 40)):
        about_them = f"names {names(items, width)}" if items else "is True"
        words = f": {cut_middle(said, length)}" if said else ""
        yield (
            f"its migrations cannot start, as condition {kind} {about_them}{since}{words}. {remedy}"
        )
    yield f"its migrations cannot start, as condition {kind} is True. {remedy}"


def _items(condition: Field) -> Iterator[str]:
    """Yield what a condition is about, VMs as ``VM web (vm-12)``."""
    for each in condition["items"].items():
        text = (each.text or "").strip()
        found = _VM.search(text)
        identity, name = (found[1], found[2] or "") if found is not None else ("", "")
        named = f"{name} ({identity})" if name and identity else name or identity
        yield f"VM {named}" if named else text


def _remedy(plan: Object, kind: str, suggestion: str) -> str:
    maps = {which: _named(plan, "map", which) for which in ("network", "storage")}
    maps["source"] = _named(plan, "provider", "source")
    known = _REMEDIES.get(kind, "Correct that at the source or in the Plan")
    words = suggestion or known.format(**maps)
    if kind in _OF_WARM and _is_warm(plan):
        cold = "spec.type: cold" if plan.at("spec", "type").text else "spec.warm: false"
        words = f"{words.rstrip('.')}, or migrate cold, with {cold}"
    return ended(words)


def _named(plan: Object, *keys: str) -> str:
    """Return the full name of an object that a Plan names, after a space."""
    found = plan.at("spec", *keys)
    name = found["name"].text
    return f" {found['namespace'].text or plan.namespace}/{name}" if name else ""


def _is_warm(plan: Object) -> bool:
    return bool(plan.at("spec", "warm").boolean) or plan.at("spec", "type").text == "warm"
