"""What KubeVirt and the quota controller do after a change, for scripts that wait: started as
``virtctl`` and ``sleep``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

LIVE = ("nodeSelector", "affinity", "tolerations")


def kubectl(*words: str) -> Any:
    done = subprocess.run(["kubectl", *words], check=True, capture_output=True, text=True)
    return json.loads(done.stdout) if "json" in words else None


def listed(kind: str) -> list[Any]:
    return list(kubectl("get", kind, "-A", "-o", "json")["items"])


def merge(obj: Mapping[str, Any], change: Any, *flags: str) -> None:
    metadata = obj["metadata"]
    patch = ["--type=merge", "-p", json.dumps(change), *flags]
    kubectl("patch", obj["kind"].lower(), metadata["name"], "-n", metadata["namespace"], *patch)


def sleep() -> None:
    """Take over live changes of VMs, copy their volumes, and count with new quotas."""
    vmis = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each
        for each in listed("virtualmachineinstances")
    }
    for vm in listed("virtualmachines"):
        vmi = vmis.get((vm["metadata"]["namespace"], vm["metadata"]["name"]))
        spec = vm["spec"]["template"]["spec"]
        if vmi is None:
            continue
        changed: dict[str, Any] = {
            key: spec.get(key) for key in LIVE if spec.get(key) != vmi["spec"].get(key)
        }
        if changed.get("nodeSelector", 0) is not None and "nodeSelector" in changed:
            changed["nodeSelector"] = (
                dict.fromkeys(vmi["spec"].get("nodeSelector", {})) | changed["nodeSelector"]
            )
        if changed:
            merge(vmi, {"spec": changed})
        if vm["spec"].get("updateVolumesStrategy") and spec["volumes"] != vmi["spec"]["volumes"]:
            copied(vmi, spec["volumes"])
    for quota in listed("resourcequotas"):
        if quota["spec"].get("hard") != quota.get("status", {}).get("hard"):
            merge(quota, {"status": {"hard": quota["spec"]["hard"]}}, "--subresource=status")


def copied(vmi: Mapping[str, Any], volumes: Any) -> None:
    metadata = vmi["metadata"]
    migratable = [{"type": "LiveMigratable", "status": "True"}]
    merge(vmi, {"spec": {"volumes": volumes}, "status": {"conditions": migratable}})
    migration = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {
            "name": f"copy-{metadata['name']}",
            "namespace": metadata["namespace"],
            "labels": {"kubevirt.io/volume-update-migration": metadata["name"]},
        },
        "spec": {"vmiName": metadata["name"]},
    }
    subprocess.run(
        ["kubectl", "apply", "-f", "-"],
        input=json.dumps(migration),
        check=True,
        text=True,
        capture_output=True,
    )
    merge(migration, {"status": {"phase": "Succeeded"}}, "--subresource=status")


def virtctl(verb: str, *words: str) -> None:
    namespace = words[words.index("-n") + 1]
    if verb == "restart":
        vm = kubectl("get", "virtualmachine", words[0], "-n", namespace, "-o", "json")
        path, value, op = "/spec", vm["spec"]["template"]["spec"], "replace"
    else:
        path, value, op = "/status/evacuationNodeName", None, "remove"
    name = words[0] if verb == "restart" else words[1]
    patch = json.dumps([{"op": op, "path": path, "value": value}])
    kubectl("patch", "virtualmachineinstance", name, "-n", namespace, "--type=json", "-p", patch)


if __name__ == "__main__":
    if sys.argv[1] == "virtctl":
        virtctl(*sys.argv[2:])
    else:
        sleep()
