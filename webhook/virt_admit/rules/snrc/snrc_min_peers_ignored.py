"""``minPeersForRemediation`` asks for more peers, but Self Node Remediation ignores it.

**Why.** The operator writes the field into the DaemonSet of its agents, but the agents of releases up to 0.13 do not read
it. A node that lost the API server and finds no peers treats itself as isolated and reboots, whatever the field says. 0
describes this behavior. 1 is the default of the schema, so it is not reported.

**Fix.** Remove the field. Keep enough workers that a node always has peers.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

_DEFAULT = 1


def check(config: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    peers = config.at("spec", "minPeersForRemediation")
    if peers.integer is not None and peers.integer > _DEFAULT:
        yield Finding(
            peers.path,
            f"{peers.integer} has no effect: the agents of Self Node Remediation up to 0.13 ignore this field, so an "
            "isolated node reboots even without peers. Remove it.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(SNR_CONFIG,),
    action=Action.WARN,
    check=check,
    sources=(
        "medik8s/self-node-remediation:cmd/main.go#initSelfNodeRemediationAgent",
        "medik8s/self-node-remediation:internal/apicheck/check.go#getWorkerPeersResponse",
        "medik8s/self-node-remediation:install/self-node-remediation-deamonset.yaml",
    ),
)
