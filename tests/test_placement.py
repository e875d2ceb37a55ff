"""Where a VMI may run: virtual-machine.md 6."""

import pytest

from webhook.model.objects import Field, Path
from webhook.model.placement import hosts, pin

T = Path("spec", "template", "spec")
TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def spec(selector=None, terms=None, preferred=None):
    affinity = {}
    if terms is not None:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if preferred is not None:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return Field({"nodeSelector": selector, "affinity": {"nodeAffinity": affinity}}, T)


def label(*values, key="kubernetes.io/hostname", operator="In"):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def name(value, operator="In"):
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [value]}]}


@pytest.mark.parametrize(
    ("vmi", "expected"),
    [
        (spec(), None),
        (spec({"kubernetes.io/hostname": "a"}), {"a"}),
        (spec({"zone": "a"}), None),
        (spec({"kubernetes.io/hostname": 7}), None),
        (spec(terms=[label("a", "b")]), {"a", "b"}),
        (spec(terms=[name("a")]), {"a"}),
        (spec(terms=[label("a"), name("a")]), {"a"}),
        (spec(terms=[label("a"), name("b")]), {"a", "b"}),
        (spec(terms=[label("a", "b") | name("b")]), {"b"}),
        (spec(terms=[label("a") | name("b")]), set()),
        (spec(terms=[label("a"), label("x", key="zone")]), None),
        (spec(terms=[label("a", operator="NotIn")]), None),
        (spec(terms=[label(operator="Exists")]), None),
        (spec(terms=[name("a", operator="NotIn")]), None),
        (spec(terms=[{}, label("a")]), {"a"}),
        (spec(terms=[{}]), None),
        (spec(terms=[]), None),
        (spec(terms="a"), None),
        (spec(terms=[None, 3]), None),
        (spec({"kubernetes.io/hostname": "a"}, [label("a", "b")]), {"a"}),
        (spec({"kubernetes.io/hostname": "c"}, [label("a", "b")]), set()),
        (spec(preferred=[{"weight": 1, "preference": label("a")}]), None),
        (Field({"nodeSelector": "a", "affinity": "b"}, T), None),
        (Field(None, T), None),
    ],
)
def test_hosts(vmi, expected):
    assert hosts(vmi) == (None if expected is None else frozenset(expected))


@pytest.mark.parametrize(
    ("vmi", "path", "tight"),
    [
        (spec({"kubernetes.io/hostname": "a"}), f"{T}.nodeSelector", True),
        (spec({"kubernetes.io/hostname": "c"}, [label("a", "b")]), f"{T}.nodeSelector", True),
        (spec(terms=[label("a")]), f"{T}.{TERMS}", True),
        (spec(terms=[label("a", "b")]), f"{T}.{TERMS}", False),
        (spec(terms=[label("a") | name("b")]), f"{T}.{TERMS}", True),
    ],
)
def test_what_pins(vmi, path, tight):
    found = pin(vmi)

    assert str(found.path) == path
    assert found.tight is tight


def test_the_node_selector_of_an_instance_type_pins_too():
    source = Path("spec", "instancetype")

    assert pin(spec(), {"kubernetes.io/hostname": "a"}, source).path == source
    assert pin(spec({"kubernetes.io/hostname": "b"}), {"kubernetes.io/hostname": "a"}, source).hosts == {"b"}
    assert pin(spec(), {"zone": "a"}, source) is None
