"""Cases that the exporter does not take, by `family/case`, each with its reason.

They stay in the tables: when a newer exporter takes one, delete its line here.
"""

SKIPPED: dict[str, str] = {
    "reading/index_zero_dim": "the exporter guards on the data of the index, which it cannot know",
    "creation/size_sqrt": "the edge dialect has no power of a symbolic size",
    "quantized_weight/mixed_linear": "the Python package has the operator's schema and no eager kernel to expect from",
    "quantized_weight/mixed_mm": "the Python package has the operator's schema and no eager kernel to expect from",
    "quantized_weight/add": "the Python package has the operator's schema and no eager kernel to expect from",
}
