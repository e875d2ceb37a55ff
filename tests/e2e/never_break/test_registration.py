"""What is registered, against a real API server."""

from __future__ import annotations

import copy
from typing import Any

from tests.e2e.never_break.world import FREED, HELD, MACHINES, failing, obj, quiet
from tests.e2e.reach import REQUIRED, Reach
from virt_admit.install import manifests
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind


class TestRegistration:
    """What the configurations that we print do on a server."""

    def test_no_match_condition_fails(self, asker: Reach) -> None:
        """Under ``Fail`` an error in one would refuse the request: every kind,
        from next to nothing to nothing.
        """
        registered = [kind for entry in manifests.ENTRIES for kind in entry.kinds]
        barest = [
            obj(
                kind,
                ONLY_NAME.get(kind, "bare"),
                **copy.deepcopy(REQUIRED.get(kind, BARE.get(kind, {}))),
            )
            for kind in registered
        ]
        with failing(asker):
            asker.policy({"*": {"action": "audit"}})
            changes: list[dict[str, Any]] = [
                {"change": {"metadata": {field: {"a": value}}}}
                for value in ("b", None)
                for field in ("annotations", "labels")
            ]
            for verb, more in (
                ("create", {"fieldValidation": "Ignore"}),
                *(("patch", change) for change in changes),
                # nothing that a condition compares: no part of it is true
                ("patch", HELD),
                ("patch", FREED),
                ("delete", {}),
            ):
                answer = asker.send(verb, barest, **more)
                assert answer[0] == 0, answer[1]

    def test_scaling_a_machine_set_is_looked_at(self, asker: Reach) -> None:
        marked = {"machine.openshift.io/delete-machine": "true"}
        green = obj(
            kinds.MACHINE_SET,
            "green",
            MACHINES,
            spec={"replicas": 3, "selector": {"matchLabels": {"set": "green"}}},
        )
        machines = [
            obj(kinds.MACHINE, f"green-{number}", MACHINES, metadata={"labels": {"set": "green"}})
            for number in "abc"
        ]
        asker.world([green, *machines])
        with asker.stored(green):
            before = asker.requests("MachineSet")
            chance = asker.kubectl("scale", green, "--replicas=2")
            assert chance[0] == 0
            assert "[virt-admit/machineset-scale-down-unmarked]" in chance[1]
            assert asker.requests("MachineSet") == before + 1
            machines[0]["metadata"]["annotations"] = marked
            asker.world([{**green, "spec": {**green["spec"], "replicas": 2}}, *machines])
            assert quiet(asker.kubectl("scale", green, "--replicas=1"))
            assert quiet(asker.kubectl("scale", green, "--replicas=5"))


ONLY_NAME = {kinds.HCO: "kubevirt-hyperconverged"}

BARE: dict[Kind, dict[str, Any]] = {
    kinds.MIGRATION_POLICY: {"spec": {"selectors": {}}},
    kinds.STORAGE_PROFILE: {"spec": {}},
    kinds.VMIM: {"spec": {}},
    kinds.NM: {"spec": {"nodeName": "n"}},
    kinds.NM_KUBEVIRT: {"spec": {"nodeName": "n"}},
}
