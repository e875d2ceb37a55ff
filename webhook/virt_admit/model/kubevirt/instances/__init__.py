"""VMs and VMIs: what KubeVirt makes of them, whether they migrate, their volumes,
networks and processors.
"""
