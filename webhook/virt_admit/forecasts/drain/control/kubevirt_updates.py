"""An update of KubeVirt that does not end: what keeps virt-operator from replacing its components.

virt-operator replaces virt-handler first, on one node and then on a few at a time, and goes on
after every node has a ready one of the new release. A pod of a node that does not report never
ends, and counts as one of those that may be unavailable. VMs run on meanwhile. What it may not
write ends each of its tries, which it repeats without end. Sources:
kubevirt/kubevirt:pkg/virt-operator/resource/apply/apps.go#processCanaryUpgrade,
:pkg/virt-operator/util/readycheck.go#DaemonsetIsReady,
:pkg/virt-operator/util/client.go#UpdateConditionsUpdating #UpdateConditionsFailedError;
kubernetes/kubernetes:pkg/controller/daemon/update.go#rollingUpdate.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.control import update_starts
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.evidence.writes import escalations
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import DAEMON_SET, KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut, cut_middle, ended, sentence, shorten
from virt_admit.model.node_updates.operators import node_removals, orphaned_nodes

_HANDLER: Final = "virt-handler"
_UNDER_WAY: Final = "UpdateInProgress"
_FAILED: Final = "DeploymentFailed"
READS: Final[Reads] = union(
    virt_handlers.READS,
    awaited_return.READS,
    update_starts.READS,
    {
        KUBEVIRT: (),
        DAEMON_SET: (
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            "status.desiredNumberScheduled",
            "status.updatedNumberScheduled",
        ),
    },
)
_USUAL: Final = timedelta(minutes=30)
"""An update of a small cluster takes ten minutes. A node is rebooted in less."""


class HeldUpdate(NamedTuple):
    """An update of KubeVirt that does not end by itself."""

    kubevirt: Object
    reason: str
    remedy: str
    nodes: tuple[str, ...]
    """The nodes whose virt-handler cannot be replaced."""
    brief: str
    """The reason and the remedy in as few words as a finding has."""

    @property
    def note(self) -> str:
        """What is said of it beside a drain of nodes."""
        return sentence(f"{self.reason}. {capital(self.remedy)}")


def is_under_way(kubevirt: Object) -> bool:
    """Return whether a KubeVirt says that it is being updated."""
    progressing = kubevirt.condition("Progressing")
    return progressing["status"].text == "True" and progressing["reason"].text == _UNDER_WAY


def has_failed(kubevirt: Object) -> bool:
    """Return whether the last try of virt-operator to bring a KubeVirt to its release failed."""
    synchronized = kubevirt.condition("Synchronized")
    return synchronized["status"].text == "False" and synchronized["reason"].text == _FAILED


def under_way(cluster: Cluster) -> str:
    """Return that an update to another release goes on, as far as is known; empty:
    none is under way, or it is held.
    """
    if held(cluster) is not None:
        return ""
    for kubevirt in filter(is_under_way, cluster.known(KUBEVIRT)):
        before, after = (
            kubevirt.at("status", f"{each}KubeVirtVersion").text for each in ("observed", "target")
        )
        if before and after and before != after:
            lasts = clock.since(
                kubevirt.condition("Progressing")["lastTransitionTime"].text, cluster
            )
            failed = "; its last try failed" if has_failed(kubevirt) else ""
            since = f" (under way for {clock.duration(lasts)}{failed})" if lasts is not None else ""
            return f"the update of KubeVirt from {before} to {after}{since}"
    return ""


@cached
def held(cluster: Cluster) -> HeldUpdate | None:
    """Return what keeps an update of KubeVirt from its end; None: none is under way,
    or it goes on as far as is known.
    """
    return next(
        (each for kubevirt in cluster.known(KUBEVIRT) for each in _of(kubevirt, cluster)), None
    )


def _of(kubevirt: Object, cluster: Cluster) -> Iterator[HeldUpdate]:
    progressing = kubevirt.condition("Progressing")
    target = kubevirt.at("status", "targetKubeVirtVersion").text
    lasts = clock.since(progressing["lastTransitionTime"].text, cluster)
    failed = has_failed(kubevirt)
    if not (is_under_way(kubevirt) or failed) or lasts is None or lasts < _USUAL:
        return
    to = target or "another release"
    same = target and target == kubevirt.at("status", "observedKubeVirtVersion").text
    what = f"deployment of KubeVirt {to}" if same else f"update of KubeVirt to {to}"
    update = f"the {what} has lasted for {clock.duration(lasts)}"
    if failed:
        yield from _failed(kubevirt, update, cluster)
        return
    silent = [node.name for node in cluster.known(NODE) if _is_lost(node.name, cluster)]
    if silent:
        which = ", ".join(
            f"{name}, which {node_health.silent_for(name, cluster)}" for name in silent[:2]
        )
        which += f" and {len(silent) - 2} more" if len(silent) > 2 else ""
        reason = (
            f"{update} and does not end before {_HANDLER} is replaced on "
            f"{which}{_rollout(kubevirt, cluster)}. VMs run on"
        )
        brief = (
            f"{cut(update, 80)}: {_HANDLER} on {cut(silent[0], 40)} is not replaced before that "
            f"reports. {_back(silent[0], cluster)}"
        )
        yield HeldUpdate(kubevirt, reason, _return(silent[0], cluster), tuple(silent), brief)
        return
    if (first := update_starts.of(kubevirt, cluster)) is not None:
        stands = f"{update}, and {first.why}"
        brief = f"{cut(update, 80)}: {first.brief}"
        yield HeldUpdate(kubevirt, stands, first.remedy, tuple(first.nodes), brief)
        return
    sick = {node.name: why for node in cluster.known(NODE) if (why := _sick(node.name, cluster))}
    for name, why in list(sick.items())[:1]:
        pod = virt_handlers.pod(cluster, name)
        command = (
            about("describe", pod, POD) if pod is not None else kubectl("describe", NODE, name)
        )
        more = f" (and {len(sick) - 1} more)" if len(sick) > 1 else ""
        brief = f"{cut(update, 80)}: {ended(shorten(why, 80))} Repair it."
        yield HeldUpdate(
            kubevirt, f"{update}, and {why}{more}", typed("repair it", command), tuple(sick), brief
        )


def _failed(kubevirt: Object, update: str, cluster: Cluster) -> Iterator[HeldUpdate]:
    """Yield what ends each try of virt-operator."""
    words = kubevirt.condition("Synchronized")["message"].words
    escalation = escalations.of(words, cluster)
    if escalation is None:
        if escalations.are_granted(words, cluster):
            return  # its role has the rules by now, and virt-operator tries again
        why = f"virt-operator fails each time: {cut_middle(words.rstrip('.'), 300)}"
        remedy = typed("resolve what it reports", about("describe", kubevirt, KUBEVIRT))
        brief = f"{cut(update, 80)}: {ended(cut_middle(words, 200))} Resolve that."
        yield HeldUpdate(kubevirt, f"{update}, and {why}", remedy, (), brief)
        return
    release = kubevirt.at("status", "operatorVersion").text or "its release"
    registry = kubevirt.at("status", "targetKubeVirtRegistry").text
    images = f", with the images of {registry}" if registry and registry != _PUBLIC else ""
    lacks = f"{escalation.writer} lacks {escalation.rules}"
    why = (
        f"virt-operator {release} may not write the roles of its release: {lacks}, so it has the "
        "rules of another release. Nothing is replaced before that"
    )
    role = escalation.role or escalation.account
    remedy = typed(
        f"apply the whole manifest of the operator of {release}{images}, not only the image of its "
        "Deployment; virt-operator then goes on by itself. To compare the rules",
        kubectl("describe", escalations.ROLE, role),
    )
    brief = f"{cut(update, 80)}: {lacks}. Apply the whole manifest of operator {release}{images}."
    yield HeldUpdate(kubevirt, f"{update}, and {why}", remedy, (), brief)


_PUBLIC: Final = "quay.io/kubevirt"


def _back(node: str, cluster: Cluster) -> str:
    if node_removals.in_deletion(node, cluster) is not None:
        return "Its Node is being deleted: let that end, and do not bring it back."
    if (left := orphaned_nodes.of_node(node, cluster)) is not None:
        return f"That Node is left over, without a Machine. {left.brief}"
    return "Bring it back; if it stays away, delete its Node once it is off."


def _sick(node: str, cluster: Cluster) -> str:
    """Return what is wrong with a virt-handler; empty: nothing is known, or it is being replaced,
    or none is to run there.
    """
    there = virt_handlers.pod(cluster, node) is not None and not virt_handlers.is_starting(
        cluster, node
    )
    return virt_handlers.problem(cluster, node) if there else ""


def _is_lost(node: str, cluster: Cluster) -> bool:
    """Return whether a node has not reported for so long that no reboot explains it, and its
    virt-handler is there.
    """
    if not node_health.silence_now(node, cluster):
        return False
    handler, own = virt_handlers.pod(cluster, node), find(cluster, NODE, "", node)
    if handler is None or own is None or (not handler.deleted and handler.is_true("Ready")):
        return False
    lasts = clock.since(own.condition("Ready")["lastTransitionTime"].text, cluster)
    return lasts is not None and lasts >= _USUAL


def _rollout(kubevirt: Object, cluster: Cluster) -> str:
    """Return how far the roll-out of virt-handler is, by its DaemonSet; empty:
    that is not known.
    """
    own = find(cluster, DAEMON_SET, kubevirt.namespace, _HANDLER)
    total = own.at("status", "desiredNumberScheduled").integer if own is not None else None
    if own is None or total is None:
        return ""
    done = own.at("status", "updatedNumberScheduled").integer or 0
    limit = own.at("spec", "updateStrategy", "rollingUpdate", "maxUnavailable").value
    uses = f"; that pod uses up its maxUnavailable {limit}" if limit == 1 else ""
    return f" ({done} of {total} are updated{uses})"


def _return(node: str, cluster: Cluster) -> str:
    """Return what brings a node back, or takes it out of the cluster,
    after which the update goes on.
    """
    away = "; if it stays away, make sure that it is off, and delete its Machine, or else its Node"
    otherwise = typed(f"bring {node} back{away}", kubectl("describe", NODE, node))
    return awaited_return.advice(node, cluster, otherwise)
