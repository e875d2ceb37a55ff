"""Where the image of a sidecar is set that does not end with its guest, and which VMs have it too.

KubeVirt 1.2 and later ask a sidecar of hooks v1alpha3 to end (``Shutdown``). The sidecar of a
network binding is set in the configuration of KubeVirt, which an update does not change, and a VM
takes it when it starts. Sources: kubevirt/kubevirt:pkg/network/netbinding/netbinding.go
#NetBindingPluginSidecarList, pull request 10046, issue 11895.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import about
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.versions import Version, kubevirt_version
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = {KUBEVIRT: (), HCO: (), VMI: ("spec.domain.devices.interfaces",)}
_SHUTDOWN: Final = Version(1, 2)
"""The first release that asks sidecars to end."""


class Sidecar(NamedTuple):
    """The image of a sidecar and the setting that names it."""

    words: str
    """As ``quay.io/x:old is its image by KubeVirt … sidecarImage, for shop/web as well``."""
    further: str = ""
    """What ends the same for the next migration; empty: no release of this cluster does."""
    renew: str = ""
    """The same in a few words, after another step."""


def of(vmi: Object, pod: Object, container: str, cluster: Cluster) -> Sidecar | None:
    """Return the network binding that gives a container of a launcher pod its image; None: none
    does, or that is not known.
    """
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    image = pod.at("status", "containerStatuses").named(container)["image"].text
    if kubevirt is None or not image:
        return None
    bindings = kubevirt.at("spec", "configuration", "network", "binding")
    for name in sorted(_bindings(vmi)):
        set_ = bindings[name]["sidecarImage"]
        if set_.text and image.endswith(set_.text):
            return _sidecar(vmi, name, set_, kubevirt, cluster)
    return None


def _sidecar(vmi: Object, name: str, set_: Field, kubevirt: Object, cluster: Cluster) -> Sidecar:
    others = sorted(
        each.full_name
        for each in cluster.known(VMI)
        if name in _bindings(each) and each.full_name != vmi.full_name
    )
    also = f", for {names(others, 90)} as well" if others else ""
    image = cut_middle(set_.text or "", 120)
    words = f"{image} is its image by {KUBEVIRT.kind} {set_.path}{also}"
    release = kubevirt_version(cluster)
    if release is not None and release < _SHUTDOWN:
        return Sidecar(words)
    owner = configuration.known_or_none(configuration.hyperconverged, cluster)
    edit = about("edit", owner, HCO) if owner else about("edit", kubevirt, KUBEVIRT)
    where = f"networkBinding.{name}.sidecarImage of {HCO.kind}" if owner else "sidecarImage"
    build = f"the build of KubeVirt {release}" if release else "a build of the KubeVirt that runs"
    return Sidecar(
        words,
        f"then set {where} to {build} ({edit}), and restart the VMs with that binding, which keep "
        "the old sidecar until then",
        f"renew sidecarImage of network binding {name}",
    )


def _bindings(vmi: Object) -> frozenset[str]:
    """Return the network bindings of a VMI."""
    interfaces = vms.vmi_spec(vmi).at("domain", "devices", "interfaces").items()
    return frozenset(name for each in interfaces if (name := each.at("binding", "name").text))
