"""The index selects the same objects as the selector."""

from hypothesis import given
from hypothesis import strategies as st

from virt_admit.model.kubernetes import nodes, selectors
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.labels import LabelIndex, Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import selected_nodes

KEYS = st.sampled_from(["pool", "zone", "role"])
VALUES = st.sampled_from(["", "a", "b"])
LABELS = st.dictionaries(KEYS, VALUES | st.none() | st.integers(), max_size=3)
EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        KEYS,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.just({"key": "pool", "operator": "in"}),
)
SELECTORS = st.fixed_dictionaries(
    {
        "matchLabels": st.dictionaries(KEYS, VALUES, max_size=2),
        "matchExpressions": st.lists(EXPRESSIONS, max_size=3),
    }
)


@given(st.lists(LABELS, max_size=8), SELECTORS)
def test_the_index_selects_what_the_selector_matches(labels, selector):
    objects = [Object({"metadata": {"labels": each}}) for each in labels]
    parsed = selectors.parse(selector)

    selected = LabelIndex(objects).select(parsed)

    assert selected == {number for number, each in enumerate(labels) if parsed.matches(each)}


def test_what_has_no_labels_is_selected_by_an_empty_selector():
    objects = [Object({"metadata": {"labels": labels}}) for labels in (None, [], "a", {})]
    assert LabelIndex(objects).select(selectors.parse({})) == {0, 1, 2, 3}


def test_a_selection_is_in_the_order_of_the_objects():
    objects = [Object({"metadata": {"name": name}}) for name in "cab"]
    every = Selection(LabelIndex(objects), frozenset((2, 0, 1)))
    assert every.objects == tuple(objects)
    assert [each.name for each in every.among(frozenset((1, 2, 7))).objects] == ["a", "b"]


ROLE = "node-role.kubernetes.io"


def test_nodes_of_the_control_plane():
    labels = {
        "new": {f"{ROLE}/control-plane": ""},
        "old": {f"{ROLE}/master": "true"},
        "both": {f"{ROLE}/master": "", f"{ROLE}/control-plane": ""},
        "worker": {f"{ROLE}/worker": ""},
    }
    objects = [
        Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": some}})
        for name, some in labels.items()
    ]
    every = selected_nodes.select(Snapshot(objects, complete=["nodes"]), selectors.parse({}))
    assert [each.name for each in selected_nodes.control_plane(every).objects] == [
        "both",
        "new",
        "old",
    ]
    assert [nodes.is_control_plane(each) for each in objects] == [True, True, True, False]
