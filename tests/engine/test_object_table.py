"""Values of many objects are computed again only for the objects that changed."""

import pytest

from virt_admit.engine.object_table import ObjectTable


@pytest.fixture
def asked():
    return []


@pytest.fixture
def compute(asked):
    def name_of(name):
        asked.append(name[1])
        return f"{name[1]}{len(asked)}"

    return name_of


NAMES = (("shop", "a"), ("shop", "b"), ("web", "c"))


def test_the_same_names_compute_what_is_due_and_nothing_else(asked, compute):
    table = ObjectTable()
    assert table.values(NAMES, compute) == ("a1", "b2", "c3")
    table.due.update({("shop", "b"), ("shop", "gone")})
    assert table.values(NAMES, compute) == ("a1", "b4", "c3")
    assert table.values(NAMES, compute) == ("a1", "b4", "c3")
    assert asked == ["a", "b", "c", "b"]


def test_values_follow_the_order_of_other_names(asked, compute):
    table = ObjectTable()
    table.values(NAMES, compute)
    table.due.add(("web", "c"))
    assert table.values((("web", "c"), ("shop", "d"), ("shop", "a")), compute) == ("c4", "d5", "a1")


def test_a_name_that_left_and_returns_is_computed_again(asked, compute):
    table = ObjectTable()
    table.values(NAMES, compute)
    table.values(NAMES[1:], compute)
    assert table.values((*NAMES,), compute) == ("a4", "b2", "c3")


def test_an_error_leaves_the_value_due(asked, compute):
    table = ObjectTable()
    table.values(NAMES, compute)
    table.due.add(("shop", "a"))
    with pytest.raises(ZeroDivisionError):
        table.values(NAMES, lambda name: 1 // 0)
    assert table.values(NAMES, compute) == ("a4", "b2", "c3")
