"""From decisions to Kubernetes objects, one module per system, as plain dicts; text comes out of one writer.

Pure: the same input gives the same bytes on every machine.
"""
