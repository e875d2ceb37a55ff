"""Bridges that a VM needs on its node, which their markers offer as resources,
and why other nodes do not have them.

Sources: kubevirt/bridge-marker:pkg/marker; k8snetworkplumbingwg/ovs-cni:docs/marker.md;
nmstate/kubernetes-nmstate:api/shared/nodenetworkconfigurationenactment_types.go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NNCE, NNCP
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.messages import cut, names

_NODE: Final = "nmstate.io/node"
_POLICY: Final = "nmstate.io/policy"
READS: Final[Reads] = {
    NNCP: ("spec.desiredState.interfaces.name",),
    NNCE: (
        f"metadata.labels.{_NODE}",
        f"metadata.labels.{_POLICY}",
        *CONDITIONS,
        "status.conditions.message",
    ),
}
_MARKERS: Final = ("bridge.network.kubevirt.io/", "ovs-cni.network.kubevirt.io/")
_ERROR: Final = re.compile(r"NmstateError: (.+)")
"""How the program of a policy ends what it prints."""
_LONGEST: Final = 160


def bridge(resource: str) -> str:
    """Return the bridge that a resource stands for; empty: it stands for something else."""
    return next(
        (resource.removeprefix(start) for start in _MARKERS if resource.startswith(start)), ""
    )


def remedy(name: str, nodes: Collection[str], cluster: Cluster) -> str:
    """Return how one of these nodes gets a bridge, with the policy that makes it on others,
    or fails to.
    """
    make = f"make bridge {name} on {' or '.join(sorted(nodes)[:3])}"
    policy = next((each for each in cluster.known(NNCP) if name in _interfaces(each)), None)
    if policy is None:
        return make
    failed = {node: why for node, why in _failures(policy, cluster) if node in nodes}
    if not failed:
        return f"{make} (NodeNetworkConfigurationPolicy {policy.name} makes it elsewhere)"
    why = cut(next(iter(failed.values())), _LONGEST)
    where = f"it failed on {names(sorted(failed))}{f': {why}' if why else ''}"
    return f"{make}, and correct NodeNetworkConfigurationPolicy {policy.name} ({where})"


def _interfaces(policy: Object) -> Iterator[str]:
    yield from (
        each["name"].text or "" for each in policy.at("spec", "desiredState", "interfaces").items()
    )


def _failures(policy: Object, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield the nodes on which a policy failed, each with the last words of its error."""
    for each in sorted(cluster.known(NNCE), key=lambda each: each.name):
        failing = each.condition("Failing")
        if each.labels.get(_POLICY) == policy.name and failing["status"].text == "True":
            said = failing["message"].text or ""
            error = _ERROR.search(said)
            yield each.labels.get(_NODE, ""), " ".join((error[1] if error else said).split())
