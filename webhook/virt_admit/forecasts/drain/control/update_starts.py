"""Pods of the new release that do not start, for which an update of KubeVirt waits.

virt-operator makes a Job that writes the install strategy of the new release, waits for it without
end, also where it has failed, and replaces no component before. The Job and the components are
placed by ``spec.infra.nodePlacement``. Where that is not set, they demand a control-plane node,
which a cluster whose control plane runs elsewhere does not have.

The update ends once each Deployment that virt-operator manages has a ready pod of the new release
and no running one of another: also those that the release brings, such as virt-template of 1.9,
whose images a mirror may lack. Sources:
kubevirt/kubevirt:pkg/virt-operator/kubevirt.go#loadInstallStrategy,
:pkg/virt-operator/resource/apply/reconcile.go#Sync #virtTemplateDeploymentEnabled,
:pkg/virt-operator/util/readycheck.go#DeploymentIsReady,
:pkg/virt-operator/strategy_job.go#generateInstallStrategyJob,
:pkg/virt-operator/resource/placement/placement.go#InjectPlacementMetadata, issue 12390.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods, unpullable_images
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.commands import about, kubectl, merge_patch, nested, typed
from virt_admit.model.evidence import lost_pins
from virt_admit.model.evidence.lost_pins import LostPin
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    KUBEVIRT,
    POD,
    REPLICA_SET,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.settings import written_settings
from virt_admit.model.kubevirt.settings.running_release import may_be_managed
from virt_admit.model.kubevirt.settings.written_settings import WrittenSetting
from virt_admit.model.lookups import find, maker_of
from virt_admit.model.messages import capital, cut, cut_middle, names, shorten

_IDENTIFIER: Final = "kubevirt.io/install-strategy-identifier"
_HANDLER: Final = "virt-handler"
"""Its roll-out has rules of its own: ``kubevirt_updates``."""
_TEMPLATES: Final = "virt-template-"
_TEMPLATES_OFF: Final = ("spec", "configuration", "virtTemplateDeployment", "enabled")
_ROLES: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
READS: Final[Reads] = union(
    lost_pins.READS,
    {
        JOB: (
            f"metadata.annotations.{_IDENTIFIER}",
            *("metadata.creationTimestamp", "status.completionTime"),
            *(*CONDITIONS, "status.conditions.reason"),
        ),
        DEPLOYMENT: (
            f"metadata.annotations.{_IDENTIFIER}",
            *(f"status.{each}" for each in ("replicas", "readyReplicas", "updatedReplicas")),
        ),
        REPLICA_SET: ("metadata.ownerReferences",),
        POD: (
            f"metadata.annotations.{_IDENTIFIER}",
            *("metadata.labels", "metadata.ownerReferences", "metadata.creationTimestamp"),
            *("spec.affinity", "spec.nodeName", "status.phase", *CONDITIONS),
        ),
    },
)
_USUAL: Final = timedelta(minutes=20)
"""A pull of the images takes minutes, also on a slow line."""


class UnstartedPod(NamedTuple):
    """What keeps the first pods of an update from starting."""

    why: str
    remedy: str
    nodes: Sequence[str]
    brief: str
    """The reason in as few words as a finding has, with the remedy."""


def of(kubevirt: Object, cluster: Cluster) -> UnstartedPod | None:
    """Return which pod of the release to which a KubeVirt is updated does not start; None: none is
    known to.
    """
    target = kubevirt.at("status", "targetDeploymentID").text
    return next(_of(kubevirt, target, cluster), None) if target else None


def _of(kubevirt: Object, target: str, cluster: Cluster) -> Iterator[UnstartedPod]:
    jobs = [
        job
        for job in cluster.known(JOB, kubevirt.namespace)
        if _is_of(job, target) and not job.deleted and not job.at("status", "completionTime").text
    ]
    pods = [
        pod
        for pod in sorted(cluster.known(POD, kubevirt.namespace), key=lambda each: each.full_name)
        if not pod.deleted and not pod.ended
    ]
    for job in jobs:
        own = [pod for pod in pods if pod.owned_by(JOB.kind) == job.name]
        found = list(_unstarted(kubevirt, own, job, cluster))
        if not own and _is_late(job, cluster) and not unlisted(cluster, POD):
            found += _without_pod(job, cluster)
        for each in found:
            yield each._replace(
                why=f"{each.why}. virt-operator replaces nothing before that Job has succeeded"
            )
    yield from _deployments(kubevirt, pods, target, cluster)


def _deployments(
    kubevirt: Object, pods: Sequence[Object], target: str, cluster: Cluster
) -> Iterator[UnstartedPod]:
    """Yield which Deployments of the new release do not become ready, by their first pods."""
    found: dict[str, BrokenPod] = {}
    for pod in filter(lambda each: _is_late(each, cluster), pods):
        if pod.owned_by(JOB.kind) or pod.owned_by(DAEMON_SET.kind) == _HANDLER:
            continue
        above = maker_of(pod, cluster)
        name = (above["name"].text or "") if above is not None else ""
        own = find(cluster, DEPLOYMENT, pod.namespace, name)
        ours = own is not None and _is_of(own, target) and not own.deleted
        old = pod.annotations.get(_IDENTIFIER) not in (None, target)
        if old or not (ours or _is_of(pod, target)) or (own is not None and _is_done(own)):
            continue
        broken = broken_pods.of_pod(pod, cluster)
        if broken is not None:
            found.setdefault(own.name if own is not None else "", broken)
    for deployment, broken in found.items():
        unstarted = _of_pod(kubevirt, broken, None, cluster)
        yield unstarted if not deployment else _waits(kubevirt, unstarted, found, cluster)


def _is_done(deployment: Object) -> bool:
    """Return whether virt-operator counts a Deployment as ready, though one of its pods is not."""
    status = deployment.at("status")
    return bool(status["readyReplicas"].integer) and (
        status["replicas"].integer == status["updatedReplicas"].integer
    )


def _waits(
    kubevirt: Object, first: UnstartedPod, found: Mapping[str, BrokenPod], cluster: Cluster
) -> UnstartedPod:
    """Return that an update waits for Deployments whose pods do not start, the first as said."""
    known = sorted(filter(None, found))
    waits = f"waits for Deployment{'s' * (len(known) > 1)} {' and '.join(known)}"
    lacking = [name for name in known if _is_missing(found[name])]
    pods = [found[name].pod for name in lacking]
    images = sorted({each for pod in pods for each in unpullable_images.awaited(pod)})
    switch, off = _switch(kubevirt, known, cluster)
    remedy, brief = first.remedy, f"it {waits}: {first.brief}"
    if images and unpullable_images.UNNAMED in remedy and _INVALID not in first.why:
        others = [f"pod {found[name].pod.name}" for name in known if name not in lacking]
        also = f"then repair {names(others)}, which has another cause" if others else ""
        keys = [f"spec.{key}" for key in _OF_IMAGES if kubevirt.at("spec", key).text]
        named = f"or correct {' and '.join(keys)} of KubeVirt" if keys else ""
        put = f"put image{'s' * (len(images) > 1)} {' and '.join(images)} into the registry"
        see = kubectl("describe", DEPLOYMENT, lacking[0], kubevirt.namespace)
        further = "; ".join(filter(None, (also, named, off)))
        then = "" if others else ", after which the update goes on by itself"
        remedy = typed(f"{put}{then}", see, further)
        more = f" (and {len(images) - 1} more)" if len(images) > 1 else ""
        ways = ", ".join(filter(None, ("Put it into the registry", named, switch)))
        brief = f"it {waits}: image {cut_middle(images[0], 90)}{more} cannot be pulled. {ways}."
    elif off:
        remedy = f"{remedy}; {off}"
    return UnstartedPod(f"virt-operator {waits}: {first.why}", remedy, first.nodes, brief)


def _is_missing(broken: BrokenPod) -> bool:
    """Return whether a pod waits for an image that its registry does not have."""
    return unpullable_images.UNNAMED in broken.remedy and _INVALID not in broken.why


_INVALID: Final = "InvalidImageName"
_OF_IMAGES: Final = ("imageRegistry", "imageTag")


def _switch(kubevirt: Object, known: Sequence[str], cluster: Cluster) -> tuple[str, str]:
    """Return how Deployments are switched off without which the VMs run, in words, and with the
    command; empty: one is needed or in use, they are off, or HyperConverged would undo it.

    Their APIServices and webhooks go with them (pkg/virt-operator/util/config.go
    #VirtTemplateDeploymentEnabled).
    """
    own = [find(cluster, DEPLOYMENT, kubevirt.namespace, name) for name in known]
    if kubevirt.at(*_TEMPLATES_OFF).boolean is False:
        return "", ""
    if not all(map(_is_unused_template, own)) or may_be_managed(kubevirt, cluster):
        return "", ""
    words = (
        "or, if VirtualMachineTemplates are not needed, switch virt-template off, as Template in "
        "disabledFeatureGates does"
    )
    data = nested(_TEMPLATES_OFF, value=False)
    return words, typed(words, merge_patch(KUBEVIRT, kubevirt.name, kubevirt.namespace, data))


def _is_unused_template(deployment: Object | None) -> bool:
    """Return whether a Deployment is one of virt-template that serves no templates now."""
    return (
        deployment is not None
        and deployment.name.startswith(_TEMPLATES)
        and not deployment.at("status", "readyReplicas").integer
    )


def _is_of(obj: Object, target: str) -> bool:
    return obj.annotations.get(_IDENTIFIER) == target


def _is_late(obj: Object, cluster: Cluster) -> bool:
    age = clock.age(obj, cluster)
    return age is not None and age >= _USUAL


def _without_pod(job: Object, cluster: Cluster) -> Iterator[UnstartedPod]:
    """Yield that a Job has failed, or that its pod is refused: virt-operator waits for it."""
    failed = job.condition("Failed")
    refused = events.last_warning(job, "FailedCreate", None, cluster)
    begin = f"Job {job.name}, which writes its install strategy,"
    if failed["status"].text == "True":
        why = f"{begin} has failed ({failed['reason'].text or 'no reason'}); nothing repeats it"
        remedy = typed(
            "see why, then delete the Job, which virt-operator creates again",
            about("describe", job, JOB),
        )
        yield UnstartedPod(why, remedy, (), f"{shorten(why, 200)}. See why, then delete that Job.")
    elif refused:
        why = f"the pod of {begin.removesuffix(',')}, is not created: {shorten(refused, 200)}"
        remedy = typed("end what refuses it", about("describe", job, JOB))
        yield UnstartedPod(why, remedy, (), f"{shorten(why, 300)}. End what refuses it.")


def _unstarted(
    kubevirt: Object, pods: Iterable[Object], job: Object | None, cluster: Cluster
) -> Iterator[UnstartedPod]:
    """Yield why pods are not ready for long."""
    for pod in pods:
        broken = broken_pods.of_pod(pod, cluster) if _is_late(pod, cluster) else None
        if broken is not None:
            yield _of_pod(kubevirt, broken, job, cluster)


def _of_pod(
    kubevirt: Object, broken: BrokenPod, job: Object | None, cluster: Cluster
) -> UnstartedPod:
    """Return why a pod does not start: what it demands that no node has, else what it says."""
    pod = broken.pod
    pin = lost_pins.of_pod(pod, cluster)
    title = f"pod {pod.name} of the new release"
    if job is not None:
        title = f"pod {pod.name} of Job {job.name}, which writes its install strategy,"
    if pin is None:
        said = f": {broken.why}" if broken.why else ""
        why, node = f"{title} is not ready{broken.since}{said}", pod.at("spec", "nodeName").text
        return UnstartedPod(why, broken.remedy, (node,) if node else (), f"{shorten(why, 280)}.")
    setting, remedy = _placement(kubevirt, pin, job, cluster)
    why = f"{title} {pin.words}{setting}"
    what = f"Job {cut(job.name, 70)}" if job is not None else f"pod {cut(pod.name, 70)}"
    first = capital(remedy.partition(": kubectl")[0])
    then = ", then delete that Job" if job is not None else ""
    brief = f"{what} has no node: its pod {shorten(pin.words, 160)}{setting}. {first}{then}."
    return UnstartedPod(why, remedy, (), brief)


def _placement(
    kubevirt: Object, pin: LostPin, job: Object | None, cluster: Cluster
) -> tuple[str, str]:
    """Return which setting makes the demand, as the end of a clause, and what changes it."""
    place = written_settings.holder(WrittenSetting.INFRA, kubevirt, cluster)
    given = kubevirt.at("spec", "infra", "nodePlacement")
    by_default = not given.present and any(role in pin.words for role in _ROLES)
    field = place.words if place is not None else "spec.infra.nodePlacement"
    again = ""
    if job is not None:
        delete = about("delete", job, JOB)
        again = f"then delete that Job, which virt-operator creates again ({delete})"
    if by_default:
        label = f"or label the nodes that are to run KubeVirt's components {_ROLES[0]} instead"
        words = f"set {field} ({{}}: any node)"
        further = "; ".join(filter(None, (again, label)))
        command = place.patch({}) if place is not None else ""
        return f", as {field} is not set", typed(words, command, further)
    command = place.edit if place is not None else ""
    words = f"change {field}, or give a node what it demands"
    return f" ({field})", typed(words, command, again)
