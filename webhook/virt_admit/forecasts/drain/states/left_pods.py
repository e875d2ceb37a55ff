"""A launcher pod that a guest has left, and that stays: a container beside the guest's does not
end, or nothing ends it.

KubeVirt ends ``compute`` after a migration. A sidecar has to end by itself: hooks of v1alpha3 are
told to (``Shutdown``), older ones are not. No further target pod is made while two pods of a VMI
run. Where ``compute`` runs on, only a look into the pod tells that it has no guest (issue 16622).
Sources: kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go
#handleTargetPodCreation; pull request 10046; issues 8395, 9838, 18320.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.failed_migrations import old_sidecars
from virt_admit.forecasts.drain.failed_migrations.old_sidecars import Sidecar
from virt_admit.forecasts.drain.states import dying_pods, vm_states_motion
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.messages import names

_GUEST: Final = "compute"
_USUAL: Final = timedelta(minutes=5)


class LeftPod(NamedTuple):
    """A pod whose guest has ended although it runs."""

    vmi: Object
    pod: Object
    kept_by: str
    """Its containers that run."""
    ended: str
    """How and when the guest's own container ended, as `` with exit code 0 at 08:45 UTC``."""
    migration: str
    """The finished migration of which it was the source; empty: not known."""
    age: timedelta
    sidecar: Sidecar | None = None
    """The setting that names the image of what keeps it; None: none is known."""

    @property
    def node(self) -> str:
        return self.pod.at("spec", "nodeName").text or ""

    @property
    def reason(self) -> str:
        """Why it stays, without what waits for it."""
        what = f"source pod {self.pod.name} on {self.node} of the finished migration"
        role = f"{what}{f' {self.migration}' if self.migration else ''}"
        several = "s" if "," in self.kept_by else ""
        do = "have" if several else "has"
        return (
            f"{role} still runs: its container{several} {self.kept_by} {do} not ended, while "
            f"{_GUEST} ended{self.ended}{f'; {self.sidecar.words}' if self.sidecar else ''}"
        )

    @property
    def remedy(self) -> str:
        """What ends it. The guest is elsewhere, so that nothing of it is lost."""
        here = self.vmi.at("status", "nodeName").text
        words = (
            f"the guest runs on {here}, so delete that pod (sidecars of hooks v1alpha3 end by "
            "themselves since 1.2)"
        )
        further = self.sidecar.further if self.sidecar is not None else ""
        return typed(words, kubectl("delete", POD, self.pod.name, self.pod.namespace), further)


class StalePod(NamedTuple):
    """A pod from which a guest has migrated, and that KubeVirt has not ended."""

    vmi: Object
    pod: Object
    migration: str
    """The finished migration of which it was the source; empty: not known."""
    age: timedelta
    """Since the end of the migration."""
    waits: str
    """The next migration, which has no target pod; empty: there is none."""

    @property
    def here(self) -> str:
        """Where the guest runs."""
        return self.vmi.at("status", "nodeName").text or ""

    @property
    def reason(self) -> str:
        """Why no migration starts, with the pod and the node of the guest."""
        migration = f"migration {self.migration}" if self.migration else "its last migration"
        node = self.pod.at("spec", "nodeName").text
        waits = f", so {self.waits} waits" if self.waits else ""
        return (
            f"its source pod {self.pod.name} on {node} still runs {clock.duration(self.age)} after "
            f"{migration} succeeded; the guest runs on {self.here}, and KubeVirt makes no target "
            f"pod while two pods of it run{waits}"
        )

    @property
    def remedy(self) -> str:
        """What ends it: a look into the pod comes first,
        since two guests on one disk destroy its data.
        """
        delete = kubectl("delete", POD, self.pod.name, self.pod.namespace)
        return typed(
            f"see that the source pod lists no guest any more, then delete that pod ({delete})",
            list_guests(self.pod),
        )


def list_guests(pod: Object) -> str:
    """Return the command that lists the guests that run in a launcher pod."""
    where = (argument(pod.name), "-n", pod.namespace, "-c", _GUEST)
    return shell("kubectl", "exec", *where, "--", "virsh", "list")


def stale(vmi: Object, cluster: Cluster) -> StalePod | None:
    """Return the pod that nothing ends although its guest has migrated for at least five minutes;
    None: there is none.
    """
    state = vmi.at("status", "migrationState")
    age = clock.since(state["endTimestamp"].text, cluster)
    moved = dying_pods.target(vmi, state["sourceNode"].text or "-")
    if not moved or age is None or age < _USUAL or vmi.condition("Ready")["status"].text == "False":
        return None
    pod = _source(vmi, cluster)
    if pod is None or _guest(pod).at("state", "terminated").present:
        return None
    waits = waiting(vmi, cluster)
    return StalePod(
        vmi, pod, _migration(vmi, cluster), age, waits.name if waits is not None else ""
    )


def of_vmi(vmi: Object, cluster: Cluster) -> LeftPod | None:
    """Return the pod that the guest of a VMI has left for at least five minutes; None: there is
    none, or it may be needed.
    """
    state = vmi.at("status", "migrationState")
    if (
        not vmi.at("status", "nodeName").text
        or state["completed"].boolean is not True
        or vm_states_motion.has_failed(state)
    ):
        return None
    pod = _source(vmi, cluster)
    return next(_left(vmi, pod, cluster), None) if pod is not None else None


def _source(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the pod of a VMI that lives on the source node of its last migration, and that no
    other migration needs.
    """
    here = vmi.at("status", "nodeName").text
    source = vmi.at("status", "migrationState", "sourceNode").text
    targets = vm_states_motion.motion(cluster).targets
    needed = {
        pod.name for each in _unfinished(vmi, cluster) if (pod := targets.get(each)) is not None
    }
    for pod in vm_states_motion.own_pods(vmi, cluster):
        node = pod.at("spec", "nodeName").text
        free = node == source and node != here and pod.name not in needed and not pod.deleted
        if free and vm_states_motion.lives(pod):
            return pod
    return None


def _unfinished(vmi: Object, cluster: Cluster) -> Iterator[str]:
    for migration in migrations.own(vmi, cluster):
        if not migration.ended:
            yield migration.metadata["uid"].text or "-"


def _left(vmi: Object, pod: Object, cluster: Cluster) -> Iterator[LeftPod]:
    statuses = {each["name"].text: each for each in pod.at("status", "containerStatuses").items()}
    ended = _guest(pod).at("state", "terminated")
    age = clock.since(ended["finishedAt"].text, cluster)
    running = [
        name for name, each in statuses.items() if name and each.at("state", "running").present
    ]
    if age is None or age < _USUAL or not running:
        return
    code, at = ended["exitCode"].integer, clock.instant(ended["finishedAt"].text)
    how = f" with exit code {code}" if code is not None else ""
    when = (
        f" at {at:%H:%M} UTC"
        if at is not None and age < timedelta(hours=24)
        else f" {clock.duration(age)} ago"
    )
    known = (old_sidecars.of(vmi, pod, name, cluster) for name in running)
    sidecar = next(filter(None, known), None)
    yield LeftPod(vmi, pod, names(running), f"{how}{when}", _migration(vmi, cluster), age, sidecar)


def _guest(pod: Object) -> Field:
    """Return the status of the container in which the guest runs; absent: the pod has none."""
    return pod.at("status", "containerStatuses").named(_GUEST)


def _migration(vmi: Object, cluster: Cluster) -> str:
    uid = vmi.at("status", "migrationState", "migrationUid").text
    return next(
        (each.name for each in migrations.own(vmi, cluster) if each.metadata["uid"].text == uid), ""
    )


def waiting(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the migration of a VMI that is Pending without a target pod; None: there is none."""
    targets = vm_states_motion.motion(cluster).targets
    for migration in migrations.own(vmi, cluster):
        pending = migration.at("status", "phase").text in (None, "", vm_states_motion.PENDING)
        if pending and (migration.metadata["uid"].text or "-") not in targets:
            return migration
    return None
