"""What an administrator does about an error with which the machine-config-daemon of a node stops.

Sources: openshift/machine-config-operator:pkg/daemon/daemon.go#validateOnDiskStateImpl
#runPreflightConfigDriftCheck; pkg/daemon/on_disk_validation.go; pkg/daemon/drain.go#performDrain;
pkg/daemon/update.go; docs/MachineConfigDaemon.md#recovering-from-config-drift;
https://github.com/openshift/machine-config-operator/issues/5133;
https://github.com/coreos/rpm-ostree/issues/2007 (layered packages, and no repository for them).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import config_pool_updates
from virt_admit.model.node_updates.node_phases import NodeUpdate

_FORCE: Final = "/run/machine-config-daemon-force"
"""While it exists the daemon skips its check of the disk and applies the configuration again.
It then removes it.
"""
_CURRENT: Final = "/etc/machine-config-daemon/currentconfig"
"""What the daemon takes for the present configuration, whatever the annotation of the Node says."""
_DRIFT: Final = re.compile(r"^unexpected on-disk state|\b(?:content|mode) mismatch for file\b")
_OTHER_IMAGE: Final = re.compile(r"expected target osImageURL\b")
_ARGUMENTS: Final = re.compile(r"missing expected kernel arguments\b")
_CHECK: Final = re.compile(
    r"unexpected on-disk state validating against rendered-[\w.-]+: "
    r"(?=expected target|missing expected)"
)
_VALIDATED: Final = re.compile(r"\bvalidating against (rendered-[\w.-]+)")
_UNREADABLE: Final = re.compile(
    r"error reading config from disk|^(?:unexpected )?EOF$|unexpected end of JSON input"
)
"""A file that a reset left empty or cut short."""
_FILE: Final = re.compile(r'\bfile:? "([^"]+)"')
_DRAIN: Final = "failed to drain node"
_NOT_POSSIBLE: Final = re.compile(r"can't reconcile config|not reconcilable")
_NOT_FOUND: Final = re.compile(r'machineconfigs?\S* "?([\w.-]+)"? not found')


def of_pool(pool: Object, nodes: Sequence[Object]) -> str:
    """Return what lets the first node of a pool go on whose daemon has stopped; empty:
    none says why.
    """
    wanted = config_pool_updates.target(pool, nodes)
    for node in nodes:
        if reason := config_pool_updates.failure(node):
            return _remedy(node, reason, config_pool_updates.given(pool, node, wanted))
    return ""


def brief_of_pool(nodes: Sequence[Object]) -> str:
    """Return the same in a sentence if a host did not boot what its daemon believes; else empty."""
    for node in nodes:
        if reason := config_pool_updates.failure(node):
            back = f"Write {_previous(node)} back into {_CURRENT} of {node.name}"
            way = f"{back} and touch {_FORCE}, which applies the difference and reboots it"
            return way if _is_not_booted(node, reason) else ""
    return ""


def brief(said: str) -> str:
    """Return the difference that an error names, without the check that found it."""
    return _CHECK.sub("", said)


def of_update(node: Object, update: NodeUpdate) -> str:
    """Return what lets a node go on whose update has failed."""
    if update.kind == MACHINE_CONFIG_POOL.kind and update.waits_for:
        return _remedy(node, update.waits_for, update.wanted)
    return typed("Repair what its updater reports", about("describe", node, NODE))


def _remedy(node: Object, reason: str, wanted: str) -> str:
    name = node.name
    if _UNREADABLE.search(reason):
        words = f"Write {_previous(node)} into {_CURRENT} of {name}, which its daemon cannot read"
        return typed(words, _on_host(name, "ls", "-l", _CURRENT))
    if _is_not_booted(node, reason):
        return typed(_not_booted(node, reason), _on_host(name, "rpm-ostree", "status"))
    held = node.annotations.get(config_pool_updates.CURRENT)
    drains = _DRAIN in reason and held != wanted  # another configuration needs the same drain
    if not drains and (replaced := _replaced(node, reason, wanted)):
        return replaced
    if _DRIFT.search(reason) or _OTHER_IMAGE.search(reason):
        return typed(_drift(name, reason), _on_host(name, "touch", _FORCE))
    if _DRAIN in reason:
        return typed(
            f"End what keeps {name} from being drained",
            shell("virt-admit", "drain", argument(name)),
        )
    if _NOT_POSSIBLE.search(reason):
        changed = (
            "Take back the change of the MachineConfig that it refuses, which no update of a node "
            "can make"
        )
        return typed(
            changed,
            shell("kubectl", "get", "machineconfigs", "--sort-by=.metadata.creationTimestamp"),
        )
    if missing := _NOT_FOUND.search(reason):
        return _absent(node, missing[1], wanted)
    if "No enabled repositories" in reason:
        layered = (
            f"See which packages are layered on {name}: remove those that no MachineConfig asks "
            "for (rpm-ostree uninstall), or enable in /etc/yum.repos.d a repository that has them. "
            "The daemon then goes on by itself"
        )
        return typed(layered, _on_host(name, "rpm-ostree", "status"))
    log = _on_host(
        name, "journalctl", "-b", "-u", "rpm-ostreed", "-u", "kubelet", "--no-pager", "-n", "200"
    )
    known = (
        f"Repair what the machine-config-daemon of {name} reports; its own log and that of the "
        "host say more"
    )
    return typed(known, log)


def _replaced(node: Object, reason: str, wanted: str) -> str:
    """Return what lets a node go on that is still to get a configuration which its pool has
    replaced; empty: it is not, or its present one does not exist, which it needs as well.

    A repair of what the daemon reports would let it apply the replaced one. The annotation is what
    the operator itself writes; nothing is applied where the node has the wanted one already.
    Sources: #getAllCandidateMachines; pkg/daemon/daemon.go#updateConfigAndState (uncordons);
    https://github.com/openshift/machine-config-operator/issues/1443.
    """
    said, missing = config_pool_updates.withdrawn(node, wanted), _NOT_FOUND.search(reason)
    held = node.annotations.get(config_pool_updates.CURRENT)
    if not said or (missing is not None and missing[1] == held):
        return ""
    updates = "" if held == wanted else ", which updates it to that one"
    words = (
        f"Node {node.name} {said}, and the operator does not change that of a cordoned node. Set "
        f"its annotation desiredConfig to {wanted}{updates}"
    )
    further = (
        "if its daemon goes on with the error, delete its pod machine-config-daemon; if it then "
        f"reports an unexpected state of the disk, touch {_FORCE} there, which reboots the node"
    )
    key = f"{config_pool_updates.DESIRED}={wanted}"
    return typed(words, about("annotate", node, NODE, "--overwrite", key), further)


def _absent(node: Object, missing: str, wanted: str) -> str:
    """Return what helps where a rendered MachineConfig of a node does not exist.

    The daemon has the present one in a file too. Sources: openshift/installer issue 5086,
    okd-project/okd issue 963, https://access.redhat.com/solutions/4970731.
    """
    held = missing == node.annotations.get(config_pool_updates.CURRENT)
    file = f"{_CURRENT} of {node.name} (with the ownerReferences of another rendered one), or from "
    words = f"Create MachineConfig {missing} again from {file if held else ''}a backup"
    if held and wanted and wanted != missing:
        keys = f"{config_pool_updates.CURRENT} and {config_pool_updates.DESIRED}"
        words += (
            f"; or, one node after the other, set its annotations {keys} to {wanted}, the "
            f"configuration of its pool, and touch {_FORCE}, which applies that and reboots the "
            "node (Red Hat solution 4970731)"
        )
    see = _on_host(node.name, "cat", _CURRENT) if held else ""
    return typed(words, see or shell("kubectl", "get", "machineconfigs"))


def _is_not_booted(node: Object, reason: str) -> bool:
    """Return whether a host runs another image or other kernel arguments, while its daemon treats
    the configuration that it is to get as the present one.
    """
    found = _VALIDATED.search(reason)
    differs = _OTHER_IMAGE.search(reason) or _ARGUMENTS.search(reason)
    return (
        bool(differs)
        and found is not None
        and found[1] == node.annotations.get(config_pool_updates.DESIRED)
    )


def _previous(node: Object) -> str:
    """Return the MachineConfig that a node certainly had, as far as that is known."""
    known, wanted = (
        node.annotations.get(key, "")
        for key in (config_pool_updates.CURRENT, config_pool_updates.DESIRED)
    )
    return f"MachineConfig {known}" if known and known != wanted else "the MachineConfig of before"


def _not_booted(node: Object, reason: str) -> str:
    """Return what lets a node boot what its daemon believes to be booted: it compares two
    configurations, not the host.
    """
    name, wanted = node.name, node.annotations.get(config_pool_updates.DESIRED, "")
    old, known = _previous(node), node.annotations.get(config_pool_updates.CURRENT, "")
    shown = (
        f" (oc get machineconfig {argument(known)} -o json)" if known and known != wanted else ""
    )
    rebase = (
        ". Or rebase it to the expected image (rpm-ostree rebase) and reboot it"
        if _OTHER_IMAGE.search(reason)
        else ""
    )
    return (
        f"{name} did not boot what {wanted} names, as after a reset before it had shut down. Its "
        f"{_CURRENT} names {wanted} already, so {_FORCE} alone brings neither the image nor kernel "
        f"arguments. Write {old}{shown} back into {_CURRENT}, then touch {_FORCE}: the daemon "
        f"applies the difference and reboots {name}{rebase}. See first what is booted"
    )


def _drift(name: str, reason: str) -> str:
    """Return what to compare, and how the daemon applies the configuration again."""
    file = _FILE.search(reason)
    if _OTHER_IMAGE.search(reason):
        compare = (
            f"{name} runs another OS image than its configuration names: see rpm-ostree status and "
            "its daemon's log"
        )
    elif file is not None:
        compare = (
            f"Find out what changed {file[1]} on {name}, and write it as its MachineConfig says, "
            "which may be enough"
        )
    else:
        compare = f"Find out what changed {name} besides its MachineConfig"
    return (
        f"{compare}. The file {_FORCE} makes the daemon apply the configuration again, which "
        f"reboots {name}"
    )


def _on_host(node: str, *words: str) -> str:
    return shell("oc", "debug", f"node/{node}", "--", "chroot", "/host", *words)
