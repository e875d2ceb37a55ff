"""Changes of a running VM that only a migration brings to its guest: CPUs, memory, interfaces.

KubeVirt's workload updater makes that migration, and only with a method for it in
``workloadUpdateMethods``; upstream lists none. A migration that a user asks for brings the change
as well. Sources: kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go
#doesRequireMigration #getUpdateData, :pkg/virt-handler/migration-target.go#hotplugCPU
#hotplugMemory, issue #17329.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.guests import changed_disks, restart_guard
from virt_admit.forecasts.drain.room import unbound_claims
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migrations, vmis, vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause


def pending(vmi: Object) -> str:
    """Return which change of a running VM its guest does not have yet; empty: none is known."""
    return names(_pending(vmi))


def _pending(vmi: Object) -> Iterator[str]:
    cpus, memory, interfaces = (vmi.is_true(kind) for kind in vmis.HOTPLUGS)
    if cpus:
        wanted = vmi.at("spec", "domain", "cpu", "sockets").integer
        has = vmi.at("status", "currentCPUTopology", "sockets").integer
        figures = f"{wanted} sockets wanted, {has} in the guest, " if wanted and has else ""
        yield f"a hotplug of its CPUs ({figures}{vmis.HOTPLUGS[0]})"
    if memory:
        wants = vmi.at("spec", "domain", "memory", "guest").text
        holds = vmi.at("status", "memory", "guestCurrent").text
        figures = f"{wants} wanted, {holds} in the guest, " if wants and holds else ""
        yield f"a hotplug of its memory ({figures}{vmis.HOTPLUGS[1]})"
    if interfaces:
        yield f"a change of its network interfaces ({vmis.HOTPLUGS[2]})"


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a change of a running VM does not reach its guest, as KubeVirt makes no migration
    for it, and what brings it; None: it does, or that is not known.
    """
    what = pending(vmi)
    methods = workload_updates.in_force(cluster) if what and vmis.running(vmi) else None
    if methods is None or _migrates(vmi, cluster):
        return None
    found = workload_updates.update(vmi, methods, cluster)
    if found.reach is not Reach.NEVER:
        return None
    waits, namespace = f"{what} is pending, which only a migration brings", vms.namespace_of(vmi)
    if vmis.migratable(vmi) is False:
        name = vmis.owner(vmi, VM.kind)
        remedy = "make it migratable"
        if name is not None:
            command = virtctl("restart", name, namespace)
            words = "restart the VM, which starts it with the change"
            remedy = typed(f"{words}{restart_guard.later(vmi, cluster)}", command)
        remedy = changed_disks.safe(remedy, vmi, cluster)
        return Problem(f"{waits}, but {found.reason}", remedy, ProblemCause.NOT_CREATED)
    setting = f"workloadUpdateMethods of {_setting(cluster)}"
    why = found.reason if methods else f"{setting} lists no LiveMigrate"
    reason = f"{waits}, and KubeVirt makes none for it: {why}"
    if (trouble := unbound_claims.never_completes(vmi, cluster)) is not None:
        reason = f"{reason}. One that is asked for does not complete: {trouble.reason}"
        return Problem(reason, trouble.remedy, ProblemCause.NOT_CREATED)
    listed = f" (so that KubeVirt does that by itself, list LiveMigrate in {setting})"
    if workload_updates.LIVE_MIGRATE in methods:
        listed = ""
    words = f"migrate the VM once, without a restart of its guest{listed}"
    remedy = typed(words, virtctl("migrate", vmi.name, namespace))
    return Problem(reason, remedy, ProblemCause.NOT_CREATED)


def _migrates(vmi: Object, cluster: Cluster) -> bool:
    try:
        return any(migrations.unfinished(vmi, cluster))
    except Unseen:
        return True  # not known


def _setting(cluster: Cluster) -> str:
    """Return the object with the update methods: HyperConverged writes those of KubeVirt."""
    for read in (configuration.hyperconverged, configuration.kubevirt):
        found = configuration.known_or_none(read, cluster)
        if found is not None:
            return f"{found.kind} {found.full_name}"
    return "KubeVirt"
