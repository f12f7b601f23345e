"""Odd names of files and folders are messages with the right exit code, never a traceback."""

import pathlib

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
    assert (code, text) == (2, "no\\x1b[31m\\nfile: No such file or directory\n")
