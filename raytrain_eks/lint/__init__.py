"""Findings on any manifests, ours or somebody else's: a rule's id, a place, a reason and a fix.

Pure. Reads YAML with line numbers; knows the catalogue and the operators' rules.
"""
