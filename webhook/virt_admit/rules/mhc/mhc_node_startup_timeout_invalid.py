"""The start-up time of a MachineHealthCheck cannot be read, or is negative.

**Why.** The schema's pattern admits whatever ends in a duration, or starts with 0. What cannot be decoded stops every
MachineHealthCheck of the cluster; a negative time deletes every machine that has no node yet, for ever.

**Fix.** Write numbers with the units ``ms s m h``, in quotes if need be: ``10m``, ``1h30m``; ``"0"`` switches the check of the
start-up off. Cluster API v1beta2 takes whole seconds.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import NegativeTime
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    try:
        view.startup_time()
    except NegativeTime as error:
        yield Finding(
            view.startup.path,
            f"{error}: every machine is deleted before it becomes a node; write 10 minutes, or 0 to switch that check off",
        )
    except ValueError as error:
        yield Finding(view.startup.path, f"{error}; one such value stops all MachineHealthChecks")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#needsRemediation",
        "kubernetes-sigs/cluster-api:core/webhooks/admission/machinehealthcheck.go",
    ),
)
