"""Nodes that a MachineConfigPool does not update because they are cordoned or not Ready, and what ends that.

Source: openshift/machine-config-operator:pkg/controller/node/node_controller.go#getAllCandidateMachines (such a node takes a
place of maxUnavailable and gets no other configuration, whatever the limit is).
"""

from __future__ import annotations

from collections.abc import Sequence

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.model.node_updates import config_pool_updates


def remedy(pool: Object, nodes: Sequence[Object]) -> str:
    """Return what makes these nodes candidates again."""
    cordoned = [node.name for node in nodes if node.at("spec", "unschedulable").boolean]
    broken = [node for node in nodes if node.name not in cordoned]
    if not broken:
        return typed("Uncordon them", shell("kubectl", "uncordon", *map(argument, cordoned)))
    target = config_pool_updates.target(pool, nodes)
    old = [node.name for node in broken if node.annotations.get(config_pool_updates.DESIRED, target) != target]
    repair = f"Repair {names(node.name for node in broken)}" + (f", and uncordon {names(cordoned)}" * bool(cordoned))
    if not old or not target:
        return typed(repair, shell("kubectl", "describe", "node", argument(broken[0].name)))
    setting = f"{config_pool_updates.DESIRED}={argument(target)}"
    command = shell("kubectl", "annotate", "node", *map(argument, old), setting, "--overwrite")
    why = f"if its configuration keeps {names(old)} from being Ready, give it that of the pool"
    return typed(f"{repair}; {why}", command)
