"""Tables of operator cases, one file per group of families. `operators.py` writes them."""
