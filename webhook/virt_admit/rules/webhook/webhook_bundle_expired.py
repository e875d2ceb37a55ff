"""The certificate of a webhook or API service of KubeVirt, CDI, HyperConverged or medik8s has
ended, or its CA ends soon.

**Why.** API servers do not trust a webhook or API service whose CA has ended. Then they reject
every change of virtual machines or health checks, also those of the operator that would repair it,
and consoles and migrations fail. virt-admit warns 30 days ahead. A CA that lives at most 8 days is
rotated by its operator, so virt-admit warns only if less than a tenth of its lifetime is left. API
servers say in the status of an API service that its own certificate has ended; the webhooks of the
same pods then fail as well. Of other products, such as Longhorn, webhooks are reported that fail
closed and whose CA has ended: API servers refuse what these are asked about.

**Fix.** Read the log of the operator that owns the configuration, and restart it. If the bundle
stays, delete the secret of its CA (``kubevirt-ca``, ``cdi-apiserver-signer``), or the
configuration, so that the operator creates it again. Restart pods that still serve a certificate
that has ended.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from virt_admit.model import api_discovery
from virt_admit.model.kubernetes import clock, kinds, webhook_bundles
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import API_SERVICE
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.kubernetes.webhook_bundles import Bundle
from virt_admit.model.messages import count, sentence
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, duration, rule


@dataclass(frozen=True)
class Params:
    ahead: int = duration("720h", "warn so long before the end of a CA: 30 days")


@rule(
    kinds=webhook_bundles.KINDS,
    reads=union(
        clock.READS,
        api_discovery.READS,
        {kinds.VALIDATING_CONFIGURATION: ("webhooks",)},
        {kinds.MUTATING_CONFIGURATION: ("webhooks",)},
    ),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    event="WebhookBundleExpired",
    at_admission=False,
    params=Params(),
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/resource/apply/certificates.go",
        "kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/util/webhook/client.go",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    if kinds.of(obj) is API_SERVICE and (obj.at("spec", "group").text or "").endswith(
        webhook_bundles.PRODUCTS
    ):
        yield from _served(obj, context.cluster)
    ahead = timedelta(seconds=context.params.ahead / SECOND)
    for bundle in webhook_bundles.bundles(obj):
        now = clock.now(context.cluster)
        if now is None:
            yield Unseen("the time of the cluster: a heartbeat of a node")
            return
        if bundle.has_ended(now) or bundle.ends_soon(now, ahead):
            yield Finding(bundle.field.path, _message(bundle, now, obj))
    for webhook, end in webhook_bundles.of_others(obj):
        now = clock.now(context.cluster)
        if now is not None and end <= now:
            yield Finding(
                webhook.at("clientConfig", "caBundle").path,
                f"the CA of webhook {webhook['name'].text} ended on {end:%Y-%m-%d}, so API servers "
                "refuse each request that it gets (failurePolicy Fail). Restart what renews it.",
            )


def _served(obj: Object, cluster: Cluster) -> Findings:
    """Yield that an API service serves a certificate that has ended, whatever its CA."""
    expired = webhook_bundles.served_expired(obj)
    if not expired:
        return
    namespaces = api_discovery.held_namespaces(obj, cluster)
    also = " and those of its webhooks" if _has_webhooks(obj, cluster) else ""
    fail = f"its requests{also} fail"
    widths = (60, 30, 1) if namespaces else ()
    effects = [f"{fail}, and {api_discovery.stay(namespaces, width)}" for width in widths]
    remedy = api_discovery.remedy(obj, cluster)
    does = f"{sentence(remedy.words.partition(', which serves')[0])[:-1]} after each rotation."
    if not remedy.words.startswith("restart"):
        name = obj.at("spec", "service", "name").text or "its Service"
        does = f"Restart the pods of {name}, and check their operator."
    path = obj.condition("Available")["status"].path
    short = does.replace(" after each rotation", "")
    lasting = _lasting(obj)
    texts = [
        f"it serves a certificate {expired}, so {effect}. {remedied}"
        for more in dict.fromkeys((lasting, ""))
        for effect in (*effects, fail)
        for remedied in ([does + more] if more else dict.fromkeys((does, short)))
    ]
    message = check.first_that_fits(path, *texts)
    command = remedy.command if remedy.words.startswith("restart") else ""
    yield Finding(path, message, problem=problem_of(ProblemCause.COMPONENT, obj), command=command)


_TEMPLATES: Final = "subresources.template.kubevirt.io"
"""The API of virt-template-apiserver, which KubeVirt 1.9 installs by default and whose pods load
their certificate once (kubevirt/kubevirt#18936)."""


def _lasting(obj: Object) -> str:
    """Return what ends that for good, with a space before; empty: it is not known."""
    if obj.at("spec", "group").text != _TEMPLATES:
        return ""
    return " Update KubeVirt to a release that reloads it, or add Template to disabledFeatureGates."


def _has_webhooks(obj: Object, cluster: Cluster) -> bool:
    """Return whether a webhook is known that the pods of an API service answer."""
    own = obj.at("spec", "service")
    place = own["namespace"].text, own["name"].text
    configurations = (each for kind in webhook_bundles.KINDS[:2] for each in cluster.known(kind))
    services = (
        hook.at("clientConfig", "service")
        for each in configurations
        for hook in each["webhooks"].items()
    )
    return any((each["namespace"].text, each["name"].text) == place for each in services)


def _message(bundle: Bundle, now: datetime, obj: Object) -> str:
    api = "" if obj["webhooks"].present else " API"
    end = f"{bundle.end:%Y-%m-%d}"
    if bundle.has_ended(now):
        return (
            f"the CA ended on {end}, so API servers do not trust this{api} service and its "
            "requests fail. Restart its operator; if the CA stays, delete "
            f"{_owned_by_operator(obj, api)}."
        )
    return (
        f"the CA ends on {end}, in {count((bundle.end - now).days, 'day')}. Then API servers do "
        f"not trust this{api} service and its requests fail. Check that its operator renews it."
    )


def _owned_by_operator(obj: Object, api: str) -> str:
    """Return what the operator creates again with a new CA: the secret of the CA,
    or this object.
    """
    if "cert-manager.io/inject-ca-from" in obj.annotations:
        return "the secret of its Certificate of cert-manager"
    if ".cdi." in obj.name or obj.name.startswith("cdi-"):
        return "the secret cdi-apiserver-signer of CDI"
    if obj.name.endswith(".subresources.kubevirt.io") or obj.name.startswith("virt-"):
        return "the secret kubevirt-ca of KubeVirt"
    return "this API service" if api else "this configuration"
