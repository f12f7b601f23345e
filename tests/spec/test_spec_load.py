"""From bytes to a model, or to problems with places."""

import io
import sys
import types

import pytest

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import LARGEST, load, read_document
from raytrain_eks.spec.problem import SpecError


@pytest.fixture
def write(tmp_path):
    def written(content: bytes | str):
        path = tmp_path / "f.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def problems(path, **options):
    with pytest.raises(SpecError) as raised:
        load(path, **options)
    return raised.value.problems


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "nothing is written"),
        (b"# a comment\n", "nothing is written"),
        (b"kind: Job\n---\nkind: Job\n", "one document is expected here, there are 2"),
        ("kind: Jöb".encode("latin-1"), "not UTF-8"),
        ("kind: Job".encode("utf-16"), "UTF-16"),
        (b"\x7fELF\0\0\0", "binary"),
        (b"a: 1\n" * LARGEST, "larger than 1024 KiB"),
        (b"[]", "a mapping with the fields of a Job"),
        (b"just words", "a mapping with the fields of a Job"),
        (b"!x {kind: Job}", "tag"),
    ],
)
def test_what_is_no_file_of_ours(write, content, words):
    found = problems(write(content))
    assert len(found) == 1
    assert words in found[0].rule
    assert found[0].file.endswith("f.yaml")


def test_not_utf_8_is_placed(write):
    (found,) = problems(write(b"kind: Job\nname: caf\xe9\n"))
    assert (found.line, found.column) == (2, 10)


@pytest.mark.parametrize("path", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_an_os_error_with_its_name(tmp_path, path):
    with pytest.raises(OSError) as raised:
        load(tmp_path / path)
    assert raised.value.filename is not None


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_byte_order_mark_and_line_endings_make_no_difference(root, write, mark, ending):
    content = (root / "jobs/quickstart.yaml").read_bytes().replace(b"\n", ending)
    assert load(write(mark + content)) == load(root / "jobs/quickstart.yaml")


def test_standard_input(root, monkeypatch):
    content = (root / "jobs/quickstart.yaml").read_bytes()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
    assert isinstance(load("-"), Job)


def test_a_document_read_by_itself_keeps_its_problems(write):
    assert [found.line for found in read_document(write("kind: Job\nkind: Job\n")).problems] == [2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: Jbo\nbatch: {tokens: 0}\n", ["kind", "batch.tokens"]),
        ("batch: {tokens: 0}\n", ["kind", "batch.tokens"]),
        ("kind:\nbatch: {tokens: 0}\n", ["kind", "batch.tokens"]),
        ("kind: [Job]\nbatch: {tokens: 0}\n", ["kind", "batch.tokens"]),
        ("kind: Pod\nspec: {}\n", ["kind"]),
    ],
)
def test_a_file_without_a_valid_kind_is_checked_as_what_it_looks_like(write, text, expected):
    found = problems(write(text))
    assert [one.path for one in found if one.path in expected] == expected
    assert len(found) > 1 or len(expected) == 1


def test_a_file_of_another_kind_says_so(write):
    (found,) = problems(write("kind: Cluster\nname: x\n"), expect="Job")
    assert found.rule == "must be Job"
    assert found.fix == "this file is a Cluster"


def test_kind_may_be_left_out_where_it_is_known(write):
    assert "kind" not in [found.path for found in problems(write("name: x\n"), expect="Job")]


def test_what_the_reader_refuses_is_one_problem(write):
    """A text with a NUL is no text in the tree; that nothing is written there would be a second problem."""
    with pytest.raises(SpecError) as error:
        load(write('kind: Cluster\nname: "c\\0"\nregion: us-west-2\nworkers: [{name: w, nodes: 1}]\n'))
    rules = [problem.rule for problem in error.value.problems if problem.path == "name"]
    assert rules == ["the text holds a NUL or half of a surrogate pair"]
