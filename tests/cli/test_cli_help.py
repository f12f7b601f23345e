"""Help as a newcomer reads it: every verb once, whole sentences, nothing cut off."""

from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from raytrain_eks.cli.main import SECTIONS, VERBS, cli


def command(verb: str) -> click.Command:
    return import_module(f"raytrain_eks.cli.{verb}").command


def shown(*words: str) -> str:
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0
    return result.stdout


def test_every_verb_is_in_one_section():
    listed = [verb for verbs in SECTIONS.values() for verb in verbs]
    assert sorted(listed) == sorted(VERBS)
    words = " ".join(shown().split())
    for verb, about in VERBS.items():
        assert f"{verb} {about}" in words


@pytest.mark.parametrize("verb", [verb for verb in VERBS if isinstance(command(verb), click.Group)])
def test_sentences_of_sub_verbs_are_whole(verb):
    group = command(verb)
    words = " ".join(shown(verb).split())
    assert "..." not in words.replace("[ARGS]...", "")
    for name in group.commands:
        assert f" {name} " in words


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_does(verb):
    root = command(verb)
    below = list(root.commands.values()) if isinstance(root, click.Group) else []
    options = [each for one in (root, *below) for each in one.params if isinstance(each, click.Option)]
    assert [each.opts[0] for each in options if not each.help] == []
