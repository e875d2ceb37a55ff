"""What is left on nodes that are drained."""

from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import launcher, vmi
from virt_admit.forecasts.drain import progress
from virt_admit.model.kubernetes.cluster import Snapshot


def test_all_objects_are_listed_once_for_all_nodes(monkeypatch):
    """A live cluster decodes every object for that: once for each of 250 nodes takes minutes."""
    calls = []
    unlisted = progress.unlisted
    monkeypatch.setattr(progress, "unlisted", lambda *asked: calls.append(1) or unlisted(*asked))
    snapshot = vm_motion.cluster(vmi(), launcher())
    found = [progress.remaining(name, snapshot) for name in "abcabcabc"]
    assert len(calls) == 2, "pods and VMIs"
    assert [each.old_pods for each in found[:3]] == [("shop/virt-launcher-db-1",), (), ()]
    assert all(each.complete for each in found)


def test_what_cannot_be_read_may_be_left():
    known = list(vm_motion.cluster(vmi(), launcher()))
    assert not progress.remaining("b", Snapshot(known, ["pods"])).complete
