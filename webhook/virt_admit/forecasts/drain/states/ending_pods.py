"""A pod that takes long to end: its grace period is not over, and perhaps a preStop hook holds it.

``deletionTimestamp`` is the time of the request and the grace period. Until then the kubelet lets
the hook and the program run, and kills them after it. Sources:
kubernetes/apiserver:pkg/registry/rest/delete.go#BeforeDelete;
kubernetes/kubernetes:pkg/kubelet/kuberuntime/kuberuntime_container.go#killContainer;
rabbitmq/cluster-operator: internal/resource/statefulset.go (a hook of up to a week);
cli.rabbitmq.com: check_if_node_is_quorum_critical.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states.dying_pods import STUCK_AFTER
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import cut

_GRACE: Final = "terminationGracePeriodSeconds"
READS: Final[Reads] = union(
    clock.READS,
    {
        POD: (
            "metadata.deletionGracePeriodSeconds",
            f"spec.{_GRACE}",
            "spec.containers.name",
            "spec.containers.lifecycle.preStop",
            "status.phase",
        )
    },
)

_BRIEF: Final = timedelta(minutes=1)
"""Most pods end in this time, whatever their grace period is."""
USUAL: Final = timedelta(minutes=10)
"""What waits for a pod counts on no more."""
LONG: Final = timedelta(hours=1)
"""An updater of nodes reports an error after this time (openshift/machine-config-operator: the
time-out of a drain).
"""
_LONGEST_HOOK: Final = 150
_LONGEST_GRACE: Final = timedelta(days=3650)


class PodEnd(NamedTuple):
    """How long a pod that is being deleted may stay."""

    reason: str
    remedy: str
    left: timedelta
    """Until the end of its grace period, when the kubelet kills it."""
    until: str
    """The same as a time, RFC 3339."""
    holds: bool
    """Whether it has been ending for so long that it most likely takes the rest of that time
    too.
    """


class _Hook(NamedTuple):
    container: str
    """The container with the hook; else the first one."""
    words: str
    """What it runs; empty: there is none."""
    longest: timedelta
    """For how long it may run: by what its commands take, else the grace period."""


def of_deleted(pod: Object, cluster: Cluster) -> PodEnd | None:
    """Return until when a pod that is being deleted may stay; None: it has to end in a moment,
    or has ended.
    """
    until = pod.metadata["deletionTimestamp"].text or ""
    past = clock.since(until, cluster)
    if past is None or -past < _BRIEF or pod.ended:
        return None
    grace = _seconds(pod.metadata["deletionGracePeriodSeconds"].integer)
    elapsed, hook = (grace + past if grace is not None else None), _hook(pod, grace or -past)
    hook = hook if hook.longest >= (grace or -past) else hook._replace(words="")
    begun = (
        f"has been ending for {clock.duration(elapsed)}"
        if elapsed is not None
        else "is being deleted"
    )
    period = f" of {_period(grace)}" if grace is not None else ""
    end = (
        f"its grace period{period} ends at {clock.stamp(clock.instant(until))}, in "
        f"{clock.duration(-past)}"
    )
    held = (
        f", and its preStop hook may hold it until then ({cut(hook.words, _LONGEST_HOOK)})"
        if hook.words
        else ""
    )
    holds = elapsed is not None and elapsed >= STUCK_AFTER and -past >= USUAL
    return PodEnd(f"it {begun}; {end}{held}", _remedy(pod, hook), -past, until, holds)


def may_last(pod: Object) -> str:
    """Return how long a preStop hook may hold a pod once it is evicted; empty: not for long."""
    grace = _seconds(pod.at("spec", _GRACE).integer)
    if pod.deleted or grace is None or grace < LONG:
        return ""
    hook = _hook(pod, grace)
    if not hook.words or hook.longest < STUCK_AFTER:
        return ""
    words = cut(hook.words, _LONGEST_HOOK)
    return (
        f"its preStop hook may hold it for up to {_period(hook.longest)} after its eviction "
        f"({words})"
    )


def _seconds(number: int | None) -> timedelta | None:
    return (
        timedelta(seconds=number)
        if number is not None and 0 <= number <= _LONGEST_GRACE.total_seconds()
        else None
    )


def _period(length: timedelta) -> str:
    """Return a grace period for people: ``1 h``, not ``60 min``."""
    seconds = int(length.total_seconds())
    return (
        f"{seconds // 3600} h"
        if seconds % 3600 == 0 and seconds < 3 * 86400
        else clock.duration(length)
    )


def _hook(pod: Object, grace: timedelta) -> _Hook:
    """Return the hook of a pod that may run longest."""
    containers = list(pod.at("spec", "containers").items())
    none = _Hook((containers[0]["name"].text or "") if containers else "", "", timedelta(0))
    hooks = (
        (each["name"].text or "", _text(each.at("lifecycle", "preStop"))) for each in containers
    )
    return max(
        (_Hook(name, _shown(text), _longest(text, grace)) for name, text in hooks if text),
        key=_length,
        default=none,
    )


def _length(hook: _Hook) -> timedelta:
    return hook.longest


def _longest(text: str, grace: timedelta) -> timedelta:
    """Return for how long a hook may run: the sum of its commands,
    if each has an end that is known.
    """
    lengths = [_takes(each) for each in _STEP.split(text) if each.strip()]
    known = [length for length in lengths if length is not None]
    longest = grace.total_seconds()
    return timedelta(seconds=min(sum(known), longest) if len(known) == len(lengths) else longest)


def _takes(command: str) -> int | None:
    """Return the seconds that a command of a shell takes at most; None: not known."""
    simple = _OUTPUT.sub("", command).strip().removeprefix("exec ")
    if _SHELL_SYNTAX.search(simple):
        return None
    if limited := _LIMITED.match(simple):
        return int(limited[1]) * _UNITS[limited[2]]
    return 0 if _AT_ONCE.match(simple) else None


_STEP: Final = re.compile(r";|&&|\|\||\n")
_OUTPUT: Final = re.compile(r"\d?>>?\s?(?:&\d|[\w./-]+)")
"""Where the output of a command goes."""
_SHELL_SYNTAX: Final = re.compile(r"[&|`<(]")
"""Background jobs, pipes and the output of other commands."""
_LIMITED: Final = re.compile(
    r"(?:[\w/.-]*/)?(?:sleep(?= \d+ ?[smhd]?$)|timeout(?: -s \w+)?(?! 0)) (\d{1,8}) ?([smhd]?)(?: "
    r"|$)"
)
"""``sleep`` with one number, and ``timeout`` with a limit."""
_AT_ONCE: Final = re.compile(
    r"(?:[\w/.-]*/)?(?:echo|printf|date|kill|pkill|touch|rm|true|:|set|exit|nginx -s)(?:\s|$)"
)
"""Commands that only write, or send a signal: they do not wait for what they ask."""
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _shown(text: str) -> str:
    """Return what a hook runs in one line: a semicolon separates the parts of a reason."""
    return " ".join(text.replace(";", ",").split())


def _text(hook: Field) -> str:
    """Return what a preStop hook does. What a shell runs is the last word of its command."""
    command = [each.text for each in hook.at("exec", "command").items() if each.text]
    if command:
        return command[-1] if len(command) > 1 and command[-2] in _SHELLS else " ".join(command)
    if hook["httpGet"].present:
        return f"GET {hook.at('httpGet', 'path').text or '/'}"
    seconds = hook.at("sleep", "seconds").integer
    return f"sleep {seconds} s" if seconds else ""


_SHELLS: Final = ("-c", "-ec", "-lc", "-cx", "-xc")


def _remedy(pod: Object, hook: _Hook) -> str:
    """Return what lets a pod end before its grace period does,
    with the command that shows what it waits for.
    """
    where = (
        argument(pod.name),
        "-n",
        pod.namespace,
        *(("-c", hook.container) if hook.container else ()),
    )
    for program, (words, command) in _PROGRAMS.items():
        if program in hook.words:
            return typed(words, shell("kubectl", "exec", *where, "--", *command))
    what = "the hook" if hook.words else "its program"
    words = (
        f"See what {what} waits for and end that, so that the pod ends by itself, or wait until "
        "then"
    )
    return typed(words, shell("kubectl", "logs", *where))


_PROGRAMS: Final = {
    "await_online_quorum_plus_one": (
        (
            "RabbitMQ waits until each quorum queue and stream keeps a majority without this "
            "member. See which do not, and add members to them (rabbitmq-queues grow)"
        ),
        ("rabbitmq-diagnostics", "check_if_node_is_quorum_critical"),
    )
}
"""What hooks wait for, by a word of them, and the command that shows it in the pod."""
