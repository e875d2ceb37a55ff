"""Webhooks without an answer that refuse each change of a VM: it cannot be created, changed,
started or stopped.

virt-api writes the spec of the VM for some run strategies and its status for others, and webhooks
that name ``virtualmachines`` do not get the status. Source:
kubevirt/kubevirt:pkg/virt-api/rest/lifecycle.go#StartVMRequestHandler #StopVMRequestHandler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.drain.control import webhook_reach
from virt_admit.forecasts.drain.control.control_path import SUBRESOURCES
from virt_admit.forecasts.drain.control.webhook_reach import Webhook
from virt_admit.forecasts.placement.components import service_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model import api_discovery
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.evidence.writes import missing_services
from virt_admit.model.kubernetes import webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import API_SERVICE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.problems import Problem, ProblemCause

_SPEC: Final = InterceptedRequest("UPDATE", "kubevirt.io", "virtualmachines")
_STATUS: Final = InterceptedRequest("UPDATE", "kubevirt.io", "virtualmachines/status")
_STARTS: Final = {"Halted": _SPEC, "Manual": _STATUS, "RerunOnFailure": _STATUS}
_STOPS: Final = {"Always": _SPEC, "Once": _SPEC, "Manual": _STATUS, "RerunOnFailure": _STATUS}
"""The request with which virtctl starts and stops a VM, by run strategy."""
_OPT_OUT: Final = frozenset(("disable", "disabled", "ignore", "skip"))
"""Values of labels by which products let a namespace opt out."""

_STAYS: Final = "It does not end by itself"


def refused_start(vm: Object, cluster: Cluster) -> Problem | None:
    """Return what refuses ``virtctl start``, a webhook or the API server itself; None: nothing
    does, or nothing is known to.
    """
    strategy = vms.run_strategy(vms.vm_spec(vm)) or ""
    effect = "virtctl start fails"
    return _refused(vm, _STARTS.get(strategy), effect, cluster) or (
        _unserved(effect, cluster) if strategy in _STARTS else None
    )


def _unserved(effect: str, cluster: Cluster) -> Problem | None:
    """Return that the API server does not reach virt-api, which answers virtctl; None: it does."""
    api = next(
        (each for each in cluster.known(API_SERVICE) if each.name == f"v1{SUBRESOURCES}"), None
    )
    available = api.condition("Available") if api is not None else None
    if api is None or available is None or available["status"].text != "False":
        return None
    why = available["reason"].text or ""
    reason = (
        f"{effect}, because APIService {api.name} is not available{f' ({why})' if why else ''}: "
        "the API server does not reach virt-api"
    )
    return Problem(reason, api_discovery.remedy(api, cluster).text, ProblemCause.COMPONENT)


def refused_pod(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return which webhook refuses what the start of a VMI creates; None: none, or none is known.

    ``vmi``: need not exist.
    """
    for webhook in cluster.cached(webhook_reach.critical).webhooks:
        silent = webhook_reach.silence(webhook, cluster)
        effects = (webhook_reach.STARTS, webhook_reach.ATTACHES)
        if silent and any(
            webhook_reach.concerns(webhook.field, vmi, cluster, each) for each in effects
        ):
            what = "what a start creates or updates"
            return _problem(webhook, silent, "", vms.namespace_of(vmi), cluster, what)
    return None


def refused_change(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which webhook refuses changes of a VM, and ``virtctl stop`` if it does that; None:
    none, or none is known.
    """
    found = _refused(
        vm, _STOPS.get(vms.run_strategy(vms.vm_spec(vm)) or ""), "virtctl stop fails", cluster
    )
    return found or _refused(vm, _SPEC, "it cannot be changed", cluster)


def refused_update(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which webhook refuses the request that takes a finalizer from a VM; None: none,
    or none is known.
    """
    return _refused(vm, _SPEC, "its finalizer cannot be removed", cluster)


def _refused(
    vm: Object, request: InterceptedRequest | None, effect: str, cluster: Cluster
) -> Problem | None:
    known = cluster.cached(_webhooks)
    if request is None or not known:
        return None
    namespace = vms.namespace_of(vm)
    labels = cluster.cached(webhook_reach.namespace_labels).get(namespace)
    asked = request._replace(
        namespace=namespace, namespace_labels=labels, name=vm.name, labels=vm.labels
    )
    for webhook in known:
        silent = webhook_reach.silence(webhook, cluster)
        if silent and webhook_requests.gets(webhook.field, asked) is True:
            return _problem(webhook, silent, effect, namespace, cluster)
    return None


def _webhooks(cluster: Cluster) -> tuple[Webhook, ...]:
    return webhook_reach.failing_closed((_SPEC, _STATUS), cluster).webhooks


def _problem(
    webhook: Webhook,
    silent: str,
    effect: str,
    namespace: str,
    cluster: Cluster,
    what: str = "each change of a VM",
) -> Problem:
    broken = service_pods.broken(webhook.service, cluster) if not webhook.expired else None
    because = f" ({broken.words})" if broken is not None else ""
    reason = (
        f"{effect and f'{effect}, because '}{webhook.title} refuses {what} in namespace "
        f"{namespace}: {silent}{because}"
    )
    repair = broken.remedy if broken else _repair(webhook, silent, cluster)
    ways = (repair, *_opt_out(webhook, namespace))
    lasts = f". {_outlook(webhook, broken, cluster)}"
    return Problem(f"{reason}{lasts}", "; ".join(ways), ProblemCause.COMPONENT)


def _repair(webhook: Webhook, silent: str, cluster: Cluster) -> str:
    """Return what lets a webhook answer of whose pods nothing is known."""
    if webhook.expired:
        return typed("repair the operator that renews its CA bundle", webhook.described)
    return missing_services.of_silent(webhook.service, silent, cluster)


def _outlook(webhook: Webhook, broken: BrokenPod | None, cluster: Cluster) -> str:
    """Return whether it ends by itself: a pod of a lost node is replaced,
    unless its own webhook refuses that.
    """
    if broken is None or not broken.ends:
        return _STAYS
    own = service_pods.of_service(webhook.service, cluster)
    refused = webhook_reach.gets_own_pods(webhook.field, webhook.service[0], own, cluster)
    perhaps = "" if refused is False else ", unless the webhook refuses that pod"
    return _STAYS if refused else f"It ends with its new pod: {broken.ends}{perhaps}"


def _opt_out(webhook: Webhook, namespace: str) -> Iterator[str]:
    """Yield how one namespace is left out by a label that the webhook itself names for that."""
    for each in webhook.field.at("namespaceSelector", "matchExpressions").items():
        values = [value.text for value in each["values"].items() if value.text in _OPT_OUT]
        if each["operator"].text == "NotIn" and values and each["key"].text:
            label = shell(
                "kubectl",
                "label",
                "namespace",
                argument(namespace),
                f"{each['key'].text}={values[0]}",
            )
            yield (
                f"as a decision, leave namespace {namespace} out of that webhook until then: "
                f"{label}"
            )
