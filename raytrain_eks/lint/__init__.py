"""Findings on any manifests, ours or somebody else's: a rule's id, a place, a reason and a fix.

Pure. Reads YAML with line numbers; knows the catalogue and the operators' rules. `lint(documents, settings)` takes
documents of `spec.source.read_documents`, or plain objects that are about to be rendered.
"""

from raytrain_eks.lint.engine import Report, examine, lint, lint_objects
from raytrain_eks.lint.finding import Finding, Rule, Settings
from raytrain_eks.lint.registry import rules

__all__ = ["Finding", "Report", "Rule", "Settings", "examine", "lint", "lint_objects", "rules"]
