"""Images that no kubelet can pull, however often a pod is made again: a reference that is none, or
a digest that is gone.

For the target of a migration KubeVirt names the images of container disks by the digests in the
status of the source pod. Some runtimes report a bare image ID there, which makes
``sha256@sha256:…``. Sources:
kubevirt/kubevirt:pkg/container-disk/container-disk.go#ExtractImageIDsFromSourcePod, issues
kubevirt/kubevirt#8471, pull 8474; kubernetes/kubernetes:pkg/kubelet/images/image_manager.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.commands import kubectl, typed, virtctl
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import DAEMON_SET, DEPLOYMENT, POD, STATEFUL_SET, VM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find, maker_of
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem

_INVALID: Final = "InvalidImageName"
_FAILED: Final = frozenset((_INVALID, "ErrImagePull", "ImagePullBackOff"))
_NAMED: Final = re.compile(r'(?:image|tag) "([^"\s]{1,512})"')
_BARE: Final = re.compile(r"(?:docker\.io/library/)?sha256[@:].+")
"""A digest in the place of a name: runtimes read it as the repository
``docker.io/library/sha256``.
"""
_GONE: Final = re.compile(r"manifest unknown|manifest for \S{1,512} not found")
"""The registry does not have it. containerd calls other errors "not found" too, such as those of
its own store on one node (containerd/containerd#12302)."""
_UNRESOLVED: Final = "failed to resolve "
_OTHER: Final = "unexpected media type "
"""The digest stands for something other than an image."""


_DISK: Final = "volume"
"""How names of containers with container disks begin
(pkg/container-disk/container-disk.go#toContainerName).
"""


def of_target(pod: Object, vmi: Object, cluster: Cluster) -> Problem | None:
    """Return the image for which each target pod of a VMI fails alike; None:
    the next one may get it.
    """
    own = [
        image
        for image in (each.at("containerDisk", "image").text for each in _volumes(vmi))
        if image
    ]
    for reason, message in _waiting(pod):
        named = _NAMED.search(message)
        image = named[1] if named else ""
        if image in own:
            continue  # a pod of the VM itself has it
        if reason == _INVALID or _BARE.fullmatch(image):
            instead = f" (the VM names {names(own)})" if own else ""
            asked = (
                f"KubeVirt asks for image {_short(image) or '?'}, which is not a valid name of an "
                "image"
            )
            what = f"{asked}, instead of what the source pod runs{instead}"
            restart = virtctl("restart", vmi.name, vms.namespace_of(vmi))
            return Problem(what, typed(f"{_RESTART}; or update KubeVirt", restart))
        said = _told(pod, image, cluster, message) if "@sha256:" in image else ""
        if said:
            why = "is no longer in its registry"
            if not _is_gone(said):
                why = f"cannot be pulled by that digest ({cut_middle(_core(said), _LONGEST)})"
            others = list(_others(image, vmi, cluster))
            next_ = f"; {_next(others)}" if others else ""
            what = f"image {_short(image)}, which the source pod runs, {why}{next_}"
            return Problem(what, _stop(vmi, own, others))
    return None


def _next(others: Sequence[str]) -> str:
    """Return which VMs the same image stops once their nodes are drained."""
    run, are = ("runs", "is the next stop") if len(others) == 1 else ("run", "are the next stops")
    which = f"{names(others)} {run} the same image and {are}"
    return f"{which}, unless a node with that image takes {'it' if len(others) == 1 else 'them'}"


def _stop(vmi: Object, own: Sequence[str], others: Sequence[str]) -> str:
    """Return the remedy for an image of one digest: a VM that is off stops no drain of a later
    node, whereas one that is restarted has its image as a digest again.
    """
    there = vms.namespace_of(vmi)
    before = f"then do the same with {names(others)} before that drain" if others else ""
    pulls = f", unless {names(own)} cannot be pulled either" if own else ""
    restart = virtctl("restart", vmi.name, there)
    spare = (
        "or, if the VM can do without that disk, remove it and restart the VM, to migrate it then"
    )
    once = f"or, if no other node is drained after this one, {_RESTART}{pulls} ({restart})"
    further = "; ".join(filter(None, (before, spare, once)))
    return typed("stop the VM for the drain", virtctl("stop", vmi.name, there), further)


def _others(image: str, vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the other VMs that run a container disk of the same digest, with their nodes."""
    digest = image[image.rfind("@sha256:") :]
    for (namespace, name), on in entry(cluster, _running, digest) or ():
        if (name, namespace) != (vmi.name, vms.namespace_of(vmi)):
            yield f"{namespace}/{name} on {on}"


def _running(cluster: Cluster) -> Mapping[str, Sequence[tuple[tuple[str, str], str]]]:
    """Return by digest which VMs run a container disk of it, and where: once for all VMs."""
    found: dict[str, dict[tuple[tuple[str, str], str], None]] = {}
    for pod in sorted(cluster.known(POD), key=lambda each: each.full_name):
        name, on = vm_ledger.vmi_name(pod), pod.at("spec", "nodeName").text
        if name and on and not pod.ended:
            for digest in _digests(pod):
                found.setdefault(digest, {})[(pod.namespace, name), on] = None
    return {digest: tuple(own) for digest, own in found.items()}


def _digests(pod: Object) -> Iterator[str]:
    for status in container_statuses(pod):
        image, start = status["imageID"].text or "", (status["name"].text or "").startswith(_DISK)
        if start and "@sha256:" in image and status.at("state", "running").present:
            yield image[image.rfind("@sha256:") :]


_RESTART: Final = "restart the VM, whose new pod takes the image that the VM names"


def _short(image: str) -> str:
    """Return an image with the begin of its digest."""
    return re.sub(r"(sha256:[0-9a-f]{8})[0-9a-f]{56}", r"\1…", image)


def _volumes(vmi: Object) -> Iterator[Field]:
    yield from vms.vmi_spec(vmi)["volumes"].items()


def _waiting(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield why containers of container disks wait for their image: the reason and the message."""
    for status in container_statuses(pod):
        waiting = status.at("state", "waiting")
        if waiting["reason"].text in _FAILED and (status["name"].text or "").startswith(_DISK):
            yield (waiting["reason"].text or "", waiting["message"].words)


def _told(pod: Object, image: str, cluster: Cluster, message: str) -> str:
    """Return what the runtime says where each pull of an image fails alike; empty: one may work."""
    about = (
        each["message"].words
        for each in events.known("Pod", "Failed", cluster)
        if each.at("involvedObject", "name").text == pod.name and each.namespace == pod.namespace
    )
    lasting = (
        said for said in (message, *about) if image in said and (_is_gone(said) or _OTHER in said)
    )
    return next(lasting, "")


def _is_gone(said: str) -> bool:
    unresolved = said.endswith(": not found") and _UNRESOLVED in said
    return unresolved or _GONE.search(said) is not None


def _core(said: str) -> str:
    """Return an error of a pull without the frames that name the image and the step."""
    return _short(said[said.rfind(_OTHER) :])


# --- an image that a pod waits for ----------------------------------------------------------------


_FRAME: Final = re.compile(r"rpc error: code = \w+ desc = ")
_REGISTRY: Final = re.compile(r"https?://([\w.:-]{1,255})/")
_WAITS: Final = "Back-off pulling image"
_LONGEST: Final = 160
UNNAMED: Final = "correct the name and tag of the image"
"""What ends it where the registry does not have the image."""
_ENDS: Final = (
    (
        r"toomanyrequests|rate limit|\b429\b",
        (
            "wait, or give the runtime of the nodes a mirror: registry {host} limits the number of "
            "pulls"
        ),
    ),
    (
        r"x509|certificate",
        "let the container runtime of {node} trust the certificate of registry {host}",
    ),
    (
        r"HTTP response to HTTPS",
        "let the container runtime of {node} use registry {host} without TLS",
    ),
    (
        r"unauthorized|authentication required|denied|forbidden|\b40[13]\b|authorization failed",
        (
            "correct the name of the image, or give it credentials for registry {host} "
            "(imagePullSecret)"
        ),
    ),
    (
        r"content store|content digest \S{1,100}: not found",
        (
            "repair the image store of the container runtime of {node}, which has lost a part of "
            "that image: other nodes may pull it"
        ),
    ),
    (r"not found|manifest unknown|name unknown|\b404\b|InvalidImageName", UNNAMED),
    (r"no space left", "free disk space on {node}"),
    (
        (
            r"no such host|refused|no route to host|timeout|timed out|unreachable|deadline "
            r"exceeded|\bEOF\b|reset by peer"
        ),
        (
            "name a copy of the image in a registry that {node} reaches, or let it reach registry "
            "{host}"
        ),
    ),
)
"""What ends a failed pull, by the words of the container runtime; the first that fits."""
_IN_VM: Final = ("name ", "correct ")
"""How a way begins that changes what names the image."""


def of_start(pod: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return which image a pod waits for, whose it is, and what ends that; None: it waits for none.

    ``said``: what keeps the pod from starting. It repeats itself while the kubelet waits, so the
    last event about the image tells why. ``imageRegistry`` of KubeVirt is not that of container
    disks.
    """
    named = _NAMED.search(said) if said.startswith(tuple(_FAILED)) else None
    if named is None:
        return None
    for status in container_statuses(pod):
        waiting = status.at("state", "waiting")
        if waiting["reason"].text in _FAILED and named[1] in (waiting["message"].text or ""):
            return _of_container(pod, status["name"].text or "", named[1], said, cluster)
    return None


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return which image a pod waits for, whose pull fails; None: none is known to."""
    for status in container_statuses(pod):
        waiting = status.at("state", "waiting")
        said = f"{waiting['reason'].text}: {waiting['message'].words}"
        if (found := of_start(pod, said, cluster)) is not None:
            return found
    return None


def awaited(pod: Object) -> Iterator[str]:
    """Yield the images that a pod waits for, whose pull fails."""
    for status in container_statuses(pod):
        if status.at("state", "waiting", "reason").text in _FAILED and status["image"].text:
            yield status["image"].text or ""


def maker(pod: Object, cluster: Cluster) -> str:
    """Return the object from which a pod of an operator or a workload has its image, as the begin
    of a remedy; empty: it is not known."""
    above = maker_of(pod, cluster)
    kinds = {each.kind: each for each in (DAEMON_SET, DEPLOYMENT, STATEFUL_SET)}
    kind = kinds.get((above["kind"].text or "") if above is not None else "")
    if above is None or kind is None:
        return ""
    made = find(cluster, kind, pod.namespace, above["name"].text)
    top = made.controller if made is not None else None
    whose = top if top is not None else above
    return f"in {whose['kind'].text} {whose['name'].text}, "


def _of_container(
    pod: Object, container: str, image: str, said: str, cluster: Cluster
) -> Problem | None:
    volume = _disk_of(pod, container, image, cluster)
    error = _error(pod, image, said, cluster)
    if not volume and not error:
        return None
    whose = f" of its containerDisk volume {volume}" if volume else ""
    waits = f'{_WAITS} "{image}"'
    begin = f"{said.partition(': ')[0]}: {waits}" if waits in said else f"image {_short(image)}"
    fails = "" if waits in said else f" cannot be pulled ({said.partition(': ')[0]})"
    what = f"{begin}{whose}{fails}{f': {cut_middle(error, _LONGEST)}' if error else ''}"
    node, named = pod.at("spec", "nodeName").text or "its node", _REGISTRY.search(error)
    values = {"node": node, "host": named[1] if named is not None else _host(image)}
    ways = (
        way.format(**values)
        for words, way in _ENDS
        if re.search(words, error or said, re.IGNORECASE)
    )
    way = next(ways, f"see whether {node} can pull it")
    of_vm = volume and way.startswith(_IN_VM)
    vm = find(cluster, VM, pod.namespace, vm_ledger.vmi_name(pod)) if of_vm else None
    if vm is None and way.startswith(_IN_VM):
        way = f"{maker(pod, cluster)}{way}"
    if vm is None:
        return Problem(what, typed(way, kubectl("describe", POD, pod.name, pod.namespace)))
    change = (
        f"{way}; the VM names it in containerDisk of volume {volume}, and needs a restart after a "
        "change"
    )
    return Problem(what, typed(change, kubectl("edit", VM, vm.name, pod.namespace)))


def _disk_of(pod: Object, container: str, image: str, cluster: Cluster) -> str:
    """Return the volume of a VM whose container disk an image is; empty: it is another image."""
    vmi = vm_ledger.vmi_of(pod, cluster)
    for each in _volumes(vmi) if vmi is not None else ():
        name = each["name"].text or ""
        if (
            each.at("containerDisk", "image").text == image
            and container.removesuffix("-init") == f"{_DISK}{name}"
        ):
            return name
    return ""


def _error(pod: Object, image: str, said: str, cluster: Cluster) -> str:
    """Return what the container runtime says about a pull, without the frames that name the image;
    empty: nothing.
    """
    about = (each["message"].words for each in events.about(pod, None, cluster))
    told = next(
        (each for each in about if each.startswith("Failed to pull image") and image in each), said
    )
    error = told.rpartition(f'"{image}": ')[2] if f'"{image}": ' in told else ""
    return _FRAME.sub("", error).removeprefix("ErrImagePull: ")


def _host(image: str) -> str:
    """Return the registry of an image: docker.io unless its first part is a host."""
    first, slash, _ = image.partition("/")
    return (
        first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"
    )
