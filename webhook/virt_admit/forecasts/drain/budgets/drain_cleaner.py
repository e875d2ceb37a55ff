"""Strimzi's Drain Cleaner refuses evictions of brokers with an error,
on which ``kubectl drain`` gives up.

It annotates the pod, and the Strimzi operator rolls it, so that a further drain passes. Before 1.1
it let the eviction pass, and a budget of 0 refused it with code 429, which ``kubectl drain``
repeats. Its webhook has ``failurePolicy: Ignore``: while it does not answer, evictions meet the
budget alone and nothing rolls the broker. Sources: strimzi/drain-cleaner:README.md
(STRIMZI_DENY_EVICTION); kubernetes/kubectl:pkg/drain/drain.go#evictPods; kubereboot/kured#1269.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes import service_endpoints
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, VALIDATING_CONFIGURATION
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union

READS: Final[Reads] = union(
    service_endpoints.READS,
    {
        VALIDATING_CONFIGURATION: ("webhooks.rules.resources", "webhooks.clientConfig.service"),
        DEPLOYMENT: ("spec.template.spec.containers.image",),
        POD: ("metadata.labels", *CONDITIONS),
    },
)

_OF: Final = ("-kafka", "-zookeeper")
"""Ends of the label strimzi.io/name of the pods that Drain Cleaner handles."""
_RELEASE: Final = re.compile(r"drain-cleaner:v?(\d{1,3})\.(\d{1,3})")
_DENIES: Final = (1, 1)


def is_installed(cluster: Cluster) -> bool:
    """Return whether Drain Cleaner asks to see evictions.

    Raises Unseen after those that are known.
    """
    return any(
        True
        for configuration in cluster.list(VALIDATING_CONFIGURATION)
        for _ in _webhooks(configuration)
    )


def silence(cluster: Cluster) -> str:
    """Return why nothing rolls the pods of a node: Drain Cleaner or Strimzi itself does not answer;
    empty: both do.

    Raises:
        Unseen: its Service or its endpoints cannot be determined.
    """
    configurations, _ = gather(cluster.list(VALIDATING_CONFIGURATION))
    services = {
        (service["namespace"].text or "", service["name"].text or "")
        for configuration in configurations
        for webhook in _webhooks(configuration)
        for service in [webhook.at("clientConfig", "service")]
    }
    problems = [
        problem
        for namespace, name in sorted(services)
        if service_endpoints.is_described(cluster)
        and (problem := service_endpoints.backing(cluster, namespace, name).problem)
    ]
    if services and len(problems) == len(services):
        return f"Strimzi's Drain Cleaner does not answer ({problems[0]})"
    operators = [
        pod for pod in cluster.known(POD) if pod.labels.get("strimzi.io/kind") == "cluster-operator"
    ]
    if operators and not any(
        pod.condition("Ready")["status"].text in (None, "True") for pod in operators
    ):
        return f"the Strimzi operator has no Ready pod in namespace {operators[0].namespace}"
    return ""


def refuses(pod: Object, cluster: Cluster) -> bool:
    """Return whether Drain Cleaner refuses the eviction of a pod whose budget would allow it.

    Raises:
        Unseen: it may be installed, or nothing tells its release.
    """
    if "strimzi.io/cluster" not in pod.labels or not pod.labels.get("strimzi.io/name", "").endswith(
        _OF
    ):
        return False
    denies, unseen = cluster.cached(_denies)
    if unseen:
        raise Unseen(unseen)
    return denies and "Drain Cleaner" not in cluster.cached(silence)


def _denies(cluster: Cluster) -> tuple[bool, str]:
    """Return whether a Drain Cleaner that refuses evictions is installed, and what could not be
    read if none is known.
    """
    configurations, unseen = gather(cluster.list(VALIDATING_CONFIGURATION))
    webhooks = [webhook for configuration in configurations for webhook in _webhooks(configuration)]
    if not webhooks:
        return False, unseen
    spaces = {webhook.at("clientConfig", "service", "namespace").text for webhook in webhooks}
    deployments, blind = gather(cluster.list(DEPLOYMENT))
    images = (
        container["image"].text or ""
        for found in deployments
        if found.namespace in spaces
        for container in found.at("spec", "template", "spec", "containers").items()
    )
    releases = [
        tuple(map(int, match.groups())) for image in images if (match := _RELEASE.search(image))
    ]
    if any(release >= _DENIES for release in releases):
        return True, ""
    return False, unseen if releases else blind or "the release of Strimzi's Drain Cleaner"


def _webhooks(configuration: Object) -> Iterator[Field]:
    for webhook in configuration["webhooks"].items():
        named = "drain-cleaner" in (webhook.at("clientConfig", "service", "name").text or "")
        asked = (
            each.text for rule in webhook["rules"].items() for each in rule["resources"].items()
        )
        if named and "pods/eviction" in asked:
            yield webhook
