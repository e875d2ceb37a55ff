"""What an administrator does about an error with which the machine-config-daemon of a node stops.

Sources: openshift/machine-config-operator:pkg/daemon/daemon.go#validateOnDiskStateImpl
#runPreflightConfigDriftCheck; pkg/daemon/on_disk_validation.go; pkg/daemon/drain.go#performDrain;
pkg/daemon/update.go; docs/MachineConfigDaemon.md#recovering-from-config-drift;
https://github.com/openshift/machine-config-operator/issues/5133.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
_VALIDATED: Final = re.compile(r"\bvalidating against (rendered-[\w.-]+)")
_UNREADABLE: Final = re.compile(
    r"error reading config from disk|^(?:unexpected )?EOF$|unexpected end of JSON input"
)
"""A file that a reset left empty or cut short."""
_FILE: Final = re.compile(r'\bfile:? "([^"]+)"')
_DRAIN: Final = "failed to drain node"
_NOT_POSSIBLE: Final = re.compile(r"can't reconcile config|not reconcilable")
_NOT_FOUND: Final = re.compile(r'machineconfigs?\S* "?([\w.-]+)"? not found')


def of_pool(nodes: Iterable[Object]) -> str:
    """Return what lets the first node of a pool go on whose daemon has stopped; empty:
    none says why.
    """
    failed = ((node, config_pool_updates.failure(node)) for node in nodes)
    return next((_remedy(node, reason) for node, reason in failed if reason), "")


def of_update(node: Object, update: NodeUpdate) -> str:
    """Return what lets a node go on whose update has failed."""
    if update.kind == MACHINE_CONFIG_POOL.kind and update.waits_for:
        return _remedy(node, update.waits_for)
    return typed("Repair what its updater reports", about("describe", node, NODE))


def _remedy(node: Object, reason: str) -> str:
    name = node.name
    if _UNREADABLE.search(reason):
        words = f"Write {_previous(node)} into {_CURRENT} of {name}, which its daemon cannot read"
        return typed(words, _on_host(name, "ls", "-l", _CURRENT))
    if (_OTHER_IMAGE.search(reason) or _ARGUMENTS.search(reason)) and _taken(node, reason):
        return typed(_not_booted(node), _on_host(name, "rpm-ostree", "status"))
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
        restore = (
            f"Create MachineConfig {missing[1]} again from a backup: the daemon compares the node "
            "with it"
        )
        return typed(restore, shell("kubectl", "get", "machineconfigs"))
    log = _on_host(
        name, "journalctl", "-b", "-u", "rpm-ostreed", "-u", "kubelet", "--no-pager", "-n", "200"
    )
    known = (
        f"Repair what the machine-config-daemon of {name} reports; its own log and that of the "
        "host say more"
    )
    return typed(known, log)


def _taken(node: Object, reason: str) -> bool:
    """Return whether the daemon of a node takes the configuration for its present one that it is to
    get.
    """
    found = _VALIDATED.search(reason)
    return found is not None and found[1] == node.annotations.get(config_pool_updates.DESIRED)


def _previous(node: Object) -> str:
    """Return the MachineConfig that a node certainly had, as far as that is known."""
    known, wanted = (
        node.annotations.get(key, "")
        for key in (config_pool_updates.CURRENT, config_pool_updates.DESIRED)
    )
    return f"MachineConfig {known}" if known and known != wanted else "the MachineConfig of before"


def _not_booted(node: Object) -> str:
    """Return what lets a node boot what its daemon believes to be booted: it compares two
    configurations, not the host.
    """
    name, wanted = node.name, node.annotations.get(config_pool_updates.DESIRED, "")
    old, known = _previous(node), node.annotations.get(config_pool_updates.CURRENT, "")
    shown = (
        f" (oc get machineconfig {argument(known)} -o json)" if known and known != wanted else ""
    )
    return (
        f"{name} did not boot what {wanted} names, as after a reset before it had shut down. Its "
        f"{_CURRENT} names {wanted} already, so {_FORCE} alone brings neither the image nor kernel "
        f"arguments. Write {old}{shown} back into {_CURRENT}, then touch {_FORCE}: the daemon "
        f"applies the difference and reboots {name}. See first what is booted"
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
