"""How far the update of each node is, as the objects of what updates it say."""
