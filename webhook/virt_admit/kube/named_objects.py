"""Single objects that are read by name from a live cluster,
because others of their kind hold keys.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.remediation import harvester_reset
from virt_admit.kube.cache import ClusterCache, KindStore, StoreState
from virt_admit.kube.client import ApiClient, malformed_as_error, path_of
from virt_admit.model.kubernetes import json_codec, nodes
from virt_admit.model.kubernetes.kinds import HARVESTER_SETTING
from virt_admit_certs.kube_api import ApiError, read_body

_TIMEOUT: Final = 3.0


def read(api: ApiClient, cluster: ClusterCache) -> None:
    """Add these objects to a cluster that was listed. What cannot be read stays unknown."""
    if not nodes.has_harvester(cluster):
        return
    try:
        response = api.get(path_of(HARVESTER_SETTING, name=harvester_reset.SETTING), {}, _TIMEOUT)
        with malformed_as_error():
            found = json_codec.loads(read_body(response))
    except ApiError as error:
        if error.status == 404:
            cluster.stores[HARVESTER_SETTING] = KindStore(HARVESTER_SETTING)
            cluster.stores[HARVESTER_SETTING].replace({}, StoreState.ABSENT)
        return
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict):
        store = cluster.stores[HARVESTER_SETTING] = KindStore(HARVESTER_SETTING)
        store.upsert(found)
