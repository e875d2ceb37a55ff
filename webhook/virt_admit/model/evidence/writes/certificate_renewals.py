"""Who renews the certificate of a Service that the API server no longer trusts.

The operators of CDI and KubeVirt write the Secrets of their components again before they end; CDI's
certificate lives 24 hours. The programs behind the Service only read the Secret. One that has not
taken a new one over is restarted; while the operator is down, that ends nothing. Sources:
kubevirt/containerized-data-importer:pkg/operator/controller/certrotation.go#Sync,
pkg/operator/resources/cert/factory.go, pkg/util/cert/watcher/watcher.go, issue 2695;
kubevirt/kubevirt:pkg/virt-operator/resource/apply/core.go#createOrUpdateCertificateSecrets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.evidence import complaints, unready_pods
from virt_admit.model.evidence.writes import proxied_programs
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CDI, DEPLOYMENT, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, WHOLE_CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut

READS: Final[Reads] = union(
    clock.READS,
    proxied_programs.READS,
    unready_pods.READS,
    {
        DEPLOYMENT: ("spec.replicas", "status.readyReplicas", *WHOLE_CONDITIONS),
        KUBEVIRT: NAME,
        CDI: NAME,
    },
)
_CDI_OPERATOR: Final = "cdi-operator"
_RENEWERS: Final = {
    **dict.fromkeys(("cdi-api", "cdi-uploadproxy"), _CDI_OPERATOR),
    **dict.fromkeys(("virt-api", "virt-exportproxy", "kubevirt-operator-webhook"), "virt-operator"),
}
"""The Deployments that renew the certificates of Services, in the same namespace."""
_RESTART: Final = (
    "restart what serves that certificate and writes the bundle: the pods behind the Service"
)
_RENEW: Final = (
    f"{_RESTART}; if that changes nothing, renew the Secret or Certificate from which they have it"
)


class CertificateRenewal(NamedTuple):
    """How a certificate is renewed."""

    remedy: str
    cause: str = ""
    """Why it has not been, as the end of a sentence; empty: that is not known."""


def of_service(service: tuple[str, str], said: str, cluster: Cluster) -> CertificateRenewal:
    """Return how the certificate of a Service is trusted again.

    Args:
        service: its namespace and name.
        said: what the API server says of the certificate.
        cluster: the cluster.
    """
    ended = "has expired" in said
    name = _RENEWERS.get(service[1])
    if name is None:
        return CertificateRenewal(_RENEW if ended else _RESTART)
    operator = find(cluster, DEPLOYMENT, service[0], name)
    if operator is None:
        if not _is_gone(name, service[0], cluster):
            return CertificateRenewal(_RENEW if ended else _RESTART)
        gone = f"Deployment {service[0]}/{name}, which renews it, does not exist"
        return CertificateRenewal(f"install {name} again, which renews it", f"; {gone}")
    if operator.at("status", "readyReplicas").integer:
        return CertificateRenewal(
            f"{_RESTART}; if that changes nothing, see the log of {name}, which renews it"
        )
    return _of_idle(operator, cluster)


def _is_gone(operator: str, namespace: str, cluster: Cluster) -> bool:
    """Return whether a product is installed here and its operator is not: another program may have
    a Service of that name, and a second operator would take over the product."""
    deployments = cluster.known(DEPLOYMENT)
    if unlisted(cluster, DEPLOYMENT) or not deployments:
        return False
    if any(each.name == operator for each in deployments):
        return False
    if operator == _CDI_OPERATOR:
        return bool(cluster.known(CDI))
    return any(each.namespace == namespace for each in cluster.known(KUBEVIRT))


def _of_idle(operator: Object, cluster: Cluster) -> CertificateRenewal:
    """Return that the operator that renews a certificate has no ready pod."""
    title = f"Deployment {operator.full_name}"
    available = operator.condition("Available")
    lasts = (
        clock.lasting(available["lastTransitionTime"].text, cluster)
        if available["status"].text == "False"
        else ""
    )
    begin = f"; {title}, which renews it, has no ready pod{lasts}"
    if operator.at("spec", "replicas").integer == 0:
        way = typed(
            f"set spec.replicas of {title} to 1, which renews it",
            about("scale", operator, DEPLOYMENT, "--replicas=1"),
        )
        return CertificateRenewal(way, f"{begin} (spec.replicas 0)")
    pods = unready_pods.of(operator, cluster)
    told = ((pod, next(complaints.of(pod, cluster), None)) for pod in pods)
    why = "; ".join(f"pod {pod.name}: {cut(each.words, 160)}" for pod, each in told if each)
    caught = next(filter(None, (proxied_programs.fault(pod, cluster) for pod in pods)), "")
    cause = f"{begin}{f' ({why})' if why else ''}{f': {caught}' if caught else ''}"
    renews = f"{title} (renews that certificate, has no ready pod{lasts})"
    if caught:
        edit = about("edit", operator, DEPLOYMENT)
        way = typed(f"{proxied_programs.REMEDY} in {renews}", edit)
    else:
        way = typed(f"repair {renews}", about("describe", operator, DEPLOYMENT))
    return CertificateRenewal(way, cause)
