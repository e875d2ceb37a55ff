"""The pods with which CDI fills a disk, and those that are ended for their use of memory.

A copy by pods writes to a claim ``tmp-pvc-UID`` next to the source: a pod there receives the data,
and a pod with the name ``UID-source-pod`` sends it. CDI gives all of them the same limit, 600M
unless it is set; slow storage fills it with pages that wait to be written. A pod that is restarted
keeps its limit. HyperConverged writes the CDI object. Sources:
kubevirt/containerized-data-importer:pkg/controller/clone/planner.go#createDesiredClaim,
:pkg/controller/clone-controller.go,
:pkg/controller/config-controller.go#reconcileDefaultPodResourceRequirements, issue #2110;
kubevirt/hyperconverged-cluster-operator:controllers/handlers/cdi.go#NewCDI, issue #3472.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.starts import waiting_disks
from virt_admit.forecasts.drain.starts.storage import scratch_claims
from virt_admit.forecasts.drain.starts.storage.fill_remedies import ADDRESS, CERTIFICATE
from virt_admit.forecasts.drain.starts.storage.partial_images import TOO_LARGE, maker, upgrade_of
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.commands import (
    about,
    argument,
    json_patch,
    kubectl,
    merge_patch,
    nested,
    shell,
    typed,
)
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    CDI,
    DATA_VOLUME,
    HARVESTER_UPGRADE,
    HCO,
    POD,
    PVC,
    STORAGE_CLASS,
    VM,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.running_release import may_be_managed
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import count, scheduler_words
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pods import claim_names
from virt_admit.model.scheduler.resources import amount, show

READS: Final[Reads] = {
    CDI: (),
    HCO: (),
    DATA_VOLUME: ("spec.source", "spec.storage", "status.claimName"),
    PVC: (
        "metadata.uid",
        "spec.resources.requests.storage",
        "spec.storageClassName",
        "status.phase",
    ),
    STORAGE_CLASS: (),
    POD: (
        *CONDITIONS,
        "status.conditions.message",
        "metadata.labels",
        "spec.containers.name",
        "spec.containers.resources",
        "spec.nodeName",
        "spec.volumes.persistentVolumeClaim.claimName",
        "status.containerStatuses.name",
        "status.containerStatuses.restartCount",
        "status.containerStatuses.lastState.terminated",
        "status.containerStatuses.state.running",
        "status.containerStatuses.state.terminated",
    ),
}
_APP: Final = "containerized-data-importer"
_COPY: Final = "tmp-pvc-"
_SENDER: Final = "-source-pod"
_KILLED: Final = "OOMKilled"
_MAY_END: Final = 1
"""A pod that was restarted once and runs again may fill the disk now."""


class FillingPods(NamedTuple):
    """What CDI works with to fill a disk."""

    claims: tuple[str, ...]
    """Those of its namespace, its own first."""
    pods: tuple[Object, ...]


def of_disk(disk: Object, own: str, cluster: Cluster) -> FillingPods:
    """Return the pods of CDI that fill a data volume with the claim ``own``,
    and the claims that they need.
    """
    uid, known = _uid(disk.namespace, own, cluster), _of_cdi(cluster)
    targets = (own, f"prime-{uid}") if uid else (own,)
    filling = [pod for name in targets for pod in known.get((disk.namespace, name), ())]
    copy = f"{_COPY}{uid}" if uid else ""
    filling += known.get(("", copy), ())
    uids = {uid, *(_uid(pod.namespace, copy, cluster) for pod in filling if copy)} - {""}
    filling += [pod for each in sorted(uids) for pod in known.get(("", f"{each}{_SENDER}"), ())]
    needed = (
        name for pod in filling if pod.namespace == disk.namespace for name in claim_names(pod)
    )
    pods = {pod.full_name: pod for pod in filling}  # one may use several of the claims
    return FillingPods(tuple(dict.fromkeys((*targets, *needed))), tuple(pods.values()))


def killed(disk: Object, pods: Sequence[Object], begin: str, cluster: Cluster) -> Problem | None:
    """Return which pod that fills a disk is ended for its use of memory,
    and where its limit is set; None: none is.

    ``begin``: the words about the disk.
    """
    for pod in pods:
        for status in pod.at("status", "containerStatuses").items():
            if not _is_killed(status):
                continue
            limit = broken_pods.limit_of(pod, status["name"].text or "")
            again = status["restartCount"].integer or 0
            times = f", and restarted {count(again, 'time')}" if again else ""
            at = f"at its limit of {limit}" if limit else "without a limit of its own"
            why = (
                f"pod {pod.full_name} was ended for lack of memory {at} ({_KILLED}, exit code "
                f"137){times}"
            )
            then = _begin_again(disk, pod, cluster)
            least = _whole_image(disk, pod, cluster)
            remedy = _raise_limit(limit, least, then, cluster) if limit else _free_memory(pod)
            brief = f"pod {pod.name} was {_KILLED} {at}"
            return Problem(f"{begin}: {why}", remedy, ProblemCause.NOT_REPORTED, brief=brief)
    return None


def unplaced(pods: Sequence[Object], begin: str, cluster: Cluster) -> Problem | None:
    """Return that a pod which fills a disk has no node: its claim has no volume yet, or no node
    takes it; None: it has one.

    Source of the words:
    kubernetes/kubernetes:pkg/scheduler/framework/plugins/volumebinding/volume_binding.go.
    """
    for pod in pods:
        placed = pod.condition("PodScheduled")
        said = placed["message"].text or ""
        if pod.at("spec", "nodeName").text or placed["status"].text != "False" or not said:
            continue
        if scratch_claims.awaited(pod, cluster):
            if unmade := scratch_claims.problem(pod, begin, cluster):
                return unmade
            continue  # CDI has just begun
        if _UNBOUND not in said:
            why = (
                f"kube-scheduler finds no node for pod {pod.name}: "
                f"{scheduler_words(said, _LONGEST)}"
            )
            words = "make room for that pod on a node, or let a node take it"
            return Problem(
                f"{begin}: {why}",
                typed(words, about("describe", pod, POD)),
                ProblemCause.NOT_REPORTED,
            )
        found = (find(cluster, PVC, pod.namespace, name) for name in claim_names(pod))
        claim = next(
            (
                each
                for each in found
                if each is not None and each.at("status", "phase").text == "Pending"
            ),
            None,
        )
        if claim is not None:
            why = (
                f"pod {pod.name} waits for claim {claim.name}, which gets no volume, and nothing "
                "that was read says why"
            )
            driver = _provisioner(claim, cluster)
            words = f"see the events of that claim, and what its provisioner{driver} logs"
            return Problem(
                f"{begin}: {why}",
                typed(words, about("describe", claim, PVC)),
                ProblemCause.NOT_REPORTED,
            )
    return None


_UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
_LONGEST: Final = 200


def _provisioner(claim: Object, cluster: Cluster) -> str:
    named = claim.at("spec", "storageClassName").text
    provisioner = fields(cluster, STORAGE_CLASS, "", named)["provisioner"].text
    return f" {provisioner}" if provisioner else ""


def _is_killed(status: Field) -> bool:
    """Return whether a container was ended for its use of memory,
    and has neither ended well nor works again since.
    """
    ended, again = status.at("state", "terminated"), status["restartCount"].integer or 0
    if ended.is_map:
        return ended["reason"].text == _KILLED
    works = status.at("state", "running").is_map and again <= _MAY_END
    return status.at("lastState", "terminated", "reason").text == _KILLED and not works


def _free_memory(pod: Object) -> str:
    node = pod.at("spec", "nodeName").text or ""
    words = f"free memory on {node}" if node else "free memory on its node"
    return typed(words, shell("kubectl", "describe", "node", argument(node)) if node else "")


def _begin_again(disk: Object, pod: Object, cluster: Cluster) -> str:
    """Return what makes a pod with a new limit: for the image of an upgrade, a new claim too.

    The old one may have a part of the image, which CDI counts as used space
    (harvester/docs:docs/upgrade/v1-7-x-to-v1-7-y.md; :storage/partial_images.py).
    """
    if (upgrade := upgrade_of(disk, cluster)) is not None:
        ends = kubectl("delete", HARVESTER_UPGRADE, upgrade.name, upgrade.namespace)
        return (
            f"stop Upgrade {upgrade.name} with its image and claims, as a part of the image that "
            f"is left there makes a further attempt fail ({ends}), and start it again"
        )
    delete = shell("kubectl", "delete", "pod", argument(pod.name), "-n", pod.namespace)
    repeat = ", and repeat the upload, which does not go on by itself" if _is_upload(disk) else ""
    return f"let CDI make this pod again with it ({delete}){repeat}"


def _is_upload(disk: Object) -> bool:
    return disk.at("spec", "source", "upload").is_map


def _whole_image(disk: Object, pod: Object, cluster: Cluster) -> str:
    """Return that an upload to NFS may need a limit above the size of the image; empty: it goes
    elsewhere.

    Source: issue kubevirt/containerized-data-importer#3557.
    """
    if not _is_upload(disk):
        return ""
    claims = (find(cluster, PVC, pod.namespace, name) for name in claim_names(pod))
    for claim in claims:
        if claim is not None and "nfs" in _provisioner(claim, cluster):
            named = claim.at("spec", "storageClassName").text
            return (
                " and above the size of the image, which the pages that wait to be written to NFS "
                f"(StorageClass {named}) reach on some kernels"
            )
    return ""


def _raise_limit(limit: str, least: str, then: str, cluster: Cluster) -> str:
    """Return how to give the pods of CDI more memory.

    What an administrator writes into CDI, HyperConverged reverts. ``least``: how much more, which
    no value tells; ``then``: the step after that.
    """
    hco = configuration.known_or_none(configuration.hyperconverged, cluster)
    cdi = next(iter(cluster.known(CDI)), None)
    if hco is not None:
        path = _OF_V1 if hco.data.get("apiVersion") == "hco.kubevirt.io/v1" else _OF_V1BETA1
        title = "HyperConverged"
        owner, kind, also = hco, HCO, ", which writes the CDI object"
    elif cdi is not None and not may_be_managed(cdi, cluster):
        path, title, owner, kind, also = _OF_CDI_OBJECT, "CDI", cdi, CDI, ""
    else:
        field = f"{'.'.join(_OF_CDI_OBJECT)}.limits.memory of CDI"
        also = "(or in HyperConverged, if one writes the CDI object)"
        return f"raise {field} above {limit}{least} {also}; then {then}"
    more = "" if least else _ENOUGH if limit == _DEFAULT else _twice(limit)
    example = f", such as {more}" if more else ""
    words = (
        f"raise {'.'.join(path)}.limits.memory of {title} {owner.name}{also}, above "
        f"{limit}{least}{example}"
    )
    data = nested((*path, "limits", "memory"), more)
    return typed(
        words,
        merge_patch(kind, owner.name, owner.namespace, data)
        if more
        else about("edit", owner, kind),
        f"then {then}",
    )


_OF_V1: Final = ("spec", "storage", "workloadResourceRequirements")
_OF_V1BETA1: Final = ("spec", "resourceRequirements", "storageWorkloads")
_OF_CDI_OBJECT: Final = ("spec", "config", "podResourceRequirements")
_QUANTITY: Final = re.compile(r"([0-9]{1,12})([KMGT]?i?)")


_DEFAULT: Final = "600M"
"""The limit that CDI's pods have without a setting."""
_ENOUGH: Final = "2G"
"""What Harvester has set since (harvester/harvester#10694), as qemu-img buffers more than the
default while a volume is slow."""


def _twice(limit: str) -> str:
    """Return twice a limit in the same unit; empty: it is not a plain one."""
    found = _QUANTITY.fullmatch(limit)
    return f"{2 * int(found[1])}{found[2]}" if found else ""


# --- a disk that is too small for its image -------------------------------------------------------


_MI: Final = 1 << 20
_GI: Final = 1 << 30


def larger(why: str, vm: Object, disk: Object, cluster: Cluster) -> str:
    """Return how to give a disk the size that its image needs; empty:
    a pod of CDI fails for another cause.

    A claim of ``spec.pvc`` has to hold the overhead of its filesystem, too; to that of
    ``spec.storage`` CDI adds it. CDI never enlarges a claim that exists, so the disk is made again.
    Sources: kubevirt/containerized-data-importer: doc/storageprofile.md,
    pkg/image/qemu.go#Validate, pkg/util/util.go#GetUsableSpace.
    """
    found = TOO_LARGE.search(why)
    if found is None:
        return ""
    image, usable = int(found[1]), int(found[2])
    claim = waiting_disks.claim_of(disk, cluster)
    asked = (
        amount("storage", claim.at("spec", "resources", "requests", "storage").value)
        if claim is not None
        else 0
    )
    adds = disk.at("spec", "storage").present
    overhead = usable < asked and usable > 0
    least = _rounded(image if adds or not overhead else -(-image * asked // usable))
    why_so = (
        (
            f" (its filesystem leaves {show('storage', usable)} of {show('storage', asked)}, and "
            "spec.pvc does not add that)"
        )
        if overhead and not adds
        else ""
    )
    deleted = kubectl("delete", DATA_VOLUME, disk.name, disk.namespace)
    block = "storage" if adds else "pvc"
    if (template := vms.disk_template(vm, disk.name)) is not None:
        words = (
            f"let the disk ask for at least {least}{why_so}, and delete the empty DataVolume, "
            "which KubeVirt makes again, because it is never enlarged"
        )
        asks = template.at("spec", block, "resources", "requests")
        return typed(words, f"{_enlarge(vm, asks, least)} && {deleted}")
    words = (
        f"create DataVolume {disk.name} again with at least {least}{why_so}; it is empty, and "
        "never enlarged"
    )
    if made_by := maker(disk):
        words = (
            f"let {made_by} ask for at least {least}{why_so}, and make DataVolume {disk.name} "
            "again, which is empty and never enlarged"
        )
    return typed(words, kubectl("get", DATA_VOLUME, disk.name, disk.namespace, "-o", "yaml"))


def of_source(way: str, vm: Object, disk: Object) -> str:
    """Return how to correct the source of a disk, whose spec cannot be changed; empty:
    it has no address of its own.

    Source: kubevirt/containerized-data-importer:pkg/apiserver/webhooks/datavolume-validate.go.
    """
    sources = (disk.at("spec", "source", each) for each in ("http", "registry", "s3"))
    source = next((each for each in sources if each.is_map), None)
    if source is None or way not in (CERTIFICATE, ADDRESS):
        return ""
    given = source["certConfigMap"].text if way == CERTIFICATE else None
    if given:
        edit = shell("kubectl", "edit", "configmap", argument(given), "-n", disk.namespace)
        return typed(f"let ConfigMap {given} (certConfigMap) have the CA of that server", edit)
    # no pod of CDI uses the CAs of its node
    there = f" (the ConfigMap has to be in {disk.namespace})" if way == CERTIFICATE else ""
    if vms.disk_template(vm, disk.name) is not None:
        again = f"and delete that DataVolume, which is not complete and KubeVirt makes again{there}"
        edit = kubectl("edit", VM, vm.name, vm.namespace)
        gone = f"then {kubectl('delete', DATA_VOLUME, disk.name, disk.namespace)}"
        return typed(f"{way}, in the dataVolumeTemplates of the VM, {again}", edit, gone)
    shown = kubectl("get", DATA_VOLUME, disk.name, disk.namespace, "-o", "yaml")
    if made_by := maker(disk):
        words = f"{way} in {made_by}, which is to make DataVolume {disk.name} again{there}"
        return typed(words, shown)
    words = f"{way}, in a new DataVolume {disk.name}, as its spec cannot be changed{there}"
    return typed(words, shown)


def _enlarge(vm: Object, asks: Field, least: str) -> str:
    """Return the command that sets the size of a template.

    JSON Patch needs the map, which a copy may not have.
    """
    if asks.is_map:
        return json_patch(VM, vm.name, vm.namespace, [Patch("add", asks.path / "storage", least)])
    return kubectl("edit", VM, vm.name, vm.namespace)


def _rounded(size: int) -> str:
    """Return a size in whole GiB, or MiB if it is less than one, that is not less."""
    unit, name = (_GI, "Gi") if size >= _GI else (_MI, "Mi")
    return f"{-(-size // unit)}{name}"


def restarts(pod: Object) -> str:
    """Return how often a pod was restarted, as `` (restarted 3 times)``; empty: never."""
    counts = (
        each["restartCount"].integer or 0 for each in pod.at("status", "containerStatuses").items()
    )
    again = max(counts, default=0)
    return f" (restarted {count(again, 'time')})" if again else ""


@cached
def _of_cdi(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the pods of CDI by the namespace and name of each claim, those of a copy also by its
    claim alone, and those that send one by their own name.
    """
    found: dict[tuple[str, str], list[Object]] = {}
    for pod in cluster.known(POD):
        if pod.labels.get("app") != _APP:
            continue
        names = set(claim_names(pod))
        keys = {(pod.namespace, name) for name in names}
        keys |= {("", name) for name in (*names, pod.name) if _is_of_copy(name)}
        for key in keys:
            found.setdefault(key, []).append(pod)
    return found


def _is_of_copy(name: str) -> bool:
    return name.startswith(_COPY) or name.endswith(_SENDER)


def _uid(namespace: str, claim: str, cluster: Cluster) -> str:
    return fields(cluster, PVC, namespace, claim).at("metadata", "uid").text or ""
