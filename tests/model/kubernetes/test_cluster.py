"""``Snapshot``: the objects of one namespace among those of many."""

from tests.builders import manifest
from tests.work import measured
from virt_admit.model.kubernetes.cluster import Snapshot, cached
from virt_admit.model.kubernetes.kinds import NODE, VMI
from virt_admit.model.kubernetes.reads import LateReads


def vmi(name, namespace):
    return manifest(VMI.api_version, VMI.kind, name, namespace)


def test_the_objects_of_a_namespace_and_of_all():
    objects = [
        vmi("a", "x"),
        vmi("a", "y"),
        vmi("b", "x"),
        vmi("c", ""),
        manifest("v1", "Node", "n"),
    ]
    cluster = Snapshot(objects, complete=["*"])
    assert [obj.name for obj in cluster.known(VMI, "x")] == ["a", "b"]
    assert [obj.name for obj in cluster.known(VMI, "default")] == ["c"]
    assert cluster.known(VMI, "z") == []
    assert [(obj.namespace, obj.name) for obj in cluster.known(VMI)] == [
        ("", "c"),
        ("x", "a"),
        ("x", "b"),
        ("y", "a"),
    ]
    assert (
        [obj.name for obj in cluster.known(NODE)]
        == [obj.name for obj in cluster.known(NODE, "")]
        == ["n"]
    )
    assert {id(obj) for obj in cluster} == {id(obj) for obj in objects}


def test_an_object_that_comes_twice_is_kept_once():
    last = vmi("a", "x")
    cluster = Snapshot([vmi("a", "x"), last])
    assert cluster.known(VMI) == [last]
    assert cluster.get(VMI, "x", "a") is last


def test_a_look_up_in_a_namespace_does_not_read_the_objects_of_the_others():
    """A drain plan asks once for each VM. 2,000 look-ups among 20,000 namespaces took 2 s."""
    cluster = Snapshot(vmi("a", f"n{number}") for number in range(20_000))
    with measured() as work:
        for number in range(2_000):
            assert len(cluster.known(VMI, f"n{number}")) == 1
    assert work.seconds < 0.5


def test_a_cached_function_computes_its_value_once_for_each_cluster():
    @cached
    def objects(cluster):
        return list(cluster)

    one, other = Snapshot([vmi("a", "x")]), Snapshot()
    assert objects(one) is objects(one)
    assert objects(other) == []


def test_late_fields_are_found_with_the_first_look():
    found = []
    reads = LateReads(lambda: found.append(1) or {VMI: ("spec",)})
    assert found == []
    assert {**reads} == {VMI: ("spec",)}
    assert len(reads) == len(found) == 1
