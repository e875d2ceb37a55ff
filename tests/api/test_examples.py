"""The examples for Ansible and Argo CD ask for what there is."""

from __future__ import annotations

import json
import re

import jinja2
import pytest
import yaml
from click.testing import CliRunner

from tests.cli.test_words import node, vmi
from tests.paths import EXAMPLES
from virt_admit.cli import main


def run(*arguments):
    return CliRunner().invoke(main.virt_admit, arguments, standalone_mode=False)


def snapshot(folder, *items):
    data = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": ["*"],
        "items": items,
    }
    (folder / "cluster.json").write_text(json.dumps(data))
    return str(folder / "cluster.json")


CLUSTERS = {
    "drainable": ((node("worker-1"), node("worker-2"), vmi("db")), True),
    "blocked": ((node("worker-1"), node("worker-2"), vmi("db", migratable="False")), False),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_ansible_drains_only_where_every_assertion_holds(name, tmp_path):
    items, holds = CLUSTERS[name]
    forecast, check, drain = yaml.safe_load((EXAMPLES / "ansible" / "drain.yml").read_text())[0][
        "tasks"
    ]
    words = forecast["ansible.builtin.command"].replace("{{ node }}", "worker-1").split()
    assert words[0] == "virt-admit"
    flags = [word for word in words[1:] if word != "--live"]
    report = json.loads(run(*flags, "--cluster", snapshot(tmp_path, *items)).stdout)
    environment = jinja2.Environment(autoescape=True)
    environment.filters["flatten"] = lambda lists: [item for each in lists for item in each]
    assertion = check["ansible.builtin.assert"]
    holding = [environment.compile_expression(text)(report=report) for text in assertion["that"]]
    assert all(holding) is holds, holding
    message = environment.from_string(assertion["fail_msg"]).render(report=report)
    assert ("[]" in message) is holds
    assert drain["ansible.builtin.command"].startswith(
        "kubectl drain {{ node }} --ignore-daemonsets"
    )


@pytest.mark.parametrize(
    ("manifest", "code"), [("01-shared-disk.yaml", 0), ("03-both-keys.yaml", 1)]
)
def test_the_hook_of_argo_cd_fails_where_the_webhook_would_deny(manifest, code, tmp_path):
    account, job = yaml.safe_load_all((EXAMPLES / "argocd" / "presync.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert job["spec"]["backoffLimit"] == 0  # a denial stays one
    (mount,) = container["volumeMounts"]
    (tmp_path / "vm.yaml").write_text((EXAMPLES / manifest).read_text())
    flags = [str(tmp_path) if word == mount["mountPath"] else word for word in container["args"]]
    live = flags.index("--live")
    flags[live : live + 1] = ["--cluster", str(EXAMPLES / "cluster.yaml")]
    assert run(*flags).return_value == code


def test_the_hook_runs_before_the_sync_with_what_it_needs():
    kustomization = yaml.safe_load((EXAMPLES / "argocd" / "kustomization.yaml").read_text())
    (generated,) = kustomization["configMapGenerator"]
    account, job = yaml.safe_load_all((EXAMPLES / "argocd" / "presync.yaml").read_text())
    assert job["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == generated["name"]
    hooks = [
        generated["options"]["annotations"],
        account["metadata"]["annotations"],
        job["metadata"]["annotations"],
    ]
    assert {each["argocd.argoproj.io/hook"] for each in hooks} == {"PreSync"}
    text = (EXAMPLES / "argocd" / "presync.yaml").read_text()
    assert re.search(r"--clusterrole=virt-admit-scan\b", text)
    for file in (*kustomization["resources"], *generated["files"]):
        assert (EXAMPLES / "argocd" / file).is_file()
