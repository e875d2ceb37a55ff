"""What an administrator has to acknowledge before OpenShift updates to another minor release,
such as removed APIs.

The ConfigMap ``admin-gates`` has what to check by its key, and an administrator sets the same key
to ``true`` in ``admin-acks``. Source:
openshift/cluster-version-operator:pkg/risk/adminack/adminack.go#checkAdminGate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from virt_admit.model.commands import merge_patch, shell, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find

_CONFIG_MAP: Final = kinds.guess("v1", "ConfigMap")
"""A snapshot may hold it. It is not read from a live cluster,
where it would need a right to read ConfigMaps.
"""
_GATES: Final = ("openshift-config-managed", "admin-gates")
_ACKS: Final = ("openshift-config", "admin-acks")
_KEY: Final = re.compile(r"ack-\d+\.\d+-[A-Za-z0-9._-]*[A-Za-z0-9]")


def remedy(words: str, version: Object, cluster: Cluster, *, ordered: bool = True) -> str:
    """Return how to acknowledge what a refused update demands; empty:
    it demands nothing of that kind.

    Args:
        words: what the cluster-version operator says.
        version: the ClusterVersion.
        cluster: the cluster.
        ordered: an update waits for it.
    """
    upgradeable = version.condition("Upgradeable")
    said = " ".join(filter(None, (words, upgradeable["reason"].text, upgradeable["message"].text)))
    keys = sorted({*_KEY.findall(said), *_open(version, cluster)})
    if not keys and "AdminAck" not in said:
        return ""
    namespace, name = _ACKS
    if keys:
        data = {"data": dict.fromkeys(keys, "true")}
        then = ", after which the update starts by itself" if ordered else ""
        what = f"Check what the message asks for. Only then acknowledge it{then}"
        return typed(what, merge_patch(_CONFIG_MAP, name, namespace, data))
    gates = shell("kubectl", "get", "configmap", _GATES[1], "-n", _GATES[0], "-o", "yaml")
    what = (
        f'Check what the message asks for. Only then set its key to "true" in ConfigMap {name} of '
        f"{namespace}"
    )
    return typed(f"{what}; the keys of this minor release", gates)


def _open(version: Object, cluster: Cluster) -> list[str]:
    """Return the keys for the present minor release that are not acknowledged,
    as far as the gates are known.
    """
    release = ".".join((version.at("status", "desired", "version").text or "").split(".")[:2])
    acknowledged = _data(*_ACKS, cluster)
    gates = (
        key
        for key in _data(*_GATES, cluster)
        if _KEY.fullmatch(key) and key.startswith(f"ack-{release}-")
    )
    return [key for key in gates if acknowledged.get(key) != "true"]


def _data(namespace: str, name: str, cluster: Cluster) -> Mapping[str, object]:
    found = find(cluster, _CONFIG_MAP, namespace, name)
    data = found["data"].value if found is not None and found["data"].is_map else {}
    return {str(key): value for key, value in data.items()}
