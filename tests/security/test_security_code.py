"""What no line of the package may do, found in its syntax trees: open a shell, run text, trust anybody."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted([*(ROOT / "raytrain_eks").rglob("*.py"), *(ROOT / "jobs").glob("*.py")])
CALLS = {
    "os.system": "a shell",
    "os.popen": "a shell",
    "subprocess.getoutput": "a shell",
    "subprocess.getstatusoutput": "a shell",
    "asyncio.create_subprocess_shell": "a shell",
    "eval": "text as code",
    "exec": "text as code",
    "yaml.load": "text as code",
    "yaml.unsafe_load": "text as code",
    "marshal.loads": "bytes as code",
    "pickle.load": "bytes as code",
    "pickle.loads": "bytes as code",
    "ssl._create_unverified_context": "TLS without verification",
    "tempfile.mktemp": "a name that somebody else may take first",
}
"""Call -> what is wrong with it."""
ALLOWED = {("raytrain_eks/data/execution.py", "pickle.loads")}
"""Rows that the same job pickled a moment before."""
STARTS = {"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}
VERIFYING = ("verify", "check_hostname", "verify_ssl", "verify_mode")


def violations(tree: ast.AST, name: str) -> Iterator[str]:
    """What is wrong in a file, each with its line."""
    for node in ast.walk(tree):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            yield from (f"{where}: {what}" for what in _call(node, name))
        elif isinstance(node, ast.Attribute) and node.attr == "CERT_NONE":
            yield f"{where}: TLS without verification"
        elif isinstance(node, ast.Assign) and _false(node.value):
            names = [ast.unparse(target).rpartition(".")[2] for target in node.targets]
            yield from (f"{where}: {each} = False" for each in names if each in VERIFYING)


def _call(call: ast.Call, file: str) -> Iterator[str]:
    name, words = ast.unparse(call.func), {word.arg: word.value for word in call.keywords}
    if name in CALLS and (file, name) not in ALLOWED:
        yield CALLS[name]
    if "shell" in words and not _false(words["shell"]):
        yield "a shell"
    yield from (f"{word}=False" for word in VERIFYING if word in words and _false(words[word]))
    if name == "torch.load" and ast.unparse(words.get("weights_only", ast.Constant(False))) != "True":
        yield "bytes as code"
    # A single text would need a shell, or would be split by somebody's rules.
    if name in STARTS and (not call.args or isinstance(call.args[0], ast.Constant | ast.JoinedStr | ast.BinOp)):
        yield "a process by one text, and not by a list of words"


def _false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_no_line_of_the_package_opens_a_shell_runs_text_or_trusts_anybody():
    found = []
    for path in FILES:
        name = str(path.relative_to(ROOT))
        found += violations(ast.parse(path.read_text(encoding="utf-8")), name)
    assert len(FILES) > 200
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "os.system(x)",
        "subprocess.run(x, shell=True)",
        "subprocess.run(x, shell=flag)",
        "subprocess.run(f'ls {x}')",
        "subprocess.Popen('ls ' + x)",
        "client(verify=False)",
        "context.check_hostname = False",
        "context.verify_mode = ssl.CERT_NONE",
        "torch.load(x)",
        "pickle.loads(x)",
        "yaml.load(x)",
        "exec(x)",
    ],
)
def test_each_of_them_would_be_found(line):
    assert list(violations(ast.parse(line), "x.py"))


@pytest.mark.parametrize(
    "line", ["subprocess.run(words)", "subprocess.run(['ls', x], check=False)", "torch.load(x, weights_only=True)"]
)
def test_what_is_right_is_let_through(line):
    assert not list(violations(ast.parse(line), "x.py"))
