"""Claims whose volume is to be cloned from one of another StorageClass, which does not come about.

Kubernetes leaves it to each driver whether it clones between classes. CDI 1.57 and later lets it do
so where both classes have one provisioner, whatever their parameters; the strategy is that of
``cloneStrategyOverride``, else of the StorageProfile of the new class. It stays on the claim, so
that a changed setting counts for new disks alone. Earlier releases copy by pods where the classes
differ. Sources: kubevirt/containerized-data-importer:pkg/controller/clone/planner.go
#computeStrategyForSourcePVC #validateAdvancedClonePVC, :pkg/controller/clone/common.go
#GetCommonDriver, :pkg/controller/populators/clone-populator.go#getSavedCloneStrategy (in 1.55.2:
pkg/controller/datavolume-controller.go#validateSameStorageClass); cozystack/cozystack#2908.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.model.commands import and_then, kubectl, merge_patch, typed
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import (
    CDI,
    DATA_VOLUME,
    PVC,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    VM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings.running_release import may_be_managed
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut
from virt_admit.model.problems import Problem, ProblemCause

_OWNED: Final = "cdi.kubevirt.io/OwnedByUID"
"""Label of what CDI makes on the way: the UID of the claim for which it does."""
READS: Final[Reads] = {
    CDI: ("metadata.name", "spec.cloneStrategyOverride"),
    PVC: (
        *(f"metadata.labels.{_OWNED}", "metadata.ownerReferences", "metadata.uid"),
        *("spec.dataSource", "spec.storageClassName", "status.phase"),
    ),
    STORAGE_CLASS: (),
    STORAGE_PROFILE: ("status.cloneStrategy",),
}
_CLONE: Final = "csi-clone"
_FAILED: Final = "ProvisioningFailed"
_OVERRIDE: Final = "cloneStrategyOverride"
_LONGEST: Final = 120
_OTHER_CAUSE: Final = re.compile(
    "ResourceExhausted|Unavailable|Unauthenticated|PermissionDenied|no (?:free )?space|not enough"
    "|quota|secret|not found|connection refused",
    re.IGNORECASE,
)
"""Errors that an empty claim of the class, or a copy by pods, would meet just so."""


class _Clone(NamedTuple):
    """A claim that is to be a clone of one in another class."""

    claim: Object
    source: Object
    of: Object
    """The class of the source."""
    into: Object
    """Its own class."""


def of(claim: Object, why: str, cluster: Cluster) -> Problem | None:
    """Return that a claim gets no volume as a clone of one in another class; None: it is none, or
    such a clone has come about here, or other claims of that provisioner fail as well, or the error
    has a cause of its own.

    ``why``: the last error of its provisioner.
    """
    found = _clone(claim, cluster)
    if found is None or _OTHER_CAUSE.search(why):
        return None
    if refusing_storage.of_class(found.into, cluster) is not None:
        return None
    if entry(cluster, _came_about, (found.of.name, found.into.name)):
        return None
    if entry(cluster, _failing, found.into["provisioner"].text or ""):
        return None
    made = claim.labels.get(_OWNED)
    begin = f"{_chooser(found, cluster)} makes it" if made else "it is to be"
    driver = found.into["provisioner"].text or "?"
    reason = (
        f"{begin} a clone of claim {found.source.full_name} of class {found.of.name} in class "
        f"{found.into.name}, which provisioner {driver} does not make ({why}). It may not clone "
        f"between these classes: {_differences(found)}"
    )
    if made:
        return Problem(reason, _copied(found, made, cluster), ProblemCause.NOT_REPORTED)
    words = f"make the claim in class {found.of.name}, or fill an empty one by a copy"
    see = kubectl("describe", PVC, claim.name, claim.namespace)
    return Problem(reason, typed(words, see), ProblemCause.NOT_REPORTED)


def _clone(claim: Object, cluster: Cluster) -> _Clone | None:
    """Return what a claim is to be a clone of; None: nothing, or its classes make like volumes."""
    named = claim.at("spec", "dataSource")
    if named["kind"].text != PVC.kind:
        return None
    source = find(cluster, PVC, claim.namespace, named["name"].text)
    into = find(cluster, STORAGE_CLASS, "", claim.at("spec", "storageClassName").text)
    of_ = find(cluster, STORAGE_CLASS, "", _class(source)) if source is not None else None
    if source is None or into is None or of_ is None or of_.name == into.name:
        return None
    alike = all(of_[key].value == into[key].value for key in ("provisioner", "parameters"))
    return None if alike else _Clone(claim, source, of_, into)


def _class(claim: Object) -> str | None:
    return claim.at("spec", "storageClassName").text


def _differences(found: _Clone) -> str:
    """Return what each class has and the other one has not."""
    of_, into = (
        {"provisioner": each["provisioner"].text, **each["parameters"].map}
        for each in (found.of, found.into)
    )
    return "; ".join(
        f"{name} has {cut(', '.join(_only(own, other)) or 'none of that', _LONGEST)}"
        for name, own, other in ((found.of.name, of_, into), (found.into.name, into, of_))
    )


def _only(own: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    differ = (key for key, value in sorted(own.items()) if other.get(key) != value)
    return [f"{key.rpartition('/')[2]}={own[key]}" for key in differ]


def _came_about(cluster: Cluster) -> Mapping[tuple[str, str], bool]:
    """Return from which class into which other one a clone has got its volume here."""
    bound = (each for each in cluster.known(PVC) if each.at("status", "phase").text == "Bound")
    clones = (_clone(each, cluster) for each in bound)
    return {(each.of.name, each.into.name): True for each in clones if each is not None}


def _failing(cluster: Cluster) -> Mapping[str, bool]:
    """Return the provisioners that also fail with claims that are no such clones."""
    found: dict[str, bool] = {}
    for each in cluster.known(PVC):
        if each.at("status", "phase").text != "Pending" or _clone(each, cluster) is not None:
            continue
        used = find(cluster, STORAGE_CLASS, "", _class(each))
        if used is not None and events.last_warning(each, _FAILED, None, cluster):
            found[used["provisioner"].text or ""] = True
    return found


def _by_uid(cluster: Cluster) -> Mapping[str, Object]:
    return {each.metadata["uid"].text or "": each for each in cluster.known(PVC)}


# --- what CDI chose -------------------------------------------------------------------------------


def _chooser(found: _Clone, cluster: Cluster) -> str:
    """Return who lets the storage clone, with the setting, if that is known."""
    if (cdi := _overriding(cluster)) is not None:
        return f"CDI {cdi.name} (spec.{_OVERRIDE} {_CLONE})"
    profile = find(cluster, STORAGE_PROFILE, "", found.into.name)
    if profile is None or profile.at("status", "cloneStrategy").text != _CLONE:
        return "CDI"
    return f"CDI (StorageProfile {profile.name}, status.cloneStrategy {_CLONE})"


def _overriding(cluster: Cluster) -> Object | None:
    known = (each for each in cluster.known(CDI) if each.at("spec", _OVERRIDE).text == _CLONE)
    return next(known, None)


def _copied(found: _Clone, uid: str, cluster: Cluster) -> str:
    """Return how the disk gets its data by pods of CDI, or in the class of its source."""
    name = found.into.name
    patch = merge_patch(STORAGE_PROFILE, name, "", {"spec": {"cloneStrategy": "copy"}})
    words = f"let CDI copy into class {name} by its pods (cloneStrategy copy of its StorageProfile)"
    steps = typed(words, patch)
    if (cdi := _overriding(cluster)) is not None:
        removed = f"remove spec.{_OVERRIDE} of CDI {cdi.name}, which comes before all profiles"
        written = may_be_managed(cdi, cluster)
        if written:
            removed += " (HyperConverged, if it writes it, has it in a jsonpatch annotation)"
        unset = merge_patch(CDI, cdi.name, "", {"spec": {_OVERRIDE: None}})
        steps = and_then(steps, removed, "" if written else unset)
    own = entry(cluster, _by_uid, uid)
    empty = own is not None and own.at("status", "phase").text == "Pending"
    disk = own.owned_by(DATA_VOLUME.kind) if own is not None and empty else None
    again, gone = "make the empty disk again, as its claim keeps the strategy", ""
    if own is not None and disk:
        owner = find(cluster, DATA_VOLUME, own.namespace, disk)
        by_vm = owner is not None and owner.owned_by(VM.kind)
        makes = "which KubeVirt makes again" if by_vm else "and create it again"
        again = f"delete the empty DataVolume {disk}, whose claim keeps the strategy, {makes}"
        gone = kubectl("delete", DATA_VOLUME, disk, own.namespace)
    steps = and_then(steps, again, gone)
    return f"{steps}; or create the disk in class {found.of.name}, that of its source"
