"""Which changes make every node drainable, or an upgrade possible: ordered, with their cost,
each proven in memory.
"""
