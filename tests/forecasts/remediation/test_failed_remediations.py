"""Remediations that have failed for good: after a single template,
or after the last one of several.
"""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.outage import explanation
from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.forecasts.remediation import awaited_return, failed_remediations
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.remediation import fence_agents

NOON = "2026-01-01T12:00:00Z"
FAILED = {
    "type": "Succeeded",
    "status": "False",
    "reason": "TimedOut",
    "lastTransitionTime": "2026-01-01T11:00:00Z",
}


def remediation(kind="SelfNodeRemediation", *conditions, **metadata):
    group = "self-node" if kind == "SelfNodeRemediation" else "fence-agents"
    found = manifest(
        f"{group}-remediation.medik8s.io/v1alpha1", kind, "w1", "ops", metadata=metadata
    )
    found.data["status"] = {"conditions": list(conditions)}
    return found


def check(*begun, steps=0):
    spec = {"escalatingRemediations": [{"order": order} for order in range(steps)]} if steps else {}
    begun = [
        {"resource": {"kind": kind, "name": "w1", "namespace": "ops"}, **more}
        for kind, more in begun
    ]
    status = {"unhealthyNodes": [{"name": "w1", "remediations": begun}]}
    return manifest(
        "remediation.medik8s.io/v1alpha1", "NodeHealthCheck", "workers", spec=spec, status=status
    )


def cluster(*objects, complete=("*",)):
    return Snapshot(list(objects), complete=list(complete), server_version="v1.31.0", time=NOON)


SNR, FAR = (
    ("SelfNodeRemediation", {"started": "2026-01-01T11:55:00Z"}),
    ("FenceAgentsRemediation", {}),
)
OVER = ("SelfNodeRemediation", {"timedOut": "2026-01-01T10:30:00Z"})


def test_a_single_template():
    own = check(SNR)
    found = failed_remediations.of_node(
        own, "w1", cluster(own, remediation("SelfNodeRemediation", FAILED))
    )
    assert found is not None
    assert (
        found.reason
        == "SelfNodeRemediation ops/w1 has failed 60 min ago (TimedOut), and it is not tried again"
    )
    assert found.remedy.endswith("makes again: kubectl delete selfnoderemediation w1 -n ops")


def test_nothing_is_awaited_of_it():
    own = check(SNR)
    assert awaited_return.advice("w1", cluster(own, remediation())).startswith(
        "wait for NodeHealthCheck workers"
    )
    assert "delete its failed" in awaited_return.advice(
        "w1", cluster(own, remediation("SelfNodeRemediation", FAILED))
    )


@pytest.mark.parametrize(
    ("begun", "steps", "ended"),
    [([SNR], 2, False), ([OVER, FAR], 2, True), ([OVER, FAR], 3, False), ([OVER], 1, False)],
    ids=[
        "the next one follows",
        "the last one",
        "one is left",
        "the last one timed out: said elsewhere",
    ],
)
def test_several_templates(begun, steps, ended):
    own = check(*begun, steps=steps)
    objects = [
        remediation(kind, FAILED) for kind in ("SelfNodeRemediation", "FenceAgentsRemediation")
    ]
    if not ended and begun == [OVER]:
        objects = []
    assert (failed_remediations.of_node(own, "w1", cluster(own, *objects)) is not None) is ended


@pytest.mark.parametrize(
    "obj",
    [
        remediation(),
        remediation("SelfNodeRemediation", FAILED | {"status": "True"}),
        remediation("SelfNodeRemediation", FAILED, deletionTimestamp=NOON),
    ],
    ids=["at work", "done", "being deleted"],
)
def test_one_that_has_not_failed(obj):
    own = check(SNR)
    assert failed_remediations.of_node(own, "w1", cluster(own, obj)) is None
    assert failed_remediations.of_node(own, "w2", cluster(own, obj)) is None


AT_WORK = {"type": "Processing", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
ADDRESS = {"agent": "fence_ipmilan", "nodeparameters": {"--ip": {"w1": "10.0.0.1"}}}


def fencing(spec, *conditions, **metadata):
    found = remediation("FenceAgentsRemediation", *conditions, **metadata)
    return manifest(
        found["apiVersion"].text,
        found.kind,
        "w1",
        "ops",
        metadata=metadata,
        spec=spec,
        status=found.data["status"],
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {**ADDRESS, "sharedparameters": {"--action": "on"}},
            "and has --action on, which the operator refuses",
        ),
        (
            {**ADDRESS, "nodeSecretNames": {"w1": "gone"}},
            "and only the log of its operator says why",
        ),
        ({**ADDRESS, "timeout": "1 minute"}, "and has a timeout that is not valid"),
    ],
)
def test_an_agent_that_never_runs(spec, words):
    own = check(FAR)
    found = failed_remediations.of_node(own, "w1", cluster(own, fencing(spec, AT_WORK)))
    assert found is not None
    assert (
        found.reason
        == f"FenceAgentsRemediation ops/w1 has not ended its fence agent for 60 min, {words}"
    )
    assert found.remedy.endswith("makes again: kubectl delete fenceagentsremediation w1 -n ops")
    assert ("runs no agent" in found.remedy) is ("log" in words)
    assert words.removeprefix("and has") in found.remedy or "log" in words


@pytest.mark.parametrize(
    "obj",
    [
        fencing({**ADDRESS, "timeout": "20m"}, AT_WORK),
        fencing({**ADDRESS, "retrycount": 2**62}, AT_WORK),
        fencing(ADDRESS, AT_WORK | {"lastTransitionTime": "2026-01-01T11:46:00Z"}),
        fencing(ADDRESS, AT_WORK, deletionTimestamp=NOON),
        fencing(ADDRESS, AT_WORK | {"status": "False"}, FAILED | {"status": "True"}),
        fencing(ADDRESS, creationTimestamp="2026-01-01T11:50:00Z"),
    ],
    ids=["long tries", "endless tries", "late", "being deleted", "done", "just created"],
)
def test_an_agent_that_may_still_end(obj):
    own = check(FAR)
    assert failed_remediations.of_node(own, "w1", cluster(own, obj)) is None


def test_a_slow_agent_is_left_to_the_next_template():
    own = check(FAR, steps=2)
    assert failed_remediations.of_node(own, "w1", cluster(own, fencing(ADDRESS, AT_WORK))) is None


def test_one_that_cannot_be_read():
    own = check(SNR, ("Other", {}))
    hidden = cluster(own, complete=["nodes"])
    assert failed_remediations.of_node(own, "w1", hidden) is None
    assert [*failed_remediations.unread(own, "w1", hidden)] == [
        "selfnoderemediations.self-node-remediation.medik8s.io ops/w1"
    ]


@pytest.mark.parametrize(
    ("phase", "failed"), [("Failed", True), ("Waiting", False), ("Deleting", False)]
)
def test_a_host_that_was_switched_off(phase, failed):
    """Metal3 leaves a host alone that its administrator has switched off."""
    metal = "infrastructure.cluster.x-k8s.io/v1beta1"
    own = manifest("cluster.x-k8s.io/v1beta1", "MachineHealthCheck", "workers", "capi")
    machine = manifest("cluster.x-k8s.io/v1beta1", "Machine", "m1", "capi")
    found = cluster(
        own, machine, manifest(metal, "Metal3Remediation", "m1", "capi", status={"phase": phase})
    )
    result = failed_remediations.of_node(own, "w1", found, machine)
    assert (result is not None) is failed
    if result is not None:
        assert "spec.online of its BareMetalHost is false" in result.reason
        assert result.remedy.endswith("kubectl delete metal3remediation m1 -n capi")


AGENT = {"app.kubernetes.io/name": "self-node-remediation", "app.kubernetes.io/component": "agent"}
UNABLE = "Node is not capable to reboot itself"


def agents(*nodes):
    """The DaemonSet of Self Node Remediation, with its pods."""
    owner = {
        "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
        "kind": "SelfNodeRemediationConfig",
    }
    owners = {"ownerReferences": [{**owner, "name": "config", "controller": True}]}
    spec = {"template": {"metadata": {"labels": AGENT}, "spec": {}}}
    found = [manifest("apps/v1", "DaemonSet", "agent", "ops", metadata=owners, spec=spec)]
    labels = {"labels": AGENT}
    return found + [
        manifest("v1", "Pod", f"agent-{node}", "ops", metadata=labels, spec={"nodeName": node})
        for node in nodes
    ]


def lost(**annotations):
    taints = [{"key": "dedicated", "value": "desktop", "effect": "NoSchedule"}]
    return manifest(
        "v1", "Node", "w1", metadata={"annotations": annotations}, spec={"taints": taints}
    )


def unable(error=UNABLE, **metadata):
    found = remediation(creationTimestamp="2026-01-01T11:40:00Z", **metadata)
    found.data["status"] = {"lastError": error}
    return found


def test_a_node_without_an_agent_is_never_remediated():
    own = check(SNR)
    found = failed_remediations.of_node(own, "w1", cluster(own, unable(), lost(), *agents("w2")))
    why = "no SelfNodeRemediation agent runs there: DaemonSet ops/agent does not tolerate taint"
    assert found.reason == (
        f"SelfNodeRemediation ops/w1 has not begun for 20 min ({UNABLE}): {why} "
        "dedicated=desktop:NoSchedule"
    )
    assert found.remedy.startswith("power w1 off by hand")
    assert (
        "As a decision, once it is confirmed to be off, taint it out-of-service: " in found.remedy
    )
    assert "nodeshutdown" in found.remedy
    assert "for the next time, set customDsTolerations of" in found.remedy


def test_the_release_may_not_have_the_taint():
    own = check(SNR)
    seen = cluster(own, unable(), lost(), *agents("w2"))
    seen.server_version = None
    found = failed_remediations.of_node(own, "w1", seen)
    assert "taint it out-of-service (the taint has an effect from Kubernetes 1.26" in found.remedy


def test_a_remediation_that_has_begun_does_not_go_on():
    own, found = check(SNR), unable()
    found.data["status"]["conditions"] = [{"type": "Processing", "status": "True"}]
    told = failed_remediations.of_node(own, "w1", cluster(own, found, lost(), *agents("w2")))
    assert "SelfNodeRemediation ops/w1 does not go on for 20 min" in told.reason


def test_the_agent_is_not_read():
    own = check(SNR)
    found = failed_remediations.of_node(own, "w1", cluster(own, unable(), lost(), complete=()))
    assert found.reason.endswith("it finds no agent there that can")


@pytest.mark.parametrize(
    "obj",
    [unable(""), unable("another error"), unable(deletionTimestamp=NOON)],
    ids=["begun", "may pass", "being deleted"],
)
def test_a_self_remediation_that_goes_on(obj):
    own = check(SNR)
    assert failed_remediations.of_node(own, "w1", cluster(own, obj, lost(), *agents("w2"))) is None


CAPABLE = "is-reboot-capable.self-node-remediation.medik8s.io"


def test_which_nodes_have_an_agent():
    absent = remediation_agents.missing("w1", cluster(lost(), *agents("w2")))
    assert absent.remedy.startswith(
        "set customDsTolerations of SelfNodeRemediationConfig config for taint "
        "dedicated=desktop:NoSchedule"
    )
    given = [{"key": "gpu", "operator": "Exists"}]
    config = manifest(
        "self-node-remediation.medik8s.io/v1alpha1",
        "SelfNodeRemediationConfig",
        "config",
        "ops",
        spec={"customDsTolerations": given},
    )
    daemon, *pods = agents("w2")
    del daemon.data["metadata"]["ownerReferences"]  # the operator makes it all the same
    absent = remediation_agents.missing("w1", cluster(lost(), config, daemon, *pods))
    assert absent.remedy.endswith(
        "kubectl patch selfnoderemediationconfig config -n ops --type=merge -p "
        '\'{"spec":{"customDsTolerations":[{"key":"gpu","operator":"Exists"},'
        '{"key":"dedicated","operator":"Equal","value":"desktop","effect":"NoSchedule"}]}}\''
    )
    assert remediation_agents.reason("w1", cluster(lost(**{CAPABLE: "true"}), *agents("w1"))) == ""
    unarmed = remediation_agents.missing("w1", cluster(lost(**{CAPABLE: "false"}), *agents("w1")))
    assert unarmed.why == (
        f"its SelfNodeRemediation agent says that it cannot reboot it (annotation {CAPABLE} is "
        "false)"
    )
    assert unarmed.remedy.endswith(": kubectl logs agent-w1 -n ops")
    config.data["spec"]["isSoftwareRebootEnabled"] = False
    known = cluster(lost(**{CAPABLE: "false"}), config, *agents("w1"))
    assert remediation_agents.missing("w1", known).remedy == (
        "give it a watchdog device or set isSoftwareRebootEnabled: true: kubectl edit "
        "selfnoderemediationconfig config -n ops"
    )


@pytest.mark.parametrize(
    ("objects", "complete"),
    [
        ([lost()], ["*"]),
        ([lost(), *agents()], ["*"]),
        ([lost(), *agents("w2")], []),
        ([lost(), *agents("w1")], ["*"]),
    ],
    ids=["no DaemonSet", "no agent at all", "pods are not read", "an agent that starts"],
)
def test_no_node_is_accused_without_evidence(objects, complete):
    assert remediation_agents.reason("w1", cluster(*objects, complete=complete)) == ""


# --- fence agents that have failed ----------------------------------------------------------------

AGENT_FAILED = FAILED | {"reason": "FenceAgentFailed", "message": "Fence agent command has failed"}
LAST = (
    "FenceAgentsRemediation ops/w1 has failed 60 min ago (FenceAgentFailed), and it is not tried "
    "again"
)


def insecure(value, **more):
    """Parameters of an agent with a flag, and with a secret value."""
    return {
        "agent": "fence_redfish",
        "nodeparameters": {"--systems-uri": {"w1": "/redfish/v1/Systems/7"}},
        "sharedparameters": {
            "--ip": "10.0.0.1",
            "--ssl-insecure": value,
            "--password": "k3y",
            **more,
        },
    }


def failed_agent(own_spec, template_spec=None, reason=AGENT_FAILED["reason"]):
    """Return what is said after the agent of w1 has failed."""
    own = check(FAR)
    own.data["spec"]["remediationTemplate"] = {"name": "redfish", "namespace": "ops"}
    objects = [own, fencing(own_spec, AGENT_FAILED | {"reason": reason})]
    labels = {"app.kubernetes.io/name": "fence-agents-remediation-operator"}
    name = "fence-agents-remediation-controller-manager-5d-x"
    objects.append(manifest("v1", "Pod", name, "ops", metadata={"labels": labels}))
    if template_spec is not None:
        group, kind = (
            "fence-agents-remediation.medik8s.io/v1alpha1",
            "FenceAgentsRemediationTemplate",
        )
        template = {"template": {"spec": template_spec}}
        objects.append(manifest(group, kind, "redfish", "ops", spec=template))
    found = failed_remediations.of_node(own, "w1", cluster(*objects))
    assert found is not None
    assert "k3y" not in f"{found.reason} {found.remedy}"
    return found


def test_a_flag_with_a_value_is_corrected_in_the_template():
    found = failed_agent(insecure("1"), insecure("1"))

    assert found.reason == f"{LAST}: it has --ssl-insecure 1, which takes no value"
    assert found.remedy.startswith(
        'set --ssl-insecure to "" in FenceAgentsRemediationTemplate ops/redfish: '
        "kubectl edit fenceagentsremediationtemplate redfish -n ops; then delete the failed"
    )


def test_a_template_that_was_corrected_needs_a_new_object_alone():
    found = failed_agent(insecure("1"), insecure(""))

    assert found.remedy.startswith("delete the failed FenceAgentsRemediation, which")
    assert "redfish, corrected by now: kubectl delete fenceagentsremediation w1" in found.remedy


def test_without_a_visible_fault_the_log_says_why():
    found = failed_agent(insecure(""), insecure(""))

    assert found.reason == LAST
    assert "see in the log of its operator what fence_redfish answered" in found.remedy
    assert "kubectl logs -n ops -l app.kubernetes.io/name=fence-agents" in found.remedy
    assert "they are --ip 10.0.0.1, --ssl-insecure, --password, --systems-uri; then" in found.remedy
    assert "power" not in found.remedy


def test_an_agent_whose_time_was_over_did_not_answer():
    found = failed_agent(insecure(""), insecure(""), "RemediationInterruptedByNHC")

    assert "what fence_redfish answered" not in found.remedy
    assert "give its step in NodeHealthCheck workers more time, or Fence" in found.remedy


def test_a_parameter_that_other_nodes_alone_have():
    spec = insecure("") | {"nodeparameters": {"--systems-uri": {"w2": "/redfish/v1/Systems/8"}}}
    found = failed_agent(spec, spec)

    assert found.reason == f"{LAST}: it has no --systems-uri for w1, unlike other nodes"
    assert found.remedy.startswith("add w1 to each parameter in nodeparameters of Fence")


def test_a_template_that_is_gone_is_not_edited():
    found = failed_agent(insecure("1"))

    assert "correct its template redfish, then delete" in found.remedy
    assert "kubectl edit" not in found.remedy


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (insecure("1"), "has --ssl-insecure 1, which takes no value"),
        (insecure("k3y"), "has --ssl-insecure with a text, which takes no value"),
        (insecure(""), ""),
        (insecure("", **{"--ssl-secure": ""}), ""),
        (insecure("", **{"--lanplus": "true"}), "has --lanplus true, which takes no value"),
    ],
)
def test_an_agent_refuses_a_value_for_a_flag_at_once(spec, why):
    found = fence_agents.refusal(fencing(spec), "w1")

    assert found.removeprefix("FenceAgentsRemediation ops/w1 ") == why


@pytest.mark.parametrize("failed", [True, False])
def test_the_explanation_of_a_check_tells_a_failed_remediation(failed):
    own = check(FAR)
    own.data["spec"] = {
        "selector": {},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
    }
    lost = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    nodes = [manifest("v1", "Node", "w1", status=lost), manifest("v1", "Node", "w2")]
    obj = fencing(insecure(""), AGENT_FAILED if failed else AT_WORK)
    found = explanation.explain(own, cluster(own, obj, *nodes))

    assert any(LAST in note for note in found.notes) is failed
