"""`submit` and the verbs around it, on a real Ray, with a small driver in the place of the trainer."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

VERB = [sys.executable, "-c", "from raytrain_eks.cli.main import main; main()"]
TEXT = """\
kind: Job
name: {name}
workers: {{count: 1}}
model: {{config: {{model_type: llama}}}}
tokenizer: {{train: {{vocab_size: 300}}}}
data: {{train: ./texts, sequence_length: 32}}
batch: {{sequences: 2}}
optimizer: {{learning_rate: 1.0e-3}}
stop: {{steps: 2}}
environment: {environment}
"""


class Person:
    """Somebody in a folder with a job file, and the verbs they type."""

    def __init__(self, folder: Path, env: dict[str, str]):
        self.folder, self.env = folder, env | {"RAYTRAIN_STORAGE": str(folder / "my runs")}

    def job(self, name: str, file: str = "job.yaml", **environment: object) -> str:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            TEXT.format(name=name, environment=json.dumps({key: str(value) for key, value in environment.items()}))
        )
        return file

    def run(self, *words: str, timeout: float = 90, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*VERB, *words], cwd=self.folder, env=self.env | env, capture_output=True, text=True, timeout=timeout
        )

    def start(self, *words: str, **options: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*VERB, *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            # A suite that runs in the background of a shell ignores Ctrl-C, and so would what it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            **options,  # type: ignore[call-overload]
        )


@pytest.fixture
def person(tmp_path: Path, request: pytest.FixtureRequest) -> Person:
    head = request.getfixturevalue("ray_head")
    # What `--on local` must find out by itself is not told.
    env = {name: value for name, value in head.env.items() if not name.startswith("RAY_")}
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("hello")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_bytes(Path(__file__).with_name("small_driver.py").read_bytes())
    return Person(tmp_path, env)


@pytest.fixture
def wait() -> Callable[[Callable[[], object]], None]:
    def until(condition: Callable[[], object], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.1)

    return until


@pytest.mark.slow
def test_a_job_is_followed_to_its_end(person):
    done = person.run("submit", person.job("fine", LINES=3000), "--follow", "-o", "json")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {index}" for index in range(3000)]
    assert [line.split("  ")[0] for line in lines if line.startswith("step ")] == ["step 1/3", "step 2/3", "step 3/3"]
    assert lines[-3:] == ["an error on stderr", "no end of line", "fine: done"]
    assert f"working in '{person.folder}', nice 0, texts ['texts/a.txt']" in lines
    assert not any("Running entrypoint" in line or "job_manager.py" in line for line in lines)
    told = json.loads(done.stdout)
    assert (told["run"], told["on"], told["state"], told["exit_code"]) == ("fine", "local", "succeeded", 0)
    assert told["storage"] == str(person.folder / "my runs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [
        ({"CODE": 1}, 1, "failed: its driver ended with exit code 1"),
        ({"CODE": 3}, 3, "refused"),
        ({"DIE": 9}, 1, "failed: its driver was killed by signal 9"),
    ],
)
def test_the_exit_code_is_the_drivers(person, environment, code, words):
    done = person.run("submit", person.job("ends", **environment), "-f")
    assert done.returncode == code
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ['it\'s $(touch pwned); `x` "q" ü\nnew line.yaml', "-rf.yaml", "a&b|c>d *.yaml"])
def test_hostile_names_reach_the_driver_whole(person, name):
    person.job("hostile", name)
    storage = str(person.folder / "st'or $(touch pwned)")
    done = person.run("submit", "-f", f"--storage={storage}", "--", name)
    assert done.returncode == 0, done.stderr
    told = next(line for line in done.stderr.splitlines() if line.startswith("arguments "))
    words = eval(told.removeprefix("arguments "))
    assert words[0] == f"--storage={storage}"
    assert words[1].endswith(f"/{name}")
    assert not list(person.folder.rglob("pwned"))


@pytest.mark.slow
def test_a_job_goes_on_when_its_follower_leaves_and_is_cancelled_in_peace(person, wait):
    file = person.job("long", STEPS=1000, STEP_SECONDS=0.1, SAVING=4)
    submitted = person.run("submit", file)
    assert submitted.returncode == 0, submitted.stderr
    assert submitted.stdout == "long\n"
    again = person.run("submit", file)
    assert again.returncode == 1
    assert "long runs already" in again.stderr
    follower = person.start("logs", "long", "-f", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert follower.stdout is not None
    while not follower.stdout.readline().startswith("step 3/"):
        pass
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=20)
    assert follower.returncode == 130
    status = json.loads(person.run("status", "long", "-o", "json").stdout)
    assert (status["state"], status["steps"]) == ("running", 1000)
    assert status["step"] >= 3
    assert status["phase"].startswith("training, at step ")
    # Ray itself would kill the driver after 3 s; this one needs 4 to save.
    cancelled = person.run("cancel", "long")
    assert cancelled.returncode == 0, cancelled.stderr
    log = person.run("logs", "long").stdout
    assert log.rstrip().endswith("saved")
    assert json.loads(person.run("status", "long", "-o", "json").stdout)["state"] == "stopped"
    assert person.run("cancel", "long").returncode == 0
    assert person.run("logs", "long", "--last", "2").stdout.splitlines() == [
        "asked to stop: saving a last checkpoint",
        "saved",
    ]


@pytest.mark.slow
def test_a_terminal_gets_a_bar_and_ctrl_c_detaches(person, wait):
    file = person.job("shown", STEPS=300, STEP_SECONDS=0.1)
    main, side = pty.openpty()
    follower = person.start("submit", file, "-f", stdout=subprocess.PIPE, stderr=side)
    os.close(side)
    seen = b""
    end = time.monotonic() + 600
    while b"4/300" not in seen and time.monotonic() < end:
        if select.select([main], [], [], 1)[0]:
            seen += os.read(main, 65536)
    follower.send_signal(signal.SIGINT)
    end = time.monotonic() + 600
    while b"cancel shown" not in seen and time.monotonic() < end:
        if select.select([main], [], [], 1)[0]:
            seen += os.read(main, 65536)
    follower.communicate(timeout=20)
    os.close(main)
    text = seen.decode()
    assert follower.returncode == 130
    assert "shown  " in text
    assert "4/300  loss 8.6000  4096 tok/s  eta 4m56s" in text
    assert "detached; shown goes on" in text
    assert "step 4/300" not in text
    assert json.loads(person.run("status", "shown", "-o", "json").stdout)["state"] == "running"
    assert person.run("cancel", "shown").returncode == 0


@pytest.mark.slow
def test_an_address_is_the_same_path(person, ray_head):
    file = person.job("remote")
    storage = str(person.folder / "shared")
    refused = person.run("submit", file, "--on", ray_head.url, "--storage", storage)
    assert refused.returncode == 4
    assert "wants a token" in refused.stderr
    words = ("--on", ray_head.url, "--token-file", str(ray_head.token_file))
    done = person.run("submit", file, "-f", "--storage", storage, *words)
    assert done.returncode == 0, done.stderr
    # A remote cluster works in the unpacked directory: this machine's folders mean nothing there.
    told = next(line for line in done.stderr.splitlines() if line.startswith("working in"))
    assert "_ray_pkg_" in told
    assert person.run("logs", "remote", *words).stdout.splitlines()[-1] == "no end of line"
    status = json.loads(person.run("status", "remote", "-o", "json", RAY_AUTH_TOKEN=ray_head.token).stdout)
    assert (status["on"], status["state"]) == (ray_head.url, "complete")
    assert ray_head.token not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_job_of_rays_own_command_line_is_known_by_its_log(person, ray_head, wait):
    driver = "print('run plain, attempt 1, 5 steps: /x', flush=True)\nimport time\ntime.sleep(60)\n"
    (person.folder / "jobs" / "train.py").write_text(driver)
    words = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--no-wait", "--working-dir", "."]
    done = subprocess.run(
        [*words, "--", "python", "jobs/train.py", "jobs/plain.yaml"],
        cwd=person.folder,
        env=ray_head.env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    wait(lambda: "run plain, attempt 1" in person.run("logs", "plain").stdout)
    assert json.loads(person.run("status", "plain", "-o", "json").stdout)["state"] == "running"
    assert person.run("cancel", "plain").returncode == 0


@pytest.mark.slow
def test_the_environment_of_the_local_ray_serves_rays_own_tools(person):
    shell = f"eval \"$({sys.executable} -c 'from raytrain_eks.cli.main import main; main()' local env)\" && "
    shell += f"exec {sys.executable} -m ray.scripts.scripts job list"
    done = subprocess.run(["sh", "-c", shell], env=person.env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    status = json.loads(person.run("local", "status", "-o", "json").stdout)
    assert status["running"] is True
    assert status["cpus"] >= 3


@pytest.fixture
def alone(tmp_path: Path) -> Person:
    """Somebody without any Ray."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY", "XDG_"))}
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("hello")
    return Person(tmp_path, env | {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_DATA_HOME": str(tmp_path / "data")})


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("submit", "nowhere.yaml"), 2, "nowhere.yaml: No such file"),
        (("submit", "."), 2, "Is a directory"),
        (("submit", "job.yaml", "--on", "mars"), 2, "not a target"),
        (("submit", "job.yaml", "--on", "http://127.0.0.1:9", "--storage", "/x"), 4, "not reachable"),
        (("submit", "job.yaml", "--on", "http://127.0.0.1:9"), 3, "all its nodes share"),
        (("submit", "job.yaml", "--max-upload", "lots"), 2, "--max-upload"),
        (("submit", "job.yaml", "--max-upload", "1"), 3, "would be uploaded"),
        (("submit", "job.yaml", "--storage", "job.yaml/x"), 3, "not writable"),
        (("submit", "wrong.yaml"), 3, "did you mean `learning_rate`?"),
        (("submit",), 2, "Missing argument"),
        (("status", "nobody"), 2, "no run `nobody`"),
        (("logs", "nobody"), 2, "no job of `nobody`"),
        (("cancel", "nobody"), 2, "nothing to cancel"),
        (("resume", "nobody"), 2, "no run `nobody`"),
        (("local", "env"), 2, "no local Ray"),
        (("local", "stop"), 0, "no local Ray was running"),
        (("ls",), 0, "no runs in"),
    ],
)
def test_mistakes_are_one_message_and_start_nothing(alone, words, code, message):
    alone.job("q")
    (alone.folder / "wrong.yaml").write_text(
        TEXT.format(name="q", environment="{}").replace("learning_rate", "learnin_rate")
    )
    done = alone.run(*words, timeout=300)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (alone.folder / "state" / "raytrain-eks" / "local" / "head.json").exists()


def test_more_workers_than_cpus_are_refused(alone):
    alone.job("q")
    file = alone.folder / "job.yaml"
    file.write_text(file.read_text().replace("count: 1", "count: 4096"))
    done = alone.run("submit", "job.yaml", timeout=300)
    assert done.returncode == 3
    assert "job.yaml:3:18  workers.count = 4096" in done.stderr
    assert "this machine has" in done.stderr


def test_no_verb_loads_ray_or_torch(alone):
    code = """
import sys
from raytrain_eks.cli.main import main
for words in (["submit", "-h"], ["status", "no"], ["ls"], ["local", "status"], ["logs", "no"], ["cancel", "-h"]):
    try:
        main(words)
    except SystemExit:
        pass
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"ray", "torch", "transformers", "pyarrow", "aiohttp", "requests", "kubernetes"}))
"""
    done = subprocess.run([sys.executable, "-c", code], env=alone.env, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
