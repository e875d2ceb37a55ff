"""Webhooks that fail closed and refuse what an updater of nodes has to write.

A MachineDeployment makes a Machine, and for it an object of each of its providers. Who upgrades
Harvester makes an Upgrade, which writes the new release into the Cluster of Rancher. Sources:
kubernetes-sigs/cluster-api:internal/controllers/machineset/machineset_controller.go#createMachines;
harvester/harvester:pkg/webhook/resources/upgrade/validator.go,
:package/upgrade/upgrade_manifests.sh.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain.control import webhook_reach
from virt_admit.forecasts.drain.control.webhook_reach import Webhook
from virt_admit.forecasts.placement.components import service_pods
from virt_admit.forecasts.placement.components.controllers import replaced_providers
from virt_admit.forecasts.upgrade import harvester_waits
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.forecasts.upgrade.pools import updater_pods
from virt_admit.model.evidence.writes.fleet_objects import LOCAL
from virt_admit.model.kubernetes import nodes, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.problems import ProblemCause, ProblemId

READS: Final[Reads] = union(webhook_reach.READS, updater_pods.READS)
_CAPI: Final = "cluster.x-k8s.io"
_GROUPS: Final = ("bootstrap", "infrastructure")
_UPGRADE: Final = InterceptedRequest("CREATE", "harvesterhci.io", "upgrades", "harvester-system")
_RELEASE: Final = InterceptedRequest(
    "UPDATE", "provisioning.cattle.io", "clusters", LOCAL, name="local"
)


def controller(driver: str, cluster: Cluster) -> Obstacle | None:
    """Return what keeps the updater of all nodes from its work: that it does not run, or a
    webhook."""
    down = updater_pods.controller(driver, cluster)
    return down or (next(_of_harvester(cluster), None) if driver == "plain" else None)


def of_deployment(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield what keeps the providers of a MachineDeployment from their work."""
    yield from updater_pods.of_deployment(deployment, cluster)
    yield from _of_deployment(deployment, cluster)


def _of_deployment(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield the webhooks without which a MachineDeployment gets no further Machine."""
    namespace, template = deployment.namespace, deployment.at("spec", "template", "spec")
    requests = [InterceptedRequest("CREATE", _CAPI, "machines", namespace)]
    for group, field in zip(_GROUPS, updater_pods.TEMPLATES, strict=True):
        kind = template.at(*field.split("."), "kind").text or ""
        made = f"{kind.removesuffix('Template').lower()}s"  # as Cluster API demands of its kinds
        requests.append(InterceptedRequest("CREATE", f"{group}.{_CAPI}", made, namespace))
    effect = f"MachineDeployment {deployment.full_name} gets no new Machine"
    yield from _refused(requests, effect, cluster)


def _of_harvester(cluster: Cluster) -> Iterator[Obstacle]:
    """Yield the webhooks without which no upgrade of Harvester begins, or goes on to its nodes."""
    if not harvester_waits.is_harvester(cluster) or harvester_upgrades.is_at_nodes(cluster):
        return
    if not any(True for _ in harvester_upgrades.going(cluster)):
        yield from _refused([_UPGRADE], "no upgrade of Harvester can be created", cluster)
    if not nodes.only_of_harvester(cluster):
        effect = f"Rancher's Cluster {LOCAL}/local gets no new release"
        yield from _refused([_RELEASE], effect, cluster)


def _refused(
    requests: Sequence[InterceptedRequest], effect: str, cluster: Cluster
) -> Iterator[Obstacle]:
    labels = cluster.cached(webhook_reach.namespace_labels)
    asked = [each._replace(namespace_labels=labels.get(each.namespace)) for each in requests]
    for webhook in webhook_reach.failing_closed(asked, cluster).webhooks:
        if not any(webhook_requests.gets(webhook.field, each) for each in asked):
            continue
        found = webhook_reach.unanswered(webhook, cluster)
        if found is not None and not _answers_soon(webhook, cluster):
            place = ProblemId(ProblemCause.COMPONENT, "", found.name)
            reason = f"{effect}, as {found.reason} ({found.kind} {found.name})"
            yield Obstacle(reason, capital(found.remedy), place)


def _answers_soon(webhook: Webhook, cluster: Cluster) -> bool:
    """Return whether a webhook may answer in a moment, as its pod starts or clusterctl installs it
    again: a controller repeats what was refused."""
    return not webhook.expired and (
        service_pods.starts(webhook.service, cluster)
        or webhook.service[0] in replaced_providers.awaited(cluster)
    )
