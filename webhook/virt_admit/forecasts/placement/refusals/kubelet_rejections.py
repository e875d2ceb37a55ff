"""Pods that a kubelet does not admit: why, and what lets it take them.

Kube-scheduler knows nothing of it: it sees the sum of a node, not its NUMA nodes, cores or devices.
Sources: kubernetes/kubernetes:pkg/kubelet/kubelet.go#rejectPod,
:pkg/kubelet/cm/cpumanager/policy_static.go#SMTAlignmentError,
:pkg/kubelet/cm/topologymanager/scope.go#TopologyAffinityError, :pkg/kubelet/lifecycle/predicate.go
(OutOf…).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names

_REASONS: Final = frozenset(
    ("NodeAffinity", "SMTAlignmentError", "TopologyAffinityError", "UnexpectedAdmissionError")
)
_OUT_OF: Final = "OutOf"


class Rejections(NamedTuple):
    """How often kubelets have rejected the pods of a VM."""

    reason: str
    message: str
    """Of the last one."""
    times: int
    last: str
    """`` 2 min ago``; empty: not known."""
    nodes: frozenset[str]
    """The nodes that did so, as far as they are known."""


def reason_of(pod: Object) -> str:
    """Return the reason that the kubelet gives for the end of a pod; empty: none."""
    return pod.at("status", "reason").text or ""


def is_rejection(reason: str) -> bool:
    """Whether a kubelet gives this reason where it does not admit a pod."""
    return reason in _REASONS or reason.startswith(_OUT_OF)


def is_over(found: Rejections) -> bool:
    """Return whether a node that kube-scheduler takes now is not rejected again: a kubelet compares
    labels as kube-scheduler does (lifecycle/predicate.go#GeneralPredicates), and nothing else for
    this reason. It is not over where it comes again with each pod.
    """
    return found.reason == "NodeAffinity" and found.times == 1


def way(found: Rejections) -> str:
    """Return what lets a kubelet take the pod, by the reason of its rejection."""
    there = names(sorted(found.nodes)) or "that node"
    if found.reason == "TopologyAffinityError":
        return (
            f"free CPUs, memory and devices of one NUMA node on {there}, or let the VM ask for less"
        )
    if found.reason == "NodeAffinity":
        return f"give {there} again the labels that the VM demands"
    if found.reason == "SMTAlignmentError":
        return "let the VM ask for whole cores"
    if found.reason.startswith(_OUT_OF):
        return f"free {found.reason.removeprefix(_OUT_OF)} on {there}, or let the VM ask for less"
    return f"repair what gives out the devices on {there} (its device plugin)"
