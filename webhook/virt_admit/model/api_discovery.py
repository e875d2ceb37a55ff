"""Namespaces that stay Terminating because an aggregated API does not answer.

The namespace controller deletes the objects of all APIs. Without an answer to discovery it cannot
know whether there are any, so it finishes no deletion in the whole cluster. Sources:
kubernetes/kubernetes:
pkg/controller/namespace/deletion/namespaced_resources_deleter.go#deleteAllContent,
#status_condition_utils.go; issue kubevirt/hyperconverged-cluster-operator#593.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.kubernetes import webhook_bundles
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import API_SERVICE, DEPLOYMENT, NAMESPACE, SERVICE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import names

READS: Final[Reads] = {
    NAMESPACE: ("status.conditions.message", "status.conditions.status", "status.conditions.type"),
    SERVICE: (),
    DEPLOYMENT: ("spec.selector", "spec.template.metadata.labels"),
}

_CONDITION: Final = "NamespaceDeletionDiscoveryFailure"


class ApiRemedy(NamedTuple):
    """What lets discovery go on."""

    words: str
    command: str

    @property
    def text(self) -> str:
        """The words with the command."""
        return typed(self.words, self.command)


def held_namespaces(api_service: Object, cluster: Cluster) -> tuple[str, ...]:
    """Return the namespaces that stay Terminating because discovery of this API fails, by name."""
    group, version = api_service.at("spec", "group").text, api_service.at("spec", "version").text
    if not group or not version:
        return ()
    named = re.compile(rf"(?<![\w./-]){re.escape(group)}/{re.escape(version)}(?![\w/-])")
    return tuple(
        sorted(
            each.name
            for each in cluster.known(NAMESPACE)
            if each.deleted and named.search(_said(each))
        )
    )


def failing(namespace: Object, cluster: Cluster) -> tuple[Object, ...]:
    """Return the APIs without which the deletion of a namespace does not end."""
    said = _said(namespace)
    return tuple(
        each
        for each in cluster.known(API_SERVICE)
        if said and namespace.name in held_namespaces(each, cluster)
    )


def _said(namespace: Object) -> str:
    found = namespace.condition(_CONDITION)
    return found["message"].text or "" if found["status"].text == "True" else ""


def remedy(api_service: Object, cluster: Cluster) -> ApiRemedy:
    """Return what lets discovery go on: delete the APIService of a product that was removed, else
    repair what answers.
    """
    service = api_service.at("spec", "service")
    namespace, name = service["namespace"].text or "", service["name"].text or ""
    delete = about("delete", api_service, API_SERVICE)
    exists = bool(name) and not is_absent(cluster, SERVICE, namespace, name)
    expired = webhook_bundles.served_expired(api_service)
    if expired and (deployment := _deployment(namespace, name, cluster)) is not None:
        words = f"restart Deployment {deployment.full_name}, which serves a certificate {expired}"
        return ApiRemedy(
            words,
            shell(
                "kubectl",
                "rollout",
                "restart",
                "deployment",
                argument(deployment.name),
                "-n",
                argument(namespace),
            ),
        )
    if exists:
        described = kubectl("describe", SERVICE, name, namespace)
        return ApiRemedy(f"repair the pods behind Service {namespace}/{name}", described)
    home = find(cluster, NAMESPACE, "", namespace)
    absent = home is None and cluster.known(NAMESPACE) and not unlisted(cluster, NAMESPACE)
    if absent or (home is not None and home.deleted):
        return ApiRemedy(
            "its product was removed: delete this APIService, or install the product again", delete
        )
    return ApiRemedy(
        "delete this APIService if its product was removed, else install the product again", delete
    )


def _deployment(namespace: str, name: str, cluster: Cluster) -> Object | None:
    """Return the only Deployment whose pods a Service selects; None: none or several are known."""
    service = find(cluster, SERVICE, namespace, name)
    selector = service.at("spec", "selector").map if service is not None else {}
    found = []
    for each in cluster.known(DEPLOYMENT, namespace) if selector else ():
        labels = {
            **each.at("spec", "selector", "matchLabels").map,
            **each.at("spec", "template", "metadata", "labels").map,
        }
        if all(labels.get(key) == value for key, value in selector.items()):
            found.append(each)
    return found[0] if len(found) == 1 else None


def stay(namespaces: tuple[str, ...], width: int = 60) -> str:
    """Return ``namespaces a, b stay Terminating``."""
    many = len(namespaces) > 1
    return (
        f"namespace{'s' if many else ''} {names(namespaces, width)} stay{'' if many else 's'} "
        "Terminating"
    )
