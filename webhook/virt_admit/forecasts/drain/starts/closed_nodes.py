"""The node of a VM that runs takes no pod that attaches a volume: a cordon, another taint,
or no room.

Such a pod can run on that node alone, so what kube-scheduler counts for the other nodes says
nothing. KubeVirt lets it tolerate a cordon from 1.8 on; before, it has the tolerations of the
launcher pod alone, and none before 1.2. Sources:
kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go#hotplugPodTolerations, pull
request kubevirt/kubevirt#14661;
kubernetes/kubernetes:pkg/scheduler/framework/plugins/nodeunschedulable, :tainttoleration,
:noderesources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import no_target
from virt_admit.forecasts.placement.components.linstor import lost_quorums
from virt_admit.forecasts.placement.running_launchers import COPIES_TOLERATIONS
from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.settings import migration_limits, versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.node_selectors import tolerates

_CORDON: Final = "node.kubernetes.io/unschedulable"
_CORDONED: Final = {"key": _CORDON, "effect": "NoSchedule"}
_DRAIN: Final = "kubevirt.io/drain"
"""The taint that makes KubeVirt empty a node by default;
Harvester's upgrade sets it whatever is configured.
"""
_TOLERATED: Final = Version(1, 8)
_SCHEDULING: Final = "NoSchedule"
_OPPOSING: Final = (_SCHEDULING, "NoExecute")
_SHORT: Final = re.compile(r"Insufficient [\w./-]{1,100}|Too many pods|exceed max volume count")


def closed(vmi: Object, pod: Object, said: str, unplug: str, cluster: Cluster) -> Problem | None:
    """Return why kube-scheduler refuses the node of a VMI to a pod that attaches a volume.

    None: it is not known.

    Args:
        vmi: the VMI.
        pod: the pod that waits.
        said: what kube-scheduler says of it. What the node shows counts only if that agrees.
        unplug: the command that unplugs the volume; empty: the guest has it, so it is not
            unplugged, and the VM does not move.
        cluster: the cluster.
    """
    node = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    if node is None:
        return None
    away = _away(vmi, cluster) if unplug else _Way()
    if (
        _is_cordoned(node)
        and _CORDON_SAID.search(said)
        and not tolerates(pod.at("spec", "tolerations").value, _CORDONED)
    ):
        return _cordoned(node, away, cluster)
    for taint in _taints(node, pod):
        key, effect = taint["key"].text or "", taint["effect"].text or ""
        if _UNTOLERATED in said or f"taint {{{key}:" in said:
            if key in (_DRAIN, migration_limits.drain_taint(cluster)):
                return _drained(node, key, effect, away, cluster)
            return _of_controller(node, key, away, cluster) or _tainted(
                vmi, node, taint, away, unplug, cluster
            )
    short = list(dict.fromkeys(_SHORT.findall(said)))
    if not short:
        return None
    reason = f"{node.name}, where the VM runs, has no room for it ({names(short)})"
    ends = shell("kubectl", "describe", "node", argument(node.name))
    return Problem(reason, typed(f"{away.words}make room on {node.name}", away.command or ends))


_UNTOLERATED: Final = "untolerated taint(s)"
"""What kube-scheduler says of all taints from 1.34 on. Before, it names each with its value."""
_CORDON_SAID: Final = re.compile(r"were unschedulable|node\.kubernetes\.io/unschedulable")


class _Way(NamedTuple):
    """How a VM leaves its node, before another remedy."""

    words: str = ""
    command: str = ""


def _away(vmi: Object, cluster: Cluster) -> _Way:
    if vmis.migratable(vmi) is not True or no_target.nowhere_to_go(vmi, cluster) is not None:
        return _Way()
    return _Way(
        "migrate the VM to another node; or ", virtctl("migrate", vmi.name, vms.namespace_of(vmi))
    )


def _is_cordoned(node: Object) -> bool:
    keys = (taint["key"].text for taint in node.at("spec", "taints").items())
    return node.at("spec", "unschedulable").boolean is True or _CORDON in keys


def _cordoned(node: Object, away: _Way, cluster: Cluster) -> Problem:
    """Return what a cordon means.

    Who cordoned a node decides whether an uncordon by hand lasts and does no harm.
    """
    release, cordon = versions.kubevirt_version(cluster), cordoners.of_node(node, cluster)
    before = release is not None and release < _TOLERATED
    why = "such pods tolerate only from KubeVirt 1.8 on" if before else "the pod does not tolerate"
    by = f" by {cordon.by}" if cordon is not None else ""
    reason = f"{node.name}, where the VM runs, is cordoned{by}, which {why}"
    if cordon is not None and not cordon.uncordon:
        return Problem(reason, _stays(cordon, f"wait until {node.name} is uncordoned", away))
    emptied = cordoners.is_emptied(node.name, cluster)
    end = " once its drain is over" if emptied else ", if its maintenance is over"
    first = f"uncordon {node.name}{end}"
    words = f"{first}; or migrate the VM to another node" if away.words else first
    return Problem(reason, typed(words, shell("kubectl", "uncordon", argument(node.name))))


def _stays(cordon: Cordon, wait: str, away: _Way) -> str:
    """Return the remedy where the node should not be opened by hand meanwhile."""
    stays, _, command = cordon.remedy.partition(": ")
    return typed(f"{away.words}{stays or wait}", away.command or command)


def _drained(node: Object, key: str, effect: str, away: _Way, cluster: Cluster) -> Problem:
    """Return what the taint of a drain means: it goes when what drains the node is done."""
    cordon = cordoners.of_node(node, cluster, drained=True)
    emptied = cordoners.is_emptied(node.name, cluster)
    by = f" by {cordon.by}" if cordon is not None else ""
    reason = (
        f"{node.name}, where the VM runs, is drained{by} (taint {key}), which the pod does not "
        "tolerate"
    )
    if cordon is not None and not cordon.uncordon:
        return Problem(reason, _stays(cordon, f"wait until {node.name} has no such taint", away))
    words = f"remove that taint once {'its drain' if emptied else 'what it was set for'} is over"
    untaint = shell("kubectl", "taint", "nodes", argument(node.name), f"{key}:{effect}-")
    return Problem(reason, typed(f"{away.words}{words}", away.command or untaint))


def _taints(node: Object, pod: Object) -> Iterator[Field]:
    """Yield the taints of a node that keep a pod off, but for a cordon."""
    own = pod.at("spec", "tolerations").value
    for taint in node.at("spec", "taints").items():
        other = taint["key"].text not in (None, "", _CORDON)
        if other and taint["effect"].text in _OPPOSING and not tolerates(own, taint.value):
            yield taint


_TAINTED: Final = "{}, where the VM runs, has taint {}, which the pod does not tolerate"


def _of_controller(node: Object, key: str, away: _Way, cluster: Cluster) -> Problem | None:
    """Return what the taint of a controller means, which it removes itself; None: it is none."""
    reason = _TAINTED.format(node.name, key)
    if (lost := lost_quorums.of_taint(key, cluster)) is not None:
        command = away.command or lost.command
        remedy = typed(f"{away.words}{lost.remedy}", command)
        return Problem(f"{reason}: {lost.reason}", remedy)
    if who := controller_taints.owner(key):
        repair = f"repair what {who} reports with that taint, which it then removes"
        command = away.command or shell("kubectl", "describe", "node", argument(node.name))
        return Problem(reason, typed(f"{away.words}{repair}", command))
    return None


def _tainted(
    vmi: Object, node: Object, taint: Field, away: _Way, unplug: str, cluster: Cluster
) -> Problem:
    """Return what a taint of an administrator means, which keeps a node for some pods.

    A pod that does not tolerate ``NoExecute`` ends when such a taint is set again.
    """
    key, effect = taint["key"].text or "", taint["effect"].text or ""
    reason, ways = _TAINTED.format(node.name, key), []
    bare = not versions.has_release(cluster, COPIES_TOLERATIONS)
    if bare and tolerates(vmi.at("spec", "tolerations").value, taint.value):
        since = COPIES_TOLERATIONS
        reason += f", as KubeVirt gives such pods the tolerations of the VM only from {since} on"
        if unplug:
            ways.append(f"unplug the volume until KubeVirt is updated to {since} or later")
    elif unplug and effect != _SCHEDULING:
        ways.append("unplug the volume")
    command = unplug if ways else ""
    untaint = shell("kubectl", "taint", "nodes", argument(node.name), f"{key}:{effect}-")
    if effect == _SCHEDULING:
        ways.append(
            f"if other pods may come to {node.name} meanwhile, remove that taint until the pod "
            f"runs, then set it again ({nodes.written(taint)})"
        )
        command = command or untaint
    elif not unplug:
        ways.append(f"if other pods may come to {node.name}, remove that taint while the VM runs")
        command = untaint
    if not unplug:
        ways.append("shut the VM down in an orderly way")
    return Problem(reason, typed(f"{away.words}{'; or '.join(ways)}", away.command or command))
