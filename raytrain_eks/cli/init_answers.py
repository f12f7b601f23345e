"""Questions of `init`: asked on a terminal for what no flag says; without one, the defaults are taken."""

import sys
from collections.abc import Callable
from typing import Any

import click


def may_ask(yes: bool) -> bool:
    """Whether somebody is there who can be asked, and wants to."""
    return not yes and sys.stdin.isatty() and sys.stderr.isatty()


def answered(
    given: dict[str, Any], questions: dict[str, tuple[str, Any]], asking: bool, check: Callable[[str, Any], None]
) -> dict[str, Any]:
    """Flags, then answers, then defaults; an empty answer is None. An answer that is not valid is asked for again."""
    answers = dict(given)
    for key, (question, default) in questions.items():
        if answers.get(key) is not None:
            continue
        answers[key] = default if not asking else _asked(key, question, default, check)
    return {key: None if value == "" else value for key, value in answers.items()}


def _asked(key: str, question: str, default: Any, check: Callable[[str, Any], None]) -> Any:
    def convert(text: str) -> Any:
        value = type(default)(text) if isinstance(default, int) else text.strip()
        check(key, value)
        return value

    def valid(text: Any) -> Any:
        try:
            return convert(str(text))
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    return click.prompt(question, default=default, value_proc=valid, err=True, show_default=default != "")


def check(model: Any, field: str, value: Any) -> None:
    """Raises ValueError with the rule of a field for a value that it does not take."""
    from raytrain_eks.spec.problem import SpecError

    try:
        model.parse({field: value})
    except SpecError as error:
        if rules := [problem.rule for problem in error.problems if problem.path == field]:
            raise ValueError(", ".join(rules)) from None


def known(answers: dict[str, Any]) -> dict[str, Any]:
    """The answers that somebody gave; the others have the defaults of the text."""
    return {key: value for key, value in answers.items() if value is not None}
