"""The architecture that KubeVirt's VM mutator takes from the DataSource of a data volume template.

Source: kubevirt/kubevirt:pkg/defaults/defaults.go#setDefaultArchitectureFromDataSource.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_SOURCE
from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature

_LABEL: Final = "template.kubevirt.io/architecture"
_ARCHITECTURES: Final = ("amd64", "arm64", "s390x")

READS: Final[Reads] = {DATA_SOURCE: (f"metadata.labels.{_LABEL}", "spec.source.dataSource")}
"""The fields that ``architecture`` reads."""


def architecture(templates: Field, namespace: str, cluster: Cluster) -> str | None:
    """Return the architecture of the first labelled DataSource; None: no DataSource names one.

    KubeVirt skips DataSources that do not exist, and follows one reference from a DataSource to
    another.

    Raises:
        Unseen: a DataSource cannot be read.
    """
    if not versions.has_release(cluster, Feature.DATA_SOURCE_ARCHITECTURE.since):
        return None
    for template in templates.items():
        reference = template.at("spec", "sourceRef")
        if (reference["kind"].text or "").lower() == "datasource":
            found = _label(reference, reference["namespace"].text or namespace, cluster)
            if found in _ARCHITECTURES:
                return found
    return None


def _label(reference: Field, namespace: str, cluster: Cluster) -> str | None:
    source = cluster.get(DATA_SOURCE, namespace, reference["name"].text or "")
    if source is None:
        return None
    following = source.at("spec", "source", "dataSource")
    if following.is_map:
        source = cluster.get(
            DATA_SOURCE, following["namespace"].text or "", following["name"].text or ""
        )
    return source.label(_LABEL).text if source is not None else None
