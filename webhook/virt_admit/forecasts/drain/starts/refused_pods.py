"""Pods that virt-controller cannot create for a VMI, because the API server refuses them.

Sources: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#sync (FailedCreate);
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors.go (failed
calling webhook), :staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go
(exceeded quota); harvester/harvester:pkg/controller/master/virtualmachine/vm_controller.go
#SetHaltIfInsufficientResourceQuota #cleanUpInsufficientResourceAnnotation (the annotation goes
when the VM runs), vmi_controller.go#StopVMIfExceededQuota (1.2, 1.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.drain.control import webhook_reach
from virt_admit.forecasts.drain.control.webhook_reach import STARTS, Webhook
from virt_admit.forecasts.drain.starts.devices import unpermitted_devices
from virt_admit.forecasts.drain.starts.storage import denied_states
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.placement.components import service_pods
from virt_admit.forecasts.placement.refusals import exceeded_quotas, overcommitted_memory
from virt_admit.model.commands import about, and_then, argument, kubectl, shell, typed, virtctl
from virt_admit.model.evidence import forbidden_pods
from virt_admit.model.evidence.writes import missing_services, quota_writers, service_callers
from virt_admit.model.kubernetes import clock, kinds, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    MUTATING_CONFIGURATION,
    RESOURCE_QUOTA,
    VALIDATING_CONFIGURATION,
    VM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.kubevirt.instances import down_vms, vms
from virt_admit.model.kubevirt.launcher import pod_refusals
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    webhook_reach.READS,
    unpermitted_devices.READS,
    exceeded_quotas.READS,
    overcommitted_memory.READS,
    denied_states.READS,
    {VM: (f"metadata.annotations.{down_vms.HALTED}", "spec.runStrategy", *CONDITIONS)},
)

_CALLED: Final = re.compile(r'failed calling webhook \\?"([\w.-]{1,253})\\?"')

_FRAME: Final = re.compile(
    r'^failed to create virtual machine pod: |\bpods? "[\w.-]+" is forbidden: '
)
_LONGEST, _BRIEF = 200, 90


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the API server refuses the pod of a VMI, and what ends it; None: it does not,
    or does not say more.
    """
    said = stuck_starts.unsynchronized(vmi)
    if not said or stuck_starts.is_handed_over(vmi):
        return None
    if called := _CALLED.search(said):
        return _unanswered(vmi, called[1], cluster)
    if unpermitted := unpermitted_devices.problem(said, cluster):
        return unpermitted
    begin = f"{_begin(vmi, cluster)}: "
    if exceeded := exceeded_quotas.of(said, vms.namespace_of(vmi), cluster=cluster):
        return Problem(f"{begin}{exceeded.words}", exceeded.remedy, ProblemCause.NOT_REPORTED)
    if divided := overcommitted_memory.of(vmi, said, cluster):
        return divided._replace(reason=f"{begin}{divided.reason}", brief=f"{begin}{divided.brief}")
    if denied := _DENIED.search(said):
        return _denied(vmi, denied[1], denied[2], cluster)
    remedy = pod_refusals.remedy(vmi, said, cluster)
    if not remedy:
        return None
    why = _FRAME.sub("", said)
    if (forbidden := forbidden_pods.of(said)) is not None:
        begin = f'{begin}it violates PodSecurity "{forbidden.level}": '
        why = forbidden.why
    adds = _adders(vmi, why, cluster) if forbidden is not None else ""
    reason, brief = (f"{begin}{cut_middle(why, most)}{adds}" for most in (_LONGEST, _BRIEF))
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED, brief=brief)


def _begin(vmi: Object, cluster: Cluster | None = None) -> str:
    """Return what virt-controller cannot create for a VMI.

    Without a cluster, return the short words.
    """
    what = "its pod"
    if denied_states.is_of(vmi):
        what = denied_states.words(vmi, cluster) if cluster is not None else denied_states.WHAT
    return f"virt-controller cannot create {what}"


def halted(vm: Object, cluster: Cluster) -> Problem | None:
    """Return that Harvester has stopped a VM that was to start, as a quota had no room for its pod;
    None: it has not.

    Its message names the quota where the API server refused the pod, and only a resource where
    Harvester has counted itself.
    """
    said, namespace = down_vms.halted_by_quota(vm), vms.namespace_of(vm)
    if not said:
        return None
    ready = vm.condition("Ready")
    since = ready["lastTransitionTime"].text if ready["status"].text == "False" else None
    begin = f"it is off{clock.lasting(since, cluster)}, as Harvester halted it at its last start"
    start = virtctl("start", vm.name, namespace)
    exceeded = exceeded_quotas.of(said, namespace, cluster=cluster)
    if exceeded is None:
        brief = reason = f"{begin}: {cut_middle(said, _LONGEST)}"
        remedy, has_room = _by_own_count(namespace, cluster)
    else:
        brief, has_room = f"{begin}: {exceeded.refusal}", exceeded.fits
        reason, remedy = f"{brief}{exceeded.alone}", exceeded.remedy
    if not has_room:
        remedy = and_then(remedy, "start it", start)
        return Problem(reason, remedy, ProblemCause.QUOTA, brief=brief)
    if exceeded is not None:
        now, further = "has room for it now", ""
    else:
        now, further = "may have room for it now", f"if Harvester halts it again, {remedy}"
    again = typed("start it if it is still to run", start, further)
    return Problem(f"{brief}. The quota {now}", again, ProblemCause.QUOTA)


def _by_own_count(namespace: str, cluster: Cluster) -> tuple[str, bool]:
    """Return what gives a VM room that Harvester has halted by its own count, and whether the quota
    may have it by now.
    """
    own = [
        quota
        for quota in cluster.known(RESOURCE_QUOTA, namespace)
        if quota_writers.is_of_rancher(quota)
    ]
    words = next((quota_writers.raising(each.name, namespace, each)[0] for each in own), _RAISE)
    remedy = f"{words}, stop another VM there, or make this one smaller"
    return remedy, bool(own) and all(map(exceeded_quotas.has_room, own))


_RAISE: Final = "raise the quota of its namespace"


def _adders(vmi: Object, why: str, cluster: Cluster) -> str:
    """Return who may ask for a capability, which no field of a VM does: KubeVirt, or a webhook that
    changes pods; empty: it is about something else.
    """
    if forbidden_pods.ADDED not in why:
        return ""
    labels = webhook_reach.namespace_labels(cluster).get(vms.namespace_of(vmi))
    asked = InterceptedRequest("CREATE", "", "pods", vms.namespace_of(vmi), labels)
    found = (
        f"{configuration.kind} {configuration.name}"
        for configuration in cluster.known(MUTATING_CONFIGURATION)
        for webhook in configuration["webhooks"].items()
        if webhook_requests.gets(webhook, asked) is not False
    )
    others = names(dict.fromkeys(found), 90)
    return f". The VM does not ask for it: KubeVirt{f' or {others}' if others else ''} adds it"


# --- a webhook that denies it ---------------------------------------------------------------------

_DENIED: Final = re.compile(
    r'admission webhook \\?"([\w.-]{1,253})\\?" denied the request:? ?(.*)', re.DOTALL
)
_OVN_CONFLICT: Final = re.compile(r"conflict with ip crd ([\w.-]{1,253})", re.IGNORECASE)
_OVN_IP: Final = kinds.guess("kubeovn.io/v1", "IP")._replace(namespaced=False)
"""An address that Kube-OVN has given. In a live cluster discovery finds it."""


def _denied(vmi: Object, webhook: str, words: str, cluster: Cluster) -> Problem:
    """Return that a webhook denies the pod of a VMI.

    Its name and its configuration are never cut.
    """
    found = service_callers.configurations(webhook, cluster)
    of = f" ({service_callers.titles(found)})" if found else ""
    denied = f": webhook {webhook}{of} denied it"
    reason, brief = (
        f"{begin}{denied}: {cut_middle(words, most)}" if words else f"{begin}{denied}"
        for begin, most in ((_begin(vmi, cluster), _LONGEST), (_begin(vmi), _BRIEF))
    )
    ip = _conflicting_ip(words, cluster)
    if ip is None:
        quoted = f'admission webhook "{webhook}" denied the request: {words}'
        if denied_states.is_of(vmi):
            remedy = denied_states.remedy(vmi, webhook, words, cluster)
        else:
            remedy = pod_refusals.remedy(vmi, quoted, cluster)
        return Problem(reason, remedy, ProblemCause.NOT_REPORTED, brief=brief)
    spec, namespace = ip["spec"], vms.namespace_of(vmi)
    holder = (
        f"{spec['podType'].text or 'pod'} "
        f"{spec['namespace'].text or ''}/{spec['podName'].text or ''}"
    )
    if (spec["podName"].text, spec["namespace"].text) != (vmi.name, namespace):
        remedy = typed(
            f"give the VM another address, or free IP {ip.name} of {holder}",
            about("describe", ip, _OVN_IP),
        )
        told = f"IP {ip.name} is of {holder}"
    else:
        off = (
            kubectl("edit", kinds.of(found[0]) or VALIDATING_CONFIGURATION, found[0].name)
            if len(found) == 1
            else ""
        )
        keep = (
            f"keep IP {ip.name}, and let that webhook accept pods of VMs: update Kube-OVN, or "
            "until then exclude namespace"
        )
        remedy = typed(f"{keep} {namespace} by its namespaceSelector", off)
        told = f"IP {ip.name} is of this VM itself (podName {vmi.name}), so there is no conflict"
    brief = f"{_begin(vmi)}{denied}: {told}"
    return Problem(f"{reason}. {told}", remedy, ProblemCause.NOT_REPORTED, brief=brief)


def _conflicting_ip(words: str, cluster: Cluster) -> Object | None:
    """Return the address of Kube-OVN that keeps a pod from having its own one; None: it is none,
    or is not known.

    Its webhook compares the name of the pod with that in the address, which is the name of the VM
    (kubeovn/kube-ovn: pkg/webhook/static_ip.go#checkIPConflict, issue 4803).
    """
    found = _OVN_CONFLICT.search(words)
    return find(cluster, _OVN_IP, "", found[1]) if found else None


# --- a webhook that does not answer ---------------------------------------------------------------


def _unanswered(vmi: Object, named: str, cluster: Cluster) -> Problem | None:
    """Return which webhooks refuse the pods of a VMI since they do not answer.

    None: the one that was named is not known.
    """
    known = cluster.cached(webhook_reach.critical).webhooks
    called = next((each for each in known if each.field["name"].text == named), None)
    if called is None:
        return None
    silent = [each for each in known if each is called or _refuses(each, vmi, cluster)]
    why = dict.fromkeys(filter(None, (webhook_reach.silence(each, cluster) for each in silent)))
    failing = (
        f"{' and '.join(webhook_reach.configurations(silent))} refuse{'s' * (len(silent) == 1)} it"
    )
    because = f", because {' and '.join(why)}" if why else f": webhook {named} does not answer"
    dead = [each for each in silent if webhook_reach.silence(each, cluster)]
    deadlock = next(
        (
            (each, found)
            for each in dead
            if (found := webhook_reach.refusing_own_pods(each, cluster))
        ),
        None,
    )
    reason = f"{_begin(vmi, cluster)}: {failing}{because}"
    if deadlock is None:
        silence = webhook_reach.silence(called, cluster)
        broken = service_pods.broken(called.service, cluster)
        remedy = missing_services.of_silent(called.service, silence, cluster)
        remedy = broken.remedy if broken is not None else remedy
        return Problem(reason, remedy, ProblemCause.NOT_REPORTED)
    webhook, refusing = deadlock
    reason = (
        f"{reason}. The new pods of namespace {webhook.service[0]} are refused, too, so this does "
        "not end by itself"
    )
    return Problem(reason, _way_out(webhook, refusing), ProblemCause.NOT_REPORTED)


def _refuses(webhook: Webhook, vmi: Object, cluster: Cluster) -> bool:
    silent = webhook_reach.silence(webhook, cluster)
    return bool(silent) and webhook_reach.concerns(webhook.field, vmi, cluster, STARTS) is True


def _way_out(webhook: Webhook, refusing: Sequence[Webhook]) -> str:
    found = dict.fromkeys(
        (each.configuration.kind.lower(), each.configuration.name) for each in refusing
    )
    names = [f"{kind}/{argument(name)}" for kind, name in found]
    again = "or delete these configurations and let their owner make them again"
    return (
        f"exclude namespace {webhook.service[0]} by the namespaceSelector of these configurations; "
        f"{typed(again, shell('kubectl', 'delete', *names))}"
    )
