"""Cases that the exporter does not take, by `family/case`, each with its reason.

They stay in the tables: when a newer exporter takes one, delete its line here.
"""

SKIPPED: dict[str, str] = {}
