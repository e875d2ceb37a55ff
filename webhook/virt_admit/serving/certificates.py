"""The certificate store and the rotation settings that the settings of a process name."""

from __future__ import annotations

import os

from virt_admit.model.kubernetes.cluster import NOTHING, Cluster, Unseen
from virt_admit.model.kubevirt.settings import cert_settings
from virt_admit.model.kubevirt.settings.configuration import hyperconverged
from virt_admit.serving.settings import Certs, Settings
from virt_admit_certs.kube_api import KubeApi
from virt_admit_certs.schedule import RotationSettings, parse_settings
from virt_admit_certs.stores.directory import Directory, ExternalDirectory
from virt_admit_certs.stores.protocol import Store
from virt_admit_certs.stores.secret import ExternalSecret, SecretStore
from virt_admit_certs.webhook_configurations import WebhookConfigurations


def schedule_of(settings: Settings, cluster: Cluster = NOTHING) -> RotationSettings:
    """Return when certificates are renewed, and for which names.

    The profile ``cluster`` reads HyperConverged.

    Raises:
        RotationSettingsError: a value is not valid, or two values contradict each other.
    """
    values = settings.certs.schedule
    if follows_cluster(settings.certs):
        values = {**_schedule_in(cluster), **values}
    unsafe = os.environ.get("VIRT_ADMIT_CERTS_UNSAFE_INTERVALS") == "1"
    return parse_settings(values, names=settings.cert_names, unsafe=unsafe)


def follows_cluster(certs: Certs) -> bool:
    """Return whether the schedule depends on the cluster."""
    return certs.schedule.get("profile") == "cluster"


def _schedule_in(cluster: Cluster) -> dict[str, str]:
    """Return the certificate settings of HyperConverged; empty if it cannot be read."""
    try:
        found = hyperconverged(cluster)
    except Unseen:
        return {}
    ours = {cert_settings.SERVER: "serving", cert_settings.CA: "signer"}
    return {
        f"{ours[group.name]}-{name}": f"{nanoseconds // 1_000_000}ms"
        for group in (cert_settings.groups(found) if found else ())
        for name, nanoseconds in (
            ("duration", group.duration),
            ("renew-before", group.renew_before),
        )
    }


def store_of(settings: Settings) -> tuple[Store, WebhookConfigurations | None]:
    """Return the certificate store, and the webhook configurations if the CA is published there.

    Raises:
        ApiError: the store needs a cluster, and none is configured.
    """
    certs = settings.certs
    if certs.directory is not None:
        return Directory(certs.directory), None
    if certs.external is not None and not certs.external_ca:
        return ExternalDirectory(certs.external), None
    api = KubeApi.connect(settings.kubeconfig, settings.context)
    configurations = WebhookConfigurations(api) if certs.secret or certs.external_ca else None
    if certs.external is not None:
        return ExternalDirectory(certs.external), configurations
    kind = SecretStore if certs.secret else ExternalSecret
    namespace, _, name = (certs.secret or certs.external_secret).partition("/")
    return kind(api, namespace, name), configurations
