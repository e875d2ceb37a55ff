"""A group of CDI's certificates sets only one of ``duration`` and ``renewBefore``.

**Why.** CDI's parts disagree about half a pair: the operator completes it with the other value's default, the
upload and clone controllers ignore the whole group. With ``duration`` alone the operator renews at its default age
(24 hours for the CA, 12 hours for the others); a certificate that does not live longer than that expires before it
is renewed, and then uploads and clones fail.

**Fix.** Set both.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CDI
from virt_admit.model.kubevirt import cert_settings
from virt_admit.model.objects import Object
from virt_admit.model.units import format_duration
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(cdi: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for group in cert_settings.groups(cdi):
        duration, renew_before = group.duration_field, group.renew_before_field
        if duration.present == renew_before.present:
            continue
        age = cert_settings.CDI_REFRESH_AGE[group.name]
        if duration.present and group.duration <= age:
            text = (
                f"duration {format_duration(group.duration)} without renewBefore: it expires before CDI renews it, "
                f"which is at the age of {format_duration(age)}; set renewBefore too"
            )
            max_action = Action.DENY
        else:
            missing = "renewBefore" if duration.present else "duration"
            text = f"CDI's operator fills in {missing}, its controllers ignore the pair; set both"
            max_action = Action.WARN
        yield Finding(
            group.field.path,
            text,
            value=(duration.value, renew_before.value),
            cause=Cause.REQUIRED,
            max_action=max_action,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CDI,),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/containerized-data-importer:pkg/operator/resources/cert/factory.go",
        "kubevirt/containerized-data-importer:pkg/operator/api.go#GetCertConfigWithDefaults",
    ),
)
