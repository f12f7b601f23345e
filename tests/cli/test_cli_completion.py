"""`raytrain-eks completion`, and that its script gets answers."""

import os
import subprocess
import sys

import pytest

from raytrain_eks.cli.main import VERBS, main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(capsys, shell):
    with pytest.raises(SystemExit) as ended:
        main(["completion", shell])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "_RAYTRAIN_EKS_COMPLETE" in shown
    assert "raytrain-eks" in shown


@pytest.mark.parametrize(
    ("words", "cursor", "expected"),
    [
        ("raytrain-eks ", "1", set(VERBS)),
        ("raytrain-eks val", "1", {"validate"}),
        ("raytrain-eks init cl", "2", {"cluster"}),
    ],
)
def test_bash_is_answered(words, cursor, expected):
    environment = {**os.environ, "_RAYTRAIN_EKS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": cursor}
    command = [sys.executable, "-c", "from raytrain_eks.cli.main import main; main()"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout
    assert {line.split(",")[1] for line in shown.splitlines()} == expected


def test_an_unknown_shell_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["completion", "csh"])
    assert ended.value.code == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
