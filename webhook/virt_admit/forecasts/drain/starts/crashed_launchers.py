"""Launcher pods that ended with an error before their guest ran: another start ends alike, most
likely.

KubeVirt counts these starts where it starts a VM again
(kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#vmiFailedEarly).

Where they end alike on several nodes and no VM runs, the cause is not in one of the VMs. Where the
same image runs on other nodes, those are compared. Known is
Docker before 23.0.7: a container that does not run as root loses its capabilities there
(moby/moby#45491, repaired by moby/moby#45511; kubevirt/kubevirt#9465 and #11019).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.failures import crash_nodes
from virt_admit.forecasts.drain.failures.crash_nodes import CrashNode
from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.model.commands import logs_of, shell, typed
from virt_admit.model.evidence import container_states
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD, VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

_INFO: Final = "status.nodeInfo"
READS: Final[Reads] = union(
    crash_nodes.READS,
    {
        KUBEVIRT: (),
        NODE: (f"{_INFO}.containerRuntimeVersion", f"{_INFO}.kernelVersion"),
        POD: (
            "metadata.labels",
            "status.phase",
            "status.reason",
            "status.containerStatuses.state.terminated",
        ),
        VM: ("status.startFailure",),
        VMI: ("status.phase", "status.phaseTransitionTimestamps", "status.runtimeUser"),
    },
)

_AT_ONCE: Final = timedelta(minutes=1)
_SEVERAL: Final = 3
"""Two VMs may have one template that is wrong."""
_IN_A_ROW: Final = 3
"""Failed starts that are no accident."""
_BRIEF: Final = 60
_DOCKER: Final = "docker://"
_REPAIRED: Final = Version(23, 0, 7)

_CAPABILITIES: Final = (
    f"Before {_REPAIRED} Docker takes the capabilities from launchers, which then crash "
    "(kubevirt#9465)"
)

_ENDED: Final = (0, 137, 143)
"""Exit codes of a guest that shut down, and of a container that was ended from outside."""

_CONSOLE: Final = "guest-console-log"
"""It ends with the guest, however it ends."""


class _Crash(NamedTuple):
    """How the launcher of a VM ended by itself."""

    vm: str
    pod: Object
    container: str
    ended: Field
    non_root: bool

    @property
    def node(self) -> str:
        return self.pod.at("spec", "nodeName").text or ""

    @property
    def end(self) -> tuple[str, int | None]:
        return self.container, self.ended["exitCode"].integer


def problem(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return how the last start of a VM crashed, and where the cause stands; None: it did not, or
    that is not known.
    """
    failures = vm.at("status", "startFailure", "consecutiveFailCount").integer or 0
    if not (failures if vmi is None else _failed_early(vmi)):
        return None
    crash = _of_vm(vm, vmi, cluster)
    times = f"its last {failures} starts failed" if failures > 1 else "its last start failed"
    if crash is None:
        return None if vmi is not None else _shared(vm, None, times, cluster)
    begin = (
        f"{times}: container {crash.container} of {crash.pod.name} on {crash.node or 'its node'} "
        f"ended with exit code {crash.end[1]}{_lived(crash.ended)}"
    )
    if shared := _shared(vm, crash, begin, cluster):
        return shared
    compared = _compared(crash, cluster)
    if compared is not None and _is_docker([crash], cluster):
        return _of_docker(crash, compared, begin, cluster)
    told = f". {compared.words}" if compared is not None else ""
    remedy = "correct what its log says, or the next start most likely ends in the same way"
    return Problem(f"{begin}{told}", _see(crash, remedy), ProblemCause.NOT_REPORTED)


def bad_nodes(vm: Object, vmi: Object | None, cluster: Cluster) -> frozenset[str]:
    """Return the nodes where the next start of a VM crashes as its last one did, while the same
    image runs on others; empty: none is known.
    """
    if problem(vm, vmi, cluster) is None or (crash := _of_vm(vm, vmi, cluster)) is None:
        return frozenset()
    if _compared(crash, cluster) is None or not _is_docker([crash], cluster):
        return frozenset()
    return frozenset(_with_old_docker(cluster))


@cached
def unfit(cluster: Cluster) -> tuple[str, Sequence[str]]:
    """Return the first VM whose launcher crashes for its node, and the nodes on which the launchers
    of all VMs do, so that none is to migrate there; empty: none is known.
    """
    for vm in sorted(cluster.known(VM), key=lambda each: each.full_name):
        vmi = find(cluster, VMI, vm.namespace, vm.name)
        if bad := bad_nodes(vm, vmi, cluster):
            return vm.full_name, sorted(bad)
    return "", ()


def _compared(crash: _Crash, cluster: Cluster) -> CrashNode | None:
    return crash_nodes.of_pod(crash.pod, cluster) if crash.container == "compute" else None


def _of_docker(crash: _Crash, compared: CrashNode, begin: str, cluster: Cluster) -> Problem:
    """Return that a launcher crashes with a Docker that lets it, while its image runs on other
    nodes.
    """
    bad = names(_with_old_docker(cluster), 80)
    repair = (
        f"update Docker on {bad} to {_REPAIRED} or later, or use containerd there, if the "
        "launcher's log says errno 0"
    )
    until = (
        f"until then let it start on {names(sorted(compared.places), 80)} alone (nodeSelector of "
        f"the VM), and let no other VM restart or migrate to {bad}"
    )
    remedy = typed(repair, logs_of(crash.pod, "-c", crash.container), until)
    reason = f"{begin}. {compared.words}. {_CAPABILITIES}"
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED)


@cached
def _with_old_docker(cluster: Cluster) -> Sequence[str]:
    """Return the nodes of KubeVirt whose Docker lets launchers crash."""
    return sorted(
        each.name
        for each in cluster.known(NODE)
        if nodes.SCHEDULABLE in each.labels and _has_old(each.at("status", "nodeInfo"))
    )


def of_stopped(vm: Object, cluster: Cluster) -> Problem | None:
    """Return that a VM which is off would crash like all others; None: that is not certain."""
    return _shared(vm, None, "", cluster) if _is_docker(_alike(cluster), cluster) else None


def doubt(vm: Object, cluster: Cluster) -> str:
    """Return why a VM which is off may crash like all others, in sentences; empty: nothing says
    so.
    """
    found = _shared(vm, None, "", cluster)
    return found.reason if found is not None else ""


def of_loop(vm: Object, cluster: Cluster) -> Problem | None:
    """Return that the starts of a VM fail in a row and nothing is left of the last one; None:
    they do not, or a controller says why.
    """
    failure = vm.at("status", "startFailure")
    times = failure["consecutiveFailCount"].integer or 0
    if times < _IN_A_ROW or vm.is_true("Failure"):
        return None
    again = failure["retryAfterTimestamp"].text or ""
    when = "" if vm_states_times.is_over(clock.instant(again), cluster) else f" at {again}"
    reason = (
        f"its last {times} starts failed, and no pod of them is left to say why. KubeVirt starts "
        f"it again{when if again else ''}"
    )
    called = vms.vmi_spec(vm)["hostname"].text or vm.name
    pods = ("-n", vms.namespace_of(vm), "-l", f"{launcher_pod.NAME}={called}")
    # not a log: the container that fails may never have run
    remedy = typed(
        "see which container of its launcher fails after that",
        shell("kubectl", "describe", "pods", *pods),
    )
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED)


def _shared(vm: Object, own: _Crash | None, begin: str, cluster: Cluster) -> Problem | None:
    """Return that the cause of a crash is not in the VM, as others crashed alike; None: they did
    not, or that is not known.
    """
    alike = _alike(cluster)
    others = [each for each in alike if each.vm != vm.full_name]
    if not others or (own is not None and own.end != alike[0].end):
        return None
    docker = _is_docker(alike, cluster)
    why = "no single VM is the cause" if docker else "one cause for all is likely"
    cause = ". ".join(filter(None, (f"No VM runs, so {why}", _common(alike, docker, cluster))))
    remedy = (
        f"update Docker on all nodes to {_REPAIRED} or later, or use containerd, if the launcher's "
        "log says errno 0"
        if docker
        else "correct what the launcher's log says, on all nodes if it is about them"
    )
    reason, brief = (f"{_together(begin, own, others, width)}. {cause}" for width in (120, _BRIEF))
    see = _see(own or alike[0], remedy)
    return Problem(reason, see, ProblemCause.NOT_REPORTED, brief=brief)


def _together(begin: str, own: _Crash | None, others: Sequence[_Crash], width: int) -> str:
    """Return how the launchers of several VMs ended, after how that of this VM did."""
    where = names([f"{each.vm} on {each.node}" for each in others], width)
    if own is not None:
        return f"{begin}, as did that of {where}"
    container, code = others[0].end
    lives = [life for each in others if (life := _life(each.ended)) is not None]
    longest = clock.duration(max(lives))
    launchers = "launchers" if len(others) > 1 else "launcher"
    return (
        f"{begin}{': ' if begin else ''}container {container} of the {launchers} of {where} ended "
        f"with exit code {code} within {longest} of its start"
    )


def _see(crash: _Crash, remedy: str) -> str:
    return typed(remedy, logs_of(crash.pod, "-c", crash.container))


@cached
def _alike(cluster: Cluster) -> Sequence[_Crash]:
    """Return the crashes that ended alike on several nodes, or on the only one; empty: there are
    none, or a VM runs or ran, so that the cluster can run one, or too few to tell.
    """
    every = cluster.known(VMI)
    if any(unlisted(cluster, kind) for kind in (VMI, POD)) or any(map(_ran, every)):
        return ()
    if any(map(_has_succeeded, cluster.known(POD))):
        return ()
    found = (_of_vm(vmi, vmi, cluster) for vmi in filter(_failed_early, every))
    crashes = (each for each in found if each is not None and _is_at_once(each))
    alike = max(grouped(crashes, lambda each: each.end).values(), key=len, default=[])
    spread = len({each.node for each in alike}) > 1 or nodes.alone(cluster)
    enough = len(alike) >= _SEVERAL or (len(alike) > 1 and _is_docker(alike, cluster))
    return sorted(alike, key=lambda each: each.vm) if spread and enough else ()


def _is_at_once(crash: _Crash) -> bool:
    lived = _life(crash.ended)
    return bool(crash.node) and lived is not None and lived <= _AT_ONCE


def _has_succeeded(pod: Object) -> bool:
    """Return whether a pod is the launcher of a guest that was shut down."""
    return launcher_pod.is_launcher(pod) and pod.at("status", "phase").text == "Succeeded"


def _ran(vmi: Object) -> bool:
    return vmi.at("status", "phase").text == "Running" or bool(migrations.entered(vmi, "Running"))


def _common(alike: Iterable[_Crash], docker: bool, cluster: Cluster) -> str:
    """Return what the nodes of crashes have in common, or what of it is known to be the cause."""
    infos = _infos(alike, cluster)
    found = {
        field: {info[field].text or "" for info in infos}
        for field in ("containerRuntimeVersion", "kernelVersion")
    }
    runtime, kernel = (next(iter(each)) if len(each) == 1 else "" for each in found.values())
    if docker:
        return (
            f"The nodes run {runtime or 'Docker'}, and {_CAPABILITIES[0].lower()}"
            f"{_CAPABILITIES[1:]}"
        )
    release = versions.kubevirt_version(cluster)
    parts = {"": runtime, "kernel ": kernel, "KubeVirt ": release}
    shared = ", ".join(f"{what}{value}" for what, value in parts.items() if value)
    return f"Common to them: {shared}" if shared else ""


def _infos(alike: Iterable[_Crash], cluster: Cluster) -> Sequence[Field]:
    found = (find(cluster, NODE, "", name) for name in sorted({each.node for each in alike}))
    return [node.at("status", "nodeInfo") for node in found if node is not None]


def _is_docker(alike: Sequence[_Crash], cluster: Cluster) -> bool:
    """Return whether all nodes of crashes have a Docker that lets launchers crash."""
    infos = _infos(alike, cluster)
    return bool(infos) and all(map(_has_old, infos)) and all(each.non_root for each in alike)


def _has_old(info: Field) -> bool:
    runtime = info["containerRuntimeVersion"].text or ""
    number = runtime.removeprefix(_DOCKER) if runtime.startswith(_DOCKER) else None
    release = versions.parse_version(number)
    return release is not None and release < _REPAIRED


def _of_vm(vm: Object, vmi: Object | None, cluster: Cluster) -> _Crash | None:
    """Return how the last launcher of a VM crashed; None: it did not, or that is not known.

    ``vmi``: whose pods they are; None: those of earlier ones count.
    """
    own = vm_states_motion.pods(vm, cluster)
    if vmi is not None:
        own = vm_states_motion.own_pods(vmi, cluster)
    last = next(reversed(own), None)
    crashed = _crashed(last) if last is not None else None
    if last is None or crashed is None:
        return None
    user = vmi.at("status", "runtimeUser").integer if vmi is not None else None
    return _Crash(vm.full_name, last, *crashed, bool(user))


def _failed_early(vmi: Object) -> bool:
    """Whether a VMI has certainly failed before its guest ran. A launcher that ends at once is
    never handed over to virt-handler.
    """
    began = (migrations.entered(vmi, each) is not None for each in ("Scheduling", "Scheduled"))
    failed = vmi.at("status", "phase").text == "Failed"
    return failed and any(began) and migrations.entered(vmi, "Running") is None


def _crashed(pod: Object) -> tuple[str, Field] | None:
    """Return the container of a pod that ended by itself with an error, with how."""
    if pod.deleted or pod.at("status", "phase").text != "Failed" or pod.at("status")["reason"].text:
        return None
    ends = (
        (name, ended)
        for name, ended in container_states.terminations(pod)
        if ended["reason"].text in (None, "Error")
        and ended["exitCode"].integer not in (None, *_ENDED)
        and name != _CONSOLE
    )
    return min(ends, key=lambda each: each[0] != "compute", default=None)


def _lived(ended: Field) -> str:
    """Return how long a container ran; empty: that is not known."""
    life = _life(ended)
    return f", {clock.duration(life)} after its start" if life is not None else ""


def _life(ended: Field) -> timedelta | None:
    begin, end = (clock.instant(ended[each].text) for each in ("startedAt", "finishedAt"))
    return end - begin if begin is not None and end is not None and end >= begin else None
