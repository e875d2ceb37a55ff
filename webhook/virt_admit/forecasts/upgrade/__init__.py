"""An upgrade rehearsed before it starts: roll-out of nodes, evacuation, migration queue and
scheduling, simulated.
"""
