"""What KubeVirt and HyperConverged say, in which order, and what holds where they are silent."""

import pytest

from tests import builders
from tests.builders import complete, hyperconverged, kubevirt, partial
from tests.for_each import for_each
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import NOTHING, Unseen
from virt_admit.model.kubernetes.nodes import SCHEDULABLE, WORKER
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import (
    BUILT_IN_STRATEGY,
    UNKNOWN_STRATEGY,
    Setting,
    setting,
)
from virt_admit.model.kubevirt.settings.versions import Gate, Version


def node(name, label=None, value="true"):
    return builders.node(name, {label: value} if label else {}, runs_vms=False)


def developer(**settings):
    return kubevirt({"developerConfiguration": settings})


PLACES = [
    # setting, HyperConverged v1beta1, HyperConverged v1, KubeVirt
    (
        Setting.UPDATES,
        "spec.workloadUpdateStrategy",
        "spec.virtualization.workloadUpdateStrategy",
        "spec.workloadUpdateStrategy",
    ),
    (
        Setting.MIGRATIONS,
        "spec.liveMigrationConfig",
        "spec.virtualization.liveMigrationConfig",
        "spec.configuration.migrations",
    ),
    (
        Setting.EVICTION_STRATEGY,
        "spec.evictionStrategy",
        "spec.virtualization.evictionStrategy",
        "spec.configuration.evictionStrategy",
    ),
    (
        Setting.OBSOLETE_CPU_MODELS,
        "spec.obsoleteCPUs.cpuModels",
        "spec.virtualization.obsoleteCPUModels",
        "spec.configuration.obsoleteCPUModels",
    ),
    (
        Setting.MIN_CPU_MODEL,
        "spec.obsoleteCPUs.minCPUModel",
        None,
        "spec.configuration.minCPUModel",
    ),
    (
        Setting.DEFAULT_CPU_MODEL,
        "spec.defaultCPUModel",
        "spec.virtualization.virtualMachineOptions.defaultCPUModel",
        "spec.configuration.cpuModel",
    ),
    (
        Setting.CERTIFICATES,
        "spec.certConfig",
        "spec.security.certConfig",
        "spec.certificateRotateStrategy.selfSigned",
    ),
    (
        Setting.TLS,
        "spec.tlsSecurityProfile",
        "spec.security.tlsSecurityProfile",
        "spec.configuration.tlsConfiguration",
    ),
]


@pytest.mark.parametrize(("what", "v1beta1", "v1", "kv"), PLACES)
def test_where_a_setting_lives(what, v1beta1, v1, kv):
    assert str(setting(hyperconverged(version="v1beta1"), what).path) == v1beta1
    assert str(setting(kubevirt(), what).path) == kv
    if v1 is None:
        assert not setting(hyperconverged(), what).present
    else:
        assert str(setting(hyperconverged(), what).path) == v1


def test_settings_of_cdi():
    cdi = Object(
        {
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "CDI",
            "spec": {"certConfig": {"ca": {}}, "config": {"tlsSecurityProfile": {"type": "Old"}}},
        }
    )
    assert setting(cdi, Setting.CERTIFICATES).value == {"ca": {}}
    assert setting(cdi, Setting.TLS).value == {"type": "Old"}
    assert not setting(cdi, Setting.EVICTION_STRATEGY).present


def test_there_is_one_of_each_and_the_oldest_counts():
    young, old = (
        kubevirt(metadata={"name": "a", "creationTimestamp": "2026-02-01T00:00:00Z"}),
        kubevirt(metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
    )
    assert configuration.kubevirt(partial(young, old, kubevirt(metadata={"name": "a-file"}))) is old


def test_unseen_is_not_absent():
    assert configuration.kubevirt(complete()) is None
    for look in (configuration.kubevirt, configuration.hyperconverged):
        with pytest.raises(Unseen):
            look(NOTHING)


HIGHLY = {"status": {"infrastructureHighlyAvailable": True}}
LOW = {"status": {"infrastructureHighlyAvailable": False}}


@for_each(
    "cluster, value, said",
    [
        (NOTHING, None, False),
        (complete(), None, False),
        (partial(kubevirt()), "None", False),
        (partial(kubevirt({"evictionStrategy": None})), "None", False),
        (partial(kubevirt({"evictionStrategy": "None"})), "None", True),
        (partial(kubevirt({"evictionStrategy": "livemigrate"})), "livemigrate", True),
        (partial(kubevirt({"evictionStrategy": 7})), "None", False),
        (partial(hyperconverged()), "None", False),
        (partial(hyperconverged(**HIGHLY)), "LiveMigrate", True),
        (partial(hyperconverged(**LOW)), "None", True),
        (
            partial(hyperconverged({"virtualization": {"evictionStrategy": "External"}}, **HIGHLY)),
            "External",
            True,
        ),
        (
            partial(hyperconverged({"evictionStrategy": "External"}, "v1beta1", **LOW)),
            "External",
            True,
        ),
        (
            partial(hyperconverged({"evictionStrategy": "External"}, "v1", **HIGHLY)),
            "LiveMigrate",
            True,
        ),
        (partial(kubevirt(), hyperconverged(**HIGHLY)), "LiveMigrate", True),
        (
            partial(
                kubevirt({"evictionStrategy": "LiveMigrateIfPossible"}),
                hyperconverged({"virtualization": {"evictionStrategy": "None"}}, **HIGHLY),
            ),
            "LiveMigrateIfPossible",
            True,
        ),
    ],
)
def test_the_cluster_eviction_strategy(cluster, value, said):
    strategy = configuration.eviction_strategy(cluster)
    assert (strategy.value, strategy.explicit) == (value, said)
    assert bool(strategy.origin) == said


@pytest.mark.parametrize(
    ("subject", "stored", "value"),
    [
        (
            kubevirt({"evictionStrategy": "External"}),
            [kubevirt({"evictionStrategy": "None"})],
            "External",
        ),
        (kubevirt(), [kubevirt({"evictionStrategy": "External"})], "None"),
        (
            kubevirt(),
            [hyperconverged({"virtualization": {"evictionStrategy": "External"}})],
            "External",
        ),
        (
            hyperconverged({"virtualization": {"evictionStrategy": "External"}}),
            [kubevirt({"evictionStrategy": "LiveMigrate"})],
            "External",
        ),
        (hyperconverged(), [kubevirt({"evictionStrategy": "LiveMigrate"})], "LiveMigrate"),
        (hyperconverged(**HIGHLY), [hyperconverged(**LOW)], "LiveMigrate"),
        (hyperconverged(), [], "None"),
    ],
)
def test_what_is_under_review_comes_first(subject, stored, value):
    assert configuration.eviction_strategy(partial(*stored), subject).value == value


def test_built_in_and_unknown_strategies_were_not_said():
    assert BUILT_IN_STRATEGY == ("None", "", False)
    assert UNKNOWN_STRATEGY == (None, "", False)


@for_each(
    "cluster, available",
    [
        (partial(hyperconverged(**HIGHLY)), True),
        (partial(hyperconverged(**LOW), node("a", SCHEDULABLE)), False),
        (complete(), None),
        (complete(node("a"), node("b")), None),
        (complete(node("a", SCHEDULABLE), node("b", SCHEDULABLE)), True),
        (complete(node("a", SCHEDULABLE), node("b", SCHEDULABLE, "false")), True),
        (partial(node("a", SCHEDULABLE), node("b", SCHEDULABLE)), True),
        (partial(node("a", SCHEDULABLE)), False),
        (complete(node("a", WORKER, ""), node("b", WORKER, "")), True),
        (complete(node("a", WORKER, ""), node("b")), False),
    ],
)
def test_highly_available(cluster, available):
    assert configuration.highly_available(cluster) is available


def test_without_any_node_in_sight_availability_is_open():
    with pytest.raises(Unseen):
        configuration.highly_available(NOTHING)


def test_the_nodes_that_are_knreported_status_as_all():
    a, b = node("a", SCHEDULABLE, "false"), node("b")
    assert list(nodes.every(partial(a, b))) == [a, b]
    assert nodes.of_kubevirt(partial(a, b)) == (a,)
    assert list(nodes.every(complete())) == []
    for read in (nodes.every, nodes.of_kubevirt):
        with pytest.raises(Unseen):
            read(NOTHING)


def test_the_predefined_obsolete_models():
    assert len(configuration.PREDEFINED_OBSOLETE) == 34
    assert {
        "Conroe",
        "Conroe-v1",
        "486",
        "486-v1",
        "Opteron_G2-v1",
    } <= configuration.PREDEFINED_OBSOLETE


@pytest.mark.parametrize(
    ("objects", "there", "not_there"),
    [
        ([], {"Conroe"}, {"Haswell"}),
        ([kubevirt({"obsoleteCPUModels": {}})], {"Conroe"}, {"Haswell"}),
        ([kubevirt({"obsoleteCPUModels": {"Haswell": False}})], {"Haswell"}, {"Conroe"}),
        (
            [hyperconverged({"virtualization": {"obsoleteCPUModels": ["Haswell", 486]}})],
            {"Haswell", "Conroe"},
            {486},
        ),
        (
            [hyperconverged({"obsoleteCPUs": {"cpuModels": ["Haswell"]}}, "v1beta1")],
            {"Haswell", "Conroe"},
            set(),
        ),
        (
            [
                kubevirt({"obsoleteCPUModels": {"Penryn": True}}),
                hyperconverged({"virtualization": {"obsoleteCPUModels": ["Haswell"]}}),
            ],
            {"Penryn"},
            {"Haswell", "Conroe"},
        ),
        (
            [kubevirt(), hyperconverged({"virtualization": {"obsoleteCPUModels": ["Haswell"]}})],
            {"Haswell"},
            set(),
        ),
    ],
)
def test_obsolete_models(objects, there, not_there):
    models = configuration.obsolete_models(partial(*objects))
    assert there <= models
    assert not models & not_there


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.4.0", Version(1, 4)),
        ("v1.4.0-rc.1", Version(1, 4)),
        ("1.10.2", Version(1, 10, 2)),
        ("v1.9.0-beta.0.12+0123abc", Version(1, 9)),
        ("v1.7", Version(1, 7)),
        ("devel", None),
        ("", None),
        (None, None),
    ],
)
def test_versions(text, version):
    assert versions.parse_version(text) == version


@pytest.mark.parametrize(
    ("observed", "since", "there"),
    [
        ("v1.9.3", Version(1, 10), False),
        ("v1.10.0", Version(1, 10), True),
        (None, Version(1, 10), True),
    ],
)
def test_an_unknown_version_is_the_newest(observed, since, there):
    cluster = partial(kubevirt(status={"observedKubeVirtVersion": observed}))
    assert versions.has_release(cluster, since) is there
    assert versions.has_release(NOTHING, since)


def test_a_release_newer_than_known():
    def runs(version):
        return partial(kubevirt(status={"observedKubeVirtVersion": version}))

    assert versions.newer_than_known(runs("v1.11.0"))
    assert versions.newer_than_known(runs("v2.0.0"))
    assert not versions.newer_than_known(runs("v1.10.9"))
    assert not versions.newer_than_known(NOTHING)


@pytest.mark.parametrize(
    ("gate", "kv", "on"),
    [
        (Gate.VGPU_LIVE_MIGRATION, kubevirt(), False),
        (Gate.VGPU_LIVE_MIGRATION, developer(featureGates=["VGPULiveMigration"]), True),
        (
            Gate.VGPU_LIVE_MIGRATION,
            developer(
                featureGates=["VGPULiveMigration"], disabledFeatureGates=["VGPULiveMigration"]
            ),
            True,
        ),
        (Gate.DECENTRALIZED_LIVE_MIGRATION, kubevirt(), True),
        (
            Gate.DECENTRALIZED_LIVE_MIGRATION,
            kubevirt(status={"observedKubeVirtVersion": "v1.9.0"}),
            False,
        ),
        (
            Gate.DECENTRALIZED_LIVE_MIGRATION,
            developer(disabledFeatureGates=["DecentralizedLiveMigration"]),
            False,
        ),
        (
            Gate.VGPU_LIVE_MIGRATION,
            kubevirt(
                {"developerConfiguration": {"featureGates": ["VGPULiveMigration"]}},
                status={"observedKubeVirtVersion": "v1.7.1"},
            ),
            False,
        ),
    ],
)
def test_feature_gates(gate, kv, on):
    assert versions.gate_is_on(partial(kv), gate) is on


def test_a_gate_is_disabled_only_where_somebody_says_so():
    gate = Gate.DECENTRALIZED_LIVE_MIGRATION
    assert versions.gate_is_disabled(partial(developer(disabledFeatureGates=[gate.gate])), gate)
    assert not versions.gate_is_disabled(NOTHING, gate)
    assert not versions.gate_is_disabled(
        partial(kubevirt(status={"observedKubeVirtVersion": "v1.5.0"})), gate
    )


def test_the_default_binding():
    said = kubevirt({"network": {"defaultNetworkInterface": "masquerade"}})
    assert configuration.default_binding(partial(said)) == "masquerade"
    assert configuration.default_binding(partial(kubevirt())) == "bridge"
    assert configuration.default_binding(partial(kubevirt(), hyperconverged())) == "bridge"
    assert configuration.default_binding(partial(hyperconverged())) == "masquerade"


NEEDS_KUBEVIRT = [
    configuration.default_binding,
    configuration.mediated_devices,
    configuration.minimum_tsc_frequency,
    configuration.default_architecture,
    configuration.default_cpu_model,
    lambda cluster: configuration.binding_migrates(cluster, "l2bridge"),
    lambda cluster: versions.gate_is_on(cluster, Gate.VGPU_LIVE_MIGRATION),
]


@for_each("read", NEEDS_KUBEVIRT)
@for_each("cluster", [NOTHING, complete()])
def test_without_kubevirt_nothing_is_told(read, cluster):
    with pytest.raises(Unseen):
        read(cluster)


def test_settings_that_decide_on_migrations():
    cluster = partial(
        kubevirt(
            {
                "network": {"binding": {"moving": {"migration": {}}, "stuck": {}}},
                "permittedHostDevices": {
                    "mediatedDevices": [{"resourceName": "example.com/vgpu"}, None, {}]
                },
                "developerConfiguration": {"minimumClusterTSCFrequency": 2_000_000_000},
                "cpuModel": "Haswell",
            },
            status={"defaultArchitecture": "s390x"},
        )
    )
    assert configuration.binding_migrates(cluster, "moving")
    assert not configuration.binding_migrates(cluster, "stuck")
    assert not configuration.binding_migrates(cluster, "unknown")
    assert configuration.mediated_devices(cluster) == {"example.com/vgpu"}
    assert configuration.minimum_tsc_frequency(cluster) == 2_000_000_000
    assert configuration.default_architecture(cluster) == "s390x"
    assert configuration.default_cpu_model(cluster) == "Haswell"


def test_what_holds_where_kubevirt_is_silent():
    cluster = partial(developer(minimumClusterTSCFrequency=0))
    # KubeVirt counts it as an error, not as absent
    assert configuration.minimum_tsc_frequency(cluster) == 0
    assert configuration.default_architecture(cluster) == "amd64"
    assert configuration.default_cpu_model(cluster) == "host-model"


@pytest.mark.parametrize(
    ("release", "version"), [("1.14.3", (1, 14, 3)), (None, None), ("unknown", None)]
)
def test_the_release_of_hyperconverged_is_that_of_its_operator(release, version):
    operands = [
        {"name": "other", "version": "9.9.9"},
        {"name": "operator", "version": release},
        None,
    ]
    assert versions.hco_release(hyperconverged(status={"versions": operands})) == version
    assert versions.hco_release(hyperconverged()) is None
