"""The shape of the house: every room and module says what it is for; files and functions stay small."""

import ast
from functools import cache
from pathlib import Path

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


# One test a rule, not one a file: every test of thousands costs some milliseconds.


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_room_says_what_it_is_for():
    """A paragraph: what it is for, and what it must never do."""
    docs = {name_of(path): ast.get_docstring(tree_of(path)) for path in FILES if path.name == "__init__.py"}
    assert len(docs) > 10
    assert [name for name, doc in docs.items() if not doc or len(doc) <= 40 or not doc.rstrip().endswith(".")] == []


def test_a_module_says_what_it_is_for():
    assert [name_of(path) for path in FILES if not ast.get_docstring(tree_of(path)) or path.stem in BANNED] == []


def test_a_file_is_not_too_long():
    """Else it probably holds two ideas."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES + OTHERS}
    most = dict.fromkeys(OTHERS, LONGEST_OTHER) | dict.fromkeys(FILES, LONGEST_FILE)
    assert [(name_of(path), count) for path, count in lines.items() if count > most[path]] == []


def test_functions_are_not_too_long():
    long = []
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (node.end_lineno or node.lineno) - body[0].lineno + 1 if body else 0
            long += [(name_of(path), node.name, node.lineno, lines)] if lines > LONGEST_FUNCTION else []
    assert long == []


def test_nothing_is_left_to_do_later():
    left = []
    for path in FILES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            left += [(name_of(path), number, line) for word in ("TODO", "FIXME", "XXX", "HACK") if word in line]
    assert left == []


def test_names_of_test_files_are_unique():
    """pytest imports test files by their bare names, since their folders are no packages."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in OF_EACH_FOLDER]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})
