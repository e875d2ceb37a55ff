"""Updates of storage that stay half done: what they hold, and what ends them."""

import pytest

from tests.builders import kubevirt, manifest, node
from virt_admit.forecasts.placement.components.drivers import storage_rollouts
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of
from virt_admit.reports.upgrade.text import text

NOW, LONG_AGO = "2026-11-01T12:00:00Z", "2026-11-01T11:00:00Z"
KEYS = {"AUTH_INSECURE_SERVICE_KEY_TYPE": {"severity": "HEALTH_ERR", "message": "7 entities"}}
REFUSES = "ceph status in namespace storage is not healthy, refusing to upgrade."


def ceph(details=KEYS, made=1, metadata=None, **spec):
    status = {
        "phase": "Progressing",
        "message": REFUSES,
        "conditions": [
            {
                "type": "Progressing",
                "status": "False",
                "message": REFUSES,
                "lastTransitionTime": LONG_AGO,
            }
        ],
        "cephx": {"osd": {"keyGeneration": made}, "csi": {"keyGeneration": 9}},
        "ceph": {"health": "HEALTH_ERR", "details": details},
    }
    return manifest(
        "ceph.rook.io/v1",
        "CephCluster",
        "store",
        "storage",
        metadata=metadata or {},
        spec=spec,
        status=status,
    )


def cluster(*objects):
    return Snapshot([*objects, node("a"), kubevirt()], ["*"], time=NOW)


def remedy(own):
    (found,) = storage_rollouts.held(cluster(own))
    return found.remedy


@pytest.mark.parametrize(
    ("own", "generation"),
    [
        (ceph(made=1), 2),
        (ceph(made=3), 4),
        (ceph(security={"cephx": {"daemon": {"keyGeneration": 2}}}), 2),
    ],
    ids=["first", "further", "asked for already"],
)
def test_keys_that_new_monitors_refuse(own, generation):
    command = command_of(remedy(own))
    assert f'"keyGeneration":{generation}' in command
    assert '"skipUpgradeChecks":true' in command


DAMAGED = {"severity": "HEALTH_WARN", "message": "Degraded data redundancy"}


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"MON_DOWN": {"severity": "HEALTH_ERR", "message": "1/3 mons down"}},
        {**KEYS, "OSD_FULL": {"severity": "HEALTH_ERR", "message": "1 full osd(s)"}},
        {**KEYS, "PG_DEGRADED": DAMAGED},
    ],
)
def test_the_check_is_never_skipped_while_data_may_suffer(details):
    said = remedy(ceph(details))
    assert "Do not set skipUpgradeChecks" in said
    assert "skipUpgradeChecks" not in command_of(said)


def test_a_cluster_from_a_repository_is_changed_there():
    said = remedy(ceph(metadata={"labels": {"kustomize.toolkit.fluxcd.io/name": "rook"}}))
    assert "Flux Kustomization rook writes it" in said
    assert command_of(said).startswith("kubectl describe cephcluster")


def test_the_upgrade_is_held_and_the_nodes_are_not():
    found = rehearse(cluster(ceph()), Options())
    assert (found.possible, found.nodes_complete) == (False, True)
    assert "The nodes do not hold it up" in text(found)


def lagging(*taints, more=()):
    def deployment(name, app, release, **labels):
        labels = {"app": app, "rook-version": release, **labels}
        return manifest("apps/v1", "Deployment", name, "storage", metadata={"labels": labels})

    operator = {"labels": {"app": "rook-ceph-operator"}, "creationTimestamp": LONG_AGO}
    host = {"ceph-osd-id": "0", "topology-location-host": "b"}
    return cluster(
        manifest(
            "ceph.rook.io/v1", "CephCluster", "store", "storage", status={"phase": "Ready"}, spec={}
        ),
        node("b", taints=list(taints)),
        deployment("mon", "rook-ceph-mon", "v1.20.7"),
        deployment("osd", "rook-ceph-osd", "v1.20.6", **host),
        manifest("v1", "Pod", "operator", "storage", metadata=operator),
        *more,
    )


def test_osds_that_are_skipped_hold_no_node():
    taint = {"key": "example.com/outdated", "effect": "PreferNoSchedule"}
    found = rehearse(lagging(taint), Options())
    said = text(found)
    assert found.possible
    assert said.startswith("Yes: ")
    assert "OSD 0 of CephCluster storage/store stays at Rook v1.20.6" in said
    assert "The update of the nodes does not wait for it" in said
    assert not rehearse(lagging(), Options()).operators


def test_the_taint_of_an_update_is_told_with_that_update():
    taint = {"key": "tuppr.home-operations.com/outdated", "effect": "PreferNoSchedule"}
    waits = manifest(
        "tuppr.home-operations.com/v1alpha1",
        "TalosUpgrade",
        "cluster",
        status={"phase": "Pending", "nextMaintenanceWindow": "2026-11-02T00:00:00Z"},
    )
    (alone,) = storage_rollouts.held(lagging(taint))
    assert alone.reason.endswith("tuppr removes it with the update of the node")
    (found,) = storage_rollouts.held(lagging(taint, more=[waits]))
    assert "and TalosUpgrade cluster waits for its maintenance window" in found.reason
