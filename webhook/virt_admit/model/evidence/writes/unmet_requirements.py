"""What a ClusterServiceVersion requires and does not find, and what provides it.

OLM checks the requirements again and again. While one is not met, the ClusterServiceVersion stays
Pending, and the release that it replaces runs on. An InstallPlan writes what a release contains
only once, and no step of it concerns a ServiceAccount called ``default``. Sources:
operator-framework/operator-lifecycle-manager:pkg/controller/operators/olm/requirements.go
#requirementStatus #permissionStatus #minKubeVersionStatus #othersInstalledAlongside,
:pkg/controller/registry/resolver/steps.go#NewServiceAccountStepResources; issue 2028 (pull request
2029: releases before 0.18 ask that the account is owned by the release).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.evidence import status_errors
from virt_admit.model.evidence.writes.stored_versions import CRD
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import API_SERVICE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

NOT_MET: Final = "RequirementsNotMet"
"""The reason of a ClusterServiceVersion that waits for one."""
_CSV: Final = kinds.guess("operators.coreos.com/v1alpha1", "ClusterServiceVersion")
_ACCOUNT: Final = kinds.guess("v1", "ServiceAccount")
"""Read from snapshots alone."""
_MOST: Final = 3
_OWNED: Final = ("is owned by another", "is not owned by this", "is stale")
"""What OLM says, and what it has said, of a ServiceAccount with another owner."""


class UnmetRequirement(NamedTuple):
    """A requirement that a ClusterServiceVersion does not find."""

    words: str
    """``ServiceAccount default is NotPresent (Service account does not exist)``."""
    remedy: str


def of_version(csv: Object, cluster: Cluster) -> Sequence[UnmetRequirement]:
    """Return the first requirements that are not met."""
    found = islice(status_errors.unmet(csv["status"]), _MOST)
    return [
        UnmetRequirement(_words(each, csv, cluster), _way(each, csv, cluster)) for each in found
    ]


def _words(entry: Field, csv: Object, cluster: Cluster) -> str:
    said, others = status_errors.unmet_words(entry), _owners(entry, csv, cluster)
    return f"{said}: its ownerReferences name {names(others)}" if others else said


def _owners(entry: Field, csv: Object, cluster: Cluster) -> Sequence[str]:
    """Return the other ClusterServiceVersions that own a ServiceAccount, where OLM minds that."""
    if not _minds_owner(entry):
        return ()
    account = find(cluster, _ACCOUNT, csv.namespace, entry["name"].text)
    owners = account.metadata["ownerReferences"].items() if account is not None else ()
    found = (each["name"].text for each in owners if each["kind"].text == _CSV.kind)
    return [name for name in found if name and name != csv.name]


def _minds_owner(entry: Field) -> bool:
    message = entry["message"].text or ""
    return entry["kind"].text == _ACCOUNT.kind and any(each in message for each in _OWNED)


def _way(entry: Field, csv: Object, cluster: Cluster) -> str:
    """Return what meets a requirement, after which OLM goes on by itself."""
    kind, name = entry["kind"].text or "", entry["name"].text or ""
    if kind == _ACCOUNT.kind:
        return _account(entry, csv, cluster)
    if kind == CRD.kind:
        return _definition(entry, csv)
    if kind == API_SERVICE.kind and entry["status"].text != "DeploymentNotFound":
        see = kubectl("describe", API_SERVICE, name)
        return typed(f"See why API {name} is not served, and repair or install what serves it", see)
    see = about("describe", csv, _CSV)
    if kind == _CSV.kind:
        return typed(
            "Update Kubernetes first, or take a release of the operator that the present one "
            "suffices for",
            see,
        )
    return typed("Take a release of the operator that asks only for what this cluster has", see)


def _definition(entry: Field, csv: Object) -> str:
    name, message = entry["name"].text or "", entry["message"].text or ""
    owned = csv.at("spec", "customresourcedefinitions", "owned").items()
    own = any(each["name"].text == name for each in owned)
    see = kubectl("get", CRD, name)
    if entry["status"].text == "NotAvailable":
        way = f"See in its conditions why {CRD.kind} {name} is not established"
        return typed(way, kubectl("describe", CRD, name))
    if own and ("alongside" in message or "served" in message):
        plans = shell("kubectl", "get", "installplans", "-n", csv.namespace)
        return typed(f"See why the InstallPlan of {csv.name} has not written {name}", plans)
    if own:
        return typed(
            f"Apply {CRD.kind} {name} from the bundle of {csv.name}, as its InstallPlan writes it "
            "only once",
            see,
        )
    verb = "Update" if "served" in message else "Install"
    return typed(f"{verb} the operator that provides {CRD.kind} {name}", see)


def _account(entry: Field, csv: Object, cluster: Cluster) -> str:
    name, others = entry["name"].text or "", _owners(entry, csv, cluster)
    title, space = f"ServiceAccount {name}", csv.namespace
    if not _minds_owner(entry):
        if entry["status"].text == "NotPresent":
            make = shell("kubectl", "create", "serviceaccount", argument(name), "-n", space)
            return typed(f"Make {title} again, as its InstallPlan writes it only once", make)
        user = f"--as=system:serviceaccount:{space}:{name}"
        can = shell("kubectl", "auth", "can-i", "--list", user, "-n", space)
        return typed(f"Grant {title} what it lacks, by a Role or ClusterRole with its binding", can)
    replaced = csv.at("spec", "replaces").text
    if others and name != "default" and set(others) != {replaced}:
        see = kubectl("get", _ACCOUNT, name, space, "-o", "yaml")
        way = f"{names(others)} has the same {title}: install one of both in another namespace"
        return typed(way, see)
    edit = kubectl("edit", _ACCOUNT, name, space)
    if others:
        return typed(
            f"Take the ownerReference of {names(others)} out of {title}, with whose deletion it "
            "would go, too",
            edit,
        )
    if "is not owned by this" in (entry["message"].text or ""):
        see = kubectl("get", _ACCOUNT, name, space, "-o", "yaml")
        way = (
            f"See whether {title} has an owner, which is to go; if not, update OLM to 0.18 or later"
        )
        return typed(way, see)
    return typed(f"Take the ownerReference of the other release out of {title}", edit)
