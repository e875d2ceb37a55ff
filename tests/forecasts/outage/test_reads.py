"""A live cluster keeps the fields that an outage declares: with them alone it says the same."""

from tests import random_vms
from tests.forecasts.outage import losses, test_deletion_under_way
from tests.forecasts.outage.losses import claim, disk, master, nhc, node, vm
from tests.healthy.parts import ago
from virt_admit.forecasts.outage.outages import READS, Question, outages
from virt_admit.kube.field_filter import FieldSet
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.outage.report import report
from virt_admit.reports.values import as_data

KEPT = {kind: FieldSet(paths) for kind, paths in READS.items()}


def answers(objects, time=None):
    def answer(chosen):
        cluster = Snapshot(map(Object, chosen), ["*"], server_version="v1.34.0", time=time)
        return [as_data(report(outages(Question(worst=number), cluster))) for number in (1, 2)]

    known = [each for each in objects if kinds.of(Object(each)) in KEPT]
    return answer(objects), answer([KEPT[kinds.of(Object(each))].filter(each) for each in known])


def test_random_clusters():
    for seed in range(12):
        whole, kept = answers(random_vms.random_cluster(seed))
        assert whole == kept


def test_machines_and_volumes():
    started = {
        "phaseTransitionTimestamps": [
            {"phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"},
            {"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:40Z"},
        ]
    }
    objects = [
        *(node(f"n{index}") for index in range(3)),
        *(master(f"m{index}") for index in range(3)),
        *claim("disk"),
        *vm("db", "n0", volumes=[disk("disk")], evictionStrategy="LiveMigrate", status=started),
        *losses.machines("n0", "n1"),
        *nhc("FenceAgentsRemediation"),
        *losses.NAMESPACES,
        losses.KUBEVIRT,
    ]
    whole, kept = answers(objects)
    assert whole == kept
    (lost,) = [vm for one in whole[0]["outages"] for vm in one["vms"]]
    assert lost["outcome"] == "restarts"
    assert {"what": "started", "low": 40, "high": 60} in lost["parts"]


def test_machines_that_are_being_deleted():
    under_way = test_deletion_under_way
    limited, notes = (
        {"nodeDrainTimeout": "5m"},
        {"pre-drain.delete.hook.machine.cluster.x-k8s.io/hook": "owner"},
    )
    own = [
        under_way.capi(under_way.machine(under_way.LONG)),
        under_way.capi(under_way.machine(under_way.SHORT, **limited)),
        under_way.capi(under_way.machine(under_way.LONG, notes=notes)),
        under_way.openshift(under_way.LONG),
    ]
    reasons = set()
    for each in own:
        whole, kept = answers(under_way.cluster_with(each, under_way.ledger()), ago())
        assert whole == kept
        reasons |= {vm["reason"] for one in whole[0]["outages"] for vm in one["vms"]}
    assert len(reasons) == 3  # the drains of both platforms wait for the same pod
