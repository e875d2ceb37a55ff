"""The table of CPU models in ``model/release_tables/cpu_models.json``, made from libvirt's CPU map.

``python -m tools.cpu_models FOLDER`` reads ``FOLDER/x86_*.xml``, as libvirt installs them in
``/usr/share/libvirt/cpu_map``. Features of nested virtualization (``vmx-*``) are left out: libvirt
lists them for some models only. So is ``mpx``, which Linux does not offer to guests since 5.6,
although old models name it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from tools.paths import ROOT

FILE: Final = ROOT / "webhook" / "virt_admit" / "model" / "release_tables" / "cpu_models.json"
_LEFT_OUT: Final = ("vmx-", "mpx")


def models(folder: Path) -> Mapping[str, tuple[str, frozenset[str]]]:
    """Return the vendor and the features of each model;
    the vendor is empty for models of no vendor.
    """
    found: dict[str, tuple[str, frozenset[str]]] = {}
    waiting = [model for path in sorted(folder.glob("x86_*.xml")) for model in _elements(path)]
    while waiting:
        model = waiting.pop(0)
        like = model.find("model")
        base = like.get("name", "") if like is not None else ""
        if base and base not in found:
            waiting.append(model)
            continue
        vendor, features = found.get(base, ("", frozenset()))
        named = model.find("vendor")
        own = (each for each in model.findall("feature") if each.get("removed") != "yes")
        added = {name for each in own if not (name := each.get("name", "")).startswith(_LEFT_OUT)}
        found[model.get("name", "")] = (
            named.get("name", "") if named is not None else vendor,
            features | added,
        )
    return found


def _elements(path: Path) -> Iterator[ElementTree.Element]:
    # a file that the developer names
    yield from ElementTree.parse(path).getroot().findall("model")  # noqa: S314


def table(found: Mapping[str, tuple[str, frozenset[str]]]) -> dict[str, Any]:
    """Return the models, each as the difference to a smaller one: ``vendor``, ``like``,
    ``more``.
    """
    made: dict[str, Any] = {}
    for name, (vendor, features) in sorted(
        found.items(), key=lambda item: (len(item[1][1]), item[0])
    ):
        smaller = [other for other in made if found[other][1] <= features]
        like = max(smaller, key=lambda other: (len(found[other][1]), other), default="")
        more = sorted(features - (found[like][1] if like else frozenset()))
        made[name] = {"vendor": vendor, "like": like, "more": " ".join(more)}
    return dict(sorted(made.items()))


def text(made: Mapping[str, Any]) -> str:
    """Return the table as JSON with one model a line."""
    lines = (f"  {json.dumps(name)}: {json.dumps(model)}" for name, model in made.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(table(models(Path(sys.argv[1])))))
