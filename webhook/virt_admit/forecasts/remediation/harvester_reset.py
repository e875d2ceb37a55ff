"""Harvester's own remediation: it deletes the pods of the VMs on a node that has not been Ready for
some time.

Its setting is read by name alone, because other settings hold keys: nothing lists the kind.

Sources: harvester/harvester:pkg/controller/master/node/node_down_controller.go#OnNodeChanged (it
deletes the VolumeAttachments of Longhorn, too);
:pkg/settings/settings_helper.go#InitVMForceResetPolicy, #DecodeVMForceResetPolicy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import json_codec, nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import HARVESTER_SETTING, NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {NODE: ("metadata.labels",)}
SETTING: Final = "vm-force-reset-policy"
TITLE: Final = f"Harvester's setting {SETTING}"
UNREAD: Final = f"{TITLE}, which frees the pods of lost nodes"
_DEFAULT: Final = '{"enable":true,"period":300}'
_LONGEST: Final = 2**63 - 1
"""The largest number that Harvester reads."""
_NAMESPACE: Final = "harvester-system"
_APP: Final = ("app.kubernetes.io/name", "harvester")


class ResetPolicy(NamedTuple):
    """What Harvester does about a node that is not Ready."""

    wait: int
    """Seconds from the moment at which the node stops being Ready."""
    idle: str
    """Why it does nothing; empty: it acts."""

    @property
    def remedy(self) -> str:
        """What makes it act."""
        return typed(
            f"enable it, for example with {_DEFAULT}", kubectl("edit", HARVESTER_SETTING, SETTING)
        )


def of(node: Object, cluster: Cluster) -> ResetPolicy | None:
    """Return what Harvester does about a node; None: the node is not one of Harvester.

    Raises:
        Unseen: the setting is not known.
    """
    if not nodes.is_of_harvester(node):
        return None
    setting = next(
        (each for each in cluster.known(HARVESTER_SETTING) if each.name == SETTING), None
    )
    if setting is None:
        raise Unseen(UNREAD)
    text = setting["value"].text or setting["default"].text or _DEFAULT
    policy = Field(json_codec.embedded(text))
    wait = policy["period"].integer or 0
    if not 0 < wait <= _LONGEST:
        return ResetPolicy(0, "it is not valid")
    return ResetPolicy(wait, "" if policy["enable"].boolean else "it is switched off")


def left(lost: frozenset[str], cluster: Cluster) -> bool:
    """Return whether a pod of Harvester is on a node that is not lost.

    Raises:
        Unseen: the pods of its namespace are not known.
    """
    found, unseen = gather(cluster.list(POD, _NAMESPACE))
    key, value = _APP
    own = [pod for pod in found if pod.labels.get(key) == value]
    if any((pod.at("spec", "nodeName").text or "") not in {*lost, ""} for pod in own):
        return True
    if unseen or not own:
        raise Unseen(unseen or "the pods of Harvester itself")
    return False
