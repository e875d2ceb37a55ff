"""Which parameters a fence agent needs, and how long its tries take."""

import pytest

from tests.forecasts.outage.losses import lose, nhc, snapshot, vm
from tests.forecasts.outage.test_health_actors import NODES, only_vm, parts


def fencing(spec, then_self=False):
    """A NodeHealthCheck with a fence agent, then perhaps with a reboot of the node."""
    check, template = nhc("FenceAgentsRemediation")
    template["spec"]["template"]["spec"] = spec
    again = nhc(name="self")
    if then_self:
        first, second = (
            check["spec"].pop("remediationTemplate"),
            again[0]["spec"]["remediationTemplate"],
        )
        check["spec"]["escalatingRemediations"] = [
            {"remediationTemplate": first, "order": 1, "timeout": "60s"},
            {"remediationTemplate": second, "order": 2, "timeout": "600s"},
        ]
    return [check, template, again[1]]


IPMI = {"agent": "fence_ipmilan", "sharedparameters": {"--lanplus": "", "--action": "reboot"}}
ALL = {"n1": "10.0.0.1", "n2": "10.0.0.2"}
OTHERS = {"n2": "10.0.0.2"}


@pytest.mark.parametrize(
    ("spec", "survives"),
    [
        (IPMI | {"nodeparameters": {"--ip": ALL}}, True),
        (IPMI | {"nodeparameters": {"--ip": OTHERS}}, False),
        (IPMI | {"nodeparameters": {"--ip": OTHERS | {"n1": ""}}}, False),
        (IPMI | {"nodeparameters": {"--ip": OTHERS, "--ipport": ALL}}, False),
        (IPMI | {"nodeparameters": {"--ip": OTHERS}, "sharedSecretName": "fence"}, False),
        (IPMI | {"nodeparameters": {"--ip": OTHERS}, "nodeSecretNames": {"n2": "two"}}, False),
        (IPMI | {"nodeparameters": {"--ip": OTHERS}, "nodeSecretNames": {"n1": "one"}}, None),
        (IPMI | {"nodeparameters": {"--ip": ALL}, "nodeSecretNames": {"n2": "two"}}, True),
        (IPMI | {"nodeparameters": {"--ip": ALL, "--ipport": OTHERS}}, None),
        (IPMI | {"nodeparameters": {"--ipport": ALL}}, False),
        (IPMI | {"nodeparameters": {"--ipport": ALL}, "sharedSecretName": "fence"}, True),
        (IPMI | {"nodeSecretNames": {"n1": "one", "n2": "two"}}, None),
        (IPMI | {"nodeparameters": {"--ip": ALL}, "retrycount": -1, "timeout": "0s"}, None),
        (IPMI, False),
        ({}, False),
        ({"agent": "fence_aws", "nodeparameters": {"--plug": OTHERS}}, False),
        ({"agent": "fence_aws", "nodeparameters": {"--plug": ALL}}, True),
        ({"agent": "fence_aws", "sharedparameters": {"--plug": "{{.NodeName}}"}}, True),
        ({"agent": "fence_aws", "sharedparameters": {"--plug": "{{.NodeName}"}}, False),
        ({"agent": "fence_aws --help", "nodeparameters": {"--plug": ALL}}, False),
        ({"agent": "fence_aws", "nodeparameters": {"--plug": ALL}, "timeout": "0s"}, False),
        (
            {"agent": "fence_aws", "nodeparameters": {"--plug": ALL, "--action": {"n1": "on"}}},
            False,
        ),
        (
            {
                "agent": "fence_aws",
                "nodeparameters": {"--plug": ALL},
                "sharedparameters": {"action": "status"},
            },
            False,
        ),
        (
            {
                "agent": "fence_aws",
                "nodeparameters": {"--plug": ALL},
                "sharedparameters": {"--action": "off"},
            },
            True,
        ),
        (
            {
                "agent": "fence_aws",
                "sharedparameters": {"--region": "x"},
                "sharedSecretName": "fence",
            },
            None,
        ),
    ],
)
def test_a_fence_agent_needs_the_parameters_of_the_node(spec, survives):
    found = lose(snapshot(NODES, vm("db", "n1"), fencing(spec)), "n1")
    assert found.survives is survives
    row = only_vm(found)
    assert row.outcome == {True: "restarts", False: "never restarts", None: "unknown"}[survives]
    if survives is False:
        template = "FenceAgentsRemediationTemplate medik8s/workers-template"
        assert f"{template} has " in row.reason
        assert f"{template}: kubectl edit fenceagentsremediationtemplate" in row.remedy


def test_a_node_without_fence_parameters_waits_for_the_next_remediator():
    spec = IPMI | {"nodeparameters": {"--ip": OTHERS}}
    row = only_vm(lose(snapshot(NODES, vm("db", "n1"), fencing(spec, then_self=True)), "n1"))
    assert row.outcome == "restarts"
    assert parts(row)["earlier remediators"] == (60, 60)


def test_the_tries_of_a_fence_agent_bound_it_unless_another_remediator_goes_on():
    spec = IPMI | {"nodeparameters": {"--ip": ALL}, "retrycount": 2}
    assert parts(only_vm(lose(snapshot(NODES, vm("db", "n1"), fencing(spec)), "n1")))[
        "remediated"
    ] == (0, 125)
    found = lose(snapshot(NODES, vm("db", "n1"), fencing(spec, then_self=True)), "n1")
    assert parts(only_vm(found))["remediated"] == (0, None)
