"""The update of an operator of VMs, of their nodes or of their disks does not go on, or the
InstallPlan of another operator has failed or its release does not find what it requires.

**Why.** The Operator Lifecycle Manager does not try a failed InstallPlan again, and waits for a
ClusterServiceVersion that is not ready. The operator stays at its old release, also without its
fixes. VMs run on. One Subscription that is Manual makes every InstallPlan of its namespace wait for
an approval, and with two OperatorGroups in a namespace no update goes on.

**Fix.** End what the finding names: an object that is not upgradeable, a Deployment without a ready
pod, a catalog that does not answer, an approval, an OperatorGroup too many. ``virt-admit upgrade``
has the whole reason, and the remedy with its command.
"""

import re
from typing import Final

from virt_admit.model import messages
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import SUBSCRIPTION
from virt_admit.model.node_updates import operator_updates
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule

_FURTHER: Final = re.compile(r" \(kubectl [^()]{1,400}\)")
"""The commands of later steps: the first one stands beside the finding."""


@rule(
    kinds=(SUBSCRIPTION,),
    reads=operator_updates.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        (
            "operator-framework/operator-lifecycle-manager:pkg/controller/operators/catalog/"
            "operator.go#validateExistingCRs"
        ),
        "openshift/openshift-docs#35054",
        "https://github.com/operator-framework/operator-lifecycle-manager/issues/3152",
        (
            "operator-framework/operator-lifecycle-manager:pkg/controller/operators/olm/"
            "operator.go#operatorGroupForCSV"
        ),
    ),
)
def check(subscription: Object, context: Context) -> Findings:
    for held in operator_updates.held(context.cluster):
        if held.subscription.full_name == subscription.full_name:
            path = subscription.at("status", "currentCSV").path
            then = messages.advice_of(held.remedy)
            short = _FURTHER.sub("", then)
            more = " Commands: virt-admit upgrade." if short != then else ""
            message = check.first_that_fits(
                path,
                f"{held.brief} {then}",
                f"{held.brief} {short}{more}",
                f"{held.terse} {then}",
                f"{held.brief} {short}",
                held.brief,
            )
            whole = message != held.brief or not held.of_vms  # else upgrade tells the remedy
            told = messages.command_of(held.remedy) if whole else ""
            yield Finding(
                path,
                message,
                value=subscription.name,
                problem=problem_of(ProblemCause.UPDATE_FAILING, subscription),
                command=told or shell("virt-admit", "upgrade"),  # with what to check before
            )
