"""A plan carried out as people would: its patches and objects by kubectl,
then what controllers make of them.

It shares nothing with the functions by which the planner applies steps in memory. The changes are
read from the scripts and files of the folder, another implementation of JSON Patch makes them, and
the controllers are written again from what KubeVirt does. So a fault in the planner's picture of a
change shows as another verdict.
"""

from __future__ import annotations

import copy
import re
import shlex
from typing import Final

import jsonpatch
import jsonpointer
import yaml

from tests.forecasts.repair.plain_objects import (
    Manifest,
    count_one_more,
    is_marked,
    mark,
    name_of,
    owners_of,
    spec_of,
    told,
    untold,
    words_of,
)
from virt_admit.forecasts.repair.repair_plan import RepairPlan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migratability
from virt_admit.reports.plan.folder import files

_COMMAND: Final = re.compile(r" \|\| ((?:patch|apply|virtctl) .*)$", re.MULTILINE)
_MORE_NODES: Final = re.compile(r"add (\d+) nodes? like (\S+)")
_PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations")
_OWN_RESOURCES: Final = (
    "cpu",
    "memory",
    "pods",
    "ephemeral-storage",
    "hugepages-",
    "devices.kubevirt.io/",
)
_TEMPORARY: Final = ("node.kubernetes.io/", "kubevirt.io/", "medik8s.io/")


def carried_out(plan: RepairPlan, cluster: Snapshot) -> Snapshot:
    """Return the cluster after all steps of a plan.

    Raises AssertionError if a command is refused.
    """
    world = _World(cluster)
    found = files(plan, "a test")
    scripts = sorted(path for path in found if path.startswith("steps/"))
    for number, step in enumerate(plan.steps, start=1):
        own = [path for path in scripts if path.startswith(f"steps/{number * 10:03}-")]
        if own:
            for line in _COMMAND.findall(found[own[0]]):
                world.run(shlex.split(line), found)
        else:
            world.more_nodes(step.title)
    return world.snapshot()


class _World:
    """The objects of a cluster, kubectl, virtctl, and the controllers."""

    def __init__(self, cluster: Snapshot) -> None:
        self.cluster = cluster
        self.objects: list[Manifest] = [copy.deepcopy(dict(obj.data)) for obj in cluster]
        self.started = {name_of(vm): copy.deepcopy(spec_of(vm)) for vm in self.of("VirtualMachine")}
        """The spec with which each VM was started."""

    def snapshot(self) -> Snapshot:
        known = self.cluster
        objects = [Object(each) for each in self.objects]
        return Snapshot(objects, known.complete, known.unreadable, known.server_version, known.time)

    def of(self, kind: str) -> list[Manifest]:
        return [each for each in self.objects if each["kind"] == kind]

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return next((each for each in self.of(kind) if name_of(each) == (namespace, name)), None)

    # --- commands ---

    def run(self, words: list[str], found: dict[str, str]) -> None:
        command, *rest = words
        namespace = rest[rest.index("-n") + 1] if "-n" in rest else ""
        if command == "patch":
            file, plural, name = rest[:3]
            self.patch(plural, namespace, name, yaml.safe_load(found[file]))
        elif command == "apply":
            self.apply(yaml.safe_load(found[rest[0]]))
        elif rest[0] == "restart":
            self.restart(namespace, rest[1])
        else:
            assert rest[:2] == ["evacuate-cancel", "vmi"], words
            vmi = self.find("VirtualMachineInstance", namespace, rest[2])
            assert vmi is not None, words
            del vmi["status"]["evacuationNodeName"]

    def patch(self, plural: str, namespace: str, name: str, operations: list[Manifest]) -> None:
        kind = plural.partition(".")[0]
        found = [
            index
            for index, each in enumerate(self.objects)
            if name_of(each) == (namespace, name) and kind in words_of(each["kind"])
        ]
        assert len(found) == 1, (plural, namespace, name)
        before = self.objects[found[0]]
        absent = object()
        some = [  # for the API server, what is absent equals null
            each
            for each in operations
            if each["op"] != "test"
            or each["value"] is not None
            or jsonpointer.resolve_pointer(before, each["path"], absent) is not absent
        ]
        self.objects[found[0]] = jsonpatch.apply_patch(before, some)
        self.changed(self.objects[found[0]])

    def apply(self, obj: Manifest) -> None:
        self.objects = [
            each
            for each in self.objects
            if (each["kind"], name_of(each)) != (obj["kind"], name_of(obj))
        ]
        self.objects.append(obj)
        if obj["kind"] == "DataVolume":
            self.claimed(
                obj["metadata"]["namespace"], obj["metadata"]["name"], obj["spec"]["storage"]
            )
        elif obj["kind"] == "VirtualMachineStorageMigration":
            self.storage_migration(obj)

    # --- controllers of Kubernetes and CDI ---

    def changed(self, obj: Manifest) -> None:
        match obj["kind"]:
            case "ResourceQuota":
                obj.setdefault("status", {})["hard"] = copy.deepcopy(obj["spec"]["hard"])
                self.try_again(obj["metadata"]["namespace"])
            case "LimitRange":
                self.try_again(obj["metadata"]["namespace"])
            case "Deployment" | "StatefulSet":
                self.replicas(obj)
            case "HorizontalPodAutoscaler":
                target = obj["spec"]["scaleTargetRef"]
                workload = self.find(target["kind"], obj["metadata"]["namespace"], target["name"])
                assert workload is not None, target
                workload["spec"]["replicas"] = max(
                    workload["spec"]["replicas"], obj["spec"]["minReplicas"]
                )
                self.replicas(workload)
            case "Node" if not obj["spec"].get("unschedulable"):
                taints = [
                    each
                    for each in obj["spec"].get("taints", ())
                    if each["key"] != "node.kubernetes.io/unschedulable"
                ]
                obj["spec"] |= {"taints": taints}
            case "HyperConverged":
                self.hyperconverged(obj)
            case "VirtualMachine":
                self.vm(obj)
            case "VirtualMachinePool":
                self.pool(obj)
            case "KubeVirt":
                self.begin()
                for vm in self.of("VirtualMachine"):
                    self.vm(vm)

    def try_again(self, namespace: str = "") -> None:
        """Begin the migrations again whose pods were not created, as virt-controller does."""
        made = {
            each["metadata"].get("labels", {}).get("kubevirt.io/migrationJobUID")
            for each in self.of("Pod")
        }
        for migration in self.of("VirtualMachineInstanceMigration"):
            own = not namespace or migration["metadata"]["namespace"] == namespace
            if (
                own
                and migration["status"]["phase"] == "Pending"
                and migration["metadata"]["uid"] not in made
            ):
                migration["status"].pop("conditions", None)
                migration["metadata"]["creationTimestamp"] = self.cluster.time

    def replicas(self, workload: Manifest) -> None:
        """Start the pods that a workload lacks on the first node that takes pods,
        and count them.
        """
        while self.replica(workload):
            pass

    def replica(self, workload: Manifest) -> bool:
        owned = {workload["metadata"]["name"]} | {
            each["metadata"]["name"]
            for each in self.of("ReplicaSet")
            if any(owner["name"] == workload["metadata"]["name"] for owner in owners_of(each))
        }
        namespace = workload["metadata"]["namespace"]
        own = [
            each
            for each in self.of("Pod")
            if each["metadata"].get("namespace") == namespace
            and any(own["name"] in owned for own in owners_of(each))
        ]
        if len(own) >= workload["spec"]["replicas"]:
            return False
        pod, more = own[0], copy.deepcopy(own[0])
        more["metadata"]["name"] += f"-{len(own)}"
        free = [
            node["metadata"]["name"]
            for node in self.of("Node")
            if not node["spec"].get("unschedulable")
        ]
        more["spec"]["nodeName"] = min(free)
        self.objects.append(more)
        labels = pod["metadata"].get("labels", {}).items()
        for budget in self.of("PodDisruptionBudget"):
            if budget["metadata"]["namespace"] == namespace and (
                budget["spec"]["selector"].get("matchLabels", {}).items() <= labels
            ):
                count_one_more(budget)
        return True

    def claimed(self, namespace: str, name: str, storage: Manifest) -> None:
        """Make the claim of a data volume, and its volume in a storage system."""
        classes = [
            each
            for each in self.of("StorageClass")
            if each["metadata"]["name"] == storage["storageClassName"]
        ]
        terms = [
            {
                "matchExpressions": [
                    each | {"operator": "In"} for each in topology["matchLabelExpressions"]
                ]
            }
            for topology in (classes[0].get("allowedTopologies") or () if classes else ())
        ]
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": copy.deepcopy(storage) | {"volumeName": f"made-{namespace}-{name}"},
            "status": {"phase": "Bound", "capacity": storage["resources"]["requests"]},
        }
        volume: Manifest = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"made-{namespace}-{name}"},
            "spec": {
                "csi": {"driver": "ceph.example.com", "volumeHandle": name},
                "accessModes": storage["accessModes"],
            },
        }
        if terms:
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        self.objects += [claim, volume]

    def more_nodes(self, title: str) -> None:
        found = _MORE_NODES.fullmatch(title)
        assert found, f"a step without a script and without a meaning here: {title}"
        number, model = (
            int(found[1]),
            next(each for each in self.of("Node") if name_of(each) == ("", found[2])),
        )
        for index in range(number):
            node, name = copy.deepcopy(model), f"new-{index}"
            node["metadata"] = {"name": name, "labels": dict(model["metadata"]["labels"])}
            node["metadata"]["labels"] |= {
                "kubernetes.io/hostname": name,
                "kubevirt.io/schedulable": "true",
            }
            taints = [
                each
                for each in node["spec"].get("taints", ())
                if not each["key"].startswith(_TEMPORARY)
            ]
            node["spec"] = {"taints": taints}
            amounts = node["status"]["allocatable"].items()
            node["status"]["allocatable"] = {
                key: each for key, each in amounts if key.startswith(_OWN_RESOURCES)
            }
            for condition in node["status"].get("conditions", ()):
                condition["status"] = (
                    "True" if condition["type"] == "Ready" else condition["status"]
                )
            self.objects.append(node)
            for drivers in [
                each
                for each in self.of("CSINode")
                if name_of(each) == ("", model["metadata"]["name"])
            ]:
                self.objects.append(copy.deepcopy(drivers) | {"metadata": {"name": name}})

    # --- KubeVirt ---

    def begin(self) -> None:
        """Begin the migrations that no limit let begin."""
        if 0 in self.kubevirt["spec"].get("configuration", {}).get("migrations", {}).values():
            return
        self.try_again()
        for vmi in self.of("VirtualMachineInstance"):
            asked = [
                each
                for each in vmi["status"].get("conditions", ())
                if each["type"] == "EvictionRequested"
            ]
            for each in asked:
                each["lastTransitionTime"] = self.cluster.time

    @property
    def kubevirt(self) -> Manifest:
        found = self.of("KubeVirt")
        return found[0] if found else {"spec": {}}

    def hyperconverged(self, hco: Manifest) -> None:
        spec = hco["spec"].get("virtualization", hco["spec"])
        own = self.kubevirt["spec"]
        if "liveMigrationConfig" in spec:
            own.setdefault("configuration", {}).setdefault("migrations", {}).update(
                spec["liveMigrationConfig"]
            )
            self.begin()
        if "workloadUpdateStrategy" in spec:
            own["workloadUpdateStrategy"] = copy.deepcopy(spec["workloadUpdateStrategy"])

    def vm(self, vm: Manifest) -> None:
        """Take over live changes, or mark the VM for a restart: what RestartRequired stands for
        stops all live changes.
        """
        vmi = self.find("VirtualMachineInstance", *name_of(vm))
        spec = spec_of(vm)
        if vmi is None or not spec:
            return
        live = self.kubevirt["spec"].get("configuration", {}).get("vmRolloutStrategy") != "Stage"
        moved = bool(vm["spec"].get("updateVolumesStrategy")) and live
        free = (*(_PLACEMENT if live else ()), *(("volumes",) if moved else ()))
        before = self.started[name_of(vm)]
        if any(before.get(key) != spec.get(key) for key in {*before, *spec} - {*free}):
            mark(vm)
        if is_marked(vm) or not live:
            return
        for key in _PLACEMENT:
            vmi["spec"].pop(key, None)
            vmi["spec"] |= {key: copy.deepcopy(spec[key])} if key in spec else {}
        methods = (
            self.kubevirt["spec"].get("workloadUpdateStrategy", {}).get("workloadUpdateMethods", ())
        )
        if moved and "LiveMigrate" in methods and spec.get("volumes") != vmi["spec"].get("volumes"):
            before_copy = copy.deepcopy(vmi)
            vmi["spec"]["volumes"] = copy.deepcopy(spec["volumes"])
            self.reported(vmi, before_copy)

    def storage_migration(self, run: Manifest) -> None:
        """Do what the migration controller does."""
        namespace = run["metadata"]["namespace"]
        name = run["spec"]["virtualMachineStorageMigrationPlanRef"]["name"]
        plan = self.find("VirtualMachineStorageMigrationPlan", namespace, name)
        assert plan is not None, name
        for wanted in plan["spec"]["virtualMachines"]:
            vm = self.find("VirtualMachine", namespace, wanted["name"])
            assert vm is not None, wanted
            for target in wanted["targetMigrationPVCs"]:
                self.migrated(vm, target)
            vm["spec"]["updateVolumesStrategy"] = "Migration"
            self.vm(vm)

    def migrated(self, vm: Manifest, target: Manifest) -> None:
        to = target["destinationPVC"]
        (volume,) = [
            each for each in spec_of(vm)["volumes"] if each["name"] == target["volumeName"]
        ]
        source = volume.pop("persistentVolumeClaim", None) or volume.pop("dataVolume")
        old = source.get("claimName") or source["name"]
        volume["dataVolume"] = {"name": to["name"]}
        for template in vm["spec"].get("dataVolumeTemplates", ()):
            if template["metadata"]["name"] == old:
                template["metadata"]["name"] = to["name"]
        claim = self.find("PersistentVolumeClaim", vm["metadata"]["namespace"], old)
        size = claim["spec"].get("resources", {}) if claim is not None else {}
        self.claimed(vm["metadata"]["namespace"], to["name"], {**to, "resources": size})

    def pool(self, pool: Manifest) -> None:
        how = pool["spec"].get("updateStrategy", {})
        for vm in self.of("VirtualMachine"):
            owners = [(each["kind"], each["name"]) for each in owners_of(vm)]
            if (
                "VirtualMachinePool",
                pool["metadata"]["name"],
            ) in owners and "unmanaged" not in how:
                vm["spec"] = copy.deepcopy(pool["spec"]["virtualMachineTemplate"]["spec"])
                self.vm(vm)
                if "opportunistic" not in how:
                    self.restart(*name_of(vm))

    def restart(self, namespace: str, name: str) -> None:
        vm, vmi = (
            self.find(kind, namespace, name)
            for kind in ("VirtualMachine", "VirtualMachineInstance")
        )
        assert vm is not None, name
        assert vmi is not None, name
        before, spec = copy.deepcopy(vmi), copy.deepcopy(spec_of(vm))
        default = self.kubevirt["spec"].get("configuration", {}).get("evictionStrategy")
        vmi["spec"] = ({"evictionStrategy": default} if default else {}) | spec
        self.started[name_of(vm)] = copy.deepcopy(spec)
        vm.setdefault("status", {})["conditions"] = [
            each for each in vm["status"].get("conditions", ()) if each["type"] != "RestartRequired"
        ]
        vmi["metadata"].pop("deletionTimestamp", None)
        vmi["metadata"]["creationTimestamp"] = self.cluster.time
        for key in ("labels", "annotations"):
            more = vm["spec"]["template"].get("metadata", {}).get(key, {})
            vmi["metadata"][key] = {**vmi["metadata"].get(key, {}), **more}
        for key in ("migrationState", "evacuationNodeName"):
            vmi["status"].pop(key, None)
        self.reported(vmi, before)
        self.launched(vmi)
        for migration in self.of("VirtualMachineInstanceMigration"):
            if migration["spec"]["vmiName"] == name and migration["status"]["phase"] not in (
                "Succeeded",
                "Failed",
            ):
                migration["status"]["phase"] = "Failed"
                job = migration["metadata"]["uid"]
                self.objects = [
                    each
                    for each in self.objects
                    if each["metadata"].get("labels", {}).get("kubevirt.io/migrationJobUID") != job
                ]

    def launched(self, vmi: Manifest) -> None:
        for pod in self.of("Pod"):
            own = pod["metadata"].get("labels", {}).get("kubevirt.io/created-by") == vmi[
                "metadata"
            ].get("uid")
            if own and pod["spec"].get("nodeName") == vmi["status"].get("nodeName"):
                for key in (*_PLACEMENT, "volumes"):
                    pod["spec"].pop(key, None)
                    if key in vmi["spec"] and key != "volumes":
                        pod["spec"][key] = copy.deepcopy(vmi["spec"][key])
                pod["metadata"]["labels"] |= vmi["metadata"].get("labels", {})

    def reported(self, vmi: Manifest, before: Manifest) -> None:
        """Report whether the VMI can migrate, as virt-handler does.

        A reason that no object explains stays.
        """
        cluster, known = self.snapshot(), told(before)
        reasons = [each.name for each in migratability.assess(Object(untold(vmi)), cluster).reasons]
        explained = [
            each.name for each in migratability.assess(Object(untold(before)), cluster).reasons
        ]
        if not reasons and known and known not in explained:
            reasons = [known]
        others = [
            each for each in vmi["status"].get("conditions", ()) if each["type"] != "LiveMigratable"
        ]
        found = (
            {"type": "LiveMigratable", "status": "False", "reason": reasons[0]} if reasons else {}
        )
        vmi["status"]["conditions"] = [
            *others,
            found or {"type": "LiveMigratable", "status": "True"},
        ]
