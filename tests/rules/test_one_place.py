"""A rule is two files: what it declares appears everywhere without another edit, and it finds
something in a live cluster.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import types
from typing import Any

import pytest
import yaml

import virt_admit
from tests.fake_api import FakeApi
from tests.paths import ROOT
from tests.rule_results import result_of
from tests.rules import author, cases
from tests.rules.test_rules import as_expected, ask, context_of
from tests.waiting import eventually
from virt_admit.cli.commands.rules import page
from virt_admit.install import manifests
from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.field_filter import lookup_namespace, retained_fields
from virt_admit.kube.informers import LiveCluster
from virt_admit.model.kubernetes.kinds import NODE, PVC, VM, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import volumes
from virt_admit.rule import Action, Finding, InvalidRule, Rule, rule
from virt_admit.rules import Rules, declared, load_rules, problems

SCHEDULER = Kind("example.io", ("v1",), "schedulers", "Scheduler", namespaced=False)
"""A kind that no rule reads yet."""
ZONE = "example.io/zone-frozen"


def check_node(node: Object, _context: Any) -> Any:
    mark = node.annotation(ZONE)
    if mark.present:
        yield Finding(mark.path, "the zone of this node is frozen. Remove the annotation.")


def check_look_up(vm: Object, context: Any) -> Any:
    claim = context.cluster.get(PVC, vm.namespace, "disk")
    scheduler = context.cluster.get(SCHEDULER, "", "main")
    if claim.at("status", "phase").text == "Lost" and scheduler.at("spec", "paused").boolean:
        yield Finding(
            vm["spec"].path, "claim disk is lost while the scheduler is paused. Restore the claim."
        )


def synthetic(rule_id: str, **fields: Any) -> Rule:
    doc = "A synthetic rule.\n\n**Why.** To see it everywhere.\n\n**Fix.** Nothing.\n"
    check = fields.pop("check")
    return rule(id=rule_id, doc=doc, action=Action.WARN, sources=("none",), **fields)(check)


ON_NODES = synthetic("node-zone-frozen", kinds=(NODE,), check=check_node, metadata=(ZONE,))
LOOKING_UP = synthetic(
    "vm-claim-lost",
    kinds=(VM,),
    check=check_look_up,
    reads={PVC: ("status.phase",), SCHEDULER: ("spec.paused",)},
)
RULES = Rules((*load_rules().at_admission, ON_NODES, LOOKING_UP))


def expression_for_nodes(rules: Rules) -> str:
    entries = manifests.webhooks(rules)[1]["webhooks"]
    (entry,) = [each for each in entries if each["name"].startswith("nodes.")]
    (condition,) = [
        each for each in entry["matchConditions"] if each["name"] == "cordon-or-annotation"
    ]
    return str(condition["expression"])


def test_a_metadata_key_is_in_the_match_conditions() -> None:
    assert ZONE not in expression_for_nodes(load_rules().at_admission)
    for where in ("annotations", "labels"):
        assert f"'{ZONE}' in object.metadata.{where}" in expression_for_nodes(RULES)


@pytest.mark.parametrize("roles", [manifests.rbac, manifests.scan_rbac])
def test_a_looked_up_kind_is_in_the_roles(roles: Any) -> None:
    granted = [
        rule
        for obj in roles(RULES)
        for rule in obj.get("rules", ())
        if rule["apiGroups"] == ["example.io"]
    ]
    assert [rule["resources"] for rule in granted] == [["schedulers"]]


def test_a_looked_up_field_is_retained_next_to_those_of_other_rules() -> None:
    of_rules = set(volumes.READS[PVC])
    assert set(retained_fields(RULES)[PVC].paths) == {*of_rules, "status.phase"}
    assert lookup_namespace(SCHEDULER, RULES) == ""


def test_the_page_names_the_kinds() -> None:
    assert "persistentvolumeclaims, schedulers.example.io" in page(LOOKING_UP)


def obj(kind: Kind, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def findings(rule: Rule, judged: dict[str, Any], cluster: Any) -> list[str]:
    result = result_of(rule, Object(judged), context_of(rule, {}, Object(judged), None, cluster))
    assert not result.error
    assert not result.unseen
    return [str(finding.path) for finding in result.findings]


def test_informers_serve_the_new_field_and_kind(tmp_path: Any) -> None:
    """In a live cluster the rule finds something; without the declared field it would not."""
    judged = obj(VM, "db", "shop", spec={"runStrategy": "Always"})
    with FakeApi() as api:
        api.install(
            PVC, obj(PVC, "disk", "shop", spec={"volumeName": "x"}, status={"phase": "Lost"})
        )
        api.install(SCHEDULER, obj(SCHEDULER, "main", spec={"paused": True, "other": 1}))
        assert findings(LOOKING_UP, judged, started(RULES, api, tmp_path)) == ["spec"]

        forgetful = dataclasses.replace(
            LOOKING_UP, reads={PVC: ("spec.accessModes",), SCHEDULER: ("spec.paused",)}
        )
        assert findings(forgetful, judged, started(Rules([forgetful]), api, tmp_path)) == []


def test_a_node_with_the_new_key_is_judged() -> None:
    judged = obj(NODE, "a")
    judged["metadata"]["annotations"] = {ZONE: "true"}
    assert findings(ON_NODES, judged, ClusterCache([])) == [f"metadata.annotations[{ZONE}]"]


def started(rules: Rules, api: FakeApi, folder: Any) -> ClusterCache:
    """Read the cluster once through informers, then stop them."""
    looking = Rules(rule for rule in rules if rule.id == LOOKING_UP.id)
    cluster = LiveCluster.connect(looking, api.kubeconfig(folder))
    cluster.start()
    try:
        eventually(lambda: not cluster.missing)
    finally:
        cluster.stop()
    return cluster


# --- bad input: one line that names the file and what to write


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        ((PVC,), "reads is not a mapping. Write reads={PVC:"),
        ({SCHEDULER: ()}, "unknown kind .*add a record"),
        ({PVC: "status.phase"}, r"not a tuple. Write PersistentVolumeClaim: \('status.phase',\)"),
        (
            {PVC: ("statu.phase",)},
            "unknown field 'statu.phase' of persistentvolumeclaims. Write a path such as",
        ),
        ({PVC: ("status..phase",)}, "unknown field"),
        ({PVC: ("metadata.annotations.",)}, "unknown field"),
        ({PVC: (1,)}, "unknown field 1"),
    ],
)
def test_reads_that_are_not_valid(reads: Any, message: str) -> None:
    (problem,) = problems(dataclasses.replace(LOOKING_UP, reads=reads))
    assert "\n" not in problem
    assert re.search(message, problem)


def test_metadata_that_is_not_a_tuple() -> None:
    (problem,) = problems(dataclasses.replace(ON_NODES, metadata=ZONE))  # type: ignore[arg-type]
    assert problem == f"metadata is not a tuple. Write metadata=('{ZONE}',)"


def test_kinds_and_sources_that_are_not_tuples() -> None:
    assert list(problems(dataclasses.replace(ON_NODES, kinds=NODE))) == [
        "kinds is not a tuple of kinds. Write kinds=(VM,)"
    ]
    assert list(problems(dataclasses.replace(ON_NODES, sources="a"))) == [  # type: ignore[arg-type]
        "sources is not a tuple. Write sources=('a',)"
    ]


@pytest.mark.parametrize(
    "path", ["status.phase", "reclaimPolicy", "metadata.labels.example.io/zone", "type", "value"]
)
def test_reads_may_name_every_field_of_a_kind(path: str) -> None:
    """StorageClasses and Secrets have neither spec nor status."""
    assert list(problems(dataclasses.replace(LOOKING_UP, reads={PVC: (path,)}))) == []


ONE = Rules([ON_NODES])
GOOD = "- {name: a, object: {}, finds: [spec]}\n- {name: b, object: {}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD.replace("finds", "find"),
            "rules/node/node_zone_frozen.yaml: case 'a': unknown key find. Use one of name, ",
        ),
        (
            GOOD.replace("[spec]", "[{pth: x}]"),
            "case 'a': unknown key pth in finds. Use one of path, ",
        ),
        ("", "rules/node/node_zone_frozen.yaml: no cases. Write a list"),
        ("- [", "rules/node/node_zone_frozen.yaml: not valid YAML"),
        (GOOD.replace("object: {}, finds", "finds"), "case 'a': .*'object' is a required property"),
    ],
)
def test_case_files_that_are_not_valid(tmp_path: Any, text: str, message: str) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "node_zone_frozen.yaml").write_text(text)
    first = next(cases.problems(ONE, tmp_path))
    assert "\n" not in first
    assert re.search(message, first)


def test_a_rule_without_cases_and_cases_without_a_rule(tmp_path: Any) -> None:
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / "vm_lonely.yaml").write_text(GOOD)
    assert list(cases.problems(ONE, tmp_path)) == [
        (
            "rules/test_one_place.py: no cases of node-zone-frozen. Write "
            "rules/node/node_zone_frozen.yaml, one case with a finding and one without"
        ),
        (
            "rules/vm/vm_lonely.yaml: there is no rule vm-lonely. Write vm_lonely.py next to it, "
            "or delete the file"
        ),
    ]


@pytest.mark.parametrize("rule_id", ["vm-synthetic", "node-synthetic", "brandnew-thing"])
def test_the_template_is_a_rule_with_a_bad_and_a_good_case(tmp_path: Any, rule_id: str) -> None:
    (tmp_path / rule_id.partition("-")[0]).mkdir(exist_ok=rule_id.startswith("vm"))
    author.write(rule_id, tmp_path)
    stem = tmp_path / rule_id.partition("-")[0] / rule_id.replace("-", "_")
    module = types.ModuleType(f"virt_admit.rules.{stem.name}")
    exec(compile(stem.with_suffix(".py").read_text(), str(stem), "exec"), module.__dict__)
    (declared_rule,) = declared(module)
    assert declared_rule.id == rule_id
    assert list(problems(declared_rule)) == []
    assert list(cases.problems(Rules([declared_rule]), tmp_path)) == []
    bad, good = (
        findings(declared_rule, case["object"], ClusterCache([]))
        for case in yaml.safe_load(stem.with_suffix(".yaml").read_text())
    )
    assert (bad, good) == (["spec.example"], [])
    with pytest.raises(InvalidRule, match=f"{rule_id} exists already"):
        author.write(rule_id, tmp_path)


@pytest.mark.parametrize(
    "rule_id", ["", "VM-x", "vm", "vm_x", "vm--x", "-x", "vm-" + "x" * 60, "../vm-x"]
)
def test_an_id_that_is_not_valid(tmp_path: Any, rule_id: str) -> None:
    with pytest.raises(InvalidRule, match=r"valid rule id|characters"):
        author.write(rule_id, tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- the worked examples of CONTRIBUTING.md

_BLOCKS = re.findall(
    r"```python\n(.*?)```\n```yaml\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
)


@pytest.mark.parametrize(("python", "text"), _BLOCKS, ids=["look-up", "node"])
def test_the_examples_in_contributing_work(tmp_path: Any, python: str, text: str) -> None:
    module = types.ModuleType("virt_admit.rules.vm.vm_example")
    exec(compile(python, "CONTRIBUTING.md", "exec"), module.__dict__)
    (example,) = declared(module)
    assert list(problems(example)) == []
    (tmp_path / "vm_example.yaml").write_text(text)
    assert list(cases.problems(Rules([example]), tmp_path)) == []
    for case in yaml.safe_load(text):
        result, read = ask(example, case)
        assert read <= set(example.reads)
        as_expected(result, case)


def test_the_facts_in_contributing_exist() -> None:
    (table,) = re.findall(
        r"### Facts\n(.*?)\n### ", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    named = re.findall(
        r"\b([a-z_]+)\.([A-Za-z_]+)",
        " ".join(row.split("|", 2)[2] for row in table.splitlines()[2:]),
    )
    facts = {(module, name) for module, name in named if module not in ("context", "metadata")}
    assert len(facts) > 25
    modules = [
        info.name
        for info in pkgutil.walk_packages(virt_admit.__path__, "virt_admit.")
        if not info.ispkg
    ]
    for module, name in sorted(facts):
        found = [each for each in modules if each.endswith(f".{module}")]
        assert any(hasattr(importlib.import_module(each), name) for each in found), (
            f"{module}.{name}"
        )
