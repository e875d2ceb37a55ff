"""kubectl and virtctl on a file of objects, as far as the scripts of a plan use them.

Imports little: it is started often.

After a change it does what controllers do. Each change that is not a dry run is a line of the log.
"""

import json
import os
import re
import sys

STORE, LOG = os.environ["FAKE_STORE"], os.environ["FAKE_LOG"]
TEMPLATE_FIELDS = ("nodeSelector", "affinity", "tolerations")
SHORT = {"vm": "virtualmachine", "vmi": "virtualmachineinstance"}


def main(program, arguments):
    with open(STORE) as file:
        objects = json.load(file)
    words = [word for word in arguments if not word.startswith("-")]
    flags = [word for word in arguments if word.startswith("-")]
    for flag in ("-n", "-l", "-f", "-o", "--patch-file"):
        if flag in flags:
            words.remove(arguments[arguments.index(flag) + 1])
    namespace = value_of("-n", arguments) or ""
    if program == "virtctl":
        log(" ".join(arguments))
        virtctl(objects, words, namespace)
    elif words[0] == "get":
        print(got(objects, words, namespace, arguments), end="")
        return
    else:
        changed = patched if words[0] == "patch" else applied
        changed(objects, words, namespace, arguments)
        if "--dry-run=server" in flags:
            return
        log(" ".join(arguments))
    with open(STORE, "w") as file:
        json.dump(objects, file)


def value_of(flag, arguments):
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def log(line):
    with open(LOG, "a") as file:
        file.write(line + "\n")


def load(path):
    import yaml

    with open(path) as file:
        return yaml.safe_load(file)


# --- objects ---


def is_kind(obj, word):
    kind = obj["kind"].lower()
    word = SHORT.get(word.split(".")[0], word.split(".")[0])
    return word in (kind, f"{kind}s", f"{kind[:-1]}ies")


def find(objects, word, name, namespace):
    for obj in objects:
        metadata = obj["metadata"]
        if (
            is_kind(obj, word)
            and metadata["name"] == name
            and metadata.get("namespace", "") == namespace
        ):
            return obj
    return None


def demand(objects, word, name, namespace):
    found = find(objects, word, name, namespace)
    if found is None:
        sys.exit(f'Error from server (NotFound): {word} "{name}" not found')
    return found


def got(objects, words, namespace, arguments):
    (template,) = [
        word.removeprefix("-o=jsonpath=") for word in arguments if word.startswith("-o=")
    ]
    if len(words) == 2:
        key, _, value = (value_of("-l", arguments) or "").partition("=")
        own = [
            each
            for each in objects
            if is_kind(each, words[1]) and each["metadata"].get("namespace") == namespace
        ]
        found = {
            "items": [each for each in own if each["metadata"].get("labels", {}).get(key) == value]
        }
    elif "--ignore-not-found" in arguments:
        found = find(objects, words[1], words[2], namespace)
        if found is None:
            return ""
    else:
        found = demand(objects, words[1], words[2], namespace)
    return re.sub(
        r"\{((?:[^{}\\]|\\.)*)\}",
        lambda match: " ".join(map(text, values(found, match[1]))),
        template,
    )


STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(-?\d+)(:?)\]|\[\?\(@\.(\w+)=='([^']*)'\)\]")


def values(found, path):
    found = [found]
    for key, index, _slice, name, value in STEP.findall(path):
        if key:
            plain = re.sub(r"\\(.)", r"\1", key)
            found = [each[plain] for each in found if isinstance(each, dict) and plain in each]
        elif index:
            if any(int(index) >= len(each) for each in found):
                sys.exit("error executing jsonpath: array index out of bounds")
            found = [each[int(index)] for each in found if each]
        else:
            found = [item for each in found for item in each if item.get(name) == value]
    return found


def text(value):
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, sort_keys=True, separators=(",", ":"))
    )


# --- changes ---


def applied(objects, words, namespace, arguments):
    obj = load(value_of("-f", arguments))
    metadata = obj["metadata"]
    if find(objects, obj["kind"].lower(), metadata["name"], metadata.get("namespace", "")) is None:
        objects.append(obj)
    if obj["kind"] == "VirtualMachineStorageMigration":
        obj["status"] = {"phase": "Completed"}
        for plan in [
            each for each in objects if each["kind"] == "VirtualMachineStorageMigrationPlan"
        ]:
            controller_copies(objects, plan["spec"]["virtualMachines"][0], metadata["namespace"])
    if obj["kind"] == "NodeHealthCheck":
        obj["status"] = {"phase": "Enabled"}


def controller_copies(objects, wanted, namespace):
    vm = demand(objects, "vm", wanted["name"], namespace)
    for target in wanted["targetMigrationPVCs"]:
        for volume in vm["spec"]["template"]["spec"]["volumes"]:
            if volume["name"] == target["volumeName"]:
                before = volume.pop("persistentVolumeClaim", None) or volume["dataVolume"]
                old, new = (
                    before.get("claimName") or before["name"],
                    target["destinationPVC"]["name"],
                )
                volume["dataVolume"] = {"name": new}
                for template in vm["spec"].get("dataVolumeTemplates", ()):
                    if template["metadata"]["name"] == old:
                        template["metadata"]["name"] = new
    copy(objects, vm)


def patched(objects, words, namespace, arguments):
    obj = demand(objects, words[1], words[2], namespace)
    index = objects.index(obj)
    objects[index] = obj = json.loads(json.dumps(obj))
    for step in load(value_of("--patch-file", arguments)):
        operate(obj, step)
    after_patch(objects, obj)


def operate(obj, step):
    *above, last = [
        part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]
    ]
    for part in above:
        obj = obj[int(part)] if isinstance(obj, list) else obj[part]
    last = int(last) if isinstance(obj, list) else last
    if step["op"] == "test":
        found = obj.get(last) if isinstance(obj, dict) else obj[last]
        if found != step["value"]:
            sys.exit(
                "The request is invalid: the server rejected our request due to an error in our "
                "request"
            )
    elif step["op"] == "remove":
        del obj[last]
    elif step["op"] == "add" and isinstance(obj, list):
        obj.insert(last, step["value"])
    else:
        obj[last] = step["value"]


def after_patch(objects, obj):
    """Do what controllers do at once."""
    metadata = obj["metadata"]
    if obj["kind"] == "ResourceQuota":
        obj["status"]["hard"] = dict(obj["spec"]["hard"])
    elif obj["kind"] in ("Deployment", "StatefulSet", "HorizontalPodAutoscaler"):
        for budget in objects:
            if budget["kind"] == "PodDisruptionBudget":
                budget["status"]["disruptionsAllowed"] = 1
    elif obj["kind"] == "VirtualMachinePool":
        for vm in objects:
            owners = vm["metadata"].get("ownerReferences", ())
            if vm["kind"] == "VirtualMachine" and any(
                owner["name"] == metadata["name"] for owner in owners
            ):
                vm["spec"] = json.loads(json.dumps(obj["spec"]["virtualMachineTemplate"]["spec"]))
                if "opportunistic" not in obj["spec"].get("updateStrategy", {}):
                    virtctl(objects, ["restart", vm["metadata"]["name"]], metadata["namespace"])
    elif obj["kind"] == "VirtualMachine":
        vmi = find(objects, "vmi", metadata["name"], metadata["namespace"])
        spec = obj["spec"]["template"]["spec"]
        for key in TEMPLATE_FIELDS if vmi else ():
            vmi["spec"].pop(key, None)
            vmi["spec"] |= {key: spec[key]} if key in spec else {}
        if (
            vmi
            and obj["spec"].get("updateVolumesStrategy")
            and vmi["spec"].get("volumes") != spec.get("volumes")
        ):
            copy(objects, obj)


def copy(objects, vm):
    metadata = vm["metadata"]
    vmi = demand(objects, "vmi", metadata["name"], metadata["namespace"])
    vmi["spec"]["volumes"] = vm["spec"]["template"]["spec"]["volumes"]
    vmi["status"]["conditions"] = [{"type": "LiveMigratable", "status": "True"}]
    labels = {"kubevirt.io/volume-update-migration": metadata["name"]}
    about = {
        "name": f"copy-{metadata['name']}",
        "namespace": metadata["namespace"],
        "labels": labels,
    }
    objects.append(
        {
            "kind": "VirtualMachineInstanceMigration",
            "metadata": about,
            "status": {"phase": "Succeeded"},
        }
    )


def virtctl(objects, words, namespace):
    if words[0] == "restart":
        vmi, vm = (demand(objects, word, words[1], namespace) for word in ("vmi", "vm"))
        defaults = {"terminationGracePeriodSeconds": 30}
        vmi["spec"] = defaults | json.loads(json.dumps(vm["spec"]["template"]["spec"]))
        kept = [
            each for each in vm["status"].get("conditions", ()) if each["type"] != "RestartRequired"
        ]
        vm["status"]["conditions"] = kept
    else:
        del demand(objects, "vmi", words[2], namespace)["status"]["evacuationNodeName"]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
