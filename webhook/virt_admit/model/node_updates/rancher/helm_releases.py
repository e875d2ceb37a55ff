"""Releases of Helm that an interrupted operation has left: Helm refuses each other one on them.

The pod that ran the operation was ended, such as Fleet's agent by its own upgrade. Old agents of
Fleet never roll it back. The status is a label of the Secret that holds a revision. Live clusters
are never asked for Secrets. Sources: helm/helm:pkg/action/upgrade.go (errPending),
:pkg/storage/driver/secrets.go#newSecretsObject, :pkg/action/rollback.go;
rancher/fleet:internal/helmdeployer/deployer.go#getOpts; harvester/harvester#1983, #3616, #9738,
pull request 9934 (which waits for five minutes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import FLEET_BUNDLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union

READS: Final[Reads] = union(
    clock.READS,
    {FLEET_BUNDLE: ("spec.defaultNamespace", "spec.targetNamespace", "spec.helm.releaseName")},
)
_SECRET: Final = kinds.guess("v1", "Secret")
"""Only snapshots may hold it. Its labels are enough."""
BUSY: Final = "another operation (install/upgrade/rollback) is in progress"
"""What Helm answers."""
_PENDING: Final = "pending-"
_GOOD: Final = ("superseded", "deployed")
"""Statuses of revisions that were complete once, the best at the end."""
_PATIENCE: Final = timedelta(minutes=15)
"""Charts wait for their pods for ten minutes."""


class HeldRelease(NamedTuple):
    """A release of Helm that accepts no operation."""

    reason: str
    remedy: str
    known: bool
    """Whether its revisions were read."""


class _Revision(NamedTuple):
    """One revision of a release."""

    number: int
    status: str
    secret: Object


def of_bundle(bundle: Object, said: str, then: str, cluster: Cluster) -> HeldRelease | None:
    """Return which release keeps Fleet from applying a bundle; None: another cause, or none now.

    Args:
        bundle: the bundle of Fleet.
        said: what Fleet reports.
        then: what follows from the remedy, as a clause.
        cluster: the cluster.
    """
    spec = bundle["spec"]
    namespace = spec["targetNamespace"].text or spec["defaultNamespace"].text
    name = spec.at("helm", "releaseName").text or bundle.name
    if BUSY not in said or not namespace:
        return None
    revisions = _revisions(cluster).get((namespace, name))
    if revisions and clock.age(revisions[-1].secret, cluster) is not None:
        return _held(namespace, name, revisions, then, cluster)
    history = _history(namespace, name)
    back = "roll it back to its last deployed revision (helm rollback)"
    words = f"Unless a pod still works on it, {back}, {then}"
    ended = "has not ended, mostly as it was interrupted"
    reason = f"an earlier operation with Helm release {namespace}/{name} {ended}"
    return HeldRelease(reason, typed(f"{words}. See its history", history), known=False)


def held(releases: Iterable[tuple[str, str]], then: str, cluster: Cluster) -> Iterator[HeldRelease]:
    """Yield those of some releases (namespace and name) that an interrupted operation has left."""
    known = _revisions(cluster)
    for namespace, name in releases:
        found = _held(namespace, name, known.get((namespace, name), ()), then, cluster)
        if found is not None:
            yield found


def _held(
    namespace: str, name: str, revisions: tuple[_Revision, ...], then: str, cluster: Cluster
) -> HeldRelease | None:
    """Return that the last revision of a release is pending; None: it is not, or has just begun."""
    last = revisions[-1] if revisions else None
    if last is None or not last.status.startswith(_PENDING):
        return None
    age = clock.age(last.secret, cluster)
    if age is None or age < _PATIENCE:
        return None
    left = f"{last.status} (revision {last.number}) for {clock.duration(age)}"
    by = "by an operation that was interrupted, and this does not end by itself"
    reason = f"Helm release {namespace}/{name} was left in {left} {by}"
    older = [each for each in revisions[:-1] if each.status in _GOOD]
    good = sorted(older, key=lambda each: (_GOOD.index(each.status), each.number))
    unread = unlisted(cluster, _SECRET)
    if good and not unread:
        back = shell("helm", "rollback", argument(name), str(good[-1].number), "-n", namespace)
        state = good[-1].status
        words = f"Roll it back to revision {good[-1].number} ({state}), {then}"
        return HeldRelease(reason, typed(words, back), known=True)
    if last.status == f"{_PENDING}install" and not unread:
        delete = kubectl("delete", _SECRET, last.secret.name, namespace)
        words = f"Delete the record of that revision, as none was deployed before, {then}"
        return HeldRelease(reason, typed(words, delete), known=True)
    words = (
        f"Roll it back to the last revision that was deployed, {then}. See which one in its history"
    )
    return HeldRelease(reason, typed(words, _history(namespace, name)), known=True)


def _history(namespace: str, name: str) -> str:
    return shell("helm", "history", argument(name), "-n", namespace)


@cached
def _revisions(cluster: Cluster) -> Mapping[tuple[str, str], tuple[_Revision, ...]]:
    """Return the known revisions of all releases by namespace and name, the last one at the end."""
    found: dict[tuple[str, str], list[_Revision]] = {}
    for secret in cluster.known(_SECRET):
        labels = secret.labels
        name, number = labels.get("name", ""), labels.get("version", "")
        if labels.get("owner") == "helm" and name and number.isdecimal() and len(number) <= _DIGITS:
            revision = _Revision(int(number), labels.get("status", ""), secret)
            found.setdefault((secret.namespace, name), []).append(revision)
    return {key: tuple(sorted(each, key=lambda one: one.number)) for key, each in found.items()}


_DIGITS: Final = 9
