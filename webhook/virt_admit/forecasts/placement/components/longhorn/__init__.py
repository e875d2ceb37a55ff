"""What keeps volumes of Longhorn from being attached, whatever the node: a disk, a backing image,
a migration that was not ended.
"""
