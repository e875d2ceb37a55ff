"""``minPeersForRemediation`` asks for more peers, but Self Node Remediation ignores it.

**Why.** The operator writes the field into the DaemonSet of its agents, but the agents of releases
up to 0.13 do not read it. A node that lost the API server and finds no peers treats itself as
isolated and reboots, whatever the field says. 0 describes this behavior. 1 is the default of the
schema, so it is not reported.

**Fix.** Remove the field. Keep enough workers that a node always has peers.
"""

from virt_admit.rule import SNR_CONFIG, Action, Context, Finding, Findings, Object, rule

_DEFAULT = 1


@rule(
    kinds=(SNR_CONFIG,),
    action=Action.WARN,
    sources=(
        "medik8s/self-node-remediation:cmd/main.go#initSelfNodeRemediationAgent",
        "medik8s/self-node-remediation:internal/apicheck/check.go#getWorkerPeersResponse",
        "medik8s/self-node-remediation:install/self-node-remediation-deamonset.yaml",
    ),
)
def check(config: Object, _context: Context) -> Findings:
    peers = config.at("spec", "minPeersForRemediation")
    if peers.integer is not None and peers.integer > _DEFAULT:
        yield Finding(
            peers.path,
            f"{peers.integer} has no effect: the agents of Self Node Remediation up to 0.13 ignore "
            "this field, so an isolated node reboots even without peers. Remove it.",
        )
