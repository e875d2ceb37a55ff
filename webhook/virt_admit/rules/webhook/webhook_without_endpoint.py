"""A webhook or API service that VMs need has no Service, or no ready endpoint behind it.

**Why.** A webhook with ``failurePolicy: Fail`` that does not answer makes the API server refuse
every request that the webhook asks for. Without evictions no drain completes; without pods no VM
starts or migrates; without the objects of the network plugin no pod gets an address. An update of
HyperConverged does not go on while its own webhook is down. An API service without an endpoint
fails the requests of its group, and no deletion of any namespace ends: it stays Terminating.

**Fix.** Repair the pods behind the Service. A webhook that also refuses the new pods of its own
namespace, or those of cluster DNS, keeps itself down: set its ``failurePolicy`` to Ignore until its
pods are ready, and exclude that namespace by its ``namespaceSelector``. Otherwise remove the
configuration only if the product that wrote it is no longer installed. Delete the APIService of a
product that was removed. Do not remove finalizers of namespaces: their objects would be left
behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from virt_admit.model import api_discovery
from virt_admit.model.commands import about
from virt_admit.model.evidence.writes import missing_services, service_callers
from virt_admit.model.kubernetes import kinds, node_health, service_endpoints, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import API_SERVICE, DEPLOYMENT, NAMESPACE, NODE, POD, SERVICE
from virt_admit.model.kubernetes.reads import CONDITIONS, union
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.kubevirt.settings.removed_operators import RemovedProduct
from virt_admit.model.messages import advice_of, command_of, names, sentence
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, Path, Urgency, rule

if TYPE_CHECKING:
    from virt_admit.forecasts.placement.components.broken_pods import BrokenPod

_NEEDED = {
    "evictions": (InterceptedRequest("CREATE", "", "pods/eviction"),),
    "changes of nodes (cordon, uncordon, taints)": (
        InterceptedRequest("UPDATE", "", "nodes", cluster_scoped=True),
    ),
    "new pods": (
        InterceptedRequest("CREATE", "", "pods"),
        InterceptedRequest("CREATE", "", "pods/binding"),
        InterceptedRequest("UPDATE", "", "pods/status"),
    ),
    "claims": (InterceptedRequest("CREATE", "", "persistentvolumeclaims"),),
    "ends of pods": (InterceptedRequest("DELETE", "", "pods"),),
    "changes of VMs (virtctl start, stop)": tuple(
        InterceptedRequest(operation, "kubevirt.io", "virtualmachines")
        for operation in ("CREATE", "UPDATE")
    ),
    "VMIs and migrations": tuple(
        InterceptedRequest(operation, "kubevirt.io", f"virtualmachineinstance{name}")
        for name in ("s", "migrations", "s/status", "migrations/status")
        for operation in ("CREATE", "UPDATE")
    ),
    "reports of kubelets": (InterceptedRequest("UPDATE", "", "nodes/status", cluster_scoped=True),),
    "networks": tuple(
        InterceptedRequest(operation, group, resource)
        for group, resource in (
            ("k8s.cni.cncf.io", "network-attachment-definitions"),
            ("whereabouts.cni.cncf.io", "ippools"),
            ("whereabouts.cni.cncf.io", "overlappingrangeipreservations"),
            ("crd.projectcalico.org", "ipamblocks"),
            ("cilium.io", "ciliumendpoints"),
            ("k8s.ovn.org", "userdefinednetworks"),
            ("kubeovn.io", "ips"),
        )
        for operation in ("CREATE", "UPDATE")
    ),
    "attachments of Longhorn's volumes": (
        InterceptedRequest("UPDATE", "longhorn.io", "volumeattachments"),
    ),
    "settings of KubeVirt": tuple(
        InterceptedRequest("UPDATE", group, resource)
        for group, resource in (
            ("hco.kubevirt.io", "hyperconvergeds"),
            ("kubevirt.io", "kubevirts"),
            ("cdi.kubevirt.io", "cdis"),
        )
    ),
}
"""What fails, by the requests that a drain, the start of a VM,
the network plugin or an update of KubeVirt makes.
"""


@rule(
    kinds=(kinds.VALIDATING_CONFIGURATION, kinds.MUTATING_CONFIGURATION, API_SERVICE),
    reads=union(
        service_endpoints.READS,
        api_discovery.READS,
        missing_services.READS,
        removed_operators.READS,
        node_health.READS,
        webhook_requests.READS,
        {
            DEPLOYMENT: ("status.conditions.message", *CONDITIONS),
            NAMESPACE: ("metadata.labels",),
            NODE: ("metadata.labels",),
            POD: ("metadata.labels", "spec.nodeName", "status.phase", *CONDITIONS),
            SERVICE: ("spec.selector",),
        },
    ),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    event="WebhookWithoutEndpoint",
    at_admission=False,
    sources=(
        (
            "kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/"
            "validating/dispatcher.go"
        ),
        (
            "kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/util/proxy/"
            "proxy.go#ResolveEndpoint"
        ),
        "kubernetes/kubectl:pkg/drain/drain.go#evictPods",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if kinds.of(obj) is API_SERVICE:
        yield from _api_service(obj, context.cluster)
        return
    for webhook in obj["webhooks"].items():
        service = webhook_requests.service(webhook)
        failing, unread = _failing(webhook, obj, context.cluster) if service else ([], None)
        if service is None or not (failing or unread):
            continue
        try:
            problem = _problem(context.cluster, *service)
            if problem and unread and not failing:
                raise unread
        except Unseen as blind:
            yield blind
            return
        if problem:
            path = webhook.at("clientConfig", "service", "name").path
            if (removed := removed_operators.kubevirt(context.cluster)) and removed.leaves(obj):
                yield _leftover(path, problem, removed)
                continue
            broken = _broken_pod(service, context.cluster)
            itself = _keeps_itself_down(webhook, service, context.cluster)
            said = None if itself else _deadlock(obj, webhook, problem, failing, context.cluster)
            if said is None and service_callers.is_missing(problem):
                said = _missing(service, problem, failing, context.cluster)
            if said is None:
                words = _words(problem, _faults(broken), failing, itself, service[0])
                said = list(words), _ignoring(obj, webhook) if itself else _repair(broken)
            yield Finding(
                path,
                check.first_that_fits(path, *said[0]),
                problem=problem_of(ProblemCause.COMPONENT, obj),
                command=said[1],
            )


def _leftover(path: Path, problem: str, removed: RemovedProduct) -> Finding:
    """Return that an object is left of KubeVirt, whose removal does not end:
    that finding has the remedy.
    """
    why = f"as KubeVirt is being removed ({removed.obj.full_name})"
    return Finding(
        path,
        f"{problem}, {why}. Delete this object.",
        problem=problem_of(ProblemCause.COMPONENT, removed.obj),
        max_action=Action.AUDIT,
        command=removed.command,
    )


def _failing(webhook: Field, obj: Object, cluster: Cluster) -> tuple[Sequence[str], Unseen | None]:
    """Return what fails without an answer, in the namespaces and for the nodes that the webhook
    selects, and what hides whether more does.
    """
    found, unread = list[str](), None
    for what, asked in _NEEDED.items():
        requests = [each for each in asked if webhook_requests.intercepts(webhook, each)]
        reaches = (
            _reaches_a_node
            if any(each.cluster_scoped for each in requests)
            else _reaches_a_namespace
        )
        try:
            if requests and (what in _SETTINGS or reaches(webhook, requests, cluster)):
                found.append(what.replace("(cordon", f"({_of_nodes(webhook, obj)}: cordon"))
        except Unseen as blind:
            unread = blind
    return found, unread


def _of_nodes(webhook: Field, obj: Object) -> str:
    """Return the name of the webhook that asks for nodes themselves, else of the one that asks for
    all objects.
    """
    every = (each for each in obj["webhooks"].items() if webhook_requests.service(each))
    own = (
        each["name"].text
        for each in every
        for rule in each["rules"].items()
        if any(resource.text == "nodes" for resource in rule["resources"].items())
    )
    return next(filter(None, own), webhook["name"].text or "webhook")


def _reaches_a_namespace(
    webhook: Field, requests: Sequence[InterceptedRequest], cluster: Cluster
) -> bool:
    """Return whether a webhook may get one of these requests in a known namespace;
    unknown ones may be any.
    """
    if (
        not webhook["namespaceSelector"].map
        or unlisted(cluster, NAMESPACE)
        or not cluster.known(NAMESPACE)
    ):
        return True
    return any(
        webhook_requests.gets(
            webhook, each._replace(namespace=space.name, namespace_labels=_labels(space))
        )
        is not False
        for space in cluster.known(NAMESPACE)
        for each in requests
    )


def _labels(namespace: Object) -> dict[str, str]:
    return {"kubernetes.io/metadata.name": namespace.name, **namespace.labels}


def _reaches_a_node(
    webhook: Field, requests: Sequence[InterceptedRequest], cluster: Cluster
) -> bool:
    """Return whether a webhook may get one of these requests for a node.

    Raises:
        Unseen: it selects nodes, which are not all known.
    """
    every = [webhook_requests.gets(webhook, each) for each in requests]
    return True in every or (
        None in every
        and any(
            webhook_requests.gets(webhook, each._replace(name=node.name, labels=node.labels))
            is not False
            for node in cluster.list(NODE)
            for each in requests
        )
    )


_SETTINGS = ("settings of KubeVirt",)


def _broken_pod(service: tuple[str, str], cluster: Cluster) -> BrokenPod | None:
    """Return the pod behind a Service that is not ready; None: nothing shows one."""
    # files alone know no endpoints
    from virt_admit.forecasts.placement.components import service_pods  # noqa: PLC0415

    return service_pods.broken(service, cluster)


def _repair(broken: BrokenPod | None) -> str:
    if broken is None:
        return ""
    known = broken.on_lost_node or broken.is_pinned
    return command_of(broken.remedy) if known else about("describe", broken.pod, POD)


def _faults(broken: BrokenPod | None) -> Sequence[str]:
    """Return what is wrong with a pod, the longest form first; none: nothing says so."""
    if broken is None or not broken.why:
        return ()
    last = broken.why.rpartition(", ")[2]
    killed = re.search(r"\w+Killed", last)
    short = killed[0] if killed else broken.why.partition(", ")[0]
    return tuple(dict.fromkeys((broken.why, last, f"its pod: {short}")))


def _words(
    problem: str,
    broken: Sequence[str],
    failing: Sequence[str],
    keeps_itself_down: bool,
    namespace: str,
) -> Iterator[str]:
    """Yield the message, the longest form first."""
    if keeps_itself_down:
        until = "Let it ignore failures until its pods are ready"
        exclude = f"{until}, and exclude {namespace} by its namespaceSelector."
        for number in (3, 2, 1):
            yield (
                f"{problem}, so {' and '.join(failing[:number])} fail, also its own: it stays "
                f"down. {exclude}"
            )
        yield (
            f"{problem}, so new pods fail, also its own: it stays down. Exclude {namespace} by its "
            "namespaceSelector."
        )
        return
    for number in (4, 3, 1):
        for why in broken:
            yield f"{problem} ({why}): {_first(failing, number)} fail. Repair its pod."
    for number in (4, 3, 1):
        for what in ("the requests of this webhook (failurePolicy Fail)", "its requests"):
            yield (
                f"{problem}, so the API server refuses {what}: {_first(failing, number)} "
                "fail. Repair it."
            )


def _missing(
    service: tuple[str, str], problem: str, failing: Sequence[str], cluster: Cluster
) -> tuple[list[str], str]:
    """Return that a Service does not exist, the longest form first, and the command about it."""
    remedy = missing_services.remedy(service, cluster)
    texts = [f"{problem}: {_first(failing, most)} fail. {advice_of(remedy)}" for most in (4, 3, 1)]
    return texts, command_of(remedy)


def _first(failing: Sequence[str], number: int) -> str:
    """Return the first effects, and whether there are more."""
    return " and ".join((*failing[:number], *(("more",) if failing[number:] else ())))


def _keeps_itself_down(webhook: Field, service: tuple[str, str], cluster: Cluster) -> bool:
    """Return whether a webhook also refuses the new pods behind its own Service,
    which would answer.
    """
    # files alone know no endpoints
    from virt_admit.forecasts.drain.control import webhook_reach  # noqa: PLC0415
    from virt_admit.forecasts.placement.components import service_pods  # noqa: PLC0415

    if cluster.get(SERVICE, *service) is None:  # the product may be gone
        return False
    own = service_pods.of_service(service, cluster)
    return webhook_reach.gets_own_pods(webhook, service[0], own, cluster) is True


def _deadlock(
    obj: Object, webhook: Field, problem: str, failing: Sequence[str], cluster: Cluster
) -> tuple[list[str], str] | None:
    """Return that a webhook keeps cluster DNS and itself down, the longest form first,
    and a command.
    """
    # as above
    from virt_admit.forecasts.placement.components import webhook_deadlocks  # noqa: PLC0415

    found = webhook_deadlocks.of_webhook(obj, webhook, cluster)
    if found is None:
        return None
    others = names(sorted(webhook_deadlocks.refused_workloads(webhook, cluster)), 60)
    fails = f"{' and '.join(failing)} fail{f', such as of {others}' if others else ''}"
    stays = "neither comes back by itself"
    remedy = advice_of(found.remedy)
    texts = [
        *(f"{problem}: {what}, and {found.lacks}, so {stays}. {remedy}" for what in (fails, _PODS)),
        f"{problem}, and cluster DNS no pod, which it refuses: {stays}. {remedy}",
    ]
    return texts, command_of(found.remedy)


_PODS = "new pods fail"


def _ignoring(obj: Object, webhook: Field) -> str:
    # as above
    from virt_admit.forecasts.placement.components import webhook_deadlocks  # noqa: PLC0415

    return webhook_deadlocks.ignoring([(obj, webhook)])


def _api_service(obj: Object, cluster: Cluster) -> Findings:
    service = obj.at("spec", "service")
    namespace, name = service["namespace"].text, service["name"].text
    group = obj.at("spec", "group").text or ""
    held = api_discovery.held_namespaces(obj, cluster)
    if not namespace or not name or not (held or group.endswith((".kubevirt.io", "k8s.io"))):
        return
    problem = _problem(cluster, namespace, name)
    if not problem:
        return
    if (removed := removed_operators.kubevirt(cluster)) and removed.leaves(obj):
        yield _leftover(service["name"].path, problem, removed)
        return
    of_virtctl = group == "subresources.kubevirt.io"
    effect = "virtctl fails" if of_virtctl else "requests of its group fail"
    remedy = api_discovery.remedy(obj, cluster)
    path, then = service["name"].path, sentence(remedy.words)
    widths = (90, 40, 1) if held else ()
    hangs = [f"discovery fails and {api_discovery.stay(held, width)}" for width in widths]
    texts = [f"{problem}, so {what}. {then}" for what in (*hangs, effect)]
    texts += [f"{problem}. {then}"]
    yield Finding(
        path,
        check.first_that_fits(path, *texts),
        problem=problem_of(ProblemCause.COMPONENT, obj),
        command=remedy.command,
    )


def _problem(cluster: Cluster, namespace: str, name: str) -> str:
    if not service_endpoints.is_described(cluster):
        return ""
    return service_endpoints.backing(cluster, namespace, name).problem
