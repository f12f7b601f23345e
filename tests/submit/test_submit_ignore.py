"""gitignore patterns, held against git itself."""

import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raytrain_eks.submit import package
from raytrain_eks.submit.ignore import patterns, verdict

TREE = [
    "a",
    "b.txt",
    "ab.py",
    "[x]",
    "sp ace",
    "#c",
    "!d",
    "d/a",
    "d/b.txt",
    "d/e/a",
    "d/e/f/ab.py",
    "foo/bar/baz",
    "tail ",
]


@pytest.mark.parametrize(
    ("pattern", "path", "folder", "expected"),
    [
        ("*.py", "d/e/ab.py", False, True),
        ("/ab.py", "d/ab.py", False, None),
        ("d/", "d", False, None),
        ("d/", "d", True, True),
        ("d/**/a", "d/a", False, True),
        ("**/f", "d/e/f", True, True),
        ("d/*", "d/e/f", True, None),
        ("[a-c]b.py", "ab.py", False, True),
        ("[!a]b.py", "ab.py", False, None),
        (r"\#c", "#c", False, True),
        ("# comment", "# comment", False, None),
        ("", "a", False, None),
        (r"tail\ ", "tail ", False, True),
        ("tail ", "tail ", False, None),
        ("a?", "ab", False, True),
        ("a*b", "a/b", False, None),
        ("bad\\", "bad\\", False, None),
        ("[unclosed", "[unclosed", False, None),
        ("foo/**", "foo", True, None),
        ("foo/**", "foo/x/y", False, True),
        ("[[:digit:]]", "7", False, True),
    ],
)
def test_one_pattern(pattern, path, folder, expected):
    assert verdict(patterns([pattern]), path, folder=folder) is expected


def test_the_last_pattern_that_matches_decides():
    rules = patterns(["*.txt", "!b.txt", "/b.txt"])
    assert verdict(rules, "b.txt", folder=False) is True
    assert verdict(rules, "d/b.txt", folder=False) is False


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkout")
    subprocess.run(["git", "init", "-q", root], check=True)
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


PIECES = st.sampled_from(
    ["a", "b", "d", "e", "f", "foo", "bar", "*", "**", "?", "/", "!", "[a-e]", "[!a]", ".txt", ".py", " ", "\\", "#"]
)
LINES = st.lists(st.lists(PIECES, min_size=1, max_size=5).map("".join), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=LINES, below=LINES)
@example(top=["!*"], below=["a"])
def test_what_goes_is_what_git_would_add(top, below, checkout, monkeypatch):
    monkeypatch.setattr(package, "DEFAULTS", [])
    (checkout / ".gitignore").write_text("\n".join(top))
    (checkout / "d" / ".gitignore").write_text("\n".join(below))
    listed = subprocess.run(
        [
            "git",
            "-C",
            checkout,
            "-c",
            "core.excludesFile=/dev/null",
            "ls-files",
            "-z",
            "--others",
            "--exclude-standard",
        ],
        check=True,
        capture_output=True,
    )
    assert {file.name for file in package.of_folder(checkout).files} == set(listed.stdout.decode().split("\0")[:-1])
