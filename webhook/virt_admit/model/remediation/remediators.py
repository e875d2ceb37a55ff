"""The medik8s remediators: their settings, and how long they take until a node is confirmed off.

SelfNodeRemediation (SNR) lets the node reboot itself and waits until it must have done so.
FenceAgentsRemediation (FAR) turns the node off through its management controller.
MachineDeletionRemediation (MDR) replaces the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import FAR, NODE, SNR_CONFIG
from virt_admit.model.kubernetes.nodes import WORKER
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.units import DURATION, MILLISECOND, MINUTE, SECOND, parse_duration

SNR_CONFIG_NAME: Final = "self-node-remediation-config"
"""The only config that the operator uses (medik8s/self-node-remediation:
…config_webhook.go#validateSingleton).
"""

WATCHDOG: Final = "self-node-remediation.medik8s.io/watchdog-timeout"
REBOOT_CAPABLE: Final = "is-reboot-capable.self-node-remediation.medik8s.io"

SNR_READS: Final[Reads] = {
    NODE: ("metadata.labels", f"metadata.annotations.{WATCHDOG}"),
    SNR_CONFIG: (),
}
"""The fields that ``worst_safe_time`` and ``snr_duration`` read."""


# --- SelfNodeRemediation --------------------------------------------------------------------------


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
"""The defaults of the schema, and the minimums of …config_webhook.go#validateTimes."""

PEER_REQUEST_MARGIN: Final = 2 * SECOND
"""How much longer a peer request must last than the peer's own API server request
(…#MinimumBuffer).
"""

_API_ERRORS: Final = 3
_PEERS_AT_LEAST: Final = 30 * SECOND
_REBOOT: Final = 30 * SECOND
_FIRST_BATCH: Final = 3
_LATER_BATCHES: Final = 10

DEFAULT_WATCHDOG: Final = 60 * SECOND
"""For nodes without the annotation: the longest default of the kernel's watchdog drivers."""

DEFAULT_BATCHES: Final = 2
DEFAULT_SAFE_TIME: Final = 180 * SECOND
"""The safe time with all defaults, up to six workers, and an unknown watchdog."""


def snr_time(config: Object, name: str) -> int:
    """Return a time field of the SNR config or its default, in nanoseconds.

    Raises:
        ValueError: the field is not a valid duration.
    """
    field = config["spec"][name]
    return parse_duration(field.value, DURATION) if field.present else SNR_TIMES[name].default


def batches(workers: int) -> int:
    """Return how many batches of peers a node asks, one after the other,
    before it decides that it is unhealthy.

    The first batch has 3 workers. Each later one has a tenth of the other workers, but at least 3
    (medik8s/self-node-remediation: internal/utils/peers.go#GetNrOfBatches).
    """
    later = max(_FIRST_BATCH, (workers - _FIRST_BATCH) // _LATER_BATCHES)
    return (workers > 0) + -(-max(0, workers - _FIRST_BATCH) // later)


def watchdog(node: Object) -> int | None:
    """Return the watchdog timeout from the node's SNR annotation, in nanoseconds; None without it.

    0: no watchdog.
    """
    seconds = selectors.integer(node.annotation(WATCHDOG).value)
    return None if seconds is None else seconds * SECOND


def safe_time(
    config: Object, longest_watchdog: int = DEFAULT_WATCHDOG, peer_batches: int = DEFAULT_BATCHES
) -> int:
    """Return the least time after which a failed node must have rebooted, in nanoseconds.

    The node notices that it cannot reach the API server, asks its peers, and then its watchdog
    reboots it (medik8s/self-node-remediation: internal/reboot/calculator.go).

    Raises:
        ValueError: a time of the config is not a valid duration.
    """
    errors = config["spec"]["maxApiErrorThreshold"].integer or _API_ERRORS
    notice = errors * (snr_time(config, "apiCheckInterval") + snr_time(config, "apiServerTimeout"))
    ask = peer_batches * (
        snr_time(config, "peerDialTimeout") + snr_time(config, "peerRequestTimeout")
    )
    return notice + max(_PEERS_AT_LEAST, ask) + longest_watchdog + _REBOOT


def configured_safe_time(config: Object) -> int | None:
    """Return the configured safe time in nanoseconds.

    The operator ignores it if it is less than ``safe_time``.
    """
    seconds = config.at("spec", "safeTimeToAssumeNodeRebootedSeconds").integer
    return None if seconds is None else seconds * SECOND


def worst_safe_time(config: Object, cluster: Cluster, nodes: Iterable[Object] | None = None) -> int:
    """Return the longest safe time of these nodes (None: all nodes);
    the default one if nodes cannot be read.

    Raises:
        ValueError: a time of the config is not a valid duration.
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
    """All nodes of the cluster, as SNR counts them."""

    watchdogs: Mapping[str, int]
    """Watchdog timeouts by node name, in nanoseconds."""
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
    """Return how long SNR takes until the workload of one of these nodes can move, in nanoseconds.

    The default of 180 s applies if the config cannot be read or is not valid.
    """
    try:
        configs = [config for config in cluster.list(SNR_CONFIG) if config.name == SNR_CONFIG_NAME]
        return max(
            max(worst_safe_time(config, cluster, nodes), configured_safe_time(config) or 0)
            for config in configs or [Object({})]
        )
    except (Unseen, ValueError):
        return DEFAULT_SAFE_TIME


# --- FenceAgentsRemediation -----------------------------------------------------------------------

FAR_RETRIES: Final = 5
FAR_INTERVAL: Final = 5 * SECOND
FAR_TIMEOUT: Final = 60 * SECOND
"""Defaults of the schema."""

ACTIONS: Final = ("action", "--action")
"""The parameters with the action of the agent. The operator passes other spellings on unchecked."""


def far_spec(obj: Object) -> Field:
    """Return the spec of a FenceAgentsRemediation, or the one that its template has for it."""
    return obj["spec"] if obj.kind == FAR.kind else obj.at("spec", "template", "spec")


def far_duration(obj: Object) -> int:
    """Return how long FAR tries to fence a node before it fails, in nanoseconds:
    320 s with the defaults.

    A count of 0 becomes the default once the operator writes its object. With a lower one no agent
    runs at all, and FAR reports success at once (pkg/cli/cliexecuter.go#runWithRetry).

    Raises:
        ValueError: a time of the template is not a valid duration.
    """
    spec = far_spec(obj)
    retries = spec["retrycount"].integer or FAR_RETRIES
    if retries < 0:
        return 0
    timeout = _duration(spec["timeout"], FAR_TIMEOUT)
    return retries * timeout + (retries - 1) * _duration(spec["retryinterval"], FAR_INTERVAL)


def _duration(field: Field, default: int) -> int:
    return parse_duration(field.value, DURATION) if field.present else default


def far_parameters(template: Object) -> Iterator[tuple[str, Field]]:
    """Yield the parameters by name: shared ones with their value,
    node parameters with their values by node.
    """
    spec = far_spec(template)
    yield from spec["sharedparameters"].entries()
    yield from spec["nodeparameters"].entries()


def far_values(template: Object) -> Iterator[tuple[str, Field]]:
    """Yield every value with its parameter's name.

    Values can be credentials, so messages must not show them.
    """
    for name, value in far_parameters(template):
        if value.is_map:
            yield from ((name, node_value) for _, node_value in value.entries())
        else:
            yield name, value


def far_gaps(template: Object, nodes: Iterable[str]) -> Iterator[tuple[Field, list[str]]]:
    """Yield the parameters that lack a value for some of these nodes, with those nodes.

    A node's own Secret may hold the value. The shared Secret cannot, because FAR rejects a
    parameter that is set both there and for a node.
    """
    spec = far_spec(template)
    shared, secrets = spec["sharedparameters"].map, spec["nodeSecretNames"].map
    without_secret = [name for name in nodes if name not in secrets]
    for parameter, values in spec["nodeparameters"].entries():
        missing = [name for name in without_secret if name not in values.map]
        if missing and parameter not in shared:
            yield values, missing
