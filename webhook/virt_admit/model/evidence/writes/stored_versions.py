"""Versions in which objects of a CustomResourceDefinition were once stored.

The API server refuses a definition without a version of ``status.storedVersions``, which it never
shortens itself: an object may be stored in it. It encodes each object that is written in the
storage version of that time. A StorageVersionMigration writes all of them; its ``version`` is that
of the requests, so an earlier one does not show in which version they are stored. Sources:
kubernetes/apiextensions-apiserver:pkg/apis/apiextensions/validation/validation.go
#ValidateCustomResourceDefinitionStoredVersions;
kubernetes/apiserver:pkg/storage/etcd3/store.go#GuaranteedUpdate (data that differ are written);
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/
custom-resource-definition-versioning (upgrade existing objects to a new stored version);
okd-project/okd#2195.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, merge_patch, shell, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names

CRD: Final = kinds.guess("apiextensions.k8s.io/v1", "CustomResourceDefinition")._replace(
    namespaced=False
)
_MIGRATIONS: Final = tuple(
    kinds.guess(f"{group}/v1alpha1", "StorageVersionMigration")._replace(namespaced=False)
    for group in ("migration.k8s.io", "storagemigration.k8s.io")
)
"""Of OpenShift and of Kubernetes. Only snapshot files have these kinds."""
_REFUSED: Final = re.compile(
    r'customresourcedefinition \\?"([a-z0-9.-]{1,253})\\?".{0,200}(?:is|: ) ?invalid', re.IGNORECASE
)


class LeftVersions(NamedTuple):
    """Stored versions of a CustomResourceDefinition in which objects are stored no longer."""

    name: str
    versions: Sequence[str]
    """Those that may go."""
    storage: str
    """The version in which objects are stored now."""
    unused: str
    """What shows that no object is left in the others; empty: nothing does."""
    migration: str = ""
    """Which migration has written all objects before, as a clause; empty: none is known."""

    @property
    def words(self) -> str:
        """What is left, as a clause."""
        every = ", ".join((*self.versions, self.storage))
        which = " and ".join(self.versions)
        kept = f", although {self.unused}" if self.unused else ""
        return (
            f"CustomResourceDefinition {self.name} has {every} in status.storedVersions and "
            f"storage version {self.storage}{kept}: one without {which} is refused as invalid"
        )

    @property
    def remedy(self) -> str:
        """How they go; without a proof, after each object was written again."""
        stored = {"status": {"storedVersions": [self.storage]}}
        patch = merge_patch(CRD, self.name, "", stored, "--subresource=status")
        which = names(self.versions)
        if not self.unused:
            last = f"only then take {which} out of its status.storedVersions ({patch}); {_THEN}"
            return rewrite(self.name, self.storage, last, self.migration)
        begin = f"Take {which} out of status.storedVersions, as {self.unused}"
        return typed(begin, patch, _THEN)


_THEN: Final = "the update then goes on by itself"


def _written(name: str) -> str:
    return f"kubectl get {name} -A -o json | kubectl replace -f -"


def rewrite(name: str, storage: str, then: str, before: str = "") -> str:
    """Return how the objects of a definition are stored in its storage version, and what then.

    ``before``: what has written them before, as a clause.
    """
    known = storage or "the present storage version"
    note = f" ({before}, when {known} may not have been the storage version)" if before else ""
    return typed(
        f"Write all {name} again unchanged, so that each is stored as {known}{note}",
        _written(name),
        then,
    )


def refused(words: str, cluster: Cluster) -> LeftVersions | None:
    """Return the stored versions that may be why a definition is refused as invalid; None: words
    are about something else, or it has none that may go, as far as is known.
    """
    named = _REFUSED.search(words)
    found = definition(named[1], cluster) if named is not None else None
    storage = storage_version(found)
    if found is None or not storage:
        return None
    stored = [each.text or "" for each in found.at("status", "storedVersions").items()]
    left = [each for each in stored if each and each != storage]
    if not left:
        return None
    none = _none_exists(found, storage, cluster)
    done = "" if none else migration(found, storage, cluster)
    return LeftVersions(found.name, left, storage, none, done)


def definition(name: str, cluster: Cluster) -> Object | None:
    """Return a definition; None: it is not known."""
    return next((each for each in cluster.known(CRD) if each.name == name), None)


def storage_version(crd: Object | None) -> str:
    """Return the version in which the objects of a definition are stored; empty: not known."""
    versions = crd.at("spec", "versions").items() if crd is not None else ()
    return next((each["name"].text or "" for each in versions if each["storage"].boolean), "")


def edit(name: str) -> str:
    """Return the command that opens the status of a definition."""
    return kubectl("edit", CRD, name, "", "--subresource=status")


def show(name: str) -> str:
    """Return the command that shows a definition."""
    return shell("kubectl", "get", CRD.plural, name, "-o", "yaml")


def migration(crd: Object, storage: str, cluster: Cluster) -> str:
    """Return which migration has written all objects, as a clause; empty: none is known."""
    group, plural = crd.at("spec", "group").text, crd.at("spec", "names", "plural").text
    for each in (each for kind in _MIGRATIONS for each in cluster.known(kind)):
        asked, done = each.at("spec", "resource"), each.condition("Succeeded")
        found = tuple(asked[key].text for key in ("group", "resource", "version"))
        if found == (group, plural, storage) and done["status"].text == "True":
            when = (done["lastUpdateTime"].text or "")[:10]
            on = f" on {when}" if when else ""
            return f"StorageVersionMigration {each.name} wrote them before{on}"
    return ""


def _none_exists(crd: Object, storage: str, cluster: Cluster) -> str:
    """Return that no object of a definition exists; empty: that is not known."""
    spec, own = crd["spec"], crd.at("spec", "names")
    kind = Kind(
        spec["group"].text or "", (storage,), own["plural"].text or "", own["kind"].text or ""
    )
    unknown = not kind.plural or cluster.known(kind) or unlisted(cluster, kind)
    return "" if unknown else "no such object exists"
