"""The nodes that FenceAgentsRemediation cannot fence,
because its template has no parameters for them.

Up to 0.5 the operator starts no agent for a node that a map of ``nodeparameters`` leaves out. Later
ones start it without the parameter, and an agent without the address or the outlet of a machine
fails. Since 0.7 the operator starts none if neither ``nodeparameters`` nor a value with the node's
name exists, even if a Secret of the node has all of it.

It passes ``NAME=VALUE``, and the name alone only for an empty value. An agent that is given a value
for a flag ends with an error before it does anything. Sources:
medik8s/fence-agents-remediation:controllers/fenceagentsremediation_controller.go#buildFenceAgentParams
(0.5.1, 0.6.1), api/v1alpha1/fenceagentsremediation_params.go#validateFenceAgentParams (0.7.0);
ClusterLabs/fence-agents:lib/fencing.py.py#_validate_input #_parse_input_cmdline #all_opt;
medik8s/fence-agents-remediation:controllers/…_controller.go#appendParamToSlice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import DURATION, parse_duration
from virt_admit.model.messages import cut, names
from virt_admit.model.remediation.go_templates import template_problem
from virt_admit.model.remediation.remediators import ACTIONS, far_parameters, far_spec

AGENT: Final = re.compile(r"fence_[A-Za-z0-9_-]+")
"""The names of agents. The schema only demands ``fence_`` and one more character anywhere in the
text.
"""
SUPPORTED_ACTIONS: Final = ("", "reboot", "off")
_ADDRESS: Final = "--ip"
_MACHINE: Final = (_ADDRESS, "--plug")
"""The parameters without which an agent does not know its machine."""
_INSTEAD: Final = ("--managed", "--target")
"""Other names of the address, which a few agents have."""
_FLAGS: Final = frozenset(
    [
        "--disable-ssl",
        "--inet4-only",
        "--inet6-only",
        "--lanplus",
        "--missing-as-off",
        "--notls",
        "--port-as-ip",
        "--quiet",
        "--ssh",
        "--ssl",
        "--ssl-insecure",
        "--ssl-secure",
        "--tls1.0",
        "--use-sudo",
        "--verbose",
    ]
)
"""The parameters that take no value, in each agent that has them."""
_SWITCHES: Final = frozenset(["0", "1", "true", "false", "yes", "no", "on", "off"])
_SHOWN: Final = frozenset((*ACTIONS, _ADDRESS, "--ipport"))
"""The parameters whose values are no secrets."""
_LONGEST: Final = 40
_MANAGEMENT_CONTROLLERS: Final = re.compile(r"fence_(ipmilan|redfish|idrac|ilo|imm)")
"""Agents of single machines, which need the address of each."""


def refusal(template: Object, node: str) -> str:
    """Return why the agent of a template cannot fence a node; empty: its parameters let it.

    Raises:
        Unseen: a Secret may hold what is missing, or the agent may not need it.
    """
    spec = far_spec(template)
    if doubt := next(_doubts(template, node), ""):
        raise Unseen(f"whether {doubt}")
    if broken := next(_broken(template, node), ""):
        return f"{template.kind} {template.full_name} has {broken}"
    missing = list(_missing(template, node))
    if not missing and _has_own(template, node):
        return ""
    secret = spec["nodeSecretNames"][node].text
    if secret is None and not missing:
        secret = spec["sharedSecretName"].text
    if secret:
        raise Unseen(f"whether Secret {template.namespace}/{secret} has the parameters of {node}")
    if missing and not set(missing) & set(_MACHINE):
        raise Unseen(
            f"whether {spec['agent'].text or 'the fence agent'} fences {node} without "
            f"{names(missing)}"
        )
    return (
        f"{template.kind} {template.full_name} has no "
        f"{names(missing) if missing else 'parameter of its own'} for it"
    )


def remedy(template: Object, node: str) -> str:
    """Return what lets the agent of a template fence a node that it cannot fence."""
    called = f"{template.kind} {template.full_name}"
    if flags := [name for name, _ in _valued_flags(template, node)]:
        return f'set {names(flags)} to "" in {called}'
    if next(_broken(template, node), ""):
        return f"correct that in {called}"
    return f"add {node} to each parameter in nodeparameters of {called}"


def parameters(obj: Object, node: str) -> Iterator[str]:
    """Yield the parameters of an agent for a node, and the values of those that are no secrets."""
    for name, value in _values(obj, node):
        yield f"{name} {cut(value, _LONGEST)}" if name in _SHOWN and value else name


def _valued_flags(template: Object, node: str) -> Iterator[tuple[str, str]]:
    """Yield the flags that have a value for a node, which is shown if it is surely no secret."""
    for name, value in _values(template, node):
        if name in _FLAGS and value and "{{" not in value:
            yield name, f" {value}" if value.lower() in _SWITCHES else " with a text"


def _values(obj: Object, node: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of an agent with their values for a node; empty: it has none."""
    for name, field in far_parameters(obj):
        yield name, (field[node].text if field.is_map else field.text) or ""


def _broken(template: Object, node: str) -> Iterator[str]:
    """Yield what keeps the operator from running an agent for a node at all,
    or the agent from ending.
    """
    spec = far_spec(template)
    if not AGENT.fullmatch(spec["agent"].text or ""):
        yield "no valid agent"
    for place in ("sharedparameters", "nodeparameters"):
        for name in ACTIONS:
            value = spec[place][name]
            action = value.text if value.text is not None else value[node].text
            if (action or "") not in SUPPORTED_ACTIONS:
                yield f"{name} {action}, which the operator refuses"
    for name, given in _valued_flags(template, node):
        yield f"{name}{given}, which takes no value"
    problems = (template_problem(value) for value in spec["sharedparameters"].texts.values())
    yield from (f"a parameter that cannot be read ({problem})" for problem in problems if problem)
    try:
        if spec["timeout"].present and parse_duration(spec["timeout"].value, DURATION) <= 0:
            yield "a timeout of 0"
    except ValueError:
        yield "a timeout that is not valid"


def _doubts(template: Object, node: str) -> Iterator[str]:
    """Yield what leaves open whether an agent runs, even with all of its parameters."""
    spec = far_spec(template)
    retries = spec["retrycount"].integer or 0
    if retries < 0:
        yield (
            f"{node} is off: with retrycount {retries} no agent runs, and the operator reports "
            "success"
        )
    by_secret = spec["nodeSecretNames"][node].text and not spec["sharedSecretName"].text
    if by_secret and not spec["nodeparameters"].map and not _has_own(template, node):
        yield (
            f"the operator is older than 0.7: later ones take no parameters of {node} from its "
            "Secret alone"
        )


def _missing(template: Object, node: str) -> Iterator[str]:
    """Yield the parameters of other nodes, or of the agent, that have no value for a node."""
    spec = far_spec(template)
    shared = spec["sharedparameters"]
    by_node = dict(spec["nodeparameters"].entries())
    for name, values in by_node.items():
        unset = not values[node].text if name in _MACHINE else node not in values.map
        if (
            unset
            and not shared[name].text
            and (name != _ADDRESS or not _addressed_otherwise(template))
        ):
            yield name
    needs_address = (
        _MANAGEMENT_CONTROLLERS.match(spec["agent"].text or "")
        and not spec["sharedSecretName"].text
    )
    if (
        needs_address
        and _ADDRESS not in by_node
        and not shared[_ADDRESS].text
        and not _addressed_otherwise(template)
    ):
        yield _ADDRESS


def _addressed_otherwise(template: Object) -> bool:
    spec = far_spec(template)
    return any(
        spec[place][name].present
        for place in ("sharedparameters", "nodeparameters")
        for name in _INSTEAD
    )


def _has_own(template: Object, node: str) -> bool:
    """Return whether the parameters of a node differ from those of the others."""
    spec = far_spec(template)
    if any("{{" in value for value in spec["sharedparameters"].texts.values()):
        return True
    return any(node in values.map for _, values in spec["nodeparameters"].entries())
