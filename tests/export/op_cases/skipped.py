"""Cases that the exporter rejects, as `family/case`, each with its reason.

They stay in the tables: once a newer exporter accepts one, delete its line here.
"""

SKIPPED: dict[str, str] = {
    "reading/index_zero_dim": "the exporter guards on the values of the index, which are unknown",
    "creation/size_sqrt": "the edge dialect has no power of a symbolic size",
    "aten_copy/clone_to_channels_last": "without dim orders the exporter supports contiguous only",
    "symbolic/equal": "the runtime has no primitive for unequal sizes",
    "symbolic/floor": "the runtime has no primitive that rounds a size down",
    "quantized_weight/mixed_linear": "the operator has no eager kernel in Python",
    "quantized_weight/mixed_mm": "the operator has no eager kernel in Python",
    "quantized_weight/add": "the operator has no eager kernel in Python",
}
