"""The best CPU model that all nodes with KubeVirt offer,
for VMs that ``host-model`` binds to one kind of processor.

A model is better than another one if it has all its features. How many nodes offer it says nothing:
the oldest models have the most. Source: libvirt/libvirt:src/cpu_map, of which the table
``release_tables/cpu_models.json`` is made.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from virt_admit.model import releases
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.cpu_models import HOST, OFFERED
from virt_admit.model.kubevirt.launcher.migration_target import REQUIRED_FEATURE
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.messages import names


def common_model(cluster: Cluster) -> str:
    """Return the best model that every node with KubeVirt offers; empty: none, several,
    or that is unknown.
    """
    found = best_models(cluster)
    return found[0] if len(found) == 1 else ""


def best_models(cluster: Cluster, only: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the models that nodes offer and than which no other common one is better.

    Args:
        cluster: the cluster.
        only: the nodes. None: all with KubeVirt.
    """
    try:
        configuration.demand_obsolete_models(cluster)
    except Unseen:
        return ()
    if only is None:
        return cluster.cached(_of_all)
    return _best([node for node in cluster.known(NODE) if node.name in only], cluster)


def _of_all(cluster: Cluster) -> tuple[str, ...]:
    nodes, unseen = gather(cluster.list(NODE))
    return () if unseen else _best(nodes, cluster)


def _best(nodes: Iterable[Object], cluster: Cluster) -> tuple[str, ...]:
    labels = [node.labels for node in nodes if SCHEDULABLE in node.labels]
    if not labels:
        return ()
    offered = [_values(each, OFFERED) for each in labels]
    everywhere = frozenset.intersection(*offered) - configuration.obsolete_models(cluster)
    known = {model: found for model in everywhere if (found := features(model))}
    if known:
        return tuple(
            sorted(
                model
                for model in known
                if not any(known[model] < other for other in known.values())
            )
        )
    hosts = {model for each in labels for model in _values(each, HOST)}
    return tuple(sorted(everywhere & hosts or everywhere))


def closest(wanted: str, cluster: Cluster) -> str:
    """Return the model that every node with KubeVirt offers and that has most features of another
    one; empty: unknown.
    """
    own = features(wanted)
    best = best_models(cluster)
    if not own:
        return best[0] if len(best) == 1 else ""
    return max(sorted(best), key=lambda model: len(features(model) & own), default="")


def only_host(wanted: str, cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes whose host model this is, and that do not offer it to VMs which name it.

    virt-handler labels the models that libvirt calls usable. The host model need not be one of
    them. Source: kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go#prepareLabels.
    """
    labels = {node.name: node.labels for node in cluster.known(NODE)}
    found = (name for name, each in labels.items() if each.get(HOST + wanted) == "true")
    return tuple(sorted(name for name in found if labels[name].get(OFFERED + wanted) != "true"))


_MODEL: Final = "CPU model "


def host_only(causes: Iterable[str], cluster: Cluster) -> str:
    """Return which nodes have a refused CPU model only as their host model, as an insertion; empty:
    none.
    """
    for cause in causes:
        has = only_host(cause.removeprefix(_MODEL), cluster) if cause.startswith(_MODEL) else ()
        if has:
            verb = "has" if len(has) == 1 else "have"
            return f" ({names(has)} {verb} it only as host model, which a VM gets with host-model)"
    return ""


def other_model(causes: Iterable[str], cluster: Cluster, *, starts: bool) -> str:
    """Return what helps a VM whose CPU model no node takes; empty: that is not the cause.

    ``host-model`` binds a VM that moves to the processor of its node, and helps only one that
    starts.
    """
    wanted = next((each.removeprefix(_MODEL) for each in causes if each.startswith(_MODEL)), "")
    if not wanted:
        return ""
    offered = closest(wanted, cluster)
    known = f"{offered}, which every node offers" if offered else ""
    model = ", or ".join(filter(None, ("host-model" if starts else "", known)))
    if not model:
        return f"add a node that offers CPU model {wanted}"
    where = "in the VM, or in its instance type if that names it"
    return f"use CPU model {model}, instead of {wanted} ({where}), and restart the VM"


def lost_features(model: str, node: Object) -> tuple[str, ...]:
    """Return the features that ``host-model`` means on a node, and that a model lacks.

    Empty for an unknown model.
    """
    own = features(model)
    return tuple(sorted(_keys(node.labels, REQUIRED_FEATURE) - own)) if own else ()


def features(model: str) -> frozenset[str]:
    """Return the features of a CPU model; empty: the table does not have it."""
    return _features().get(model, frozenset())


@functools.cache
def _features() -> Mapping[str, frozenset[str]]:
    table = json.loads((releases.FOLDER / "cpu_models.json").read_text(encoding="utf-8"))
    found: dict[str, frozenset[str]] = {"": frozenset()}

    def of(name: str) -> frozenset[str]:
        if name not in found:
            found[name] = of(table[name]["like"]) | frozenset(table[name]["more"].split())
        return found[name]

    return {name: of(name) for name in table}


def _values(labels: Mapping[str, str], prefix: str) -> frozenset[str]:
    return frozenset(key for key in _keys(labels, prefix) if labels[prefix + key] == "true")


def _keys(labels: Mapping[str, str], prefix: str) -> frozenset[str]:
    return frozenset(key.removeprefix(prefix) for key in labels if key.startswith(prefix))


_MODELS: Final = ("host model ", "CPU model ")
_FEATURE: Final = "CPU feature "
_FEW: Final = 2


def models_first(causes: Sequence[str]) -> list[str]:
    """Return causes with a CPU model before others, and many CPU features as one: they follow from
    the model.
    """
    features = [each for each in causes if each.startswith(_FEATURE) and "(" not in each]
    others = [each for each in causes if each not in features]
    if len(features) <= _FEW:
        return list(causes)
    listed = names([each.removeprefix(_FEATURE) for each in features], 60)
    models = [each for each in others if each.startswith(_MODELS)]
    others = [each for each in others if each not in models]
    return [*models, f"CPU features {listed}", *others]
