"""Python's way to everything that the command line does: `Cluster`, `Job` and `Run`, made for notebooks.

The models are those of the YAML files, with verbs on them. Nothing here prints, and nothing heavy is imported before it
is needed: pandas for tables, ipywidgets for a live view, ray to connect to a cluster.
"""
