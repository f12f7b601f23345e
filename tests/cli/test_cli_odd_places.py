"""Odd names of files and folders are messages with the right exit code, never a traceback."""

import io
import os
import pathlib
import stat
import subprocess
import sys

import pytest

from raytrain_eks.cli.main import main

NOBODY = "~nobody-of-this-name/x"


def said(capsys, *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out + captured.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ls", "--storage", NOBODY), 0),
        (("sweep", "ls", "--storage", NOBODY), 0),
        (("status", "x", "--storage", NOBODY), 2),
        (("checkpoints", "ls", "x", "--storage", NOBODY), 2),
        (("diff", "cluster_specs/cpu-kind.yaml", "--kubeconfig", NOBODY), 4),
    ],
)
def test_a_folder_of_an_unknown_user_is_one_that_is_not_there(words, code, root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert said(capsys, *words)[0] == code


def test_data_of_an_unknown_user(root, tmp_path, capsys):
    file = tmp_path / "job.yaml"
    file.write_text((root / "jobs" / "quickstart.yaml").read_text().replace("python-stdlib:", NOBODY))
    code, text = said(capsys, "validate", str(file))
    assert (code, "no such file or folder" in text) == (3, True)


def test_a_user_without_a_home_is_told(monkeypatch, capsys):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    for name in ("RAYTRAIN_STORAGE", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pathlib.Path, "home", nowhere)
    code, text = said(capsys, "ls")
    assert (code, text) == (2, "no home folder is known for this user\n  set HOME, or say --storage\n")


def test_control_characters_of_a_name_do_not_reach_the_terminal(capsys):
    code, text = said(capsys, "plan", "no\x1b[31m\nfile")
    assert (code, text.splitlines()[0]) == (2, "no\\x1b[31m\\nfile: No such file or directory")
    assert "\x1b" not in text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("verb", ["lint", "validate", "plan", "apply", "delete", "diff", "sweep"])
def test_a_device_without_an_end_is_not_read_to_its_end(verb, capsys):
    code, text = said(capsys, verb, "/dev/zero")
    assert (code, "larger than" in text) == (3, True)


@pytest.mark.parametrize("words", [("submit", "--on", "local", "/dev/zero"), ("checkpoints", "watch", "--config")])
def test_neither_is_one_by_the_verbs_that_start_something(words, capsys):
    code, text = said(capsys, *words, *(() if words[-1] == "/dev/zero" else ("/dev/zero",)))
    assert (code, "larger than" in text) == (3, True)


@pytest.mark.parametrize("verb", ["lint", "diff", "validate"])
def test_of_a_folder_only_files_are_read(verb, root, tmp_path, capsys):
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "broken.yaml").write_text("{")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "mine.yaml").write_text((root / "cluster_specs" / "cpu-kind.yaml").read_text())
    second = [str(root / "cluster_specs" / "cpu-kind.yaml")] if verb == "diff" else []
    assert said(capsys, verb, str(tmp_path), *second)[0] == 0


def test_lint_of_standard_input_is_utf8_whatever_the_locale(monkeypatch, capsys):
    for content, code in [
        (b"\xff\xfe\x00", 3),
        ("\ufeffapiVersion: v1\nkind: é\nmetadata: {name: e}\n".encode(), 0),
        (b"", 0),
    ]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))
        assert said(capsys, "lint", "-")[0] == code


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--token-file", "/dev/zero"), "no request can carry"),
        (("--token-file", "/"), "Is a directory"),
        (("--header", "no colon"), "needs the form"),
    ],
)
def test_a_token_or_header_that_is_none_is_wrong_usage(words, rule, capsys):
    code, text = said(capsys, "status", "x", "--on", "http://127.0.0.1:9", *words)
    assert (code, rule in text) == (2, True)


LIST = "apiVersion: v1\nkind: List\nitems: "


@pytest.mark.parametrize("verb", ["diff", "apply", "delete"])
def test_a_list_that_is_none(verb, tmp_path, capsys):
    (tmp_path / "list.yaml").write_text(LIST + "3\n")
    code, text = said(capsys, verb, str(tmp_path / "list.yaml"))
    assert (code, "must be a list of objects" in text) == (3, True)


def test_diff_of_objects_without_form_and_of_standard_input(monkeypatch, tmp_path, capsys):
    (tmp_path / "odd.yaml").write_text(LIST + "[{kind: [], apiVersion: 3, metadata: x}, 3, null]\n")
    assert said(capsys, "diff", str(tmp_path / "odd.yaml"), str(tmp_path / "odd.yaml"))[0] == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((LIST + "[]\n").encode())))
    assert said(capsys, "diff", str(tmp_path / "odd.yaml"), "-")[0] == 1
    code, text = said(capsys, "diff", "-", "-")
    assert (code, "not both" in text) == (2, True)
    code, text = said(capsys, "diff", str(tmp_path / "odd.yaml"), str(tmp_path / "none.yaml"))
    assert (code, f"none.yaml: No such file or directory\n  it was looked for in {tmp_path}\n" in text) == (2, True)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("quickstart.yml", "did you mean `jobs/quickstart.yaml`?"),
        ("jobs/quikstart.yaml", "did you mean `jobs/quickstart.yaml`?"),
        ("mine.yaml", "did you mean `mien.yaml`?"),
        ("zzz.yaml", "it was looked for in {here}"),
        ("jbos/quickstart.yaml", "there is no folder {here}/jbos"),
    ],
)
def test_a_file_that_is_not_there_is_guessed(monkeypatch, tmp_path, capsys, name, fix):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "quickstart.yaml").touch()
    (tmp_path / "mien.yaml").touch()
    code, text = said(capsys, "submit", name, "--on", "local")
    assert (code, text) == (2, f"{name}: No such file or directory\n  {fix.format(here=tmp_path)}\n")


@pytest.mark.parametrize("verb", ["plan", "validate", "lint", "render", "submit"])
def test_a_current_folder_that_is_gone_is_told(monkeypatch, tmp_path, capsys, verb):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, text = said(capsys, verb, "job.yaml")
    assert code in (2, 3)
    assert "the current folder is gone: change to another one" in text
    code, text = said(capsys, "init", "job", "-y", "--data", "x", "job.yaml")
    assert (code, text) == (2, "the current folder is gone: change to another one\n")


def test_a_closed_standard_output_is_no_success():
    command = f"{sys.executable} -m raytrain_eks version >&-"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("standard output is closed\n")


def test_init_replaces_files_alone(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    code, text = said(capsys, "init", "job", "-y", "--force", "--data", "x", str(tmp_path / "pipe"))
    assert (code, "is no file to write; give FILE.yaml" in text) == (2, True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/mem").exists(), reason="there is no /proc/self/mem, a file whose reads fail"
)
@pytest.mark.parametrize("verb", ["plan", "lint", "render", "diff"])
def test_a_read_that_fails_names_its_file(capsys, verb):
    code, text = said(capsys, verb, "/proc/self/mem", *["x"] * (verb == "diff"))
    assert (code, text) == (2, "/proc/self/mem: Input/output error\n")


def test_an_empty_name_is_told(capsys):
    for verb in ("plan", "render"):
        assert said(capsys, verb, "") == (2, "a FILE's name is empty; was a variable meant?\n")


def test_diff_takes_no_empty_folder_and_no_job_for_a_deletion(tmp_path, capsys, root):
    cluster = str(root / "cluster_specs/cpu-kind.yaml")
    code, text = said(capsys, "diff", cluster, str(tmp_path))
    assert (code, "no file in this folder ends in .yaml" in text) == (2, True)
    for sides in ([cluster, str(root / "jobs/quickstart.yaml")], [str(root / "jobs/quickstart.yaml"), cluster]):
        code, text = said(capsys, "diff", *sides)
        assert (code, "quickstart.yaml: a job file" in text) == (3, True)
