"""Tables of cases for the Vulkan delegate, one file per group of families, for `vulkan.py`."""
