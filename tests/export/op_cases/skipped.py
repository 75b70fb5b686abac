"""Cases that the exporter rejects, as `family/case`, each with its reason.

They stay in the tables: once a newer exporter accepts one, delete its line here.
"""

SKIPPED: dict[str, str] = {
    "reading/index_zero_dim": "the exporter guards on the data of the index, which it cannot know",
    "creation/size_sqrt": "the edge dialect has no power of a symbolic size",
    "aten_copy/clone_to_channels_last": "without dim orders the exporter knows no memory format but the contiguous one",
    "symbolic/equal": "the runtime has no primitive for unequal sizes",
    "symbolic/floor": "the runtime has no primitive that rounds a size down",
    "quantized_weight/mixed_linear": "the Python package has the operator's schema and no eager kernel to expect from",
    "quantized_weight/mixed_mm": "the Python package has the operator's schema and no eager kernel to expect from",
    "quantized_weight/add": "the Python package has the operator's schema and no eager kernel to expect from",
}
