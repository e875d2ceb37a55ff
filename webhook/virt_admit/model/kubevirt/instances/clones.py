"""The VM that KubeVirt makes of a VirtualMachineClone.

KubeVirt takes a snapshot of the source, restores it under another name without starting it, and
applies JSON patches: first those that it generates from the fields of the clone, then those of the
user. Sources: kubevirt/kubevirt: pkg/virt-controller/watch/clone/vm-target.go#generatePatches,
pkg/storage/snapshot/restore.go#generateRestoredVMSpec, #patchVM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes import go_json_patch, json_codec, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.go_json_patch import NotApplied
from virt_admit.model.kubernetes.kinds import VM, VM_SNAPSHOT, VM_SNAPSHOT_CONTENT
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import vms

LAST_RESTORE: Final = "restore.kubevirt.io/lastRestoreUID"
"""Annotation of a VM that KubeVirt restored or cloned
(pkg/storage/snapshot/restore.go#lastRestoreAnnotation).
"""

CLONED: Final = "tmp-restore-"
"""The first characters of its value on a clone
(pkg/virt-controller/watch/clone/util.go#generateRestoreName).
"""

READS: Final[Reads] = {
    VM: ("metadata.annotations", "metadata.labels", "spec", *CONDITIONS),
    VM_SNAPSHOT: ("status.virtualMachineSnapshotContentName",),
    VM_SNAPSHOT_CONTENT: ("spec.source.virtualMachine",),
}
"""The fields that ``source`` reads."""

_FILTER: Final = re.compile(r"\^?[A-Za-z0-9._/-]*[*$]?\Z")
"""Filters are regular expressions of the user. Only these take no long time in every engine."""


MAX_MATCHES: Final = 100_000
"""Pairs of a filter and a key that are compared: 50 ms without other reviews."""


class PatchStep(NamedTuple):
    """One patch of the clone."""

    path: Path
    """The field of the clone that leads to it."""
    operation: Any
    """As JSON data, of any type."""


def source(clone: Object, cluster: Cluster) -> Object:
    """Return the VM that is cloned, as KubeVirt would store it in a snapshot.

    Raises:
        Unseen: it cannot be read, or does not exist (yet).
    """
    reference, namespace = clone.at("spec", "source"), vms.namespace_of(clone)
    name = reference["name"].text or ""
    if reference["kind"].text == VM.kind:
        vm = _existing(cluster.get(VM, namespace, name), f"{VM} {namespace}/{name}")
        # the snapshot has the spec of its last start
        if vm.is_true("RestartRequired"):
            raise Unseen(f"{VM} {namespace}/{name} as it was started")
        return vm
    if reference["kind"].text != VM_SNAPSHOT.kind:
        raise Unseen(f"the source {reference['kind'].text} {namespace}/{name}")
    snapshot = _existing(
        cluster.get(VM_SNAPSHOT, namespace, name), f"{VM_SNAPSHOT} {namespace}/{name}"
    )
    content = snapshot.at("status", "virtualMachineSnapshotContentName").text or ""
    found = cluster.get(VM_SNAPSHOT_CONTENT, namespace, content) if content else None
    saved = _existing(found, f"{VM_SNAPSHOT_CONTENT} {namespace}/{content}").at(
        "spec", "source", "virtualMachine"
    )
    return Object({**saved.map, "apiVersion": VM.api_version, "kind": VM.kind}, namespace)


def _existing(obj: Object | None, what: str) -> Object:
    if obj is None:
        raise Unseen(what)
    return obj


def _restored(clone: Object, vm: Object) -> Any:
    """Return the data of the VM that KubeVirt creates of the source before it applies patches.

    Claims keep their names: the new ones have other names and the same specification.
    """
    own = vm["spec"].map
    halted = {"running": False} if own.get("running") is not None else {"runStrategy": "Halted"}
    name = clone.at("spec", "target", "name").text or f"clone-{vm.name}"
    metadata: dict[str, Any] = {"name": name, "namespace": vms.namespace_of(clone)}
    if vm.labels:
        metadata["labels"] = dict(vm.labels)
    metadata["annotations"] = {**vm.annotations, LAST_RESTORE: CLONED}
    data = go_json_patch.copy({"metadata": metadata, "spec": {**own, **halted}, "status": {}})
    template = _map(data["spec"], "template")
    _map(template, "metadata")
    spec = _map(template, "spec")
    for key in ("devices", "resources"):
        _map(_map(spec, "domain"), key)
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = [
            each for each in spec["volumes"] if not Field(each)["memoryDump"].present
        ]
    return data


def _map(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the map at a key, which Go writes as ``{}`` if it is empty, because it is a struct."""
    if not isinstance(parent.get(key), dict):
        parent[key] = {}
    found: dict[str, Any] = parent[key]
    return found


def steps(clone: Object, vm: Object) -> list[PatchStep]:
    """Return the patches in the order in which KubeVirt applies them.

    Raises:
        Unseen: a filter is a regular expression that may take long, or there are too many.
    """
    return [*_generated(clone["spec"], vm), *_own(clone.at("spec", "patches"))]


def _own(patches: Field) -> Iterator[PatchStep]:
    for patch in patches.items():
        try:
            operation = json_codec.loads((patch.text or "").encode())
        except (ValueError, RecursionError):
            operation = None
        yield PatchStep(patch.path, operation)


def _generated(spec: Field, vm: Object) -> Iterator[PatchStep]:
    template = vms.vmi_template(vm)
    domain = template.at("spec", "domain")
    macs, serial, of_template = spec["newMacAddresses"], spec["newSMBiosSerial"], spec["template"]
    for index, interface in enumerate(domain.at("devices", "interfaces").items()):
        pointer = f"/spec/template/spec/domain/devices/interfaces/{index}/macAddress"
        yield _replace(macs.path, pointer, macs.texts.get(interface["name"].text or "", ""))
    firmware = "/spec/template/spec/domain/firmware"
    if domain["firmware"].is_map:
        yield _replace(serial.path, f"{firmware}/serial", serial.text or "")
    kept = {key: value for key, value in vm.annotations.items() if key != LAST_RESTORE}
    yield from _removals(spec["labelFilters"], vm.labels, "/metadata/labels")
    yield from _removals(spec["annotationFilters"], kept, "/metadata/annotations")
    metadata = template["metadata"]
    yield from _removals(
        of_template["labelFilters"], metadata["labels"].texts, "/spec/template/metadata/labels"
    )
    filters = of_template["annotationFilters"]
    yield from _removals(
        filters, metadata["annotations"].texts, "/spec/template/metadata/annotations"
    )
    if domain["firmware"].is_map:
        yield _replace(spec["source"].path, f"{firmware}/uuid", "")


def _replace(path: Path, pointer: str, value: str) -> PatchStep:
    return PatchStep(path, {"op": "replace", "path": pointer, "value": value})


def _removals(filters: Field, keys: Mapping[str, str], parent: str) -> Iterator[PatchStep]:
    """Yield the removals of the keys that no filter names.

    Without the field every key stays; an empty list keeps none.
    """
    if not filters.is_list or not keys:
        return
    texts = list(dict.fromkeys(each.text for each in filters.items() if each.text is not None))
    if len(texts) * len(keys) > MAX_MATCHES:
        raise Unseen(f"the keys that {len(texts)} filters select of {len(keys)}")
    wanted = [_pattern(".*" if text == "*" else text) for text in texts if not text.startswith("!")]
    unwanted = [_pattern(text[1:]) for text in texts if text.startswith("!")]
    for key in keys:
        if not any(matches(key) for matches in wanted) or any(matches(key) for matches in unwanted):
            yield PatchStep(filters.path, {"op": "remove", "path": parent + Path(key).pointer})


def _pattern(text: str) -> Callable[[str], Any]:
    if not _FILTER.match(text):
        raise Unseen(f"the keys that the filter {text} selects")
    try:
        return re.compile(text).search
    except re.error:  # KubeVirt logs it, and the filter matches nothing
        return lambda _key: None


def patched(clone: Object, vm: Object, taken: Sequence[PatchStep]) -> Object:
    """Return the VM that KubeVirt creates of the source with these steps.

    Raises:
        Unseen: the patches do not fit the source as it is now, so KubeVirt creates no VM of it.
    """
    try:
        data = go_json_patch.apply(_restored(clone, vm), (step.operation for step in taken))
    except (NotApplied, RecursionError) as problem:
        raise Unseen(f"the clone: {problem}, so its patches do not apply") from None
    fields = data if isinstance(data, dict) else {}  # KubeVirt decodes it as a VM, whatever it says
    return Object(
        {**fields, "apiVersion": VM.api_version, "kind": VM.kind}, vms.namespace_of(clone)
    )


def maker(vm: Object) -> str:
    """Return the kind of object for which KubeVirt wrote a VM; empty without its annotation,
    which a patch can remove.
    """
    value = vm.annotation(LAST_RESTORE).text
    if kinds.of(vm) is not VM or value is None:
        return ""
    return "VirtualMachineClone" if value.startswith(CLONED) else "VirtualMachineRestore"
