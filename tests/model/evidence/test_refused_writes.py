"""Why the API server gets no answer to a write, and what is left over of a product."""

from __future__ import annotations

from functools import partial

import pytest

from tests.builders import endpoint_slice, manifest, webhook_configuration
from virt_admit.model.evidence import reported
from virt_admit.model.evidence.writes import refused_writes
from virt_admit.model.kubernetes import clock, webhook_bundles
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"
HOOK = "default.widget.example.com"
SAID = (
    f'Internal error occurred: failed calling webhook "{HOOK}": failed to call webhook: Post '
    '"https://hooks.old.svc:443/mutate?timeout=10s": '
)
GONE = f'{SAID}service "hooks" not found'


def service(name, namespace):
    return manifest("v1", "Service", name, namespace, spec={"selector": {"app": name}})


def endpoints(name, namespace, ready=True):
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}
    return endpoint_slice(name, namespace, endpoint)


def hook(name=HOOK, namespace="old", policy="Fail", service="hooks"):
    client = {"service": {"name": service, "namespace": namespace}}
    rules = [{"apiGroups": ["example.com"], "resources": ["widgets"], "operations": ["*"]}]
    return {"name": name, "clientConfig": client, "failurePolicy": policy, "rules": rules}


configuration = partial(webhook_configuration, kind="Mutating")


def workload(kind="Deployment", name="operator", namespace="old", replicas=0):
    return manifest("apps/v1", kind, name, namespace, spec={"replicas": replicas})


API = [service("kubernetes", "default")]
OLD = [
    configuration("old", hook()),
    configuration("old", hook("validation.example.com"), kind="Validating"),
]
NEW = [
    configuration("new", hook(namespace="new")),
    service("hooks", "new"),
    endpoints("hooks", "new"),
]


def found(*parts, said=GONE, complete=("*",), at=NOW):
    cluster = Snapshot([*API, *parts], list(complete), time=NOW)
    return refused_writes.of(said, cluster, clock.instant(at))


def test_configurations_of_a_product_that_has_moved_are_left_over():
    refused = found(*OLD, *NEW)

    assert refused.words == (
        "MutatingWebhookConfiguration old and ValidatingWebhookConfiguration old (failurePolicy "
        "Fail) call Service old/hooks, which does not exist, so every write of "
        "widgets.example.com is refused"
    )
    assert refused.remedy == (
        "namespace old does not exist, and Service new/hooks answers for the same webhooks: "
        "these are left over. Decide to delete them: kubectl delete "
        "mutatingwebhookconfiguration/old "
        "validatingwebhookconfiguration/old"
    )


def test_a_product_that_is_gone_may_be_installed_again():
    remedy = found(*OLD).remedy

    assert "answers for the same webhooks" not in remedy
    assert "Decide to delete them: kubectl delete " in remedy
    assert "; or make Service old/hooks again" in remedy


OWNER = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "main", "uid": "u"}
HELM = {"meta.helm.sh/release-name": "widgets", "meta.helm.sh/release-namespace": "old"}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([*OLD, workload()], "Deployment operator is still in its namespace"),
        ([*OLD, workload("StatefulSet")], "StatefulSet operator is still in its namespace"),
        ([configuration("old", hook(), ownerReferences=[OWNER])], "its owner Widget main make"),
        (
            [
                configuration("old", hook(), labels={"app.kubernetes.io/managed-by": "operator"}),
                workload(namespace="elsewhere"),
            ],
            "let Deployment elsewhere/operator make",
        ),
        (
            [
                configuration(
                    "old", hook(), annotations={"argocd.argoproj.io/tracking-id": "web:x/y:z"}
                )
            ],
            "let Argo CD application web make",
        ),
        ([configuration("old", hook("virt.kubevirt.io"), hook())], "let its operator make"),
        ([configuration("old", hook(), hook("b", "new")), *NEW], "make Service old/hooks again"),
        (
            [configuration("old", hook(), {"name": "c", "clientConfig": {"url": "https://x"}})],
            "make Service old/hooks again",
        ),
    ],
)
def test_what_something_installed_makes_is_not_deleted(parts, says):
    remedy = found(*parts).remedy

    assert says in remedy
    assert "delete" not in remedy


SPACE = manifest("v1", "Namespace", "old")
LISTED = (
    *("services", "endpointslices.discovery.k8s.io", "pods", "namespaces"),
    *(f"{kind}.apps" for kind in ("deployments", "statefulsets", "daemonsets")),
)


def test_what_cannot_be_read_is_not_deleted():
    remedy = found(*OLD, SPACE, complete=LISTED[:3]).remedy

    assert remedy.startswith("make Service old/hooks again")
    assert remedy.endswith(", or delete what calls it if that product was removed")


def test_kinds_that_are_not_listed_may_make_pods():
    remedy = found(*OLD, SPACE, complete=LISTED).remedy
    assert remedy.startswith("no pod runs in namespace old: make Service old/hooks again")
    assert "kubectl" not in remedy
    assert "left over" not in remedy

    assert "does not exist: these are left over" in found(*OLD, complete=LISTED).remedy


@pytest.mark.parametrize(
    ("part", "runs"),
    [
        (manifest("argoproj.io/v1alpha1", "Rollout", "a", "old", spec={"replicas": 0}), True),
        (manifest("serving.knative.dev/v1", "Service", "a", "old", spec={"template": {}}), True),
        (manifest("batch/v1", "CronJob", "a", "old", spec={"jobTemplate": {}}), True),
        (manifest("v1", "PersistentVolumeClaim", "a", "old", spec={"volumeName": "v"}), False),
        (manifest("v1", "ConfigMap", "a", "old", data={}), False),
    ],
)
def test_objects_of_any_kind_that_may_make_pods(part, runs):
    remedy = found(*OLD, SPACE, part).remedy

    assert (f"again: {part.kind} a is still in its namespace" in remedy) == runs
    assert ("nothing in namespace old can run pods: these are left over" in remedy) != runs
    assert ("kubectl delete" in remedy) != runs


def test_helm_is_asked_first():
    remedy = found(configuration("old", hook(), annotations=HELM)).remedy

    assert ": helm status widgets -n old; without a release: kubectl delete " in remedy


@pytest.mark.parametrize(
    "parts",
    [
        [configuration("old", hook()), service("hooks", "old"), endpoints("hooks", "old")],
        [configuration("old", hook(policy="Ignore"))],
        [configuration("old", hook(namespace="other"))],  # changed since then
        [configuration("old", hook("another.example.com"))],
        [],
    ],
)
def test_what_answers_now_is_not_said(parts):
    assert found(*parts) is None


def test_no_services_are_known():
    assert refused_writes.of(GONE, Snapshot(OLD, []), None) is None


def test_the_pod_that_is_not_ready():
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod = manifest(
        "v1",
        "Pod",
        "hooks-1",
        "old",
        metadata={"labels": {"app": "hooks"}},
        status={"containerStatuses": [{"name": "web", "state": state}]},
    )
    parts = [*OLD[:1], service("hooks", "old"), endpoints("hooks", "old", ready=False)]
    refused = found(*parts, pod)

    assert "calls Service old/hooks, which has no ready endpoint: Pod hooks-1: " in refused.words
    assert "no such image" in refused.words
    assert refused.remedy == "repair Pod old/hooks-1"
    assert found(*parts).words.endswith("has no ready endpoint, as it has no pod")


def test_a_webhook_that_may_refuse_its_own_pods():
    own = hook()
    own["rules"] = [{"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}]
    parts = [configuration("old", own), service("hooks", "old"), endpoints("hooks", "old", False)]

    assert found(*parts).remedy.endswith("which it may refuse: virt-admit scan")


UNTRUSTED = (
    f"{SAID}tls: failed to verify certificate: x509: certificate signed by unknown authority"
)


@pytest.mark.parametrize(
    ("metadata", "parts", "says"),
    [
        ({}, [], "restart what serves that certificate"),
        (
            {"annotations": {"cert-manager.io/inject-ca-from": "old/serving"}},
            [],
            "kubectl describe certificate serving -n old",
        ),
        (
            {"annotations": {"cert-manager.io/inject-ca-from": "old/serving"}},
            [workload(name="cert-manager-cainjector", namespace="cert-manager", replicas=1)],
            "repair Deployment cert-manager/cert-manager-cainjector",
        ),
    ],
)
def test_a_certificate_that_is_not_trusted(metadata, parts, says):
    own = configuration("old", hook(), **metadata)
    refused = found(own, service("hooks", "old"), endpoints("hooks", "old"), *parts, said=UNTRUSTED)

    assert "the API server rejects (certificate signed by unknown authority)" in refused.words
    assert says in refused.remedy


@pytest.mark.parametrize(
    ("at", "then"),
    [("2026-08-10T12:00:00Z", " rejected at 2026-08-10T12:00:00Z ("), (None, " rejected (")],
)
def test_a_certificate_that_was_not_trusted_long_ago(at, then):
    parts = [*OLD[:1], service("hooks", "old"), endpoints("hooks", "old")]
    refused = found(*parts, said=UNTRUSTED, at=at)

    assert f"whose certificate the API server{then}" in refused.words
    assert refused.remedy.startswith("if it still does, restart what serves")
    assert refused.is_said([found(*parts, said=UNTRUSTED).words])


def test_a_message_with_its_own_time():
    said = (
        f"{SAID}x509: certificate has expired or is not yet valid: current time "
        "2026-11-26T11:40:00Z is after 2026-11-20T00:00:00Z"
    )
    parts = [*OLD[:1], service("hooks", "old"), endpoints("hooks", "old")]

    assert "API server rejects (" in found(*parts, said=said, at="2026-08-10T12:00:00Z").words


def test_a_bundle_that_has_ended(monkeypatch):
    monkeypatch.setattr(webhook_bundles, "end_of", lambda _: clock.instant("2026-08-01T00:00:00Z"))
    parts = [*OLD[:1], service("hooks", "old"), endpoints("hooks", "old")]
    refused = found(*parts, said=UNTRUSTED, at="2026-08-10T12:00:00Z")

    assert "API server rejects (" in refused.words
    assert "the CA bundle ended on 2026-08-01)" in refused.words
    assert refused.remedy.startswith("restart what serves")


def test_a_conversion_and_an_aggregated_api():
    client = {"clientConfig": {"service": {"name": "hooks", "namespace": "old"}}}
    spec = {
        "group": "example.com",
        "names": {"kind": "Widget"},
        "conversion": {"strategy": "Webhook", "webhook": client},
    }
    crd = manifest("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets", spec=spec)
    said = (
        "conversion webhook for example.com/v1, Kind=Widget failed: Post "
        '"https://hooks.old.svc:443/convert?timeout=30s": service "hooks" not found'
    )
    refused = found(crd, said=said)
    assert "CustomResourceDefinition widgets calls Service old/hooks, which does" in refused.words
    assert "delete" not in refused.remedy

    api = manifest(
        "apiregistration.k8s.io/v1",
        "APIService",
        "v1.example.com",
        spec={
            "group": "example.com",
            "version": "v1",
            "service": {"name": "hooks", "namespace": "old"},
        },
    )
    said = "example.com/v1: the server is currently unable to handle the request"
    refused = found(api, said=said)
    assert refused.brief.startswith("APIService v1.example.com calls Service old/hooks")
    assert "it: kubectl delete apiservice/v1.example.com; or make" in refused.remedy
    assert found(api, said=f"other.{said}") is None


def widget(name, message=GONE, kind="Widget"):
    ready = {"type": "Ready", "status": "False", "message": message, "lastTransitionTime": NOW}
    return manifest("example.com/v1", kind, name, "shop", status={"conditions": [ready]})


def test_the_notes_say_the_cause_once():
    parts = [widget("a"), widget("b", message=f"cannot update: {GONE}", kind="Gadget"), *OLD]
    cluster = Snapshot([*API, *parts], ["*"], time="2026-11-26T13:00:00Z")
    texts = [str(each) for each in reported.of_cluster(cluster, ())]

    assert sum("kubectl delete mutatingwebhookconfiguration/old" in text for text in texts) == 1
    for said in (found(*OLD).brief, "Service old/hooks does not exist, so its requests fail"):
        assert "kubectl delete" not in str(reported.of_cluster(cluster, [said]))


def test_a_text_that_quotes_the_message_does_not_say_the_cause():
    cluster = Snapshot([*API, widget("a"), *OLD], ["*"], time="2026-11-26T13:00:00Z")
    for said in (f"a upgrade waits: {GONE}", f"Widget shop/a is not updated: {GONE}"):
        (note,) = reported.of_cluster(cluster, [said])
        assert "kubectl delete mutatingwebhookconfiguration/old" in str(note)


def test_the_configuration_of_a_webhook_that_denies():
    denied = widget("a", f'admission webhook "{HOOK}" denied the request: no')
    cluster = Snapshot([*API, denied, *OLD], ["*"], time="2026-11-26T13:00:00Z")
    (note,) = reported.of_cluster(cluster, ())

    assert "denied the request: no; the webhook is one of MutatingWebhookConfiguration old" in str(
        note
    )


def test_several_configurations_have_the_webhook_that_denies():
    denied = widget("a", f'admission webhook "{HOOK}" denied the request: no')
    same = configuration("checks", hook(), kind="Validating")
    cluster = Snapshot([*API, denied, *OLD, same], ["*"], time="2026-11-26T13:00:00Z")

    assert (
        "is one of ValidatingWebhookConfiguration checks or MutatingWebhookConfiguration old"
        in str(reported.of_cluster(cluster, ())[0])
    )
