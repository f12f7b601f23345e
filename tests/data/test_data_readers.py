"""Reading parts of files: put together they are the file, whatever the parts."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raytrain_eks.data.columns import Columns
from raytrain_eks.data.readers import Bad, Span, read_text
from raytrain_eks.data.sources import SUFFIXES, glob, list_files, stdlib_folder, total_bytes

TEXT = Columns("text", chat=False)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=30), max_size=30),
    st.integers(1, 40),
    st.integers(1, 6),
)
def test_the_documents_of_all_parts_are_the_file(tmp_path, lines, step, steps):
    content = "\n".join(lines)
    path = tmp_path / "text"
    path.write_bytes(content.encode())
    size = len(content.encode())
    cuts = [*range(0, size, step * steps), size] if size else [0, 0]
    spans = [Span("text", str(path), start, stop, step=step) for start, stop in pairwise(cuts)]
    documents = [document for span in spans for document in read_text(span, TEXT)]
    assert not any(isinstance(document, Bad) for document in documents)
    assert "".join(document.content for document in documents) == content
    assert len({document.key for document in documents}) == len(documents)
    assert all(document.content.endswith("\n") for document in documents[:-1])


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("**/*", "a.py", True),
        ("**/*", "a/b/c.py", True),
        ("**/*.py", "a/b.py", True),
        ("**/*.py", "b.py", True),
        ("**/*.py", "b.pyc", False),
        ("*.py", "a/b.py", False),
        ("a/*/c?.txt", "a/b/c1.txt", True),
        ("a/**", "a/b/c", True),
        ("[ab].txt", "a.txt", True),
        ("[ab].txt", "c.txt", False),
    ],
)
def test_glob(pattern, name, matches):
    assert bool(glob(pattern).match(name)) is matches


def test_hidden_files_and_caches_are_not_read(tmp_path):
    for name in ("a.txt", ".git/config", "__pycache__/a.pyc", ".hidden", "b/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = list_files(str(tmp_path), pattern="**/*", format="text", where="data.train")
    assert [file.name for file in found] == ["a.txt", "b/c.txt"]


@pytest.mark.parametrize("format", [format for format in SUFFIXES if format != "text"])
def test_a_format_has_endings_of_its_own(tmp_path, format):
    for name in ("README.md", *(f"a{suffix}" for suffix in SUFFIXES[format])):
        (tmp_path / name).write_text("x")
    found = list_files(str(tmp_path), pattern="**/*", format=format, where="data.train")
    assert len(found) == len(SUFFIXES[format])


def test_the_standard_library_is_some_700_files_and_none_of_somebody_else():
    found = list_files("python-stdlib:", pattern="**/*", format="text", where="data.train")
    assert len(found) >= 700
    assert total_bytes(found) > 8e6
    assert {"json/decoder.py", "argparse.py"} <= {file.name for file in found}
    assert not [file.name for file in found if "site-packages" in file.name or not file.name.endswith(".py")]
    assert all(file.url.startswith(stdlib_folder()) for file in found)
