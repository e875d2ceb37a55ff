"""How long certificates live, and what is in force where a resource is silent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import HOUR, MINUTE
from virt_admit.model.kubevirt.settings import cert_settings

HCO = ("hco.kubevirt.io/v1beta1", "HyperConverged", ("spec", "certConfig"))
HCO_V1 = ("hco.kubevirt.io/v1", "HyperConverged", ("spec", "security", "certConfig"))
KUBEVIRT = ("kubevirt.io/v1", "KubeVirt", ("spec", "certificateRotateStrategy", "selfSigned"))
CDI = ("cdi.kubevirt.io/v1beta1", "CDI", ("spec", "certConfig"))


def resource(kind, block):
    api_version, name, place = kind
    for step in reversed(place):
        block = {step: block}
    return Object({"apiVersion": api_version, "kind": name, **block})


def in_force(kind, block):
    return {
        group.name: (group.duration / HOUR, group.renew_before / HOUR)
        for group in cert_settings.groups(resource(kind, block))
    }


@pytest.mark.parametrize(
    ("kind", "block", "hours"),
    [
        (HCO, None, {"ca": (48, 24), "server": (24, 12)}),
        (HCO_V1, {"ca": {"duration": "20h"}}, {"ca": (20, 24), "server": (24, 12)}),
        (KUBEVIRT, {}, {"ca": (168, 33.6), "server": (24, 4.8)}),
        (
            KUBEVIRT,
            {"ca": {"duration": "10h"}, "server": {"renewBefore": "1h"}},
            {"ca": (10, 2), "server": (24, 1)},
        ),
        (
            KUBEVIRT,
            {
                "caRotateInterval": "48h",
                "caOverlapInterval": "3h",
                "certRotateInterval": "5h",
                "ca": {"duration": "1h"},
            },
            {"ca": (48, 3), "server": (5, 1)},
        ),
        (
            CDI,
            {"client": {"renewBefore": "1h"}},
            {"ca": (48, 24), "server": (24, 12), "client": (24, 1)},
        ),
        (CDI, {"ca": {"duration": "0s"}, "server": {"renewBefore": 5}}, {"client": (24, 12)}),
    ],
)
def test_what_is_in_force(kind, block, hours):
    assert in_force(kind, block) == hours


@pytest.mark.parametrize(
    ("value", "nanoseconds", "problem"),
    [
        ("10m", 10 * MINUTE, ""),
        ("0", None, "expire at once"),
        ("-1h", None, "negative"),
        ("1d", None, "not a duration"),
        (60, None, "not a duration"),
    ],
)
def test_what_is_written(value, nanoseconds, problem):
    [written] = cert_settings.written(resource(HCO, {"ca": {"duration": value}}))

    assert str(written.field.path) == "spec.certConfig.ca.duration"
    assert written.value == nanoseconds
    assert problem in written.problem


def test_a_renewal_at_the_very_end_is_no_lifetime_of_zero():
    [written] = cert_settings.written(resource(HCO, {"ca": {"renewBefore": "0s"}}))
    assert written.value == 0


NAMES = st.sampled_from(["ca", "server", "client", "duration", "renewBefore", "caRotateInterval"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner),
    max_leaves=8,
)


@given(st.sampled_from([HCO, HCO_V1, KUBEVIRT, CDI]), JSON)
def test_whatever_is_written_is_read(kind, block):
    obj = resource(kind, block)
    assert all(
        group.duration > 0 and group.renew_before >= 0 for group in cert_settings.groups(obj)
    )
    assert all((one.value is None) == bool(one.problem) for one in cert_settings.written(obj))
