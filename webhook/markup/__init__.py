"""Text to values: YAML as kubectl reads it, and JSON, with the place of every value.

kubectl turns YAML into JSON with sigs.k8s.io/yaml, whose idea of a plain ``y``, ``0o10`` or ``1e3`` is not PyYAML's.
So values are built here from the events of PyYAML's parser (the C one where it is installed), with rules of our own
for scalars; each was compared with the Go library. JSON is read as JSON, because its escapes are not YAML's.

Texts come from strangers: whatever they say, reading ends, in time and memory linear in their length.
"""
