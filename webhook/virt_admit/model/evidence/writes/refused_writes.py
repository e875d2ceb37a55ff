"""Writes that the API server refuses because it gets no answer to them: who asks whom, why that one
is silent, and what ends it.

Sources:
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/util/webhook/error.go#ErrCallingWebhook,
staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go#Convert.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.evidence import complaints, unready_pods
from virt_admit.model.evidence.writes import (
    admission_policies,
    certificate_renewals,
    missing_services,
    service_callers,
)
from virt_admit.model.evidence.writes.service_callers import (
    ServiceCaller,
    ServiceName,
    callers,
    hooks,
    is_missing,
    silence,
)
from virt_admit.model.kubernetes import clock, selectors, webhook_bundles, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, SERVICE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, find_named
from virt_admit.model.messages import capital, cut, names

READS: Final[Reads] = union(
    clock.READS,
    unready_pods.READS,
    missing_services.READS,
    certificate_renewals.READS,
    {SERVICE: ("spec.selector",)},
)

_CALLED: Final = re.compile(r'failed calling webhook \\?"([\w.-]{1,253})\\?"')
_DENIED: Final = re.compile(r'admission webhook \\?"([\w.-]{1,253})\\?" denied the request')
_HOST: Final = re.compile(r"https://([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.svc\b")
_CONVERTED: Final = re.compile(
    r"conversion webhook for ([\w.-]{1,253})/\w{1,63}, Kind=(\w{1,63}) failed"
)
_UNAVAILABLE: Final = re.compile(
    r"(?<![\w./-])([\w.-]{1,253})/(v\w{1,20}): "
    r"(?:the server is currently unable to handle|stale GroupVersion)"
)
_UNTRUSTED: Final = re.compile(
    r"x509: (certificate (?:has expired|signed by unknown)[^:;\"]{0,60})"
)
_CURRENT: Final = re.compile(r"\bcurrent time (\d{4}-\d\d-\d\dT[\d:]{8}Z) is ")
"""Of Go's crypto/x509.CertificateInvalidError."""
_RECENT: Final = timedelta(hours=2)
"""For so long a message is about now: controllers try again every few minutes."""
_CA_FROM: Final = "cert-manager.io/inject-ca-from"
_INJECTOR: Final = "cert-manager-cainjector"


class RefusedWrite(NamedTuple):
    """Why the API server gets no answer."""

    brief: str
    """As a main clause."""
    remedy: str
    problem: str
    """What is wrong with the Service, as other texts say it."""
    effect: str = ""
    """What cannot be written, or why nothing answers, as the end of a sentence."""

    def is_said(self, texts: Iterable[str]) -> bool:
        """Return whether one of these texts is about the same."""
        return any(self.brief in text or self.problem in text for text in texts)

    @property
    def words(self) -> str:
        """The whole reason, as a main clause."""
        return f"{self.brief}{self.effect}"


def of(message: str, cluster: Cluster, at: datetime | None) -> RefusedWrite | None:
    """Return why a write was refused that a message is about; None: it names no such cause, or what
    it names answers now.

    Whether the API server trusts an answer is seen in messages alone. ``at``: when this one was
    written; None: not known.
    """
    host = _HOST.search(message)
    services = list(dict.fromkeys(_asked(message, cluster)))
    if host is not None:
        services = [each for each in services if each == (host[2], host[1])]
    for service in services:
        problem = silence(service, cluster)
        if is_missing(problem):
            who, call = service_callers.who(service, cluster)
            words = f"{who} {call} Service {'/'.join(service)}, which does not exist"
            effect = _refused(callers(cluster)[service])
            return RefusedWrite(words, missing_services.remedy(service, cluster), problem, effect)
        if problem:
            return _unready(service, problem, cluster)
        if untrusted := _UNTRUSTED.search(message):
            told = _CURRENT.search(message)
            when = clock.instant(told[1]) if told else at
            return _distrusted(service, untrusted[1], when, cluster)
    return None


def hint(message: str, cluster: Cluster, at: datetime | None, said: Iterable[str]) -> str:
    """Return the same as the end of a text that quotes the message; empty: nothing is known, or one
    of the texts beside it says it.
    """
    found = of(message, cluster, at)
    if found is not None:
        return "" if found.is_said(said) else f". {found.words}. {capital(found.remedy)}"
    policy = admission_policies.named(message, "", cluster)
    if policy is not None:
        way = typed(capital(policy.order), policy.command, "or change what it rejects")
        return f". {policy.title} denies it. {way}"
    denied = _DENIED.search(message)
    if denied is None or denied[1].endswith(webhook_bundles.PRODUCTS):
        return ""
    title = service_callers.titles(service_callers.configurations(denied[1], cluster))
    return f"; the webhook is one of {title}" if title and title not in message else ""


def _asked(message: str, cluster: Cluster) -> Iterator[ServiceName]:
    """Yield the Services that the API server asks for what a message names."""
    patterns = (_CALLED, _CONVERTED, _UNAVAILABLE)
    called, converted, api = (pattern.search(message) for pattern in patterns)
    if called:
        yield from (each for each in callers(cluster) if called[1] in hooks(each, cluster))
    elif converted or api:
        for service, asking in callers(cluster).items():
            for spec in (each.obj["spec"] for each in asking):
                kind, version = spec.at("names", "kind").text, spec["version"].text
                named = (spec["group"].text, kind or version)
                if named in [(each[1], each[2]) for each in (converted, api) if each]:
                    yield service


def _refused(callers: Sequence[ServiceCaller]) -> str:
    """Return what cannot be written, as the end of a sentence."""
    found = dict.fromkeys(
        f"{resource.text}.{group.text}" if group.text else resource.text or ""
        for each in callers
        for hook in each.obj["webhooks"].items()
        if webhook_requests.service(hook)
        for rule in hook["rules"].items()
        for group in rule["apiGroups"].items()
        for resource in rule["resources"].items()
    )
    return f", so every write of {names(found, 70)} is refused" if found else ""


def _unready(service: ServiceName, problem: str, cluster: Cluster) -> RefusedWrite:
    who, call = service_callers.who(service, cluster)
    found = find(cluster, SERVICE, *service)
    chosen = found.at("spec", "selector").map if found is not None else {}
    selector = selectors.parse({"matchLabels": dict(chosen)})
    pods = [
        pod
        for pod in cluster.known(POD, service[0])
        if chosen and not pod.ended and selector.matches(pod.labels)
    ]
    told = ((pod, next(complaints.of(pod, cluster), None)) for pod in pods)
    pod, why = next((each for each in told if each[1]), (pods[0] if pods else None, None))
    state = f": Pod {pod.name} is not ready" if pod is not None else ", as it has no pod"
    state = f": Pod {pod.name}: {cut(why.words, 160)}" if pod is not None and why else state
    words = f"{who} {call} {problem.replace(' has ', ', which has ')}{state}"
    repair = f"repair Pod {pod.full_name}" if pod is not None else "let its workload run pods"
    if any(_may_get_pods(each.obj) for each in callers(cluster)[service]):
        away = f"end what keeps the pods of Service {'/'.join(service)} away, which it may refuse"
        repair = typed(away, shell("virt-admit", "scan"))
    return RefusedWrite(words, repair, problem)


def _may_get_pods(obj: Object) -> bool:
    asked = webhook_requests.InterceptedRequest("CREATE", "", "pods")
    return any(webhook_requests.intercepts(hook, asked) for hook in obj["webhooks"].items())


def _distrusted(
    service: ServiceName, said: str, at: datetime | None, cluster: Cluster
) -> RefusedWrite:
    who, call = service_callers.who(service, cluster)
    asking = callers(cluster)[service]
    source = next(filter(None, (each.obj.annotations.get(_CA_FROM) for each in asking)), "")
    words = f"{who} {call} Service {'/'.join(service)}, whose certificate the API server"
    now, age = clock.now(cluster), clock.elapsed(at, cluster)
    asked = (hook for each in asking for hook in each.obj["webhooks"].items())
    ends = [
        end
        for hook in asked
        if webhook_requests.service(hook) == service
        and (end := webhook_bundles.end_of(hook))
        and now
        and end <= now
    ]
    ended = f"; the CA bundle ended on {min(ends):%Y-%m-%d}" if ends else ""
    lasts = bool(ends) or (age is not None and age < _RECENT)
    then = f"rejected at {clock.stamp(at)}" if at is not None else "rejected"
    injected = _injected(source, cluster)
    renewal, cause = (
        (injected, "") if injected else certificate_renewals.of_service(service, said, cluster)
    )
    return RefusedWrite(
        f"{words} {'rejects' if lasts else then} ({said.strip()}{ended})",
        renewal if lasts else f"if it still does, {renewal}",
        words,
        cause if lasts else "",
    )


def _injected(source: str, cluster: Cluster) -> str:
    """Return how certificate and CA bundle fit again that cert-manager writes; empty: it does not
    write them."""
    injector = find_named(cluster, DEPLOYMENT, _INJECTOR) if source else None
    if injector is not None and not injector.at("status", "readyReplicas").integer:
        return (
            f"repair Deployment {injector.full_name}, which writes that bundle and has no ready pod"
        )
    if source:
        space, _, name = source.partition("/")
        command = shell("kubectl", "describe", "certificate", argument(name), "-n", space)
        return typed(
            f"repair Certificate {source} of cert-manager, from which the bundle comes", command
        )
    return ""
