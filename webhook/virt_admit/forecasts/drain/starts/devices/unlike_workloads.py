"""GPUs of a node that the GPU operator of NVIDIA has set up for another use than those of the nodes
that offer them to VMs.

The operator reads ``nvidia.com/gpu.workload.config`` of each node, and takes the default of its
ClusterPolicy where a node has none, as one that was added. A node for containers offers its GPUs as
``nvidia.com/gpu``, one for VMs by their model. Without sandbox workloads the label has no effect.
Another use ends all that uses a GPU of the node: the driver is taken off each of them.
Sources: NVIDIA/gpu-operator:controllers/state_manager.go#getWorkloadConfig,
:api/nvidia/v1/clusterpolicy_types.go#SandboxWorkloadsSpec,
:assets/state-vfio-manager/0500_daemonset.yaml; issue NVIDIA/gpu-operator#568;
NVIDIA/k8s-driver-manager:cmd/driver-manager/main.go#uninstallDriver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.starts.devices import kept_off_plugins
from virt_admit.forecasts.placement import candidates
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates.operators.device_operators import CLUSTER_POLICY

READS: Final[Reads] = union(kept_off_plugins.READS, {NODE: ("metadata.labels",)})
_USE: Final = "nvidia.com/gpu.workload.config"
_PRODUCT: Final = "nvidia.com/gpu.product"
_FOR_CONTAINERS: Final = "nvidia.com/gpu"
_DEFAULT: Final = "container"
_VENDOR: Final = "nvidia.com/"
_WORD: Final = re.compile(r"[A-Z0-9]+")
_MAKER: Final = frozenset(("NVIDIA", "TESLA", "GEFORCE", "QUADRO"))


class UnlikeWorkload(NamedTuple):
    """A node whose GPUs are free and set up for containers, as it lacks the label of others."""

    words: str
    remedy: str


def of_device(node: str, device: str, cluster: Cluster) -> UnlikeWorkload | None:
    """Return why a node does not offer a GPU that others of one use offer; None: it has another
    GPU, a pod uses one of its GPUs, its use was chosen, or that is not known.
    """
    here, state = find(cluster, NODE, "", node), candidates.scheduler(cluster).state
    if here is None or not device.startswith(_VENDOR) or here.labels.get(_USE) is not None:
        return None
    free = (state.nodes[node].allocatable or {}).get(_FOR_CONTAINERS, 0)
    product = here.labels.get(_PRODUCT, "")
    if free <= 0 or not _is_same(device, product) or unlisted(cluster, POD):
        return None
    if any(name.startswith(_VENDOR) for pod in state.pods.get(node, ()) for name in pod.requests):
        return None
    others = cluster.cached(kept_off_plugins.offering).get(device, ())
    uses = {state.nodes[each].labels.get(_USE) for each in others}
    use = next(iter(uses)) if len(uses) == 1 else None
    policy, default = _default(cluster.known(CLUSTER_POLICY))
    if use is None or use in (_DEFAULT, default) or not default:
        return None
    model = f"{product} " if product else ""
    words = (
        f"{node} has {free} {model}GPU{'s' if free > 1 else ''} free, offered as "
        f"{_FOR_CONTAINERS} instead of {device}: it lacks label {_USE}={use} of {names(others)}"
        f"{policy}"
    )
    label = shell("kubectl", "label", "node", argument(node), f"{_USE}={use}")
    same = "" if product else ", if its GPU is the same model"
    set_up = f"let the GPU operator set {node} up like {names(others)}{same}"
    return UnlikeWorkload(words, typed(f"{set_up}, unless its GPUs are for containers", label))


def _is_same(device: str, product: str) -> bool:
    """Return whether the name of a device and that of a product may be those of one model, as
    ``GA102GL_A10`` and ``NVIDIA-A10``."""
    words = set(_WORD.findall(product.upper())) - _MAKER
    return not product or not words.isdisjoint(_WORD.findall(device.upper()))


def _default(policies: Iterable[Object]) -> tuple[str, str]:
    """Return in words which use nodes without the label get, and that use; empty: no policy is
    known, or labels have no effect.
    """
    policy = next(iter(policies), None)
    if policy is None:
        return "", ""
    sandbox = policy.at("spec", "sandboxWorkloads")
    use = sandbox["defaultWorkload"].text or _DEFAULT
    words = f", and {policy.kind} {policy.name} has sandboxWorkloads.defaultWorkload {use}"
    return words, use if sandbox["enabled"].boolean else ""
