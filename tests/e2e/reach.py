"""Rules met by what kubectl sends: a rule's own cases as what a user applies,
over the cluster that the case describes.

The cluster of a case is the webhook's snapshot, rewritten for each case. What has to be there
before (the old object of an update, a status) is written by a user whom the policy exempts from
everything.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests import definitions
from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.kubectl_requests import KubectlRequests
from tests.apiserver.webhook import Webhook, register
from tests.prefork import virt_admit
from tests.rule_cases import rule_cases
from tests.waiting import eventually
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Rule
from virt_admit.rules import load_rules

BEFORE = "before-virt-admit"
"""Who wrote what was there before; no rule counts for this user."""

WARN = {"fieldValidation": "Warn"}
"""What ``kubectl --validate=warn`` sends. The default is Strict, which refuses unknown fields."""

BY_VERSION = (kinds.HCO, kinds.CAPI_MHC)
"""The kinds of which two versions have different fields."""

OLD_HYPERCONVERGED = f"{kinds.HCO}/v1beta1"
"""The target kind that only the definition of an older release keeps whole: see
test_cluster_configuration.
"""

_MACHINE: dict[str, Any] = {"domain": {"devices": {}}}
_TEMPLATE: dict[str, Any] = {"spec": {"template": {"spec": {}}}}
REQUIRED: Mapping[Kind, dict[str, Any]] = {
    kinds.VM: {"spec": {"template": {"spec": _MACHINE}}},
    kinds.VMI: {"spec": _MACHINE},
    kinds.VMIRS: {"spec": {"selector": {}, "template": {"spec": _MACHINE}}},
    kinds.POOL: {
        "spec": {
            "selector": {},
            "virtualMachineTemplate": {"spec": {"template": {"spec": _MACHINE}}},
        }
    },
    kinds.KUBEVIRT: {"spec": {}},
    kinds.CDI: {"spec": {}},
    kinds.CAPI_MHC: {"spec": {"clusterName": "a", "selector": {}}},
    kinds.SNR_TEMPLATE: _TEMPLATE,
    kinds.FAR_TEMPLATE: {"spec": {"template": {"spec": {"agent": "fence_ipmilan"}}}},
    kinds.MDR_TEMPLATE: _TEMPLATE,
}
"""Fields without which the schema takes no object of the kind;
cases leave out what their rule does not look at.
"""


class Target(NamedTuple):
    """A rule, and one kind that it judges in one shape."""

    rule: Rule
    kind: str
    """``virtualmachines.kubevirt.io``; with ``/v1`` where versions differ in more than their
    name.
    """

    def __str__(self) -> str:
        return f"{self.rule.id} {self.kind}"


def targets() -> dict[Target, list[dict[str, Any]]]:
    """Every rule that the webhook asks, kind by kind,
    with the cases in which it finds something.
    """
    found: dict[Target, list[dict[str, Any]]] = {}
    for rule in load_rules().at_admission:
        for case in rule_cases()[rule.id]:
            if case.get("finds") or case.get("fix"):
                found.setdefault(Target(rule, _shape(rule, Object(case["object"]))), []).append(
                    case
                )
    return found


def _shape(rule: Rule, obj: Object) -> str:
    kind = kinds.of(obj)
    if kind is None:  # a Scale
        return f"{rule.kinds[0]}/scale"
    return f"{kind}/{obj.version}" if kind in BY_VERSION else str(kind)


class Refused(Exception):
    """The API server does not take what should be there before; the text has its words."""


class Reach:
    """An API server that asks a webhook whose cluster and policy can be anything."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self._requests = KubectlRequests(plane)
        self.webhook = Webhook(
            folder,
            *("--cluster", folder / "cluster.json", "--policy", folder / "policy.json"),
            program=virt_admit(),
        )
        self.world()
        self.policy()

    def world(
        self, items: Sequence[Any] = (), complete: Sequence[str] = ("*",), version: str = ""
    ) -> None:
        """What look-ups see from now on."""
        snapshot = {"complete": list(complete), "items": list(items)} | (
            {"serverVersion": version} if version else {}
        )
        self._write(
            "cluster", {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", **snapshot}
        )

    def policy(self, rules: Mapping[str, Any] = MappingProxyType({})) -> None:
        """The policy from now on: the default one, these rules, and the exemption of ``BEFORE``."""
        exempt = {
            "users": [
                {"match": BEFORE, "rules": ["*"], "reason": "wrote it before virt-admit came"}
            ]
        }
        policy = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Policy", "extends": "default"}
        began = time.time()
        if (
            self._write("policy", policy | {"rules": dict(rules), "exempt": exempt})
            and self.webhook.running
        ):
            # the webhook looks at the file twice a second
            eventually(lambda: self._policy_loaded() >= began)

    def _policy_loaded(self) -> float:
        """Return when the webhook read the policy in force."""
        name = "virt_admit_policy_loaded_timestamp_seconds"
        found = re.search(rf"^{name} (\S+)$", self.webhook.ops("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0

    def _write(self, name: str, data: Any) -> bool:
        """Replace a file at once. Return whether its content changed."""
        file, text = self.folder / f"{name}.json", json.dumps(data)
        if file.exists() and file.read_text() == text:
            return False
        scratch = file.with_suffix(".new")
        scratch.write_text(text)
        scratch.replace(file)
        return True

    def kubectl(
        self, verb: str, obj: Any, *flags: str, user: str = "", groups: tuple[str, ...] = ()
    ) -> tuple[int, str]:
        """One command on one object or a list of them, as that administrator: exit status,
        and all that it printed.
        """
        acting = [
            f"--as={user}",
            "--as-group=system:masters",
            *(f"--as-group={group}" for group in groups),
        ]
        items = {"apiVersion": "v1", "kind": "List", "items": obj} if isinstance(obj, list) else obj
        done = self.plane.kubectl(
            *verb.split(), "-f", "-", *flags, *(acting if user else ()), input=json.dumps(items)
        )
        return done.returncode, done.stdout + done.stderr

    def send(
        self, verb: str, obj: Any, *, user: str = "", groups: tuple[str, ...] = (), **more: Any
    ) -> tuple[int, str]:
        """Send what ``kubectl`` would for one object or a list of them, without its process:
        its exit status, and what it would say.
        """
        strict = {"fieldValidation": "Strict"} if verb in ("create", "replace") else {}
        answers = [
            (each, *self._requests.send(verb, each, user=user, groups=groups, **strict | more))
            for each in (obj if isinstance(obj, list) else [obj])
        ]
        done = {"create": "created", "replace": "replaced", "delete": "deleted", "patch": "patched"}
        lines = [
            f"{said}\n{each['kind']} {done[verb]}" if ok else said for each, ok, said in answers
        ]
        return int(not all(ok for _, ok, _ in answers)), "\n".join(lines)

    def there(self, obj: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the API server has of an object; None if it does not have it."""
        return self._requests.get(obj)

    def requests(self, kind: str) -> int:
        """How many requests about objects of that kind have reached the webhook."""
        counted = rf'^virt_admit_requests_total{{[^}}]*kind="{kind}"[^}}]*}} (\S+)$'
        return sum(
            int(float(found))
            for found in re.findall(counted, self.webhook.ops("/metrics")[1], re.MULTILINE)
        )

    @contextmanager
    def stored(self, obj: dict[str, Any]) -> Iterator[None]:
        """The object is there, its status too, whatever rules say.

        Raises Refused if its schema does not take it.
        """
        status = "status" in obj and kinds.of(Object(obj)) not in definitions.WITHOUT_STATUS
        try:
            for verb in (("create",), ("replace", "status")) if status else (("create",),):
                done, text = self._requests.send(
                    verb[0], obj, *verb[1:], user=BEFORE, fieldValidation="Ignore"
                )
                if not done:
                    raise Refused(text)
            yield
        finally:
            self._requests.send("delete", obj, user=BEFORE)

    def ask(self, rule: Rule, case: dict[str, Any]) -> str:
        """All that the API server says to a user who does what the case says, in dry runs,
        until the rule is met.
        """
        self.world(
            case.get("cluster", []), case.get("complete", ["*"]), case.get("serverVersion", "")
        )
        self._switch_on(rule, case.get("params", {}))
        said = ""
        with closing(self._attempts(rule, case)) as attempts:
            try:
                for answer in attempts:
                    said += answer
                    if tag(rule) in answer:
                        break
            except Refused as refused:
                said += str(refused)
        return said

    def _attempts(self, rule: Rule, case: dict[str, Any]) -> Generator[str]:
        obj = _whole(case["object"])
        user, groups = case.get("user", ""), tuple(case.get("groups", ()))

        def dry(verb: str, what: Any, **query: str) -> str:
            return self._requests.send(verb, what, user=user, groups=groups, dryRun="All", **query)[
                1
            ]

        if case.get("subresource") == "scale":
            (scaled,) = [item for item in case["cluster"] if kinds.of(Object(item)) in rule.kinds]
            with self.stored(scaled):
                yield dry("scale", {**scaled, "spec": case["object"]["spec"]})
        elif case.get("operation") == "DELETE":
            with self.stored(obj):
                yield dry("delete", obj)
        elif "old" in case:
            with self.stored(_whole(case["old"])):
                yield dry("replace", obj, **WARN)
        else:
            # as it is: what does the schema say?
            yield dry("create", _named(case["object"]), **WARN)
            yield dry("create", obj, **WARN)
            if "status" in obj:  # a new object has none
                with self.stored(_whole({**case["object"], "spec": {}})):
                    yield dry("replace", obj, **WARN)

    def _switch_on(self, rule: Rule, params: dict[str, Any]) -> None:
        said: dict[str, Any] = {"params": params} if params else {}
        if rule.action < Action.WARN:  # kubectl does not show what is only audited
            said["action"] = "warn"
        self.policy({rule.id: said} if said else {})


def must_be_met(asker: Reach, rule: Rule, cases: Sequence[dict[str, Any]]) -> None:
    """One of the cases gets through to the rule."""
    answers = []
    for case in cases:
        answers.append(asker.ask(rule, case))
        if tag(rule) in answers[-1]:
            return
    raise AssertionError(
        "\n".join(["the rule has no case that the API server lets through:", *answers])
    )


def must_be_refused(asker: Reach, rule: Rule, cases: Sequence[dict[str, Any]], words: str) -> None:
    """None of the cases gets through to the rule, and the API server says so in these words."""
    for kind in (
        {kinds.of(Object(case["object"])) for case in cases} if "unknown field" not in words else ()
    ):
        definitions.needs_real(kind)
    for case in cases:
        answer = asker.ask(rule, case)
        assert words in answer
        assert tag(rule) not in answer


def tag(rule: Rule) -> str:
    """The mark of a rule at the end of each of its texts."""
    return f"[virt-admit/{rule.id}]"


def _named(obj: dict[str, Any]) -> dict[str, Any]:
    """The object with a name, and a namespace if its kind has one."""
    kind, metadata = kinds.of(Object(obj)), dict(obj.get("metadata", {}))
    if "generateName" not in metadata:
        metadata.setdefault("name", "case")
    if kind and kind.namespaced:
        metadata.setdefault("namespace", "default")
    return {**obj, "metadata": metadata}


def _whole(obj: dict[str, Any]) -> dict[str, Any]:
    """The named object with the fields that its schema requires."""
    kind = kinds.of(Object(obj))
    whole: dict[str, Any] = _under(REQUIRED.get(kind, {}) if kind else {}, _named(obj))
    return whole


def _under(base: Any, over: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict):
        return copy.deepcopy(over)
    return {
        key: _under(base.get(key), over[key]) if key in over else copy.deepcopy(base[key])
        for key in {**base, **over}
    }


def namespaces(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The namespaces that the objects of cases are in."""
    names = {_named(case["object"])["metadata"].get("namespace", "default") for case in cases}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in sorted(names)
    ]


@contextmanager
def reach(plane: ControlPlane, folder: Path) -> Iterator[Reach]:
    """The webhook, registered with that API server; afterwards it is gone."""
    asker = Reach(plane, folder)
    with asker.webhook:
        register(plane, asker.webhook)
        try:
            yield asker
        finally:
            both = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
            plane.kubectl("delete", both, "virt-admit", check=True)
