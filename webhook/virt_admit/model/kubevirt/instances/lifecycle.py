"""KubeVirt's reaction to a drain, a shutdown, a crash or a lost node, and to ``virtctl`` commands.

Messages, ``virt-admit rules`` and the docs quote these tables. Sources:
kubevirt/kubevirt: pod-eviction-admitter.go, pkg/virt-controller/watch/vm/vm.go,
pkg/virt-api/rest/lifecycle.go.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, virtctl
from virt_admit.model.kubernetes.kinds import VMI

# --- 9.1: the eviction of a virt-launcher pod -----------------------------------------------------


class Eviction(enum.StrEnum):
    """The response of virt-api to an eviction (drain, ``kubectl evict``, upgrade)."""

    SHUTS_DOWN = (
        "passes: the pod is deleted, the guest is shut down, the VM follows its run strategy"
    )
    MIGRATES = (
        "refused for now: the VMI is marked and migrates, the drain retries until the pod is gone"
    )
    REFUSED = "refused forever: nothing else happens"
    WAITS = "refused: the VMI is marked, and something outside KubeVirt has to act"


EVICTION: Final[Mapping[str, Mapping[bool | None, Eviction]]] = {
    "None": dict.fromkeys((True, False, None), Eviction.SHUTS_DOWN),
    "LiveMigrate": {True: Eviction.MIGRATES, False: Eviction.REFUSED, None: Eviction.REFUSED},
    "LiveMigrateIfPossible": {
        True: Eviction.MIGRATES,
        False: Eviction.SHUTS_DOWN,
        None: Eviction.SHUTS_DOWN,
    },
    "External": dict.fromkeys((True, False, None), Eviction.WAITS),
}
"""By eviction strategy, and by the status of condition ``LiveMigratable`` (None: not reported yet,
or Unknown).
"""


def eviction(strategy: str, migratable: bool | None) -> Eviction:
    """Return the effect of an eviction; an unknown strategy behaves like ``None``."""
    return EVICTION.get(strategy, EVICTION["None"])[migratable]


# --- 9.2: what each run strategy does -------------------------------------------------------------


class Then(enum.StrEnum):
    """The state of a VM after an event."""

    RESTARTED = "restarted"
    OFF = "stays off"
    NOT_RUNNING = "is not running"
    RECEIVES = "waits for a migration"


class Outcomes(NamedTuple):
    """The state of a running VM after each kind of event."""

    drain: Then
    """A drain that evicts: strategy None, or LiveMigrateIfPossible on a VM that cannot migrate."""
    shutdown: Then
    """The guest shuts itself down."""
    crash: Then
    """The guest crashes or is killed."""
    node_lost: Then
    """Its node is lost; see ``AFTER_NODE_LOSS``."""
    deleted: Then
    """A user or a controller deletes the VMI."""
    reboot: Then
    """The guest reboots with ``domain.rebootPolicy: Terminate``; else it stays inside the VMI."""


RUN_STRATEGY: Final[Mapping[str, Outcomes]] = {
    "Always": Outcomes(*[Then.RESTARTED] * 6),
    "RerunOnFailure": Outcomes(
        Then.OFF, Then.OFF, Then.RESTARTED, Then.RESTARTED, Then.OFF, Then.OFF
    ),
    "Manual": Outcomes(*[Then.OFF] * 6),
    "Once": Outcomes(Then.OFF, Then.OFF, Then.OFF, Then.OFF, Then.RESTARTED, Then.OFF),
    "Halted": Outcomes(*[Then.NOT_RUNNING] * 6),
    "WaitAsReceiver": Outcomes(*[Then.RECEIVES] * 6),
}
"""A clean shutdown, including that of a drain, ends the VMI as Succeeded; a crash, a kill or a lost
node as Failed. So does a reboot with ``rebootPolicy: Terminate``
(kubevirt:tests/compute/vm_lifecycle.go).

``RerunOnFailure`` restarts after Failed only. ``running: true`` is Always, ``running: false`` is
Halted.
"""

AFTER_NODE_LOSS: Final = (
    "A node is lost only once the old pod is known to be gone: the node object deleted, or the "
    "out-of-service taint set after its power-off is confirmed. That is what health checks and "
    "remediators are for."
)
START_BACKOFF: Final = (
    "After the n-th failed start in a row the next one waits 10 s times n squared and up to half "
    "more, at most 300 s."
)


def outcomes_table() -> str:
    """Return a Markdown table of what each run strategy does."""
    head = (
        "runStrategy",
        "a drain shuts it down",
        "it shuts itself down",
        "it crashes",
        "its node is lost",
        "VMI deleted",
        "it reboots (rebootPolicy Terminate)",
    )
    table = _table(head, ((name, *map(str, outcomes)) for name, outcomes in RUN_STRATEGY.items()))
    return f"{table}\n\n{AFTER_NODE_LOSS}\n{START_BACKOFF}"


# --- 9.3: virtctl ---------------------------------------------------------------------------------


class Commands(NamedTuple):
    """The effect of ``virtctl`` on a VM; None: the command fails.

    Webhooks only see the writes of virt-api.
    """

    start: str | None
    stop: str | None
    restart: str | None


VIRTCTL: Final[Mapping[str, Commands]] = {
    "Always": Commands(None, "becomes Halted", "stays Always"),
    "RerunOnFailure": Commands(
        "stays RerunOnFailure; fails while the VMI is Failed",
        "stays RerunOnFailure; fails if not running",
        "stays RerunOnFailure",
    ),
    "Manual": Commands("stays Manual", "stays Manual; fails if not running", "stays Manual"),
    "Halted": Commands(
        "becomes Always",
        "fails, unless it still runs and a shorter grace period is asked for",
        None,
    ),
    "Once": Commands(None, "becomes Halted", None),
    "WaitAsReceiver": Commands(
        "accepted, does nothing", "accepted, does nothing", "request accepted"
    ),
}
"""``start`` on a running VM and ``restart`` without a VMI fail for every strategy."""


def start_again(strategy: str, name: str, namespace: str) -> tuple[str, str] | None:
    """Return what starts a VM again whose VMI has failed, with the command; None: KubeVirt does, or
    the VM is to be off.

    With ``Once`` KubeVirt starts a VM that has no VMI
    (kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go).
    """
    outcomes = RUN_STRATEGY.get(strategy)
    if outcomes is None or outcomes.crash is not Then.OFF:
        return None
    if VIRTCTL[strategy].start is None:
        return "delete its failed VMI, after which KubeVirt starts the VM", kubectl(
            "delete", VMI, name, namespace
        )
    return "start it; with runStrategy Always KubeVirt would do that", virtctl(
        "start", name, namespace
    )


def commands_table() -> str:
    """Return a Markdown table of what ``virtctl`` does with each run strategy."""
    head = ("runStrategy", "virtctl start", "virtctl stop", "virtctl restart")
    rows = ((name, *(said or "fails" for said in commands)) for name, commands in VIRTCTL.items())
    return _table(head, rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
