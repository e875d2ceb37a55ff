"""CPU models that nodes offer.

KubeVirt's node labeller labels each node with the models that its processor supports and that are
not obsolete. The pod of a VMI with a named model gets that label as node selector. A model that no
node offers is therefore never scheduled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE
from virt_admit.model.kubernetes.objects import Path
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import expand
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.kubevirt.settings import configuration

OFFERED: Final = "cpu-model.node.kubevirt.io/"
"""Label prefix: the node can run this model."""
HOST: Final = "host-model-cpu.node.kubevirt.io/"
"""Label prefix: the model that ``host-model`` means on the node."""
TARGET: Final = "cpu-model-migration.node.kubevirt.io/"
"""Label prefix: the node can run a migrating ``host-model`` VMI from a node of this model."""

SKIP_NODE: Final = "node-labeller.kubevirt.io/skip-node"
"""Annotation, of any value, of nodes that the labeller leaves alone (node_labeller.go)."""

READS: Final = union(
    expand.READS, {KUBEVIRT: (), NODE: ("metadata.labels", f"metadata.annotations.{SKIP_NODE}")}
)


class Offers(NamedTuple):
    """The models that nodes offer, each with the names of those nodes."""

    nodes: Mapping[str, tuple[str, ...]]
    conclusive: bool
    """Whether any node has a model label: without any, the labeller has not run."""

    def by(self, model: str) -> tuple[str, ...]:
        """Return the nodes that offer a model, compared exactly."""
        return self.nodes.get(model, ())

    def alike(self, model: str) -> tuple[str, ...]:
        """Return the offered models whose names differ from this one only in case."""
        folded = model.casefold()
        return tuple(
            sorted(name for name in self.nodes if name != model and name.casefold() == folded)
        )

    def most_common(self, number: int, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Return the models that most nodes offer, without the given ones."""
        order = sorted(
            (-len(nodes), model) for model, nodes in self.nodes.items() if model not in without
        )
        return tuple(model for _, model in order[:number])


def offers(cluster: Cluster) -> Offers:
    """Return the models that the nodes of the cluster offer.

    Raises:
        Unseen: no node is known, but nodes may exist.
    """
    nodes.every(cluster)
    return cluster.cached(_offers)


def _offers(cluster: Cluster) -> Offers:
    offering: dict[str, list[str]] = {}
    conclusive = False
    for node in nodes.every(cluster):
        for label, value in node.metadata["labels"].map.items():
            if label.startswith(OFFERED):
                conclusive = True
                if value == "true":
                    offering.setdefault(label.removeprefix(OFFERED), []).append(node.name)
    return Offers({model: tuple(sorted(names)) for model, names in offering.items()}, conclusive)


def host_models(cluster: Cluster) -> Mapping[str, frozenset[str]]:
    """Return the meaning of ``host-model`` on each node that publishes it.

    Raises:
        Unseen: no node is known, but nodes may exist.
    """
    nodes.every(cluster)
    return cluster.cached(_host_models)


def _host_models(cluster: Cluster) -> Mapping[str, frozenset[str]]:
    found = {
        node.name: frozenset(
            label.removeprefix(HOST) for label in node.labels if label.startswith(HOST)
        )
        for node in nodes.every(cluster)
    }
    return {name: models for name, models in found.items() if models}


class Model(NamedTuple):
    """The named CPU model of a VMI."""

    name: str
    path: Path
    """The field of the object that determines the model."""
    source: str = ""
    """What names the model, ``instance type 'u1'`` or ``KubeVirt``; empty: the object itself."""

    @property
    def phrase(self) -> str:
        """The model for messages: ``CPU model 'Conroe' of KubeVirt``."""
        return f"CPU model {show(self.name)}" + (f" of {self.source}" if self.source else "")

    @property
    def remedy(self) -> str:
        """Return the fix, an imperative.

        A VM whose instance type names a model must not name one itself.
        """
        return "Write host-model" if self.source in ("", _DEFAULT) else "Use another instance type"


_DEFAULT: Final = "KubeVirt"


def named(vmi: ExpandedVmi, cluster: Cluster) -> Model | None:
    """Return the model that a VMI runs with if it is a named one.

    It comes from the VM, its instance type or KubeVirt's default. Return None for ``host-model``
    and ``host-passthrough``, and on arm64, which has no named models.

    Raises:
        Unseen: the VM names none, and its instance type or KubeVirt cannot be read.
    """
    if expand.architecture(vmi, cluster) == "arm64":
        return None
    given = vmi.cpu_model
    name, path, source = given.field.text, given.field.path, given.source
    if not name:
        if vmi.instancetype_unseen:
            raise Unseen(vmi.instancetype_unseen)
        name = configuration.default_cpu_model(cluster)
        path = vmi.spec["domain"]["cpu"].path
        source = _DEFAULT
    if name in (configuration.HOST_MODEL, configuration.HOST_PASSTHROUGH):
        return None
    return Model(name, path, source)
