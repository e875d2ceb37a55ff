"""Commands that an administrator can type: ``kubectl`` and ``virtctl``,
with every word quoted for a shell.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    CAPI_MHC,
    HCO,
    KUBEVIRT,
    PDB,
    PVC,
    VM,
    VMI,
    VMIM,
    VMIRS,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object

_SHORT: Final[Mapping[Kind, str]] = {
    VM: "vm",
    VMI: "vmi",
    VMIM: "vmim",
    VMIRS: "vmirs",
    PDB: "pdb",
    PVC: "pvc",
    KUBEVIRT: "kubevirt",
    HCO: "hyperconverged",
}
"""The short names that kubectl knows from the API server."""


def shell(*words: str) -> str:
    """Return words as one command of a shell."""
    return shlex.join(words)


def argument(name: str) -> str:
    """Return a name as an argument that is never an option, such as ``--all``.

    No name of Kubernetes begins with a dash. One in a snapshot from an unknown source may.
    """
    return f"./{name}" if name.startswith("-") else name


def typed(words: str, command: str) -> str:
    """Return a remedy in words with the command that does it; the words alone if there is none."""
    return f"{words.rstrip('.')}: {command}" if command else words


def kubectl(verb: str, kind: Kind, name: str = "", namespace: str = "", *options: str) -> str:
    """Return ``kubectl VERB KIND NAME -n NAMESPACE OPTIONS``."""
    where = ("-n", namespace or "default") if kind.namespaced else ()
    return shell(
        "kubectl", verb, _resource(kind), *((argument(name),) if name else ()), *where, *options
    )


def about(verb: str, obj: Object, kind: Kind, *options: str) -> str:
    """Return a ``kubectl`` command about an object."""
    return kubectl(verb, kind, obj.name, obj.namespace, *options)


def logs_of(pod: Object, *options: str) -> str:
    """Return the command that shows the logs of a pod."""
    return shell("kubectl", "logs", argument(pod.name), "-n", pod.namespace, *options)


def pods_on(node: str) -> str:
    """Return the command that lists the pods of a node."""
    return shell(
        "kubectl", "get", "pods", "-A", "-o", "wide", f"--field-selector=spec.nodeName={node}"
    )


def merge_patch(
    kind: Kind, name: str, namespace: str, data: Mapping[str, Any], *options: str
) -> str:
    """Return the command that sets these fields. A custom resource has no strategic merge patch."""
    changes = json.dumps(data, separators=(",", ":"))
    return kubectl("patch", kind, name, namespace, *options, "--type=merge", "-p", changes)


def nested(path: Sequence[object], value: object) -> dict[str, object]:
    """Return the data of a merge patch that sets the field at a path of at least one step."""
    first, *rest = path
    return {str(first): nested(rest, value) if rest else value}


def json_patch(kind: Kind, name: str, namespace: str, steps: Sequence[Patch]) -> str:
    """Return the command that makes these changes."""
    data = json.dumps([step.as_json() for step in steps], separators=(",", ":"))
    return kubectl("patch", kind, name, namespace, "--type=json", "-p", data)


def virtctl(verb: str, name: str, namespace: str) -> str:
    """Return ``virtctl VERB NAME -n NAMESPACE``."""
    return shell("virtctl", verb, argument(name), "-n", namespace or "default")


def _resource(kind: Kind) -> str:
    if kind in _SHORT:
        return _SHORT[kind]
    return (
        kind.resource
        if kind.group.endswith((".io", ".com")) and kind.kind in _AMBIGUOUS
        else kind.kind.lower()
    )


_OF_MACHINES: Final = (CAPI_MHC.kind, "Machine", "MachineSet", "MachineDeployment")
_AMBIGUOUS: Final = frozenset(
    (
        *_OF_MACHINES,
        "Bundle",
        "Cluster",
        "Upgrade",
        "Plan",
        "Setting",
        "VolumeAttachment",
        "Volume",
        "Subscription",
        "Node",
    )
)
"""Kinds that several API groups have, or whose name alone is not clear."""
