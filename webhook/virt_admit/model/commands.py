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
from virt_admit.model.messages import OTHER_WAY

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


def typed(words: str, command: str, further: str = "") -> str:
    """Return a remedy in words with the command that does it; the words alone if there is none.

    ``further``: later steps and other ways, which the command does not do. It stands before them,
    as before the other ways in ``words``, which a semicolon separates.
    """
    way = OTHER_WAY.search(words) if command else None
    if way is not None:
        others = words[way.end() :]
        return typed(words[: way.start()], command, f"{others}; {further}" if further else others)
    first = f"{words.rstrip('.')}: {command}" if command else words
    return f"{first}; {further}" if further else first


def and_then(remedy: str, words: str, command: str) -> str:
    """Return a remedy with a further step. Its own command stays that of the first one."""
    if any(f": {tool} " in remedy for tool in ("kubectl", "virtctl")):
        return f"{remedy}; then {words}{f' ({command})' if command else ''}"
    return typed(f"{remedy}. Then {words}", command)


def kubectl(verb: str, kind: Kind, name: str = "", namespace: str = "", *options: str) -> str:
    """Return ``kubectl VERB KIND NAME -n NAMESPACE OPTIONS``."""
    where = ("-n", namespace or "default") if kind.namespaced else ()
    return shell(
        "kubectl", verb, _resource(kind), *((argument(name),) if name else ()), *where, *options
    )


def about(verb: str, obj: Object, kind: Kind, *options: str) -> str:
    """Return a ``kubectl`` command about an object."""
    return kubectl(verb, kind, obj.name, obj.namespace, *options)


def logs_of(pod: Object, *options: str, container: str = "") -> str:
    """Return the command that shows the logs of a pod.

    ``container``: of which one; by default the one that keeps the pod from being ready. It is named
    where kubectl would show another one, which may have none yet.
    """
    named = {"-c", "--all-containers"} & set(options)
    name = "" if named else container or _unready_container(pod)
    regular = [each["name"].text for each in pod.at("spec", "containers").items()]
    choice = ("-c", argument(name)) if name and regular != [name] else ()
    return shell("kubectl", "logs", argument(pod.name), "-n", pod.namespace, *choice, *options)


def _unready_container(pod: Object) -> str:
    """Return the container that keeps a pod from being ready: an init container that has not
    completed, before which no other one starts, else one that ends or waits; empty: none is known.
    """
    regular = list(pod.at("status", "containerStatuses").items())
    if any(each.at("state", "waiting", "reason").text == "PodInitializing" for each in regular):
        before = pod.at("status", "initContainerStatuses").items()
        return next((each["name"].text or "" for each in before if not each["ready"].boolean), "")
    down = (each for each in regular if not each.at("state", "running").present)
    failed = (each for each in down if each.at("state", "terminated", "exitCode").integer != 0)
    return next((each["name"].text or "" for each in failed if not each["ready"].boolean), "")


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
    if kind.group.endswith((".io", ".com")) and kind.kind in _AMBIGUOUS:
        return kind.resource
    return kind.kind.lower()


_OF_MACHINES: Final = (CAPI_MHC.kind, "Machine", "MachineSet", "MachineDeployment")
_AMBIGUOUS: Final = frozenset(
    (
        *_OF_MACHINES,
        "Backup",
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
