"""Where the settings say that certificates are kept, and when they are renewed."""

from __future__ import annotations

import os

from virt_admit.model.cluster import NOTHING, Cluster, Unseen
from virt_admit.model.kubevirt import cert_settings
from virt_admit.model.kubevirt.configuration import hyperconverged
from virt_admit.settings import Certs, Settings
from virt_admit_certs import plan, store


def schedule_of(settings: Settings, cluster: Cluster = NOTHING) -> plan.Settings:
    """When certificates are renewed, and for which names; with the profile ``cluster`` as its HyperConverged says.

    Raises:
        plan.SettingsError: values that do not go together.
    """
    values = settings.certs.schedule
    if follows_cluster(settings.certs):
        values = {**_schedule_in(cluster), **values}
    unsafe = os.environ.get("VIRT_ADMIT_CERTS_UNSAFE_INTERVALS") == "1"
    return plan.parse_settings(values, names=settings.cert_names, unsafe=unsafe)


def follows_cluster(certs: Certs) -> bool:
    """Whether the schedule depends on the cluster."""
    return certs.schedule.get("profile") == "cluster"


def _schedule_in(cluster: Cluster) -> dict[str, str]:
    """What HyperConverged says of certificates; nothing while it cannot be seen."""
    try:
        found = hyperconverged(cluster)
    except Unseen:
        return {}
    ours = {cert_settings.SERVER: "serving", cert_settings.CA: "signer"}
    return {
        f"{ours[group.name]}-{name}": f"{nanoseconds // 1_000_000}ms"
        for group in (cert_settings.groups(found) if found else ())
        for name, nanoseconds in (("duration", group.duration), ("renew-before", group.renew_before))
    }


def store_of(settings: Settings) -> tuple[store.Store, store.Configurations | None]:
    """Where certificates are kept, and the webhook configurations if we publish the CA there.

    Raises:
        ApiError: a cluster is needed and none is configured.
    """
    certs = settings.certs
    if certs.directory is not None:
        return store.Directory(certs.directory), None
    if certs.external is not None and not certs.external_ca:
        return store.ExternalDirectory(certs.external), None
    api = store.KubernetesApi.connect(settings.kubeconfig, settings.context)
    configurations = store.Configurations(api) if certs.secret or certs.external_ca else None
    if certs.external is not None:
        return store.ExternalDirectory(certs.external), configurations
    kind = store.SecretStore if certs.secret else store.ExternalSecret
    namespace, _, name = (certs.secret or certs.external_secret).partition("/")
    return kind(api, namespace, name), configurations
