"""Who may import what: pure rooms stay pure, the command line stays light, and data flows in one direction."""

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "raytrain_eks"
PURE = ("spec", "catalog", "plan", "manifests", "lint")
HEAVY = {"ray", "torch", "transformers", "tokenizers", "deepspeed", "datasets", "pyarrow", "numpy", "pandas", "boto3"}
HEAVY |= {"botocore", "matplotlib", "torch_xla", "torch_neuronx", "accelerate", "peft", "optuna", "mlflow"}
CLUSTER = {"kubernetes", "lightkube", "kr8s", "kubernetes_asyncio"}
NETWORK = {"socket", "ssl", "http", "urllib", "requests", "httpx", "aiohttp", "urllib3", "ftplib", "smtplib", "asyncio"}
PRINTING = {"click"}
FORBIDDEN = HEAVY | CLUSTER | NETWORK | PRINTING
URLS_ONLY = "urllib.parse"
"""Splitting a URL touches no network."""
BELOW = {
    "spec": set(),
    "catalog": {"spec"},
    "plan": {"spec", "catalog"},
    "manifests": {"spec", "catalog", "plan"},
    "lint": {"spec", "catalog", "plan", "manifests"},
}
"""Pure room -> the rooms that it may import."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def called(call: ast.Call) -> str:
    """The last word of the name that is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, but not what only a type checker sees."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    found: set[str] = set()
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            queue += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base} | {f"{base}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            found |= {
                part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
        queue += ast.iter_child_nodes(node)
    return found


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


@functools.cache
def imports() -> dict[str, set[str]]:
    """Module -> what it imports; parsed when the first test asks, since every worker process collects this file."""
    return {module: imports_of(path) for module, path in MODULES.items()}


PURE_MODULES = sorted(module for module in MODULES if module.split(".")[1:2] and module.split(".")[1] in PURE)


def reachable(module: str) -> dict[str, str]:
    """Module -> the module that imports it, for everything that can be reached within this package."""
    found, queue = {module: ""}, [module]
    while queue:
        here = queue.pop()
        for name in sorted(imports().get(here, ())):
            if name not in found:
                found[name] = here
                queue.append(name)
    return found


def test_pure_modules_reach_nothing_impure():
    assert len(PURE_MODULES) > 80
    reached = [(module, name, by) for module in PURE_MODULES for name, by in reachable(module).items()]
    foreign = [
        (module, name, f"by way of {by}")
        for module, name, by in reached
        if name.split(".")[0] in FORBIDDEN and not name.startswith(URLS_ONLY)
    ]
    assert foreign == []


def test_rooms_are_imported_in_one_direction():
    against = []
    for module in PURE_MODULES:
        room = module.split(".")[1]
        for name in imports()[module]:
            parts = name.split(".")
            if parts[0] == "raytrain_eks" and len(parts) > 1 and (PACKAGE / parts[1]).is_dir():
                against += [(module, name)] if parts[1] != room and parts[1] not in BELOW[room] else []
    assert against == []


def test_only_the_command_line_uses_click():
    for module, names in imports().items():
        if not module.startswith("raytrain_eks.cli"):
            assert not any(name.split(".")[0] == "click" for name in names), module


def test_nothing_in_the_package_imports_the_command_line():
    for module, names in imports().items():
        if not module.startswith(("raytrain_eks.cli", "raytrain_eks.__main__")):
            assert not any(name.startswith("raytrain_eks.cli") for name in names), module


def modules_after(*arguments: str) -> set[str]:
    """`sys.modules` of a process that ran the command line with these arguments."""
    program = (
        "import sys, json, atexit\n"
        "from raytrain_eks.cli.main import main\n"
        "atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "main(sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


LIGHT = HEAVY | CLUSTER | {"requests", "httpx", "aiohttp", "urllib3"}
CLUSTER_FILE = "cluster_specs/gpu-a100.yaml"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["submit", "--help"],
        ["version"],
        ["validate", "jobs/quickstart.yaml"],
        ["validate", CLUSTER_FILE],
        ["render", CLUSTER_FILE],
        ["diff", CLUSTER_FILE, CLUSTER_FILE],
        ["explain", "job.data"],
        ["explain", "RT101"],
        ["explain", "OOMKilled"],
        ["apply", CLUSTER_FILE, "--dry-run", "client"],
        ["delete", "--help"],
        ["explain", "--schema", "cluster"],
        ["explain", "-f", CLUSTER_FILE, "RayCluster/gpu-a100"],
        ["init", "job", "-"],
        ["catalog", "p4d.24xlarge"],
        ["completion", "bash"],
    ],
    ids=" ".join,
)
def test_the_door_is_light(arguments):
    loaded = {name.split(".")[0] for name in modules_after(*arguments)}
    assert not loaded & LIGHT


def test_lint_is_light(tmp_path):
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    assert not {name.split(".")[0] for name in modules_after("lint", str(tmp_path))} & LIGHT


def test_help_does_without_pydantic_and_yaml():
    loaded = {name.split(".")[0] for name in modules_after("--help")}
    assert not loaded & {"pydantic", "ruamel", "yaml", "jsonschema"}


def test_the_package_itself_is_light():
    program = "import sys, raytrain_eks; print(sorted({name.split('.')[0] for name in sys.modules}))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not set(ast.literal_eval(shown)) & (LIGHT | {"pydantic", "ruamel", "click"})
