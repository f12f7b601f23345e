"""Names from people never reach a shell unquoted: whatever they hold, the driver sees exactly them."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raytrain_eks.submit.entrypoint import shell_line

HOSTILE = [
    "jobs/quick start.yaml",
    "it's.yaml",
    'say "hi".yaml',
    "$(touch pwned).yaml",
    "`touch pwned`.yaml",
    "a;touch pwned;.yaml",
    "a&&touch pwned",
    "a|touch pwned",
    "line\nbreak.yaml",
    "-rf.yaml",
    "--storage=elsewhere.yaml",
    "*.yaml",
    "~root.yaml",
    "#comment.yaml",
    "back\\slash.yaml",
    "ünï¢ødé 🚂.yaml",
    "$HOME.yaml",
    "!history.yaml",
    "{a,b}.yaml",
    "> out.yaml",
]


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands for Python: prints where it runs and its words, each with a zero byte behind it."""
    path = tmp_path_factory.mktemp("bin dir") / "python $(touch pwned)"
    path.write_text('#!/bin/sh\nprintf "%s\\0" "$PWD" "$@"\n')
    path.chmod(0o755)
    return path


def run(line: str, where: Path) -> list[str]:
    done = subprocess.run(["sh", "-c", line], cwd=where, capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert not list(where.rglob("pwned"))
    return done.stdout.decode("utf-8").split("\0")[:-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_arrives_whole_in_the_working_directory(name, interpreter, tmp_path):
    line = shell_line(str(interpreter), name, (f"--storage={name}", "--resume"), script="jobs/train.py")
    where, script, storage, resume, file = run(line, tmp_path)
    assert (where, script, storage, resume) == (str(tmp_path), "jobs/train.py", f"--storage={name}", "--resume")
    assert file == (f"./{name}" if name.startswith("-") else name)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_driver_works_where_the_person_is_and_still_finds_its_files(name, interpreter, tmp_path):
    unpacked, person = tmp_path / "unpacked", tmp_path / name.replace("/", "_")
    unpacked.mkdir()
    person.mkdir()
    line = shell_line(str(interpreter), name, (), script=None, folder=str(person))
    assert run(line, unpacked) == [str(person), "-m", "raytrain_eks.train", f"{unpacked}/{name}"]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(word=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_word_arrives_whole(word, interpreter, tmp_path):
    line = shell_line(str(interpreter), f"jobs/{word}", (f"--storage={word}",), script=None)
    assert run(line, tmp_path)[3:] == [f"--storage={word}", f"jobs/{word}"]


def test_a_zero_byte_is_refused():
    with pytest.raises(ValueError, match="zero byte"):
        shell_line("python", "a\0b", (), script=None)


def test_a_folder_that_is_gone_fails_and_runs_nothing(interpreter, tmp_path):
    line = shell_line(str(interpreter), "x", (), script=None, folder=str(tmp_path / "gone"))
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True)
    assert done.returncode != 0
    assert done.stdout == b""
