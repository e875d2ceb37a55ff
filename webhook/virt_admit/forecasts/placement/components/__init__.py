"""The pods that serve VMs on a node: drivers, network plugins,
and what is wrong with one of them.
"""
