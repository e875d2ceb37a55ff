"""Secondary networks that a pod does not get: Multus names the network whose own plugin fails.

Multus passes the error of a plugin on, so the error belongs to the NetworkAttachmentDefinition and
not to the pod of Multus. The IPAM plugin whereabouts looks for its settings in three folders, and
first in ``configuration_path``. Its DaemonSet writes them to the CNI folder of the node, which is
another one on K3s. Sources:
k8snetworkplumbingwg/multus-cni:pkg/multus/multus.go#cmdPluginErr;
k8snetworkplumbingwg/whereabouts:pkg/config/config.go#GetFlatIPAM; issue k3s-io/k3s#10545.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.starts.started_pods import BRIEF, PodStart, StartFault
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NAD, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle

_ASKED: Final = "k8s.v1.cni.cncf.io/networks"
READS: Final[Reads] = {
    DAEMON_SET: ("spec.template.spec.containers", "spec.template.spec.volumes"),
    NAD: ("spec.config",),
    POD: (f"metadata.annotations.{_ASKED}",),
}
_ADDING: Final = re.compile(
    r"error adding (?:container|pod \S{1,300}) to (?:CNI )?network \\?\"([\w.-]{1,250})\\?\": "
)
"""The shim of a thick Multus says so too, of the network of Multus, before the words of Multus."""
_LONGEST: Final = 2000
_WHEREABOUTS: Final = "whereabouts"
_NO_FILE: Final = "config file not found"
_PATH: Final = "configuration_path"
_FOLDERS: Final = ("/etc/cni/net.d", "/etc/kubernetes/cni/net.d")
_MOUNTED: Final = "/host/etc/cni/net.d"
"""Where the container of whereabouts has the CNI folder of its node."""


def fault(start: PodStart) -> StartFault | None:
    """Return which network of a pod fails, by the name in the error; None: none that it asks for
    by a NetworkAttachmentDefinition, or whereabouts is not the cause.
    """
    found = delegated(start)
    if found is None or _NO_FILE not in found[1]:
        return None
    definition, _ = found
    ipams = _ipams(networks.config(definition))
    ipam = next((each for each in ipams if each["type"].text == _WHEREABOUTS), None)
    return _unset(definition, ipam, start) if ipam is not None else None


def delegated(start: PodStart) -> tuple[Object, str] | None:
    """Return the NetworkAttachmentDefinition whose plugin fails for a pod, and the error; None:
    the error names none that the pod asks for.
    """
    errors = {
        found[1]: start.said[found.end() :][:_LONGEST] for found in _ADDING.finditer(start.said)
    }
    for definition in _asked(start.pod, start.cluster) if errors else ():
        own = networks.config(definition)["name"].text or ""
        said = errors.get(own) or errors.get(definition.name)
        if said:
            return definition, said.replace("\\", "").rstrip('"] ')
    return None


def _asked(pod: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the NetworkAttachmentDefinitions that KubeVirt has written into a launcher pod."""
    # the short form, of a pod that is of no VM, is not JSON
    for each in Field(json_codec.embedded(pod.annotations.get(_ASKED))).items():
        namespace = each["namespace"].text or pod.namespace
        definition = find(cluster, NAD, namespace, each["name"].text)
        if definition is not None:
            yield definition


def _ipams(config: Field) -> Iterator[Field]:
    for plugin in (config, *config["plugins"].items()):
        yield plugin["ipam"]


def _unset(definition: Object, ipam: Field, start: PodStart) -> StartFault:
    """Return that whereabouts finds no settings on the node of a pod."""
    title, path = f"{NAD.kind} {definition.full_name}", ipam[_PATH].text
    given = f"with {_PATH} {path}" if path else f"without {_PATH}"
    folders = f"{path} and the usual folders" if path else " and ".join(_FOLDERS)
    reason = (
        f"{title} has ipam {_WHEREABOUTS} {given}, and the plugin finds no settings in {folders} "
        f"on {start.on}: {_NO_FILE}"
    )
    edit = kubectl("edit", NAD, definition.name, definition.namespace)
    brief = cut_middle(f"{title}: {_WHEREABOUTS} finds no settings", BRIEF)
    wrote = _written(start.cluster)
    if wrote is None or wrote[1] in _FOLDERS:
        way = f"set ipam.{_PATH} in spec.config of {title} to the path of whereabouts.conf there"
        if wrote is not None:
            way = f"see whether the pod of DaemonSet {wrote[0]} on {start.on} wrote it, or {way}"
        return StartFault(reason, brief, typed(way, edit), of_node=wrote is not None)
    daemon, folder = wrote
    own = f"{folder}/whereabouts.d/whereabouts.conf"
    if path == own:
        way = f"see why the pod of DaemonSet {daemon} on {start.on} has not written {own}"
        return StartFault(reason, brief, typed(way, _described(daemon)), of_node=True)
    way = (
        f'set ipam.{_PATH} to "{own}" in spec.config of {title}; or let it use no IPAM, as far as '
        "its guests have addresses of their own"
    )
    told = f"{reason}. DaemonSet {daemon} writes them to {folder}"
    return StartFault(told, brief, typed(way, edit))


def _written(cluster: Cluster) -> tuple[str, str] | None:
    """Return the DaemonSet of whereabouts, and the folder of the node to which it writes; None: it
    is not known."""
    for daemon in cluster.known(DAEMON_SET):
        spec = daemon.at("spec", "template", "spec")
        volumes = spec["volumes"].items()
        paths = {each["name"].text: each["hostPath"]["path"].text for each in volumes}
        for box in spec["containers"].items() if _WHEREABOUTS in daemon.name else ():
            for mount in box["volumeMounts"].items():
                folder = paths.get(mount["name"].text)
                if folder and (mount["mountPath"].text or "").rstrip("/") == _MOUNTED:
                    return daemon.full_name, folder.rstrip("/")
    return None


def _described(daemon: str) -> str:
    namespace, _, name = daemon.partition("/")
    return kubectl("describe", DAEMON_SET, name, namespace)
