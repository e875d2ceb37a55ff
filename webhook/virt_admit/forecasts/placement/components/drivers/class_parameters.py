"""Parameters of a StorageClass that an error of its driver names.

The volume in Kubernetes does not have them. What other classes of the same driver have instead
shows what is unusual.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.evidence import status_errors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PV, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = {
    PV: ("spec.storageClassName", "spec.csi.driver"),
    STORAGE_CLASS: ("parameters", "provisioner"),
}
_SHORTEST: Final = 6
"""Letters of a name that no sentence has by accident."""
_LONGEST: Final = 60
_SECRET: Final = re.compile(r"(?i)passw|secret|token|credential|private")
_COMMON: Final = frozenset(("driver", "server", "volume", "region", "encrypted"))
"""Names of parameters that errors have as words."""


class ClassParameter(NamedTuple):
    """A parameter of the StorageClass of a volume that an error names."""

    storage_class: str
    key: str
    value: str
    others: tuple[str, ...]
    """Classes of the same driver that have another value, or none."""

    @property
    def words(self) -> str:
        unlike = f", unlike {names(self.others, 60)}" if self.others else ""
        return f'StorageClass {self.storage_class} sets {self.key}: "{self.value}"{unlike}'


def named_by(volume: str, error: str, cluster: Cluster) -> ClassParameter | None:
    """Return the parameter of a volume's class that the error about the volume names; None: none
    is, or its class is not known.
    """
    return next(_named(find(cluster, PV, "", volume), error, cluster), None)


def _named(volume: Object | None, error: str, cluster: Cluster) -> Iterator[ClassParameter]:
    name = volume.at("spec", "storageClassName").text if volume is not None else None
    definition = find(cluster, STORAGE_CLASS, "", name)
    if definition is None or not name:
        return
    for key, value in sorted(definition.at("parameters").texts.items()):
        last = re.split(r"[/.]", key)[-1]
        word = rf"(?i)(?<![\w/.-]){re.escape(last)}(?![\w/.-])"
        if len(last) < _SHORTEST or last.lower() in _COMMON or _SECRET.search(key):
            continue
        if re.search(word, error):
            others = sorted(
                each.name
                for each in cluster.known(STORAGE_CLASS)
                if each.at("provisioner").text == definition.at("provisioner").text
                and each.at("parameters").texts.get(key) != value
            )
            shown = cut_middle(status_errors.plain(value), _LONGEST)
            yield ClassParameter(name, key, shown, tuple(others))
