"""Commands are typed as they are printed, so no name in them may be more than a name."""

from __future__ import annotations

import shlex

import pytest

from tests.builders import manifest
from virt_admit.model.commands import argument, kubectl, logs_of, virtctl
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.reports import unavailable_data
from virt_admit.reports.explain import rights

ATTACK = "x; touch pwned #"


@pytest.mark.parametrize("name", ["--all", "-f", "--kubeconfig=x"])
def test_a_name_is_never_an_option(name: str) -> None:
    for command in (kubectl("delete", VM, name, "shop"), virtctl("stop", name, "shop")):
        assert name not in shlex.split(command)
        assert f"./{name}" in shlex.split(command)


def test_other_names_stay() -> None:
    assert argument("db-1.example") == "db-1.example"
    assert kubectl("describe", VM, "db", "shop") == "kubectl describe vm db -n shop"


def test_a_kind_in_a_snapshot_is_one_word() -> None:
    """A snapshot names the kinds that were not readable."""
    for text in (
        unavailable_data.forbidden(["nodes", ATTACK]).partition(" for: ")[2],
        rights.command(ATTACK),
    ):
        assert any(ATTACK in word for word in shlex.split(text))
    assert unavailable_data.forbidden(["nodes", "pods"]).endswith(
        "--verb=get,list --resource=nodes,pods"
    )


WAITS = {"name": "app", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
RUNS = {"name": "app", "ready": True, "state": {"running": {}}}
DOWN = {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
DONE = {"name": "first", "ready": True, "state": {"terminated": {"exitCode": 0}}}


@pytest.mark.parametrize(
    ("boxes", "status", "choice"),
    [
        (["app"], {"containerStatuses": [DOWN | {"name": "app"}]}, ""),
        (["app", "side"], {"containerStatuses": [RUNS, DOWN | {"name": "side"}]}, " -c side"),
        (["app", "side"], {"containerStatuses": [RUNS]}, ""),
        (
            ["app"],
            {
                "containerStatuses": [WAITS],
                "initContainerStatuses": [DONE, DOWN | {"name": "install"}],
            },
            " -c install",
        ),
        (["app"], {"containerStatuses": [RUNS], "initContainerStatuses": [DONE]}, ""),
    ],
)
def test_logs_are_those_of_the_container_that_is_not_ready(boxes, status, choice) -> None:
    spec = {"containers": [{"name": name} for name in boxes]}
    pod = manifest("v1", "Pod", "a", "ns", spec=spec, status=status)
    assert logs_of(pod, "--previous") == f"kubectl logs a -n ns{choice} --previous"
    assert logs_of(pod, "--all-containers") == "kubectl logs a -n ns --all-containers"
