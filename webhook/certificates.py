"""Where the settings say that certificates are kept, and when they are renewed."""

from __future__ import annotations

import os

from certs import plan, store
from webhook.settings import Settings


def schedule_of(settings: Settings) -> plan.Settings:
    """When certificates are renewed, and for which names.

    Raises:
        plan.SettingsError: values that do not go together.
    """
    unsafe = os.environ.get("VIRT_ADMIT_CERTS_UNSAFE_INTERVALS") == "1"
    return plan.parse_settings(settings.certs.schedule, names=settings.cert_names, unsafe=unsafe)


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
