"""Pods that run and whose readiness probe has failed for long."""

import pytest

from tests.builders import manifest, warning
from virt_admit.model.evidence import failed_probes
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-02-04T12:00:00Z"
MADE = "2026-02-01T12:00:00Z"


def pod(name="v-1", since=MADE, path="/v1/sys/health?uninitcode=204", labels=None):
    probe = {"httpGet": {"path": path, "port": 8200}}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": since}
    container = {"name": "v", "ready": False, "state": {"running": {}}}
    owner = {"kind": "StatefulSet", "name": "v", "controller": True}
    metadata = {"creationTimestamp": MADE, "ownerReferences": [owner], "labels": labels or {}}
    return manifest(
        "v1",
        "Pod",
        name,
        "d",
        metadata=metadata,
        spec={"nodeName": "a", "containers": [{"name": "v", "readinessProbe": probe}]},
        status={"phase": "Running", "conditions": [ready], "containerStatuses": [container]},
    )


def warned(subject, said, last="2026-02-04T11:59:00Z"):
    """The event of a pod whose readiness probe fails."""
    made = {"creationTimestamp": MADE}
    return warning(subject, "Unhealthy", f"Readiness probe failed: {said}", last, metadata=made)


def found(subject, said="HTTP probe failed with statuscode: 429", last="2026-02-04T11:59:00Z"):
    cluster = Snapshot([subject, warned(subject, said, last)], ["*"], time=NOW)
    return failed_probes.of_pod(subject, cluster)


def test_a_standby_of_vault_is_named():
    probe = found(pod(labels={"helm.sh/chart": "vault-1", "app.kubernetes.io/instance": "secrets"}))
    assert failed_probes.words([probe]) == (
        "pod v-1 runs, but the readiness probe GET /v1/sys/health has failed for 3 days, since it "
        "was made: HTTP probe failed with statuscode: 429, as a standby of Vault does without "
        "standbyok=true"
    )
    assert probe.advice.startswith("add standbyok=true to server.readinessProbe.path of the chart")
    assert probe.command == "helm get values secrets -n d"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/sys/health?standbyok=true", "HTTP probe failed with statuscode: 429"),
        ("/v1/sys/health", "HTTP probe failed with statuscode: 503"),
        ("/healthz?key=secret", "HTTP probe failed with statuscode: 429"),
    ],
)
def test_any_other_answer_is_looked_into(path, said):
    probe = found(pod(path=path), said)
    assert probe.advice.startswith("see why the program answers so, or correct the readiness probe")
    words = failed_probes.words([probe])
    assert "has failed for 3 days, since it was made: " in words
    assert "secret" not in words


@pytest.mark.parametrize(
    ("since", "said"),
    [("2026-02-04T09:00:00Z", "connection refused"), (MADE, "resyncing, 61% done")],
    ids=["was ready", "progress"],
)
def test_what_may_become_ready_is_waited_for(since, said):
    probe = found(pod(path="/healthz", since=since), said)
    assert probe.advice == "wait until it is ready, or see why the program answers so"
    assert not probe.lasts


def test_each_container_has_its_own_answers():
    own = pod(path="/healthz")
    own.data["spec"]["containers"].append({"name": "agent", "readinessProbe": {"exec": {}}})
    said = {"agent": "agent says no", "v": "503"}
    events = [
        warned(own, text, f"2026-02-04T11:5{9 - number}:00Z")
        for number, text in enumerate(said.values())
    ]
    for event, name in zip(events, said, strict=True):
        event.data["involvedObject"]["fieldPath"] = f"spec.containers{{{name}}}"
    assert failed_probes.of_pod(own, Snapshot([own, *events], ["*"], time=NOW)).said == "503"
    assert failed_probes.of_pod(own, Snapshot([own, events[0]], ["*"], time=NOW)) is None


ANSWER = 'Get "http://admin:secret@10.0.0.1:8200/healthz?token=secret": dial tcp: refused'


def test_what_the_address_of_a_probe_holds_is_not_quoted():
    words = failed_probes.words([found(pod(path="/healthz?token=secret"), ANSWER)])
    assert words.endswith(': Get "http://10.0.0.1:8200/healthz": dial tcp: refused')


def test_what_may_pass_or_is_old_is_not_named():
    assert found(pod(since="2026-02-04T11:30:00Z")) is None
    assert found(pod(), last="2026-02-04T10:00:00Z") is None
