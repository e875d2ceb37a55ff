"""How long the remediators of medik8s need until a node is surely off, and the settings that say so.

SelfNodeRemediation (SNR) lets the node reboot itself and waits until it must have done so; FenceAgentsRemediation
(FAR) switches the node off over its management board; MachineDeletionRemediation (MDR) replaces the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.model import selectors
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import NODE, SNR_CONFIG
from virt_admit.model.nodes import WORKER
from virt_admit.model.objects import Field, Object
from virt_admit.model.reads import Reads
from virt_admit.model.units import DURATION, MILLISECOND, MINUTE, SECOND, parse_duration

SNR_CONFIG_NAME: Final = "self-node-remediation-config"
"""The only config that the operator obeys (medik8s/self-node-remediation: …config_webhook.go#validateSingleton)."""

WATCHDOG: Final = "self-node-remediation.medik8s.io/watchdog-timeout"
REBOOT_CAPABLE: Final = "is-reboot-capable.self-node-remediation.medik8s.io"

SNR_READS: Final[Reads] = {NODE: ("metadata.labels", f"metadata.annotations.{WATCHDOG}"), SNR_CONFIG: ()}
"""What ``worst_safe_time`` and ``snr_duration`` look up."""


# --- SelfNodeRemediation -----------------------------------------------------------------------------------------


class Time(NamedTuple):
    """A time field of the SNR config, in nanoseconds."""

    default: int
    shortest: int


SNR_TIMES: Final[Mapping[str, Time]] = {
    "peerApiServerTimeout": Time(5 * SECOND, 10 * MILLISECOND),
    "apiServerTimeout": Time(5 * SECOND, 10 * MILLISECOND),
    "peerDialTimeout": Time(5 * SECOND, 10 * MILLISECOND),
    "peerRequestTimeout": Time(7 * SECOND, 10 * MILLISECOND),
    "apiCheckInterval": Time(15 * SECOND, SECOND),
    "peerUpdateInterval": Time(15 * MINUTE, 10 * SECOND),
}
"""Defaults of the schema, and what …config_webhook.go#validateTimes admits."""

PEER_REQUEST_MARGIN: Final = 2 * SECOND
"""By which a peer request must outlast the peer's own question to the API server (…#MinimumBuffer)."""

_API_ERRORS: Final = 3
_PEERS_AT_LEAST: Final = 30 * SECOND
_REBOOT: Final = 30 * SECOND
_FIRST_BATCH: Final = 3
_LATER_BATCHES: Final = 10

DEFAULT_WATCHDOG: Final = 60 * SECOND
"""Of a node that does not tell its own: the longest default among the kernel's drivers."""

DEFAULT_BATCHES: Final = 2
DEFAULT_SAFE_TIME: Final = 180 * SECOND
"""With every default, up to six workers, and a watchdog that is not known."""


def snr_time(config: Object, name: str) -> int:
    """A time field of the SNR config, its default where it is absent, in nanoseconds.

    Raises:
        ValueError: it is no duration.
    """
    field = config["spec"][name]
    return parse_duration(field.value, DURATION) if field.present else SNR_TIMES[name].default


def batches(workers: int) -> int:
    """How many batches of peers a node asks, one after the other, before it judges itself.

    3 workers first, then a tenth of the others at a time, but no fewer than 3
    (medik8s/self-node-remediation: internal/utils/peers.go#GetNrOfBatches).
    """
    later = max(_FIRST_BATCH, (workers - _FIRST_BATCH) // _LATER_BATCHES)
    return (workers > 0) + -(-max(0, workers - _FIRST_BATCH) // later)


def watchdog(node: Object) -> int | None:
    """The watchdog's time that the SNR agent wrote onto the node, in nanoseconds; None: it did not. 0: no watchdog."""
    seconds = selectors.integer(node.annotation(WATCHDOG).value)
    return None if seconds is None else seconds * SECOND


def safe_time(config: Object, longest_watchdog: int = DEFAULT_WATCHDOG, peer_batches: int = DEFAULT_BATCHES) -> int:
    """The least time after which a silent node must have rebooted, in nanoseconds.

    The node notices that it cannot reach the API server, asks its peers, and its watchdog bites
    (medik8s/self-node-remediation: internal/reboot/calculator.go).

    Raises:
        ValueError: a time of the config is no duration.
    """
    errors = config["spec"]["maxApiErrorThreshold"].integer or _API_ERRORS
    notice = errors * (snr_time(config, "apiCheckInterval") + snr_time(config, "apiServerTimeout"))
    ask = peer_batches * (snr_time(config, "peerDialTimeout") + snr_time(config, "peerRequestTimeout"))
    return notice + max(_PEERS_AT_LEAST, ask) + longest_watchdog + _REBOOT


def configured_safe_time(config: Object) -> int | None:
    """What the administrator wants instead, in nanoseconds; ignored where it is less than ``safe_time``."""
    seconds = config.at("spec", "safeTimeToAssumeNodeRebootedSeconds").integer
    return None if seconds is None else seconds * SECOND


def worst_safe_time(config: Object, cluster: Cluster, nodes: Iterable[Object] | None = None) -> int:
    """The longest safe time among these nodes, by default all; the usual one where nodes cannot be seen.

    Raises:
        ValueError: a time of the config is no duration.
    """
    peers = cluster.cached(_peers)
    if peers is None:
        return safe_time(config)
    watchdogs = (
        peers.watchdogs.values()
        if nodes is None
        else (peers.watchdogs.get(node.name, DEFAULT_WATCHDOG) for node in nodes)
    )
    return safe_time(config, max(watchdogs, default=DEFAULT_WATCHDOG), peers.batches)


class _Peers(NamedTuple):
    """All nodes, as SNR counts them."""

    watchdogs: Mapping[str, int]
    """By the node's name, in nanoseconds."""
    batches: int


def _peers(cluster: Cluster) -> _Peers | None:
    watchdogs: dict[str, int] = {}
    workers = 0
    try:
        for node in cluster.list(NODE):
            time = watchdog(node)
            watchdogs[node.name] = DEFAULT_WATCHDOG if time is None else time
            workers += WORKER in node.labels
    except Unseen:
        return None
    return _Peers(watchdogs, batches(workers))


def snr_duration(cluster: Cluster, nodes: Iterable[Object] | None = None) -> int:
    """How long SNR takes until the workload of one of these nodes is moved, in nanoseconds.

    Without a readable config, or with one that does not decode, the usual 180 s.
    """
    try:
        configs = [each for each in cluster.list(SNR_CONFIG) if each.name == SNR_CONFIG_NAME]
        return max(
            max(worst_safe_time(config, cluster, nodes), configured_safe_time(config) or 0)
            for config in configs or [Object({})]
        )
    except (Unseen, ValueError):
        return DEFAULT_SAFE_TIME


# --- FenceAgentsRemediation --------------------------------------------------------------------------------------

FAR_RETRIES: Final = 5
FAR_INTERVAL: Final = 5 * SECOND
FAR_TIMEOUT: Final = 60 * SECOND
"""Defaults of the schema."""

ACTIONS: Final = ("action", "--action")
"""The parameters that say what the agent does to the node; any other spelling is just passed on."""


def far_spec(template: Object) -> Field:
    """What a FenceAgentsRemediationTemplate makes requests from."""
    return template.at("spec", "template", "spec")


def far_duration(template: Object) -> int:
    """How long FAR tries to fence a node before it fails, in nanoseconds: 320 s with the defaults.

    Raises:
        ValueError: a time of the template is no duration.
    """
    spec = far_spec(template)
    retries = spec["retrycount"].integer
    retries = FAR_RETRIES if retries is None else max(1, retries)
    timeout = _duration(spec["timeout"], FAR_TIMEOUT)
    return retries * timeout + (retries - 1) * _duration(spec["retryinterval"], FAR_INTERVAL)


def _duration(field: Field, default: int) -> int:
    return parse_duration(field.value, DURATION) if field.present else default


def far_parameters(template: Object) -> Iterator[tuple[str, Field]]:
    """The parameters by name, each with its value or, where every node has its own, with the values by node."""
    spec = far_spec(template)
    yield from spec["sharedparameters"].entries()
    yield from spec["nodeparameters"].entries()


def far_values(template: Object) -> Iterator[tuple[str, Field]]:
    """Every value of every parameter, with the parameter's name. They may be credentials: show none of them."""
    for name, value in far_parameters(template):
        if value.is_map:
            yield from ((name, each) for _, each in value.entries())
        else:
            yield name, value


def far_gaps(template: Object, nodes: Iterable[str]) -> Iterator[tuple[Field, list[str]]]:
    """The parameters that some of these nodes have no value for, and those nodes.

    A node with a Secret of its own may have the value there. The shared Secret cannot hold it: FAR refuses what is
    said both there and for a node.
    """
    spec = far_spec(template)
    shared, secrets = spec["sharedparameters"].map, spec["nodeSecretNames"].map
    bare = [name for name in nodes if name not in secrets]
    for parameter, values in spec["nodeparameters"].entries():
        missing = [name for name in bare if name not in values.map]
        if missing and parameter not in shared:
            yield values, missing
