"""The parameters of fence agents in CEL."""

from __future__ import annotations

from typing import Final

from virt_admit.model import cel

SPEC: Final = "self.?spec.?template.?spec"
"""``far_spec`` in CEL."""
NODES: Final = cel.entries(f"{SPEC}.?nodeparameters")
PARAMETERS_OF_NODES: Final = (
    f"{NODES}.map(name, type({NODES}[name]) == map, {NODES}[name].map(node, name + '\\n' + node).join('\\n\\n'))"
    ".join('\\n\\n').split('\\n\\n').filter(words, words.contains('\\n'))"
)
"""Parameter and node of each value, as one text: CEL cannot flatten a list of lists."""
PARAMETER: Final = "item.split('\\n')[0]"
"""The parameter of an ``item`` of ``PARAMETERS_OF_NODES``."""
VALUE: Final = f"{NODES}[{PARAMETER}][item.split('\\n')[1]]"
VALUE_PATH: Final = f"'spec.template.spec.nodeparameters.' + {PARAMETER} + '.' + item.split('\\n')[1]"
