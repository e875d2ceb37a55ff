"""Roll-outs of MachineDeployments that wait for their control plane.

Before a MachineSet of Cluster API makes a Machine it asks whether the control plane is upgrading:
whether its ``spec.version`` is greater than its ``status.version``, by the order of semver, where
``v1.33.1-k0s.0`` is a pre-release and so less than ``v1.33.1``. A provider that reports such a
version for one without suffix never passes, although its control plane is updated. Sources:
kubernetes-sigs/cluster-api:internal/controllers/machineset/machineset_preflight.go
#controlPlaneStablePreflightCheck, :internal/contract/controlplane.go#IsUpgrading;
k0sproject/k0smotron issues 1027 and 1052.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE_SET,
    K0SMOTRON_CONTROL_PLANE,
    KUBEADM,
    MACHINE_DEPLOYMENT,
    RKE2_CONTROL_PLANE,
    TALOS_CONTROL_PLANE,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, sentence
from virt_admit.model.node_updates.operators import paused_clusters
from virt_admit.model.remediation import machine_drain

_CONTROL_PLANES: Final[tuple[Kind, ...]] = (
    *(KUBEADM, RKE2_CONTROL_PLANE, TALOS_CONTROL_PLANE),
    K0SMOTRON_CONTROL_PLANE,
)
READS: Final[Reads] = union(
    clock.READS,
    paused_clusters.READS,
    dict.fromkeys((MACHINE_DEPLOYMENT, CAPI_MACHINE_SET, CAPI_CLUSTER, *_CONTROL_PLANES), ()),
)
_STABLE: Final = "ControlPlaneIsStable"
_FAILED: Final = "preflight check failed"
_SKIP: Final = "machineset.cluster.x-k8s.io/skip-preflight-checks"
_UPGRADES: Final = timedelta(hours=3)
"""A control plane of bare metal whose nodes are replaced one by one takes less."""
_DONE: Final = timedelta(minutes=15)
"""The same where its versions show that it is updated."""
_VERSION: Final = re.compile(r"v?(\d{1,4}\.\d{1,4}\.\d{1,4})(-[0-9A-Za-z.-]{1,60})?(?:\+.*)?")


class WaitingRollout(NamedTuple):
    """A MachineDeployment that makes no Machine before a check passes."""

    owner: Object
    reason: str
    remedy: str
    brief: str
    """The reason in short, without the name of the roll-out."""


def of(deployment: Object, cluster: Cluster) -> WaitingRollout | None:
    """Return for which check a roll-out waits too long; None: it does not, or no longer than an
    upgrade of its control plane takes.
    """
    waits = next(_failed(deployment, cluster), None)
    if waits is None or deployment.deleted or deployment.at("spec", "paused").boolean:
        return None
    if paused_clusters.of_member(deployment, cluster):
        return None
    since, said = waits["lastTransitionTime"].text, waits["message"].words
    plane = _control_plane(deployment, cluster)
    lower = _lower(plane) if plane is not None and _STABLE in said else None
    if not clock.has_lasted(since, _UPGRADES if lower is None else _DONE, cluster):
        return None
    begin = (
        f"{deployment.kind} {deployment.full_name} makes no new Machine"
        f"{clock.lasting(since, cluster)}: "
    )
    if plane is None or lower is None:
        see = about("describe", deployment, MACHINE_DEPLOYMENT)
        way = typed("end what that check waits for, as the upgrade of the control plane", see)
        plain = _plain(said)
        brief = f"it makes no new Machine{clock.lasting(since, cluster)}: {cut(plain, 120)}"
        return WaitingRollout(deployment, f"{begin}{cut(plain, 300)}", way, brief)
    wants, has = (plane.at(part, "version").text or "" for part in ("spec", "status"))
    which = f"{plane.kind} {plane.full_name}"
    why = (
        f"{begin}Cluster API takes {which} for upgrading ({_STABLE}), as its spec.version {wants} "
        f"is greater than its status.version {has}: in semver the suffix {lower} makes it a "
        "pre-release. That control plane is updated, and the check never passes"
    )
    brief = (
        f"it makes no new Machine: {which} counts as upgrading forever, as its status.version {has}"
        f" is a pre-release of its spec.version {wants}"
    )
    return WaitingRollout(deployment, why, _remedy(plane, has, deployment), brief)


def held(cluster: Cluster) -> tuple[WaitingRollout, ...]:
    """Return the roll-outs that wait for such a check."""
    known = sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda each: each.full_name)
    return tuple(filter(None, (of(each, cluster) for each in known)))


def _failed(deployment: Object, cluster: Cluster) -> Iterator[Field]:
    """Yield the conditions of the MachineSets that want more Machines, and why they get none."""
    for each in paused_clusters.owned(deployment, CAPI_MACHINE_SET, cluster):
        wants, has = each.at("spec", "replicas").integer, each.at("status", "replicas").integer
        if wants is None or has is None or has >= wants:
            continue
        for kind, status in (("MachinesCreated", "False"), ("ScalingUp", "True")):
            found = machine_drain.condition(each, kind)
            if found["status"].text == status and _FAILED in (found["message"].text or ""):
                yield found


def _control_plane(deployment: Object, cluster: Cluster) -> Object | None:
    name = deployment.at("spec", "clusterName").text
    owner = find(cluster, CAPI_CLUSTER, deployment.namespace, name)
    reference = owner.at("spec", "controlPlaneRef") if owner is not None else Field(None)
    kind = next((each for each in _CONTROL_PLANES if each.kind == reference["kind"].text), None)
    if kind is None:
        return None
    return find(cluster, kind, deployment.namespace, reference["name"].text)


def _lower(plane: Object) -> str | None:
    """Return the suffix that makes the version of an updated control plane less than the one that
    is wanted; None: its versions differ otherwise, or some of its replicas are not updated.
    """
    wants, has = (_VERSION.fullmatch(plane.at(p, "version").text or "") for p in ("spec", "status"))
    if wants is None or has is None or wants[1] != has[1] or wants[2] or not has[2]:
        return None
    status, every = plane["status"], plane.at("spec", "replicas").integer
    counts = (status[each].integer for each in ("updatedReplicas", "readyReplicas"))
    return has[2] if all(each is None or each == every for each in counts) else None


def _remedy(plane: Object, has: str, deployment: Object) -> str:
    kind = next(each for each in _CONTROL_PLANES if each.kind == plane.kind)
    patch = merge_patch(kind, plane.name, plane.namespace, {"spec": {"version": has}})
    skip = about("annotate", deployment, MACHINE_DEPLOYMENT, f"{_SKIP}={_STABLE}")
    return typed(
        "write the version as its provider reports it; or update that provider",
        patch,
        f"or let this roll-out go on without that check ({skip}), and remove the annotation later",
    )


def _plain(said: str) -> str:
    """Return the words of a condition in one line."""
    return sentence(" ".join(said.replace("*", " ").split())).rstrip(".")
