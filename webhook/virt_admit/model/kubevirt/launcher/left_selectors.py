"""Host names that the node selector of a VMI has and its VM has not: of a migration to a node.

Harvester up to 1.6 wrote the target of a migration into the VMI. It takes that out again once the
migration has ended, but one that failed could leave it there. KubeVirt lets no user change the spec
of a VMI. The next VMI is made of the VM's template. Sources: harvester/harvester:
pkg/api/vm/handler.go#migrate, issues 8147 and 8212, :pkg/controller/master/migration/
vmi_controller.go#resetHarvesterMigrationStateInVMI; kubevirt/kubevirt:pkg/virt-api/webhooks/
validating-webhook/admitters/vmi-update-admitter.go#Admit,
:pkg/virt-controller/watch/vm/vm.go#setupVMIFromVM.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import VM, VMI, VMIM
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vmis

if TYPE_CHECKING:  # to load it takes longer than this module
    from virt_admit.model.scheduler.pods import Pod

MIGRATION_TARGET: Final = "harvesterhci.io/migrationTargetNodeName"
"""The annotation with which Harvester marks the target of a migration in the VMI."""
MIGRATION_UID: Final = "harvesterhci.io/migrationUID"
"""That with the uid of the migration."""
READS: Final[Reads] = {
    VM: ("spec.template.spec.nodeSelector", "spec.instancetype"),
    VMI: ("metadata.ownerReferences", "spec.nodeSelector", "status.phase"),
}
AIMED_READS: Final[Reads] = union(
    migrations.READS,
    {
        VMI: tuple(f"metadata.annotations.{key}" for key in (MIGRATION_TARGET, MIGRATION_UID)),
        VMIM: ("metadata.uid",),
    },
)
"""What tells whether a migration under way wrote the host name."""


def host(vmi: Object, cluster: Cluster) -> str:
    """Return the host that the selector of a running VMI alone names; empty: its VM names one too,
    it names none, or that is not known."""
    named = vmi.at("spec", "nodeSelector")[HOSTNAME].text or ""
    if not named or kinds.of(vmi) is not VMI or vmi.at("status", "phase").text != "Running":
        return ""
    vm = vmis.known_vm(vmi, cluster)
    if vm is None or vm.at("spec", "instancetype").present:  # an instance type may have a selector
        return ""
    own = vm.at("spec", "template", "spec", "nodeSelector")
    return "" if own[HOSTNAME].present else named


def aimed_by(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the migration under way for which Harvester wrote the host name into a VMI, and after
    which it takes that out again; None: none is known.
    """
    return next(iter(_aiming(vmi, cluster)[0]), None)


class Aim(NamedTuple):
    """What is known of a migration that Harvester aimed at a node; empty: nothing."""

    words: str = ""
    """To be put behind a reason."""
    remedy: str = ""


def aim(vmi: Object, cluster: Cluster) -> Aim:
    """Return at which node Harvester aimed the migration under way, and how it is aborted."""
    migration = aimed_by(vmi, cluster)
    if migration is None:
        return Aim()
    words = (
        f"; Harvester aimed it at {vmi.annotations.get(MIGRATION_TARGET)}, and takes that node "
        "selector out of the VMI again once it has ended"
    )
    abort = about("delete", migration, VMIM)
    first = f"to move the VM before that, abort migration {migration.name}"
    return Aim(words, typed(first, abort, "then migrate it to a node that can run it"))


def passes(vmi: Object, cluster: Cluster) -> bool:
    """Whether the host name of a VMI goes with a migration under way.

    Raises:
        Unseen: such a migration may be there.
    """
    aiming, unread = _aiming(vmi, cluster)
    if unread and not aiming:
        raise Unseen(unread)
    return bool(aiming)


def _aiming(vmi: Object, cluster: Cluster) -> tuple[list[Object], str]:
    """Return the same migration, and what could not be read if it may be there."""
    uid, named = vmi.annotations.get(MIGRATION_UID), vmi.at("spec", "nodeSelector")[HOSTNAME].text
    if (
        kinds.of(vmi) is not VMI
        or not uid
        or not named
        or vmi.annotations.get(MIGRATION_TARGET) != named
    ):
        return [], ""
    under_way, unread = gather(migrations.unfinished(vmi, cluster))
    return [each for each in under_way if each.metadata["uid"].text == uid], unread


def after_migration(pod: Pod, vmi: Object, cluster: Cluster) -> Pod:
    """Return the target pod of the migration after the one under way, which takes its host name
    with it."""
    return pod if aimed_by(vmi, cluster) is None else _anywhere(pod)


def without(pod: Pod, vmi: Object, cluster: Cluster) -> Pod:
    """Return the next pod of a VM: its next VMI has no host name that this one alone has."""
    return _anywhere(pod) if host(vmi, cluster) else pod


def _anywhere(pod: Pod) -> Pod:
    kept = {key: value for key, value in pod.node_selector.items() if key != HOSTNAME}
    return replace(pod, node_selector=kept)
