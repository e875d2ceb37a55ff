"""The update of OpenShift that an administrator has asked for: whether it is accepted, and whether
it reaches the nodes.

The cluster-version operator loads the release that ``spec.desiredUpdate`` names, checks it, and
applies it operator by operator. machine-config, which updates the nodes, is one of the last.
Sources: openshift/cluster-version-operator: pkg/cvo/status.go#setReleaseAcceptedCondition
#convertErrorToProgressing; pkg/cvo/sync_worker.go#syncPayload;
pkg/cvo/internal/operatorstatus.go#checkOperatorHealth;
lib/validation/validation.go#ClearInvalidFields;
pkg/payload/precondition/clusterversion/upgradeable.go#Run (Upgradeable concerns other minor
releases only).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, shell, typed
from virt_admit.model.evidence.writes import stored_versions
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import CLUSTER_OPERATOR, CLUSTER_VERSION, MACHINE_CONFIG_POOL
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates import (
    config_pool_updates,
    empty_refusals,
    incompatible_operators,
    update_acknowledgements,
    updaters,
)
from virt_admit.model.node_updates.operators import release_refusals
from virt_admit.model.node_updates.operators.release_refusals import RefusedReleases
from virt_admit.model.problems import Problem, ProblemCause, problem_of

_RELATED: Final = "status.relatedObjects"
READS: Final[Reads] = union(
    clock.READS,
    config_pool_updates.READS,
    release_refusals.READS,
    {CLUSTER_OPERATOR: ("status.versions", _RELATED)},
)

NAME: Final = "version"
"""The name of the only ClusterVersion."""
_NODES: Final = "machine-config"
"""The ClusterOperator that updates the nodes."""
_PATIENCE: Final = timedelta(minutes=30)
"""Failing, and a release that cannot be loaded, often pass before. The operator itself waits so
long for an operator.
"""
_LONGEST: Final = 600
"""Characters of what it reports: an operator quotes the scheduler,
whose reasons stand in the middle.
"""


class ClusterUpdate(NamedTuple):
    """What holds the update of a cluster before its nodes."""

    stop: Problem | None = None
    doubt: str = ""
    """Why it cannot be determined whether it reaches the nodes; empty:
    nothing speaks against it.
    """
    notes: tuple[str, ...] = ()
    """What the update of the nodes rests on."""
    operators: tuple[Object, ...] = ()
    """The operators for which ``stop`` waits, or ``doubt``."""
    refused: RefusedReleases | None = None
    """What would refuse the next update. None: nothing,
    or an update was asked for or is under way.
    """
    before_nodes: str = ""
    """What an update under way does before the nodes; empty: none is, or it is at the nodes."""


def refusals(cluster: Cluster) -> tuple[str, ...]:
    """Return why an update is refused, and another minor release also where no update goes there.

    Each also with the full stop with which the operator may have ended it, as it says it elsewhere.
    """
    version = find(cluster, CLUSTER_VERSION, "", NAME)
    refused = release_refusals.of_version(version, cluster) if version is not None else None
    reasons = [each.reason for each in refused.by] if refused is not None else []
    stop = release(cluster).stop
    reasons += [stop.reason] if stop is not None else []
    return (*reasons, *(f"{reason}." for reason in reasons))


@cached
def release(cluster: Cluster) -> ClusterUpdate:
    """Return what holds the update of the cluster before its nodes."""
    paused = {
        pool.name
        for pool in cluster.known(MACHINE_CONFIG_POOL)
        if pool.at("spec", "paused").boolean
    }
    rolling = any(
        pool.in_flight and pool.name not in paused for pool in updaters.config_pools(cluster)
    )
    return of_cluster(cluster, rolling=rolling)


def holding(cluster: Cluster) -> Iterator[str]:
    """Yield what keeps a release that was asked for from the nodes, without the words of an
    operator."""
    stop = release(cluster).stop
    if stop is not None:
        yield stop.reason.removeprefix(f"{CLUSTER_VERSION.kind} {NAME}: ").partition(": ")[0]


def of_cluster(cluster: Cluster, *, rolling: bool) -> ClusterUpdate:
    """Return what holds the update of a cluster.

    ``rolling``: its nodes are being updated already, which goes on.
    """
    version = find(cluster, CLUSTER_VERSION, "", NAME)
    if version is None:
        return ClusterUpdate()
    target = _asked(version)
    found = _not_accepted(version, target, cluster) if target else _under_way(version, cluster)
    if not rolling:
        return found
    # that operator is degraded because its pools are, which say why
    follows = {each.name for each in found.operators} == {_NODES}
    held = (found.stop.reason,) if found.stop is not None and not follows else ()
    return ClusterUpdate(notes=(*held, *found.notes), refused=found.refused)


def _asked(version: Object) -> str:
    """Return the release that was asked for and is not the present one; empty: none was.

    An image decides alone.
    """
    asked, present = version.at("spec", "desiredUpdate"), version.at("status", "desired")
    name, image = asked["version"].text or "", asked["image"].text or ""
    differs = image != present["image"].text if image else name != present["version"].text
    return (name or image) if (name or image) and differs else ""


# --- before it is accepted ------------------------------------------------------------------------


def _not_accepted(version: Object, target: str, cluster: Cluster) -> ClusterUpdate:
    invalid, accepted = version.condition("Invalid"), version.condition("ReleaseAccepted")
    if invalid["status"].text == "True" and "spec.desiredUpdate" in _words(invalid):
        return _held(
            version, f"the update to {target} is refused: {_cut(_words(invalid))}", _valid(version)
        )
    words = _words(accepted)
    if accepted["status"].text != "False" or not _concerns(words, version):
        said = f": {_cut(words)}" if words and _concerns(words, version) else ""
        return ClusterUpdate(
            doubt=f"whether the cluster-version operator accepts the update to {target}{said}"
        )
    step = accepted["reason"].text or ""
    refused = release_refusals.of_version(version, cluster) if _UPGRADEABLE in words else None
    offered = refused.within if refused is not None and refused.accepted else ""
    free = f"; Upgradeable=False does not hold {offered}" if offered else ""
    lasts = clock.lasting(accepted["lastTransitionTime"].text, cluster)
    cause = _cut(f"{_LOADED.sub('', words).rstrip(': ')}{_unexplained(words, cluster)}")
    why = f"the update to {target} is not accepted ({step}{free}){lasts}: {cause}"
    if (step != _CHECKS or _UPGRADEABLE not in words) and not _lasts(accepted, cluster):
        return ClusterUpdate(doubt=f"whether the release is accepted: {why}")
    return _held(version, why, _remedy(step, words, version, cluster))


_CHECKS: Final = "PreconditionChecks"
_LOADED: Final = re.compile(
    r"^(?:Preconditions failed for payload loaded|Retrieving payload failed) "
    r'version="[^"]*" image="[^"]*"(?:: | failure=)'
)
"""The frame of an error, which repeats what was asked for."""
_UNVERIFIED: Final = re.compile(r"against keyrings: ([\w., -]{1,200})")
"""The release has no signature that fits, or there is none at all
(openshift/library-go:pkg/verify/verify.go).
"""
_NAMED: Final = re.compile(r'\b(version|image)="([^"]*)"')


def _concerns(words: str, version: Object) -> bool:
    """Return whether a condition is about the update that was asked for:
    the operator may not have looked again.
    """
    asked = version.at("spec", "desiredUpdate")
    return all(
        asked[field].text in ("", None, said) for field, said in _NAMED.findall(words) if said
    )


def _held(version: Object, why: str, remedy: str) -> ClusterUpdate:
    found = problem_of(ProblemCause.UPDATE_NOT_ACCEPTED, version)
    reason = f"ClusterVersion {version.name}: no node is updated, as {why}"
    return ClusterUpdate(Problem(reason, remedy, ProblemCause.UPDATE_NOT_ACCEPTED, found))


def _valid(version: Object) -> str:
    unknown = version.condition("RetrievedUpdates")
    why = (
        f" (updates cannot be retrieved: {cut_middle(_words(unknown), 120)})"
        if unknown["status"].text == "False"
        else ""
    )
    return typed(
        f"Ask for an update that is available{why}, or name its image",
        about("edit", version, CLUSTER_VERSION),
    )


def _remedy(step: str, words: str, version: Object, cluster: Cluster) -> str:
    """Return what lets the operator accept a release, by the step at which it refused it."""
    if keys := _UNVERIFIED.search(words):
        then = (
            f"then give the cluster its signature by {keys[1]}, as a ConfigMap in {_SIGNATURES} if "
            "it cannot read that (other keys come only with a release); as a decision after that "
            f"comparison, it can be asked for without verification{_unverified(version)}"
        )
        return typed(
            "Compare the digest with the page of the release, and see which signatures are known",
            shell("kubectl", "get", "configmaps", "-n", _SIGNATURES, "-l", _SIGNED),
            then + _cancelled(version),
        )
    if step == "RetrievePayload":
        return typed(
            "See what its download reports",
            shell("kubectl", "get", "events", "-n", "openshift-cluster-version"),
            "then make the image of the release and its signature available to the cluster, also "
            f"in its mirror{_cancelled(version)}",
        )
    if step != _CHECKS:
        return typed("Ask for another release", about("edit", version, CLUSTER_VERSION))
    if _UPGRADEABLE not in words:
        return typed("Resolve what the check names", about("describe", version, CLUSTER_VERSION))
    if "ClusterVersionOverridesSet" in words:
        return release_refusals.without_overrides(version)
    refusing = _operators(cluster, "Upgradeable", "False")
    acknowledge = update_acknowledgements.remedy(words, version, cluster)
    acknowledge = acknowledge or incompatible_operators.remedy(words, cluster)
    if acknowledge or not refusing:
        return acknowledge or typed(
            "Resolve what the check names", about("describe", version, CLUSTER_VERSION)
        )
    if len(refusing) == 1:
        return release_refusals.of_operator(refusing[0], cluster).remedy
    which = names((each.name for each in refusing), 120)
    return typed(
        f"Resolve what ClusterOperator {which} asks for",
        about("describe", refusing[0], CLUSTER_OPERATOR),
    )


def _unexplained(words: str, cluster: Cluster) -> str:
    """Return that the only operator which refuses a release names no cause; empty: it does."""
    refusing = _operators(cluster, "Upgradeable", "False") if _UPGRADEABLE in words else []
    found = empty_refusals.of(refusing[0], cluster) if len(refusing) == 1 else None
    return f". Of ClusterOperator {refusing[0].name}: {found.why}" if found is not None else ""


def _unverified(version: Object) -> str:
    """Return the command that asks for the same release again, without verification; empty:
    it has no name.

    Without a release, ``oc adm upgrade`` only shows the state, and an image that is not among the
    available updates needs the second option (openshift/oc:pkg/cli/admin/upgrade/upgrade.go).
    """
    image, release = (
        version.at("spec", "desiredUpdate", each).text for each in ("image", "version")
    )
    to = (
        ("--allow-explicit-upgrade", "--to-image", image)
        if image
        else ("--to", release)
        if release
        else ()
    )
    return f" ({shell('oc', 'adm', 'upgrade', '--force', *to)})" if to else ""


def _cancelled(version: Object) -> str:
    """Return how the update is given up, which has no effect once the release is loaded
    (openshift/oc:pkg/cli/admin/upgrade/upgrade.go, ``--clear``); empty: another one is under way.
    """
    last = next(iter(version.at("status", "history").items()), version["-"])
    present = version.at("status", "desired", "version").text
    if last["state"].text != "Completed" or not present:
        return ""
    return f"; to stay at {present}, cancel it: none of it is loaded (oc adm upgrade --clear)"


_SIGNATURES: Final = "openshift-config-managed"
_SIGNED: Final = "release.openshift.io/verification-signatures"
"""The namespace and the label of the ConfigMaps with signatures. The keys are part of the running
release (openshift/library-go:pkg/verify/store/configmap/configmap.go;
openshift/cluster-version-operator:pkg/cvo/cvo.go#loadConfigMapVerifierDataFromUpdate).
"""
_UPGRADEABLE: Final = "ClusterVersionUpgradeable"
"""The check of the condition Upgradeable."""


# --- after it was accepted ------------------------------------------------------------------------


def _under_way(version: Object, cluster: Cluster) -> ClusterUpdate:
    target = version.at("status", "desired", "version").text or "the release"
    last = next(iter(version.at("status", "history").items()), version["-"])
    if last["state"].text != "Partial":
        refused = release_refusals.of_version(version, cluster)
        notes, doubt = tuple(_before_the_next(cluster)), _held_next(cluster)
        return ClusterUpdate(doubt=doubt, notes=() if doubt else notes, refused=refused)
    reached = _reached_nodes(target, cluster)
    if reached:
        return ClusterUpdate()
    failing, progressing = version.condition("Failing"), version.condition("Progressing")
    sick = _named(_sick(cluster), _words(failing))
    which = names((f"ClusterOperator {each.name}, which {state}" for each, state in sick), 120)
    said = _condition_of(*sick[0]) if sick else _words(failing)
    why = f"the update to {target} waits for {which}" if which else f"the update to {target} fails"
    if failing["status"].text == "True" and reached is False and _lasts(failing, cluster):
        left = stored_versions.refused(_words(failing), cluster)
        cause = f". {left.words}" if left is not None else ""
        begin = f"ClusterVersion {version.name}: {why}, and the nodes come after it"
        remedy = _repair(version, sick) if left is None else left.remedy
        problem = problem_of(ProblemCause.UPDATE_FAILING, version)
        reason = f"{begin}: {_cut(said)}{cause}"
        stop = Problem(reason, remedy, ProblemCause.UPDATE_FAILING, problem)
        return ClusterUpdate(stop, operators=tuple(each for each, _ in sick))
    if failing["status"].text in ("True", "Unknown"):
        return ClusterUpdate(
            doubt=f"whether the update to {target} reaches the nodes: {_cut(said)}",
            operators=tuple(each for each, _ in sick) or _waited(said, cluster),
        )
    progress = (
        f": {cut_middle(_words(progressing).rstrip('.'), 200)}" if _words(progressing) else ""
    )
    lasts = clock.lasting(last["startedTime"].text, cluster)
    running = f"The update to {target} has been under way{lasts}{progress}"
    before = f"{running}. The nodes come after the operators"
    return ClusterUpdate(notes=tuple(_after_this(version, cluster)), before_nodes=before)


def _after_this(version: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what would refuse the next minor release. It does not concern the update under way."""
    if refused := release_refusals.of_version(version, cluster):
        why = "; ".join(each.reason for each in refused.by)
        title = f"{CLUSTER_VERSION.kind} {version.name}"
        which = "a" if refused.every else "only a"
        yield f"{which} later update to {refused.beyond} is refused ({title}): {why}"


def _reached_nodes(target: str, cluster: Cluster) -> bool | None:
    """Return whether the operator of the nodes has the release: then nothing before the nodes is
    left. None: not known.
    """
    operator = find(cluster, CLUSTER_OPERATOR, "", _NODES)
    if operator is None:
        return None
    return operator.at("status", "versions").named("operator")["version"].text == target


def _repair(version: Object, sick: Sequence[tuple[Object, str]]) -> str:
    if not sick:
        return typed("Resolve what it reports", about("describe", version, CLUSTER_VERSION))
    which = names((each.name for each, _ in sick), 120)
    what = f"Resolve what ClusterOperator {which} reports, after which the update goes on by itself"
    return typed(what, about("describe", sick[0][0], CLUSTER_OPERATOR))


def _before_the_next(cluster: Cluster) -> Iterator[str]:
    """Yield what would hold the next update of a cluster that is not updated now."""
    sick = _sick(cluster)
    if sick:
        which = names((f"{each.name}, which {state}" for each, state in sick), 120)
        yield f"an update first waits for ClusterOperator {which}, and no time is counted for that"


def _held_next(cluster: Cluster) -> str:
    """Return that operators have been sick for so long that they do not get well by themselves, so
    the next update may not get past them: only the new release may cure them; empty: none has.
    """
    sick = [
        (each, state)
        for each, state in _sick(cluster)
        # the operator of the nodes says so of its pools, which are judged
        if each.name != _NODES and _lasts(each.condition(_CONDITIONS[state]), cluster)
    ]
    if not sick:
        return ""
    (first, state), which = sick[0], names((f"{each.name}, which {state}" for each, state in sick))
    since = clock.lasting(first.condition(_CONDITIONS[state])["lastTransitionTime"].text, cluster)
    see = typed(f"Repair {first.name} first", about("describe", first, CLUSTER_OPERATOR))
    said = _cut(_condition_of(first, state))
    return f"whether an update gets past ClusterOperator {which}{since}: {said}. {see}"


def spaces(operator: Object) -> frozenset[str]:
    """Return the namespaces of an operator, in which its pods run: those that it names,
    else the usual one.
    """
    named = (
        each
        for each in operator.at("status", "relatedObjects").items()
        if each["resource"].text == "namespaces"
    )
    return frozenset(filter(None, (each["name"].text for each in named))) or frozenset(
        (f"openshift-{operator.name}",)
    )


# --- conditions -----------------------------------------------------------------------------------


def _sick(cluster: Cluster) -> list[tuple[Object, str]]:
    """Return the operators for which the cluster-version operator waits, each with its state."""
    unavailable = [
        (each, _UNAVAILABLE) for each in _operators(cluster, "Available", "False", "Unknown")
    ]
    known = {each.name for each, _ in unavailable}
    degraded = [
        (each, _DEGRADED)
        for each in _operators(cluster, "Degraded", "True")
        if each.name not in known
    ]
    return unavailable + degraded


_UNAVAILABLE: Final = "is not available"
_DEGRADED: Final = "is degraded"
_CONDITIONS: Final = {_UNAVAILABLE: "Available", _DEGRADED: "Degraded"}


def _operators(cluster: Cluster, condition: str, *statuses: str) -> list[Object]:
    found = (
        each
        for each in cluster.known(CLUSTER_OPERATOR)
        if each.condition(condition)["status"].text in statuses
    )
    return sorted(found, key=lambda each: each.name)


def _named(sick: Sequence[tuple[Object, str]], words: str) -> Sequence[tuple[Object, str]]:
    """Return the operators that a text names; all of them if it names none."""
    said = set(re.findall(r"[a-z0-9-]+", words))
    return [(each, state) for each, state in sick if each.name in said] or sick


def _waited(words: str, cluster: Cluster) -> tuple[Object, ...]:
    """Return the operators that the cluster-version operator names in ``waiting on a, b over 30
    minutes``, though they are well
    (pkg/cvo/status.go#convertErrorToProgressing, SlowClusterOperator).
    """
    said = set(re.findall(r"[a-z0-9-]+", words)) if words.startswith("waiting on ") else set()
    known = sorted(cluster.known(CLUSTER_OPERATOR), key=lambda each: each.name)
    return tuple(each for each in known if each.name in said)


def _condition_of(operator: Object, state: str) -> str:
    found = operator.condition(_CONDITIONS[state])
    return _words(found) or found["reason"].text or "see its conditions"


def _lasts(condition: Field, cluster: Cluster) -> bool:
    """Return whether a condition certainly has its status for longer than it would if it passed by
    itself.
    """
    return clock.has_lasted(condition["lastTransitionTime"].text, _PATIENCE, cluster)


def _words(condition: Field) -> str:
    return condition["message"].words


def _cut(text: str) -> str:
    return cut_middle(text.rstrip("."), _LONGEST)
