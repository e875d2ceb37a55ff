"""A node that a scale-in takes away is not replaced by a later update."""

import pytest

from tests.builders import complete, manifest, node
from tests.builders import vmi as running
from virt_admit.forecasts.upgrade import rollouts
from virt_admit.forecasts.upgrade.pools import leaving_machines
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot

CAPI = "cluster.x-k8s.io/v1beta1"
NOW, JUST, LONG = "2026-01-01T12:00:00Z", "2026-01-01T11:57:00Z", "2026-01-01T10:00:00Z"


def machine(name, *, gone="", current="True"):
    metadata = {"labels": {"cluster.x-k8s.io/deployment-name": "md"}}
    if gone:
        metadata["deletionTimestamp"] = gone
    up_to_date = [{"type": "UpToDate", "status": current}]
    status = {"nodeRef": {"name": name}, "conditions": up_to_date}
    return manifest(CAPI, "Machine", f"m-{name}", "fleet", metadata=metadata, status=status)


def vmi(leaves="c"):
    return running(status={"phase": "Running", "nodeName": "c", "evacuationNodeName": leaves})


def deployment(replicas=2):
    return manifest(CAPI, "MachineDeployment", "md", "fleet", spec={"replicas": replicas})


@pytest.mark.parametrize(
    ("objects", "left"),
    [
        ([deployment(), machine("c", gone=JUST)], "ab"),
        ([deployment(), machine("c", gone=JUST), vmi()], "ab"),
        ([deployment(), machine("c", gone=JUST), vmi(leaves="")], "abc"),  # it stays
        ([deployment(), machine("c", gone=LONG), vmi()], "abc"),
        ([deployment(3), machine("c", gone=JUST)], "abc"),  # with a successor
        ([deployment(), machine("c", gone=JUST, current="False")], "abc"),  # by a roll-out
        ([deployment(3), machine("c")], "abc"),
    ],
    ids=["empty", "moves", "stays", "long", "replaced", "roll-out", "none"],
)
def test_a_node_that_a_scale_in_takes_away_is_not_updated(objects, left):
    nodes = [node(name, runs_vms=False) for name in "abc"]
    every = [*nodes, machine("a"), machine("b"), *objects]
    found = Snapshot(every, ["*"], time=NOW)

    (pool,) = rollouts.pools(Driver.CLUSTER_API, found, None, list("abc"))
    assert pool.nodes == tuple(left)
    said = list(leaving_machines.words(found))
    assert said == (["c is not counted: a scale-in deletes its Machine"] if left == "ab" else [])


def test_vms_that_cannot_be_read_may_stay():
    every = [node(name, runs_vms=False) for name in "abc"]
    every += [machine("a"), machine("b"), machine("c", gone=JUST), deployment()]
    assert leaving_machines.nodes(complete(*every)) == frozenset()  # at a time not known
    kinds = ["Machine", "MachineDeployment", "Node"]
    assert leaving_machines.nodes(Snapshot(every, kinds, time=NOW)) == frozenset()
