"""Roll-outs of Deployments beside KubeVirt that stand, as each node that may run a new pod has a
former one of the same Deployment.

A Deployment of two replicas that stops no pod before a new one is ready needs a third node where
its pods may not share one. Sources: kubernetes/kubernetes:pkg/controller/deployment/rolling.go,
:pkg/controller/deployment/util/deployment_util.go#DeploymentTimedOut;
kubevirt/hyperconverged-cluster-operator: pull request 3051.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.forecasts.placement.components.operands import cordoned_homes
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, selectors
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, KUBEVIRT, NODE, POD
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pod_terms import REQUIRED

READS: Final[Reads] = union(
    stopped_workloads.READS,
    cordoned_homes.READS,
    clock.READS,
    {
        DEPLOYMENT: CONDITIONS,
        KUBEVIRT: (),
        POD: ("metadata.labels", "spec.affinity.podAntiAffinity", "spec.nodeName"),
    },
)
_LATE: Final = "ProgressDeadlineExceeded"


class CrowdedRollout(NamedTuple):
    """A roll-out that stands."""

    owner: Object
    reason: str
    remedy: str


def held(cluster: Cluster) -> Iterator[CrowdedRollout]:
    """Yield the roll-outs that wait for a node; none where pods or nodes could not be read."""
    if unlisted(cluster, POD) or unlisted(cluster, NODE):
        return
    spaces = {each.namespace for each in cluster.known(KUBEVIRT)}
    for deployment in cluster.known(DEPLOYMENT):
        if deployment.namespace not in spaces:
            continue
        if deployment.condition("Progressing")["reason"].text == _LATE:
            yield from _of(deployment, cluster)


def _of(deployment: Object, cluster: Cluster) -> Iterator[CrowdedRollout]:
    every = stopped_workloads.pods_of((deployment.name,), cluster)
    pods = [each for each in every if each.namespace == deployment.namespace and not each.deleted]
    new = next(filter(cordoned_homes.is_unplaced, pods), None)
    if new is None or not _is_alone(new):
        return
    old = {each.at("spec", "nodeName").text or "": each for each in pods}
    homes = cordoned_homes.open_to(new, cluster)
    if not homes or not all(old.get(name) for name in homes):
        return
    since = clock.lasting(deployment.condition("Progressing")["lastTransitionTime"].text, cluster)
    wanted = names(f"{key}={value}" for key, value in new.at("spec", "nodeSelector").texts.items())
    which = f" (node selector {wanted})" if wanted else ""
    share = "with one of them" if len(homes) == 1 else "each with one of them"
    reason = (
        f"the roll-out of Deployment {deployment.full_name} has stood{since}: its new pod "
        f"{new.name} may share no node with the former ones (required anti-affinity), and only "
        f"{names(homes)} may run it{which}, {share}"
    )
    yield CrowdedRollout(deployment, reason, _remedy(new, [old[name] for name in homes], wanted))


def _remedy(new: Object, former: Sequence[Object], wanted: str) -> str:
    """Return what gives a new pod a node. Of several former pods one may go: the others serve."""
    labels = f", which needs {wanted}" if wanted else ""
    further = f"let a further node run pod {new.name}{labels}"
    if len(former) == 1:
        return typed(further, about("describe", new, POD))
    delete = about("delete", former[0], POD, "--wait=false")
    first = "let the new pod take the node of a former one, while the others serve"
    return typed(first, delete, f"or {further}")


def _is_alone(pod: Object) -> bool:
    """Return whether a pod may share no node with another one of its labels."""
    terms = pod.at("spec", "affinity", "podAntiAffinity", REQUIRED).items()
    return any(
        term["topologyKey"].text == HOSTNAME
        and selectors.parse(term["labelSelector"].value).matches(pod.labels)
        for term in terms
    )
