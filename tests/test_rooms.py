"""The shape of the house: every room and module says what it is for; files and functions stay small."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "raytrain_eks"
FILES = sorted(PACKAGE.rglob("*.py"))
OTHERS = [path for folder in ("jobs", "benchmarks", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
LONGEST_FILE = 400
LONGEST_OTHER = 500
"""Of tests and benchmarks, which are mostly tables."""
LONGEST_FUNCTION = 50
"""Lines of its body, the docstring not counted."""
OF_EACH_FOLDER = {"conftest.py", "__init__.py"}
BANNED = {"utils", "util", "helpers", "helper", "common_utils", "misc", "manager"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=name_of)
def test_a_room_says_what_it_is_for(path):
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert doc, "a room begins with a paragraph: what it is for, and what it must never do"
    assert len(doc) > 40
    assert doc.rstrip().endswith("."), "it is a paragraph, of sentences"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert path.stem not in BANNED


@pytest.mark.parametrize("path", FILES + OTHERS, ids=name_of)
def test_a_file_is_not_too_long(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    most = LONGEST_FILE if path in FILES else LONGEST_OTHER
    assert lines <= most, "it probably holds two ideas"


def functions(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_functions_are_not_too_long(path):
    for node in functions(path):
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        lines = (node.end_lineno or node.lineno) - body[0].lineno + 1 if body else 0
        assert lines <= LONGEST_FUNCTION, f"{node.name} (line {node.lineno}) has {lines} lines"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_is_left_to_do_later(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for word in ("TODO", "FIXME", "XXX", "HACK"):
            assert word not in line, f"line {number}: {line.strip()}"


def test_names_of_test_files_are_unique():
    """pytest imports test files by their bare names, since their folders are no packages."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in OF_EACH_FOLDER]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})
