"""The parameters of fence agents in CEL."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model import cel

SPEC: Final = "self.?spec.?template.?spec"
"""``far_spec`` in CEL."""
_PARAMETER: Final = "item.split('\\n')[0]"
_NODE: Final = "item.split('\\n')[1]"


class ValuesOfNodes(NamedTuple):
    """The values of a map of parameters that differ by node, in CEL."""

    each: str
    """Parameter and node of each value, as one text: CEL cannot flatten a list of lists."""
    parameter: str
    """The parameter of the ``item``."""
    value: str
    path: str


def values_of_nodes(place: str) -> ValuesOfNodes:
    """Return the values of ``nodeparameters``, or of those shared parameters that are maps."""
    parameters = cel.entries(f"{SPEC}.?{place}")
    each = (
        f"{parameters}.map(name, type({parameters}[name]) == map, {parameters}[name].map(node, "
        "name + '\\n' + node).join('\\n\\n')).join('\\n\\n').split('\\n\\n').filter(words, "
        "words.contains('\\n'))"
    )
    path = f"'spec.template.spec.{place}.' + {_PARAMETER} + '.' + {_NODE}"
    return ValuesOfNodes(each, _PARAMETER, f"{parameters}[{_PARAMETER}][{_NODE}]", path)
