"""Images that no kubelet can pull, however often a pod is made again: a reference that is none, or a digest that is gone.

For the target of a migration KubeVirt names the images of container disks by the digests in the status of the source pod. Some
runtimes report a bare image ID there, which makes ``sha256@sha256:…``. Sources:
kubevirt/kubevirt:pkg/container-disk/container-disk.go#ExtractImageIDsFromSourcePod, issues kubevirt/kubevirt#8471, pull 8474;
kubernetes/kubernetes:pkg/kubelet/images/image_manager.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import CONTAINERS

_INVALID: Final = "InvalidImageName"
_FAILED: Final = frozenset((_INVALID, "ErrImagePull", "ImagePullBackOff"))
_NAMED: Final = re.compile(r'(?:image|tag) "([^"\s]{1,512})"')
_BARE: Final = re.compile(r"(?:docker\.io/library/)?sha256[@:].+")
"""A digest in the place of a name: runtimes read it as the repository ``docker.io/library/sha256``."""
_GONE: Final = re.compile(r"manifest unknown|manifest for \S{1,512} not found|: not found$")


_DISK: Final = "volume"
"""How names of containers with container disks begin (pkg/container-disk/container-disk.go#toContainerName)."""


class UnpullableImage(NamedTuple):
    """An image that a pod cannot get, on whatever node."""

    what: str
    remedy: str


def of_target(pod: Object, vmi: Object, cluster: Cluster) -> UnpullableImage | None:
    """Return the image for which each target pod of a VMI fails alike; None: the next one may get it."""
    own = [image for image in (each.at("containerDisk", "image").text for each in _volumes(vmi)) if image]
    for reason, message in _waiting(pod):
        named = _NAMED.search(message)
        image = named[1] if named else ""
        if image in own:
            continue  # a pod of the VM itself has it
        if reason == _INVALID or _BARE.fullmatch(image):
            instead = f" (the VM names {names(own)})" if own else ""
            asked = f"KubeVirt asks for image {_short(image) or '?'}, which is not a valid name of an image"
            what = f"{asked}, instead of what the source pod runs{instead}"
            return UnpullableImage(what, f"{_RESTART}, or update KubeVirt")
        if "@sha256:" in image and _is_gone(pod, image, cluster, message):
            what = f"image {_short(image)}, which the source pod runs, is no longer in its registry"
            return UnpullableImage(what, f"{_RESTART}, or push that image again")
    return None


_RESTART: Final = "restart the VM, whose new pod takes the image that the VM names"


def _short(image: str) -> str:
    """Return an image with the begin of its digest."""
    return re.sub(r"(sha256:[0-9a-f]{8})[0-9a-f]{56}", r"\1…", image)


def _volumes(vmi: Object) -> Iterator[Field]:
    yield from vms.vmi_spec(vmi)["volumes"].items()


def _waiting(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield why containers of container disks wait for their image: the reason and the message."""
    for kind in CONTAINERS:
        for status in pod.at("status", kind).items():
            waiting = status.at("state", "waiting")
            if waiting["reason"].text in _FAILED and (status["name"].text or "").startswith(_DISK):
                yield waiting["reason"].text or "", " ".join((waiting["message"].text or "").split())


def _is_gone(pod: Object, image: str, cluster: Cluster, message: str) -> bool:
    """Return whether the registry says that it has no such image."""
    about = (
        " ".join((each["message"].text or "").split())
        for each in events.known("Pod", "Failed", cluster)
        if each.at("involvedObject", "name").text == pod.name and each.namespace == pod.namespace
    )
    return any(image in said and _GONE.search(said) for said in (message, *about))
