"""Certificates that have expired, and the operators that renew them."""

import pytest

from tests.builders import manifest
from tests.model.evidence.test_refused_writes import (
    NOW,
    configuration,
    endpoints,
    found,
    hook,
    service,
    workload,
)
from virt_admit.model.evidence.writes import proxied_programs
from virt_admit.model.kubernetes.cluster import Snapshot

CDI_HOOK = "datavolume-mutate.cdi.kubevirt.io"
EXPIRED = (
    f'failed calling webhook "{CDI_HOOK}": Post "https://cdi-api.cdi.svc:443/x": x509: certificate '
    f"has expired or is not yet valid: current time {NOW} is after 2026-11-20T00:00:00Z"
)
SINCE = "2026-11-19T12:00:00Z"


CDI = manifest("cdi.kubevirt.io/v1beta1", "CDI", "cdi")


def cdi_operator(ready=None, replicas=1, **env):
    """CDI with its operator, which has no ready pod, and these variables in its pod."""
    down = {"type": "Available", "status": "False", "lastTransitionTime": SINCE}
    status = {"conditions": [down], **({"readyReplicas": ready} if ready else {})}
    own = {"replicas": replicas}
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 9}
    unready = [{"type": "Ready", "status": "False", "lastTransitionTime": SINCE}]
    states = [{"name": "op", "lastState": {"terminated": {"exitCode": 1}}, **waiting}]
    variables = [{"name": name, "value": value} for name, value in env.items()]
    pod = manifest(
        "v1",
        "Pod",
        "cdi-operator-1-x",
        "cdi",
        spec={"containers": [{"name": "op", "env": variables}], "nodeName": "a"},
        status={"phase": "Running", "conditions": unready, "containerStatuses": states},
    )
    pod.data["metadata"]["ownerReferences"] = [owner("ReplicaSet", "cdi-operator-1")]
    replica_set = manifest("apps/v1", "ReplicaSet", "cdi-operator-1", "cdi")
    replica_set.data["metadata"]["ownerReferences"] = [owner("Deployment", "cdi-operator")]
    deployment = manifest("apps/v1", "Deployment", "cdi-operator", "cdi", spec=own, status=status)
    return [deployment, *([replica_set, pod] if not ready and replicas else [])]


def owner(kind, name):
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}


def expired(*parts, of=("cdi", "cdi-api"), **changes):
    namespace, name = of
    own = configuration(namespace, hook(CDI_HOOK, namespace, service=name))
    api = [service(name, namespace), endpoints(name, namespace)]
    said = EXPIRED.replace("cdi-api.cdi.svc", f"{name}.{namespace}.svc")
    return found(own, *api, *parts, said=said, **changes)


@pytest.mark.parametrize(
    ("parts", "cause", "remedy"),
    [
        (
            cdi_operator(),
            "which renews it, has no ready pod for 7 days (pod cdi-operator-1-x: container op",
            "(renews that certificate, has no ready pod for 7 days): kubectl describe",
        ),
        (cdi_operator(replicas=0), "for 7 days (spec.replicas 0)", "--replicas=1"),
        (cdi_operator(ready=1), "", "if that changes nothing, see the log of cdi-operator"),
        (
            [CDI, workload()],
            "Deployment cdi/cdi-operator, which renews it, does not exist",
            "install",
        ),
        ([], "", "if that changes nothing, renew the Secret"),
    ],
    ids=["down", "scaled down", "runs", "gone", "not known"],
)
def test_an_expired_certificate_is_renewed_by_the_operator_of_the_product(parts, cause, remedy):
    refused = expired(*parts)

    assert "the API server rejects (certificate has expired" in refused.words
    assert refused.words.endswith("valid)") if not cause else cause in refused.words
    assert remedy in refused.remedy
    assert ("restart what serves" in refused.remedy) is (not cause)


def kubevirt_in(namespace):
    return manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", namespace)


@pytest.mark.parametrize(
    ("of", "parts", "is_gone"),
    [
        (("kubevirt", "virt-api"), [kubevirt_in("kubevirt"), workload()], True),
        (("team", "virt-api"), [kubevirt_in("kubevirt"), workload()], False),
        (
            ("team", "virt-api"),
            [kubevirt_in("kubevirt"), workload(name="virt-operator", namespace="kubevirt")],
            False,
        ),
        (("team", "virt-api"), [workload()], False),
        (("team", "cdi-api"), [CDI, *cdi_operator(ready=1)], False),
        (("team", "cdi-api"), [workload()], False),
    ],
    ids=[
        *("gone", "other namespace", "operator elsewhere", "no KubeVirt"),
        *("CDI elsewhere", "no CDI"),
    ],
)
def test_an_operator_is_installed_again_only_where_its_product_is(of, parts, is_gone):
    refused = expired(*parts, of=of)

    assert ("does not exist" in refused.words) is is_gone
    assert ("install" in refused.remedy) is is_gone
    assert ("renew the Secret" in refused.remedy) is not is_gone


PROXY = "http://u:p@proxy.example.com:3128"
KUBERNETES = manifest("v1", "Service", "kubernetes", "default", spec={"clusterIP": "10.96.0.1"})


@pytest.mark.parametrize(
    ("env", "caught"),
    [
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "localhost,.svc,10.60.4.0/24"}, True),
        ({"https_proxy": PROXY}, True),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "localhost, 10.96.0.0/12"}, False),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "10.96.0.1"}, False),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "localhost,10.96.0.1:443"}, False),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.96.0.1:6443"}, True),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": ",".join(["a"] * 1001)}, False),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, False),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": None}, False),
        ({"HTTPS_PROXY": "", "NO_PROXY": "localhost"}, False),
        ({"HTTP_PROXY": PROXY}, False),
        ({"HTTPS_PROXY": PROXY, "KUBERNETES_SERVICE_HOST": "api.example.com"}, False),
    ],
)
def test_an_operator_whose_proxy_catches_the_api_server(env, caught):
    refused = expired(KUBERNETES, *cdi_operator(**env))

    assert ("does not cover Service default/kubernetes (10.96.0.1)" in refused.words) is (
        caught and "NO_PROXY" in env
    )
    assert ("its requests to the API server go to the proxy" in refused.words) is caught
    assert (
        "to the NO_PROXY beside HTTPS_PROXY in Deployment cdi/cdi-operator (renews that "
        "certificate, has no ready pod for 7 days): " in refused.remedy
    ) is caught
    assert "u:p" not in refused.words


@pytest.mark.parametrize(
    ("addresses", "excluded", "caught"),
    [
        (["10.96.7.7"], "localhost,10.96.0.1", False),  # which may be that of the API server
        (["10.96.7.7"], "localhost,10.0.0.0/8", False),
        (["10.96.7.7", "10.43.1.1"], "10.43.0.0/16", False),
        (["10.96.7.7", "None", ""], "localhost,192.168.0.0/16", True),
        (["0.0.0.0/0", "fd00::7"], "localhost", False),
        ([], "localhost", False),
    ],
)
def test_the_address_of_the_api_server_is_not_known(addresses, excluded, caught):
    others = [
        manifest("v1", "Service", f"x{number}", "shop", spec={"clusterIP": address})
        for number, address in enumerate(addresses)
    ]
    *_, pod = cdi_operator(HTTPS_PROXY=PROXY, NO_PROXY=excluded)

    assert bool(proxied_programs.fault(pod, Snapshot([*others, pod]))) is caught
