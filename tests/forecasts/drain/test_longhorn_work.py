"""Further volumes and nodes of Longhorn read the objects of a kind once, not each time."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.placement.components.longhorn import volume_users
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot

READ = (kinds.LONGHORN_ATTACHMENT, kinds.LONGHORN_REPLICA, kinds.VMI, kinds.VOLUME_ATTACHMENT)


class Counting(Snapshot):
    """A cluster that counts how often all objects of these kinds are read."""

    reads = 0

    def known(self, kind, namespace=None):
        self.reads += kind in READ and namespace is None
        return super().known(kind, namespace)


def cordoned(name):
    key = "node.kubernetes.io/unschedulable"
    spec = {"unschedulable": True, "taints": [{"key": key, "timeAdded": "2026-01-01T10:00:00Z"}]}
    return manifest("v1", "Node", name, spec=spec, status=world.READY)


@pytest.mark.parametrize("copies", [[], [world.replica("v1", on) for on in "abcdef"]])
def test_further_cordoned_nodes_read_nothing_again(copies):
    others = [each for each in world.longhorn(*copies, nodes="abcdef") if each.kind != "Node"]
    nodes = [cordoned(name) for name in "abcdef"]
    counting = Counting([*others, *nodes], ["*"], time="2026-01-01T10:38:00Z")
    plan(counting, "a")
    first = counting.reads
    for each in "bcdef":
        plan(counting, each)
    assert 0 < counting.reads == first


def test_further_volumes_read_no_attachment_again():
    counting = Counting([world.volume(f"v{number}", 2, "a") for number in range(10)], ["*"])
    for volume in counting.known(kinds.LONGHORN_VOLUME):
        assert not volume_users.is_named(volume.name, volume, "b", counting)
    assert counting.reads == 2
