"""An update of OpenShift does not reach the nodes, or the next minor release is refused.

**Why.** The cluster-version operator has not accepted the release, or an operator that comes before
the nodes is degraded. No node, no pool and no VM is the cause, and the update does not go on by
itself. While Upgradeable is False, another minor release is refused. Updates within the present one
are accepted, up to 4.21 only without spec.overrides. It is reported if the channel goes beyond the
present one.

**Fix.** Resolve what the ClusterVersion names. ``virt-admit upgrade`` has the remedy with its
command.
"""

from virt_admit.forecasts.upgrade.operators import operand_pods
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import CLUSTER_VERSION
from virt_admit.model.messages import advice_of, capital, command_of, cut_middle, ended
from virt_admit.model.node_updates import cluster_updates, updaters
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_SEE = "virt-admit upgrade has the remedy."
_SHOW = shell("virt-admit", "upgrade")
"""Its remedies say what to check before."""


@rule(
    kinds=(CLUSTER_VERSION,),
    reads=union(cluster_updates.READS, updaters.READS, operand_pods.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "openshift/cluster-version-operator:pkg/cvo/status.go#setReleaseAcceptedCondition",
        "openshift/cluster-version-operator:pkg/cvo/internal/operatorstatus.go#checkOperatorHealth",
        (
            "openshift/cluster-version-operator:pkg/payload/precondition/clusterversion/"
            "upgradeable.go#Run"
        ),
    ),
)
def check(version: Object, context: Context) -> Findings:
    if version.name != cluster_updates.NAME:
        return
    cluster = context.cluster
    update = cluster_updates.release(cluster)
    stop, refused = update.stop, update.refused
    if stop is not None:
        reason = stop.reason.removeprefix(f"ClusterVersion {version.name}: ")
        begin, _, said = reason.partition(": ")
        path = version.at("spec", "desiredUpdate").path
        broken = operand_pods.broken(update, cluster)
        end = advice_of(broken.remedy) if broken is not None else _SEE
        pod = f". {capital(ended(broken.full_words))}" if broken is not None else "."
        left = check.room(path) - len(begin) - len(pod) - len(end) - 3
        yield Finding(
            path,
            f"{begin}: {cut_middle(said.rstrip('.'), max(left, 60))}{pod} {end}",
            value=version.name,
            problem=stop.id,
            command=command_of(broken.remedy) if broken is not None else _SHOW,
        )
    if refused is None or not refused.wanted:
        return
    path = version.at("spec", "channel").path
    for refusal in refused.by:
        others = "" if refused.every else f", releases of {refused.present} are not"
        which = f"{refused.targets} is refused{others}"
        text = f"{which}: {ended(refusal.brief)}"
        message = check.first_that_fits(path, f"{text} {advice_of(refusal.remedy)}", text)
        own = refusal.kind == CLUSTER_VERSION.kind  # its remedies say what to check before
        command = _SHOW if own else command_of(refusal.remedy)
        yield Finding(path, message, value=refusal.name, command=command)
