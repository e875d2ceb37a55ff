"""Where a VMI may run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import complete, kubevirt, node
from tests.for_each import for_each
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.permanent_constraints import hosts, pin, ready
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi, Inherited, expand

NO_CPUS = "dedicated CPUs (dedicatedCpuPlacement needs node label kubevirt.io/cpumanager=true)"

T = Path("spec", "template", "spec")
TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def spec(selector=None, terms=None, preferred=None):
    affinity = {}
    if terms is not None:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if preferred is not None:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return Field({"nodeSelector": selector, "affinity": {"nodeAffinity": affinity}}, T)


def label(*values, key="kubernetes.io/hostname", operator="In"):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def name(value, operator="In"):
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [value]}]}


def pinned(vmi_spec, of_instancetype=None):
    machine = ExpandedVmi(
        Object({}), Field({}), vmi_spec, vmi_spec.at("domain", "devices"), Field(None)
    )
    if of_instancetype is not None:
        given = Inherited(
            Field({"nodeSelector": of_instancetype}),
            Path("spec", "instancetype"),
            "instance type 'x'",
        )
        machine = machine._replace(instancetype=given)
    return pin(machine)


@for_each(
    "vmi, expected",
    [
        (spec(), None),
        (spec({"kubernetes.io/hostname": "a"}), {"a"}),
        (spec({"zone": "a"}), None),
        (spec({"kubernetes.io/hostname": 7}), None),
        (spec(terms=[label("a", "b")]), {"a", "b"}),
        (spec(terms=[name("a")]), {"a"}),
        (spec(terms=[label("a"), name("a")]), {"a"}),
        (spec(terms=[label("a"), name("b")]), {"a", "b"}),
        (spec(terms=[label("a", "b") | name("b")]), {"b"}),
        (spec(terms=[label("a") | name("b")]), set()),
        (spec(terms=[label("a"), label("x", key="zone")]), None),
        (spec(terms=[label("a", operator="NotIn")]), None),
        (spec(terms=[label(operator="Exists")]), None),
        (spec(terms=[name("a", operator="NotIn")]), None),
        (spec(terms=[{}, label("a")]), {"a"}),
        (spec(terms=[{}]), None),
        (spec(terms=[]), None),
        (spec(terms="a"), None),
        (spec(terms=[None, 3]), None),
        (spec({"kubernetes.io/hostname": "a"}, [label("a", "b")]), {"a"}),
        (spec({"kubernetes.io/hostname": "c"}, [label("a", "b")]), set()),
        (spec(preferred=[{"weight": 1, "preference": label("a")}]), None),
        (Field({"nodeSelector": "a", "affinity": "b"}, T), None),
        (Field(None, T), None),
    ],
)
def test_hosts(vmi, expected):
    found = pinned(vmi)
    assert (None if found is None else found.hosts) == expected


@pytest.mark.parametrize(
    ("vmi", "path", "tight"),
    [
        (spec({"kubernetes.io/hostname": "a"}), f"{T}.nodeSelector", True),
        (spec({"kubernetes.io/hostname": "c"}, [label("a", "b")]), f"{T}.nodeSelector", True),
        (spec(terms=[label("a")]), f"{T}.{TERMS}", True),
        (spec(terms=[label("a", "b")]), f"{T}.{TERMS}", False),
        (spec(terms=[label("a") | name("b")]), f"{T}.{TERMS}", True),
    ],
)
def test_what_pins(vmi, path, tight):
    found = pinned(vmi)

    assert str(found.path) == path
    assert found.tight is tight


def test_the_node_selector_of_an_instance_type_pins_too():
    found = pinned(spec(), {"kubernetes.io/hostname": "a"})
    assert (found.hosts, str(found.path)) == ({"a"}, "spec.instancetype")
    assert pinned(spec({"kubernetes.io/hostname": "b"}), {"kubernetes.io/hostname": "a"}).hosts == {
        "b"
    }
    assert pinned(spec({"zone": "b"}), {"kubernetes.io/hostname": "a"}) is None
    assert pinned(spec(), {"zone": "a"}) is None


# --- candidate nodes ------------------------------------------------------------------------------


def vm(cpu=None, domain=None, **spec):
    return builders.vm({"spec": {"domain": {"cpu": cpu or {}} | (domain or {})} | spec})


def what_excludes(subject, *nodes, others=()):
    """What keeps the VM off each of these nodes; ``others`` stand beside them in the cluster."""
    cluster = complete(*nodes, *others)
    refusals = {
        host.name: host.refusal or None for host in hosts(expand(subject, cluster), cluster)
    }
    return [refusals[each.name] for each in nodes]


def taint(key, effect="NoSchedule", value=None):
    return {"key": key, "effect": effect, "value": value}


def affinity(*terms):
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }


ARCH = "kubernetes.io/arch"


@for_each(
    "subject, candidate, expected",
    [
        (vm(), node("a"), None),
        (vm(architecture="arm64"), node("a", {ARCH: "amd64"}), "architecture arm64"),
        (vm(architecture="arm64"), node("a"), None),
        (vm(architecture="AMD64"), node("a", {ARCH: "amd64"}), None),
        (vm(), node("a", {ARCH: "arm64"}), None),
        (vm(nodeSelector={"zone": "1"}), node("a", {"zone": "1"}), None),
        (vm(nodeSelector={"zone": "1"}), node("a", {"zone": "2"}), "node selector zone=1"),
        (vm(nodeSelector={"zone": "1"}), node("a"), "node selector zone=1"),
        (vm(affinity=affinity(label("1", key="zone"))), node("a", {"zone": "1"}), None),
        (vm(affinity=affinity(label("1", key="zone"))), node("a", {"zone": "2"}), "node affinity"),
        (vm(affinity=affinity(label("1", key="zone"), name("a"))), node("a"), None),
        (
            vm(affinity=affinity(label("1", key="zone", operator="NotIn"))),
            node("a", {"zone": "1"}),
            "node affinity",
        ),
        (vm(), node("a", taints=[taint("gpu")]), "taint gpu"),
        (vm(), node("a", taints=[taint("gpu", "NoExecute")]), "taint gpu"),
        (vm(), node("a", taints=[taint("gpu", "PreferNoSchedule")]), None),
        (vm(), node("a", taints=[{"effect": "NoSchedule"}, None, "gpu"]), "taint None"),
        (
            vm(tolerations=[{"key": "gpu", "operator": "Exists"}]),
            node("a", taints=[taint("gpu")]),
            None,
        ),
        (
            vm(tolerations=[{"key": "gpu", "value": "x"}]),
            node("a", taints=[taint("gpu", value="y")]),
            "taint gpu",
        ),
        (
            vm(cpu={"dedicatedCpuPlacement": True}),
            node("a", {"kubevirt.io/cpumanager": "false"}),
            NO_CPUS,
        ),
        (
            vm(cpu={"dedicatedCpuPlacement": True}),
            node("a", {"kubevirt.io/cpumanager": "true"}),
            None,
        ),
        (
            vm(domain={"memory": {"hugepages": {"pageSize": "2Mi"}}}),
            node("a", allocatable={"hugepages-2Mi": "4Gi"}),
            None,
        ),
        (
            vm(domain={"memory": {"hugepages": {"pageSize": "2Mi"}}}),
            node("a", allocatable={"hugepages-2Mi": "0"}),
            "huge pages of 2Mi",
        ),
        (
            vm(domain={"memory": {"hugepages": {"pageSize": "1Gi"}}}),
            node("a", allocatable={"cpu": "4"}),
            "huge pages of 1Gi",
        ),
        (vm(domain={"memory": {"hugepages": {"pageSize": "1Gi"}}}), node("a"), None),
    ],
)
def test_what_keeps_a_vm_off_a_node(subject, candidate, expected):
    assert what_excludes(subject, candidate) == [expected]


@pytest.mark.parametrize(
    "candidate",
    [
        node("a", unschedulable=True),
        node("a", ready="False"),
        node("a", {"kubevirt.io/schedulable": "false"}),
        node("a", taints=[taint("node.kubernetes.io/unschedulable")]),
        node("a", taints=[taint("node.kubernetes.io/not-ready", "NoExecute")]),
        node("a", taints=[taint("kubevirt.io/drain")]),
        node("a", taints=[taint("medik8s.io/drain")]),
        node("a", taints=[taint("remediation.medik8s.io/self-node-remediation")]),
    ],
)
def test_cordons_and_transient_taints_never_count(candidate):
    assert what_excludes(vm(), candidate) == [None]


MACHINE = vm(domain={"machine": {"type": "q35"}})
DEDICATED = vm(cpu={"dedicatedCpuPlacement": True})
Q35, PC = "machine-type.node.kubevirt.io/q35", "machine-type.node.kubevirt.io/pc"
NEW, OLD = "kubevirt.io/cpumanager", "cpumanager"


@pytest.mark.parametrize(
    ("subject", "candidate", "other", "expected"),
    [
        (MACHINE, {}, {Q35: "true"}, None),
        (MACHINE, {PC: "true"}, {Q35: "true"}, "machine type q35"),
        (DEDICATED, {OLD: "true"}, {NEW: "true", OLD: "true"}, None),
        (DEDICATED, {OLD: "true", NEW: "false"}, {NEW: "true"}, NO_CPUS),
        (DEDICATED, {OLD: "false"}, {NEW: "true"}, NO_CPUS),
    ],
)
def test_labels_that_an_older_virt_handler_does_not_write_are_missing_only_now(
    subject, candidate, other, expected
):
    assert what_excludes(subject, node("a", candidate), node("b", other))[0] == expected


@pytest.mark.parametrize(
    ("subject", "key", "words"),
    [
        (vm(cpu={"dedicatedCpuPlacement": True}), "kubevirt.io/cpumanager", NO_CPUS),
        (vm(cpu={"realtime": {}}), "kubevirt.io/realtime", "real-time CPUs"),
        (
            vm(cpu={"features": [{"name": "vmx"}]}),
            "cpu-feature.node.kubevirt.io/vmx",
            "CPU feature vmx",
        ),
        (vm(domain={"launchSecurity": {"sev": {}}}), "kubevirt.io/sev", "AMD SEV"),
        (vm(domain={"launchSecurity": {"tdx": {}}}), "kubevirt.io/tdx", "Intel TDX"),
    ],
)
def test_labels_of_the_node_labeller_count_once_some_node_has_them(subject, key, words):
    assert what_excludes(subject, node("a"), node("b", {key: "true"})) == [words, None]
    assert what_excludes(subject, node("a"), node("b")) == [None, None]


@pytest.mark.parametrize(
    ("launch", "labels", "expected"),
    [
        ({"sev": {"policy": {"encryptedState": True}}}, {"kubevirt.io/sev": "true"}, "AMD SEV-ES"),
        ({"snp": {}}, {"kubevirt.io/sev": "true"}, "AMD SEV-SNP"),
        ({"snp": {}}, {"kubevirt.io/sev": "true", "kubevirt.io/sev-snp": "true"}, None),
    ],
)
def test_confidential_guests(launch, labels, expected):
    assert what_excludes(vm(domain={"launchSecurity": launch}), node("a", labels)) == [expected]


def test_cpu_features_that_are_no_requirement():
    features = [
        {"name": "vmx", "policy": policy} for policy in ("optional", "disable", "forbid", "force")
    ]
    others = [node("b", {"cpu-feature.node.kubevirt.io/vmx": "true"})]

    assert what_excludes(vm(cpu={"features": features}), node("a"), others=others) == [None]


def test_the_cpu_model():
    offering = node("b", {"cpu-model.node.kubevirt.io/Haswell": "true"})

    subject = vm(cpu={"model": "Haswell"})

    assert what_excludes(subject, node("a"), offering) == ["CPU model Haswell", None]
    assert what_excludes(subject, node("a")) == [None]
    assert what_excludes(vm(), node("a"), offering) == [None, None]
    assert what_excludes(vm(), node("a"), offering, others=[kubevirt(cpuModel="Haswell")]) == [
        "CPU model Haswell",
        None,
    ]


def test_where_a_host_model_vmi_can_migrate_to():
    source = node("s", {"host-model-cpu.node.kubevirt.io/Haswell": "true"})
    target = node("b", {"cpu-model-migration.node.kubevirt.io/Haswell": "true"})
    running = builders.vmi(status={"nodeName": "s"}, domain={})

    refusals = candidates.target(
        running, complete(source, node("a"), target, kubevirt()), moves=True
    ).placement.refusals

    assert "host model Haswell" in refusals["a"].split("; ")
    assert "host model Haswell" not in refusals.get("b", "").split("; ")


def test_hyperv_features_count_only_while_kubevirt_checks_them():
    subject = vm(domain={"features": {"hyperv": {"vpindex": {}, "runtime": {"enabled": False}}}})
    other = node("b", {"hyperv.node.kubevirt.io/reset": "true"})
    strict = kubevirt(developerConfiguration={"featureGates": ["HypervStrictCheck"]})

    assert what_excludes(subject, node("a"), others=[other, kubevirt()]) == [None]
    assert what_excludes(subject, node("a"), others=[other, strict]) == ["Hyper-V vpindex"]


def test_an_instance_type_demands_too():
    instancetype = Object(
        {
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClusterInstancetype",
            "metadata": {"name": "big"},
            "spec": {
                "nodeSelector": {"zone": "1"},
                "cpu": {"guest": 4, "dedicatedCPUPlacement": True},
                "memory": {"guest": "4Gi", "hugepages": {"pageSize": "1Gi"}},
                "launchSecurity": {"tdx": {}},
            },
        }
    )
    subject = vm()
    subject.data["spec"]["instancetype"] = {"name": "big"}
    fitting = {"zone": "1", "kubevirt.io/cpumanager": "true", "kubevirt.io/tdx": "true"}
    nodes = [
        *(
            node(f"no {key}", {other: value for other, value in fitting.items() if other != key})
            for key in fitting
        ),
        node("no pages", fitting, allocatable={"hugepages-1Gi": "0"}),
        node("fitting", fitting, allocatable={"hugepages-1Gi": "4Gi"}),
    ]
    cluster = Snapshot([instancetype, *nodes], complete=["*"])

    refusals = {host.name: host.refusal for host in hosts(expand(subject, cluster), cluster)}
    assert [refusals[each.name] for each in nodes] == [
        "node selector zone=1",
        NO_CPUS,
        "Intel TDX",
        "huge pages of 1Gi",
        "",
    ]


def test_data_that_cannot_be_read_demands_nothing():
    obsolete = node("a", {"node-labeller.kubevirt.io/obsolete-host-model": "true"})
    unread = Snapshot([obsolete], complete=["nodes"])

    assert what_excludes(vm(), obsolete) == [None]
    assert what_excludes(vm(), obsolete, others=[kubevirt()]) == ["its host model is obsolete"]
    assert [host.refusal for host in hosts(expand(vm(), unread), unread)] == [""]


def test_hosts_are_the_nodes_with_kubevirts_label():
    nodes = [
        node("a"),
        node("b", {"kubevirt.io/schedulable": "false"}),
        Object({"kind": "Node", "apiVersion": "v1"}),
    ]
    vmi = expand(vm(), Snapshot())

    assert [host.name for host in hosts(vmi, Snapshot(nodes))] == ["a", "b"]
    with pytest.raises(Unseen, match="nodes"):
        list(hosts(vmi, Snapshot()))


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (node("a"), True),
        (node("a", unschedulable=True), False),
        (node("a", ready="Unknown"), False),
        (node("a", {"kubevirt.io/schedulable": "false"}), False),
        (Object({"metadata": {"labels": {"kubevirt.io/schedulable": "true"}}}), False),
    ],
)
def test_ready(candidate, expected):
    assert ready(candidate) is expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "nodeSelector",
        "affinity",
        "tolerations",
        "architecture",
        "domain",
        "cpu",
        "features",
        "memory",
        "launchSecurity",
    ]
)


@given(st.dictionaries(KEYS, JSON), st.dictionaries(KEYS, JSON), JSON, JSON)
def test_reading_never_raises(spec, domain, taints, allocatable):
    subject = Object(
        {
            "kind": "VirtualMachine",
            "apiVersion": "kubevirt.io/v1",
            "spec": {"template": {"spec": spec}},
        }
    )
    hostile = vm(domain=domain)
    candidate = node("b", taints=taints, allocatable=allocatable)
    labelled = node("a", {"kubevirt.io/cpumanager": "", "hyperv.node.kubevirt.io/ipi": ""})
    strict = kubevirt(developerConfiguration={"featureGates": ["HypervStrictCheck"]})
    cluster = Snapshot([strict, labelled, candidate])
    for each in (subject, hostile):
        vmi = expand(each, cluster)
        pin(vmi)
        assert len(list(hosts(vmi, cluster))) == 2
