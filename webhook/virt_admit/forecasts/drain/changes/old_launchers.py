"""VMs whose launchers are older than KubeVirt, and what gives them new ones.

KubeVirt updates running VMs by the methods in ``workloadUpdateMethods`` alone, and upstream lists
none: it only counts them then. Each migration, also that of a drain, and each restart makes a pod
of the present release. Source:
kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.control import kubevirt_updates
from virt_admit.forecasts.drain.failures import failed_starts
from virt_admit.forecasts.drain.starts import crashed_launchers
from virt_admit.forecasts.placement import candidates
from virt_admit.model.evidence.writes import fleet_objects
from virt_admit.model.kubernetes import workloads
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.versions import kubevirt_version, parse_version
from virt_admit.model.messages import count, cut, names, shorten
from virt_admit.model.node_updates import harvester_upgrades


class SwitchedOff(NamedTuple):
    """What updates the launchers where no method is listed."""

    words: str
    goes_on: bool
    """Whether something moves them by itself."""


def number(kubevirt: Object, cluster: Cluster) -> int:
    """Return how many launchers KubeVirt counts as outdated, without VMs that only wait for a
    change of themselves; 0: none, or its status is not settled.
    """
    status = kubevirt["status"]
    counted = status["outdatedVirtualMachineInstanceWorkloads"].integer
    if status["phase"].value != "Deployed" or not counted or counted < 0:
        return 0
    return max(counted - workload_updates.changed(cluster), 0)


def switched_off(kubevirt: Object, cluster: Cluster) -> SwitchedOff:
    """Return what updates the launchers if KubeVirt lists no method: it starts with one at once."""
    chart = fleet_objects.chart_of(kubevirt)
    if not chart:
        return SwitchedOff(f"updates are switched off. {_list(cluster)}", goes_on=False)
    if harvester_upgrades.keeps_launchers(cluster):
        moves = "moves them when it drains their nodes"
        return SwitchedOff(f"the upgrade of Harvester, which is under way, {moves}.", goes_on=True)
    listed = f"List LiveMigrate in spec.values of ManagedChart {cut(chart, 60)}"
    return SwitchedOff(f"updates are switched off. {listed}.", goes_on=False)


def _list(cluster: Cluster) -> str:
    """Return the remedy where no method is listed: a method starts the migrations at once."""
    vm, bad = crashed_launchers.unfit(cluster)
    if vm:
        return (
            f"Repair {names(bad, 60)} first, where launchers crash ({vm}), then list LiveMigrate."
        )
    for vmi in workload_updates.outdated(cluster):
        target = candidates.target(vmi, cluster, moves=True)
        if failing := failed_starts.doubt(vmi, target, cluster):
            cause = shorten(failing.reason, 160).rstrip(".")
            return f"List LiveMigrate once {vmi.full_name} can migrate: now {cause}."
    return "List LiveMigrate in workloadUpdateMethods, or use virtctl migrate for single VMs."


_WHICH: Final = 120


def beside_upgrade(cluster: Cluster) -> str:
    """Return which VMs run old launchers and what updates them, beside an upgrade of nodes; empty:
    none does, or KubeVirt is being updated.
    """
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    old = number(kubevirt, cluster) if kubevirt is not None else 0
    if kubevirt is None or not old or kubevirt_updates.is_under_way(kubevirt):
        return ""
    if fleet_objects.chart_of(kubevirt) and any(more_may_exist(cluster, HARVESTER_UPGRADE)):
        return ""
    runs = "runs" if old == 1 else "run"
    who = f"{count(old, 'VM')}{_which(cluster)} {runs} {_launchers(cluster, old)}"
    release = kubevirt_version(cluster)
    present = f" (KubeVirt is {release})" if release is not None else ""
    methods = workload_updates.methods(kubevirt)
    moved = "A drain that migrates or restarts such a VM updates it too."
    if methods:
        by = " and ".join(sorted(methods))
        return (
            f"{who}{present}. KubeVirt updates them by itself with {by}, if that reaches them. "
            f"{moved} See virt-admit drain --all."
        )
    said = switched_off(kubevirt, cluster)
    if said.goes_on:
        return f"{who}{present}: {said.words}"
    listed = "workloadUpdateMethods of KubeVirt lists no method, so KubeVirt moves none of them"
    remedy = said.words.partition(". ")[2]
    return f"{who}{present}: {listed}. {moved} {remedy}"


def _which(cluster: Cluster) -> str:
    known = names(sorted(each.full_name for each in workload_updates.outdated(cluster)), _WHICH)
    return f" ({known})" if known else ""


def _launchers(cluster: Cluster, old: int) -> str:
    """Return ``launchers of 1.5.2``, or ``old launchers`` if their images do not say."""
    images = (
        each.at("status", "launcherContainerImageVersion").text or ""
        for each in workload_updates.outdated(cluster)
    )
    releases = {parse_version(workloads.image_tag(image)) for image in images}
    known = sorted(each for each in releases if each is not None)
    several = "" if old == 1 else "s"
    if not known or None in releases:
        return "an old launcher" if old == 1 else "old launchers"
    return f"{'a ' * (old == 1)}launcher{several} of {names(map(str, known), 60)}"
