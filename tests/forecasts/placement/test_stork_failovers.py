"""VMs that Portworx's Stork frees from a lost node."""

import pytest

from tests.builders import complete, manifest
from tests.healthy.clusters import plain
from tests.incidents.component_faults import claim
from tests.incidents.machines import guest
from virt_admit.forecasts.outage.outages import outage
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.placement.components.drivers import stork_failovers
from virt_admit.forecasts.remediation.unwatched import vm_returns
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

TITLE = "Portworx's Stork (Deployment portworx/stork)"


def stork(*flags, ready=3, image="docker.io/openstorage/stork:23.9.1", driver="--driver=pxd"):
    box = {"name": "stork", "image": image}
    box |= {"command": ["/stork", driver, *flags]} if driver else {}
    return manifest(
        *("apps/v1", "Deployment", "stork", "portworx"),
        spec={"replicas": 3, "template": {"spec": {"containers": [box]}}},
        status={"readyReplicas": ready},
    )


def objects(repl="3", driver=stork_failovers.DRIVER, **fields):
    parameters = {"parameters": {"repl": repl}} if repl else {}
    made = [*claim("web", driver=driver, storage_class="px", **fields)]
    kind = ("storage.k8s.io/v1", "StorageClass", "px")
    items = [each for each in guest("web", "w1") if not each["kind"].startswith("Persistent")]
    return [*map(Object, [*plain(), *items, *made]), manifest(*kind, **parameters)]


def lost(*more, **fields):
    (only,) = outage(("w1",), Snapshot([*objects(**fields), *more], ["*"])).vms
    return only


def of_vmi(*more, **fields):
    known = objects(**fields)
    own = next(each for each in known if each.kind == "VirtualMachineInstance")
    return stork_failovers.of_vmi(own, complete(*known, *more)), vm_returns.of_vmi(
        own, complete(*known, *more)
    )


def test_its_monitor_frees_vms_with_copies_of_their_volumes():
    assert lost().outcome is LossOutcome.NEVER
    found = lost(stork("--health-monitor-interval=120"))
    assert found.outcome is LossOutcome.RESTARTS
    assert f"{TITLE} acts" in found.reason
    freed, back = of_vmi(stork())
    assert (freed.by, freed.unsure, freed.within) == (TITLE, "", (150, 330))
    assert back.by == TITLE


@pytest.mark.parametrize(
    ("own", "fields"),
    [
        (stork("--health-monitor=false"), {}),
        (stork(ready=0), {}),
        (stork(image="registry.k8s.io/kube-scheduler:v1.30.0"), {}),
        (stork(), {"driver": "rook-ceph.rbd.csi.ceph.com"}),
    ],
    ids=["switched-off", "none-ready", "its-scheduler", "another-driver"],
)
def test_what_frees_nothing(own, fields):
    assert of_vmi(own, **fields) == (None, None)
    assert lost(own, **fields).outcome is LossOutcome.NEVER


@pytest.mark.parametrize(
    ("own", "fields", "unsure"),
    [
        (stork(ready=1), {}, f"whether {TITLE} acts with 1 of 3 pods ready"),
        (stork(driver=""), {}, f"whether the health monitor of {TITLE} is on"),
        (stork(), {"repl": "1"}, "whether a copy of claim web is left: StorageClass px"),
        (stork(), {"repl": ""}, "whether a copy of claim web is left: StorageClass px"),
    ],
    ids=["one-ready", "unread-command", "one-copy", "default-copies"],
)
def test_what_is_not_certain(own, fields, unsure):
    freed, back = of_vmi(own, **fields)
    assert freed.unsure.startswith(unsure)
    assert back.unsure == freed.unsure
    assert lost(own, **fields).outcome is LossOutcome.UNKNOWN


def test_deployments_that_are_not_read_leave_it_open():
    known = objects()
    own = next(each for each in known if each.kind == "VirtualMachineInstance")
    kinds = {f"{each.kind.lower()}s" for each in known} - {"deployments"}
    found = stork_failovers.of_vmi(own, Snapshot(known, sorted(kinds)))
    assert found.by == "Portworx's Stork"
    assert found.unsure
