"""The kustomizations as one set of documents: what a component changes depends on a condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tools.chart.template import If, Nested, Tree, opposite
from tools.paths import MANIFESTS

Read = Callable[[Path], str]

MERGE_KEYS: Final = ("mountPath", "name")
"""How a strategic merge patch finds the item of a list; a mount has both."""
POD_TEMPLATES: Final = (("template",), ("jobTemplate",), ("jobTemplate", "spec", "template"))
"""Where kustomize's ``includeTemplates`` writes labels, below ``spec``."""


@dataclass(slots=True)
class Document:
    """An object, and the name of the template that it belongs to."""

    template: str
    tree: Tree

    @property
    def object(self) -> dict[Any, Any]:
        """The object without the conditions that it depends on."""
        tree = self.tree
        while isinstance(tree, If):
            tree = tree.then
        assert isinstance(tree, dict)
        return tree


def documents(folder: str, read: Read, condition: str = "") -> Iterator[Document]:
    """Yield the objects of a kustomization, all of which depend on the condition.

    Those of ``base`` keep their files.
    """
    spec = _kustomization(folder, read)
    for name in spec.get("resources", ()):
        for obj in yaml.safe_load_all(read(MANIFESTS / folder / name)):
            if obj["kind"] != "Namespace":
                _label(obj, spec)
                template = name.removesuffix(".yaml") if folder == "base" else Path(folder).name
                yield Document(template, If(condition, obj) if condition else obj)
    for each in spec.get("configMapGenerator", ()):
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": each["name"],
                "namespace": spec["namespace"],
                "labels": each["options"]["labels"],
            },
            "data": dict(_file(entry) for entry in each["files"]),
        }
        _label(obj, spec)
        yield Document(folder, If(condition, obj))


def apply(
    component: str, condition: str, found: list[Document], read: Read, skip: bool = False
) -> None:
    """Let the documents be what the component makes of them if the condition holds.

    Args:
        component: the folder of the component, below ``components``.
        condition: when it applies.
        found: the documents; those of the component's own resources are appended.
        read: reads a file.
        skip: whether to leave out patches in files of their own.
    """
    folder = f"components/{component}"
    spec = _kustomization(folder, read)
    for each in spec.get("patches", ()):
        if "path" in each and skip:
            continue
        patch = yaml.safe_load(
            each["patch"] if "patch" in each else read(MANIFESTS / folder / each["path"])
        )
        targets = [
            document for document in found if _matches(document.object, each.get("target"), patch)
        ]
        assert targets, (component, each)
        for document in targets:
            document.tree = _patched(document.tree, patch, condition)
    found += documents(folder, read, condition)


def _kustomization(folder: str, read: Read) -> dict[str, Any]:
    spec = yaml.safe_load(read(MANIFESTS / folder / "kustomization.yaml"))
    assert isinstance(spec, dict)
    return spec


def _label(obj: dict[str, Any], spec: dict[str, Any]) -> None:
    for block in spec.get("labels", ()):
        metadata = [obj["metadata"]]
        if block.get("includeTemplates"):
            metadata += [each.setdefault("metadata", {}) for each in pod_templates(obj)]
        for each in metadata:
            each["labels"] = {**each.get("labels", {}), **block["pairs"]}


def pod_templates(obj: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the templates of a workload, that of its pods last."""
    for path in POD_TEMPLATES:
        part = obj.get("spec", {})
        for key in path:
            part = part.get(key, {})
        if part:
            yield part


def _file(entry: str) -> tuple[str, Nested]:
    key, _, name = entry.partition("=")
    return key, Nested(f'.Files.Get "files/{name}" | trimSuffix "\\n"', style="|")


def _matches(obj: dict[str, Any], target: dict[str, str] | None, patch: Any) -> bool:
    wanted = target or {"kind": patch["kind"], "name": patch["metadata"]["name"]}
    group = obj["apiVersion"].rpartition("/")[0]
    return (
        wanted.get("kind") in (None, obj["kind"])
        and wanted.get("group") in (None, group)
        and re.fullmatch(wanted["name"], obj["metadata"]["name"]) is not None
    )


def _patched(tree: Tree, patch: Any, condition: str) -> Tree:
    if isinstance(tree, If):
        return If(tree.condition, _patched(tree.then, patch, condition))
    if isinstance(patch, list):
        for operation in patch:
            _add(tree, operation, condition)
        return tree
    if patch.get("$patch") == "delete":
        return If(opposite(condition), tree)
    return _merged(tree, patch, condition)


def _add(tree: Tree, operation: dict[str, Any], condition: str) -> None:
    """Apply an operation ``add`` of a JSON patch."""
    assert operation["op"] == "add", operation
    *path, last = operation["path"].split("/")[1:]
    for key in path:
        tree = tree[int(key) if isinstance(tree, list) else key]
    if isinstance(tree, list):
        assert last == "-"
        tree.append(If(condition, operation["value"]))
    elif last in tree:
        tree[last] = If(condition, operation["value"], tree[last])
    else:
        tree[last] = If(condition, operation["value"])


def _merged(tree: Tree, patch: Any, condition: str) -> Tree:
    """Return the result of a strategic merge patch: both values where they differ."""
    if isinstance(tree, dict) and isinstance(patch, dict):
        new = {key: If(condition, value) for key, value in patch.items() if key not in tree}
        return {
            key: _merged(value, patch[key], condition) if key in patch else value
            for key, value in tree.items()
        } | new
    if isinstance(tree, list) and isinstance(patch, list):
        key = next(key for key in MERGE_KEYS if key in patch[0])
        by_key = {item[key]: item for item in patch}
        known = [_merged(item, by_key.pop(item[key], {}), condition) for item in tree]
        return [If(condition, item) for item in by_key.values()] + known  # in kustomize's order
    return tree if tree == patch else If(condition, patch, tree)
