"""A plan of objects with arbitrary contents is a plan: no exception."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virt_admit.cli.commands.drain import forecast
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

KUBEVIRT = "kubevirt.io/v1"
NODES = [
    Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    for name in ("a", "b", "c", "d")
]

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=4)
    | st.sampled_from(["a", "db", "True", "LiveMigrate"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
KINDS = (
    ("v1", "Node"),
    (KUBEVIRT, "VirtualMachineInstance"),
    (KUBEVIRT, "VirtualMachine"),
    (KUBEVIRT, "VirtualMachineInstanceMigration"),
    (KUBEVIRT, "KubeVirt"),
    ("policy/v1", "PodDisruptionBudget"),
)
FIELDS = {
    "metadata": (
        "name",
        "namespace",
        "labels",
        "ownerReferences",
        "annotations",
        "creationTimestamp",
    ),
    "spec": (
        "evictionStrategy",
        "running",
        "selector",
        "taints",
        "vmiName",
        "domain",
        "affinity",
        "maxUnavailable",
    ),
    "status": ("phase", "nodeName", "conditions", "disruptionsAllowed"),
}


@pytest.mark.slow
@settings(max_examples=40)
@given(st.data())
def test_a_plan_of_junk_is_a_plan(data):
    objects = [
        Object(
            {"apiVersion": group, "kind": kind}
            | {
                part: data.draw(st.dictionaries(st.sampled_from(keys), JUNK) | JUNK)
                for part, keys in FIELDS.items()
            }
        )
        for group, kind in data.draw(st.lists(st.sampled_from(KINDS), max_size=5))
    ]
    snapshot = Snapshot([*NODES, *objects], complete=["*"])
    found = forecast(plan(snapshot), snapshot)
    assert found.render(data.draw(st.sampled_from(["text", "json"])))
