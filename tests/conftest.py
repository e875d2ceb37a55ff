"""Hypothesis tries the same cases in every run and has no time limit, so that no run fails by chance.

Other cases each time: ``pytest --hypothesis-profile=default``.
"""

from hypothesis import settings

settings.load_profile("ci")
