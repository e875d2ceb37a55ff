"""Webhooks of Longhorn that do not answer: no volume of it gets to another node."""

import base64

import pytest

from tests.builders import endpoint_slice, manifest, webhook_configuration
from tests.healthy.clusters import plain
from tests.healthy.parts import ago
from tests.incidents.component_faults import LONGHORN, claim
from tests.incidents.control_path import expired_ca
from tests.incidents.machines import guest
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.outage.outages import outage
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

EXPIRED = base64.b64encode(expired_ca()).decode()
SERVICE = {"namespace": "longhorn-system", "name": "longhorn-admission-webhook"}


def hook(*resources, ca=EXPIRED, **fields):
    rule = {"apiGroups": ["longhorn.io"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    own = {
        "name": "validator.longhorn.io",
        "failurePolicy": "Fail",
        "clientConfig": {"service": SERVICE, "caBundle": ca},
        "rules": [rule | {"resources": list(resources or ("volumes", "volumeattachments"))}],
    }
    return webhook_configuration("longhorn-webhook-validator", own | fields)


def cluster(*objects, driver=LONGHORN, strategy="LiveMigrate"):
    made = guest("web", "w1", strategy=strategy)
    items = [each for each in made if not each["kind"].startswith("Persistent")]
    items = [*plain(), *items, *claim("web", driver=driver)]
    return Snapshot([*map(Object, items), *objects], ["*"])


def row(*objects, **fields):
    (own,) = drain_plan.plan(cluster(*objects, **fields), "w1").nodes
    (only,) = own.forecasts
    return only


def test_without_its_webhook_no_volume_of_longhorn_gets_elsewhere():
    found = row(hook())
    assert found.outcome is VmOutcome.BLOCKS
    assert found.reason == (
        "webhook validator.longhorn.io fails closed, and its CA bundle has expired: migrations fail"
    )
    stopped = row(hook(), strategy="None")
    assert stopped.outcome is VmOutcome.RESTARTS
    assert "but only later: webhook validator.longhorn.io fails closed" in stopped.reason
    (lost,) = outage(("w1",), cluster(hook())).vms
    assert lost.outcome is LossOutcome.NEVER
    assert "webhook validator.longhorn.io fails closed, and its CA bundle has" in lost.reason


@pytest.mark.parametrize(
    ("own", "fields"),
    [
        (hook(), {"driver": "rook-ceph.rbd.csi.ceph.com"}),
        (hook("backups"), {}),
        (hook(failurePolicy="Ignore"), {}),
    ],
    ids=["another-driver", "other-objects", "fails-open"],
)
def test_webhooks_that_no_volume_needs(own, fields):
    assert row(own, **fields).outcome is VmOutcome.MIGRATES


def test_a_webhook_of_a_daemonset_stays_on_the_drained_node():
    labels = {"app": "longhorn-manager"}
    owner = {"kind": "DaemonSet", "name": "longhorn-manager", "controller": True}
    pod = manifest(
        *("v1", "Pod", "longhorn-manager-w1", "longhorn-system"),
        metadata={"labels": labels, "ownerReferences": [owner]},
        spec={"nodeName": "w1", "nodeSelector": {"kubernetes.io/hostname": "w1"}},
        status={
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": ago(minutes=90)}
            ],
        },
    )
    ends = {"nodeName": "w1", "targetRef": {"kind": "Pod", "name": pod.name}}
    place = SERVICE["name"], SERVICE["namespace"]
    service = manifest("v1", "Service", *place, spec={"selector": labels})
    found = row(hook(ca=""), pod, service, endpoint_slice(*place, ends))
    assert found.outcome is VmOutcome.MIGRATES
