"""A provisioner that fails with a claim: what it says, and which of its pods says it.

Its events name it as ``driver_pod_uid``
(kubernetes-csi/external-provisioner:cmd/csi-provisioner/csi-provisioner.go, identity).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, PVC
from virt_admit.model.kubernetes.objects import Object

_CLASS: Final = re.compile(r'^failed to provision volume with StorageClass "[^"]*": ')
"""The frame of an error. The remedy names the class."""


def error(said: str) -> str:
    """Return the error of a provisioner without its frame."""
    return _CLASS.sub("", said)


def remedy(claim: Object, storage_class: Object, cluster: Cluster) -> str:
    """Return where the cause of an error is to be found: the provisioner may be healthy."""
    driver = storage_class["provisioner"].text or "?"
    pod = _reporter(claim, cluster) or node_pods.controller_of(driver, cluster)
    command = node_pods.logs(pod) if pod is not None else kubectl("describe", PVC, claim.name, claim.namespace)
    words = f"correct what provisioner {driver} refuses, in the claim, in class {storage_class.name} or in its storage"
    return typed(f"{words}; its logs may say more", command)


def _reporter(claim: Object, cluster: Cluster) -> Object | None:
    """Return the pod that reports the error, by the source of the event; None: it is not known."""
    own = (each for each in events.about(claim, None, cluster) if each["reason"].text == "ProvisioningFailed")
    event = next(own, None)
    if event is None:
        return None
    component = event["reportingComponent"].text or event.at("source", "component").text or ""
    parts = component.split("_")[1:2]
    return next((pod for pod in cluster.known(POD) if pod.name in parts), None)
