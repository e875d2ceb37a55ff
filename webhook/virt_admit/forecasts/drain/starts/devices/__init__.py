"""Devices that a VM asks for and does not get: who should report them,
and what KubeVirt permits.
"""
