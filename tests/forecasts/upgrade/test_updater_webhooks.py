"""Webhooks that refuse what an updater of nodes has to write."""

import base64

import pytest

from tests.builders import manifest, node, webhook_configuration
from tests.healthy.parts import ago
from tests.incidents.control_path import expired_ca
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade.pools import updater_webhooks
from virt_admit.model.kubernetes.cluster import Snapshot

EXPIRED = base64.b64encode(expired_ca()).decode()
HARVESTER = [node(name, {"harvesterhci.io/managed": "true"}) for name in "abc"]
CAPI = "cluster.x-k8s.io"
DEPLOYMENT = manifest(
    *(f"{CAPI}/v1beta2", "MachineDeployment", "md", "fleet"),
    spec={
        "template": {
            "spec": {
                "bootstrap": {"configRef": {"kind": "KubeadmConfigTemplate"}},
                "infrastructureRef": {"kind": "Metal3MachineTemplate"},
            }
        }
    },
)


def hook(group, resource, operation="CREATE", ca=EXPIRED, **fields):
    rule = {"apiGroups": [group], "operations": [operation], "resources": [resource]}
    client = {"service": {"namespace": "own", "name": "webhook"}, "caBundle": ca}
    own = {"name": "check.example.com", "failurePolicy": "Fail", "clientConfig": client}
    return webhook_configuration("check", own | {"rules": [rule]} | fields)


def snapshot(*objects):
    return Snapshot(objects, complete=["*"], time=ago(minutes=0))


def of_harvester(*objects):
    return updater_webhooks.controller("plain", snapshot(*objects))


def upgrade(status):
    metadata = {"labels": {"harvesterhci.io/latestUpgrade": "true"}}
    conditions = [{"type": "SystemServicesUpgraded", "status": status}]
    kind = ("harvesterhci.io/v1beta1", "Upgrade", "hvst", "harvester-system")
    return manifest(*kind, metadata=metadata, status={"conditions": conditions})


UPGRADES = ("harvesterhci.io", "upgrades")
RELEASE = ("provisioning.cattle.io", "clusters", "UPDATE")
WHY = (
    "as webhook check.example.com fails closed, and its CA bundle has expired "
    "(ValidatingWebhookConfiguration check)"
)


@pytest.mark.parametrize(
    ("objects", "effect"),
    [
        ([hook(*UPGRADES)], "no upgrade of Harvester can be created"),
        ([hook(*RELEASE)], "Rancher's Cluster fleet-local/local gets no new release"),
        ([hook(*RELEASE), upgrade("Unknown")], "Rancher's Cluster fleet-local/local gets no new"),
    ],
)
def test_an_upgrade_of_harvester_is_refused(objects, effect):
    found = of_harvester(*HARVESTER, *objects)
    assert found.reason.startswith(effect)
    assert found.reason.endswith(WHY)
    assert "kubectl describe validatingwebhookconfiguration check" in found.remedy


OTHERS = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


@pytest.mark.parametrize(
    "objects",
    [
        [*HARVESTER, hook(*UPGRADES, ca="")],
        [*HARVESTER, hook(*UPGRADES, failurePolicy="Ignore")],
        [*HARVESTER, hook(*UPGRADES, namespaceSelector=OTHERS)],
        [*HARVESTER, hook(*UPGRADES), upgrade("Unknown")],
        [*HARVESTER, hook(*RELEASE), upgrade("True")],
        [HARVESTER[0], hook(*RELEASE)],
        [*map(node, "abc"), hook(*UPGRADES)],
        [*HARVESTER, hook("harvesterhci.io", "settings")],
    ],
    ids=[
        *("not-expired", "ignored", "other-namespaces", "exists", "has-the-release", "single"),
        *("no-harvester", "other-resource"),
    ],
)
def test_webhooks_that_hold_no_upgrade_of_harvester(objects):
    assert of_harvester(*objects) is None


@pytest.mark.parametrize(
    ("group", "resource"),
    [
        (CAPI, "machines"),
        (f"bootstrap.{CAPI}", "kubeadmconfigs"),
        (f"infrastructure.{CAPI}", "metal3machines"),
    ],
)
def test_a_new_machine_is_refused(group, resource):
    cluster = snapshot(hook(group, resource))
    (found,) = updater_webhooks.of_deployment(DEPLOYMENT, cluster)
    assert found.reason == f"MachineDeployment fleet/md gets no new Machine, {WHY}"


@pytest.mark.parametrize(
    ("group", "resource"),
    [(CAPI, "machinehealthchecks"), (f"infrastructure.{CAPI}", "vspheremachines")],
)
def test_webhooks_that_machines_do_not_meet(group, resource):
    cluster = snapshot(hook(group, resource))
    assert list(updater_webhooks.of_deployment(DEPLOYMENT, cluster)) == []


def test_a_webhook_of_any_product_whose_bundle_has_expired_refuses_evictions():
    guest = {"containers": [{"name": "web"}], "nodeName": "a"}
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": True}]}
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pod = manifest("v1", "Pod", "web", "shop", metadata=owner, spec=guest, status=ready)

    def blocks(**fields):
        cluster = snapshot(node("a"), pod, hook("", "pods/eviction", **fields))
        (own,) = drain_plan.plan(cluster, "a").nodes
        return [each.reason for each in own.pods.blockers]

    expected = "webhook check.example.com fails closed, and its CA bundle has expired"
    assert blocks() == [f"{expected}: evictions fail"]
    assert blocks(ca="") == []


def answering(since, status="False", **metadata):
    """Return the Service of the webhook and its only pod, which is not ready since then."""
    kind = ("v1", "Service", "webhook", "own")
    ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
    pod = manifest(
        *("v1", "Pod", "webhook-1", "own"),
        metadata={"labels": {"app": "webhook"}, **metadata},
        spec={"nodeName": "a"},
        status={"phase": "Running", "conditions": [ready]},
    )
    return [manifest(*kind, spec={"selector": {"app": "webhook"}, "ports": [{"port": 443}]}), pod]


@pytest.mark.parametrize(
    ("others", "stands"),
    [
        (answering(ago(minutes=1)), False),
        (answering(ago(minutes=6)), True),
        (answering(ago(minutes=1), deletionTimestamp=ago(minutes=1)), True),
        (answering(ago(minutes=1))[:1], True),
    ],
    ids=["starts", "lasts", "leaves", "no-pod"],
)
def test_a_webhook_whose_pod_starts_is_asked_again(others, stands):
    cluster = snapshot(hook(CAPI, "machines", ca=""), *others)
    found = list(updater_webhooks.of_deployment(DEPLOYMENT, cluster))
    assert bool(found) is stands


def test_a_webhook_whose_ca_has_expired_does_not_answer_when_its_pod_is_ready():
    cluster = snapshot(hook(CAPI, "machines"), *answering(ago(minutes=1)))
    assert len(list(updater_webhooks.of_deployment(DEPLOYMENT, cluster))) == 1
