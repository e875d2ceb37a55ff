"""Everything that a release consists of.

Each step is a `make release-…`; CONTRIBUTING.md says in which order.
"""
