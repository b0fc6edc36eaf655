"""Layers as tasks: the same numbers from any number of processes, also when one dies."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from checkpoints import write_checkpoint, write_safetensors
from dispersion import audit, tasks
from dispersion.errors import ArgumentError, CheckpointError
from dispersion.verdict import Target

ASKED = [Target(64), Target(4096)]
LAYERS = 5


def tensors(layers=LAYERS, width=32, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for i in range(layers):
        prefix = f"model.layers.{i}."
        for side in "qk":
            weight = rng.standard_normal((width, width)).astype(np.float32)
            found[f"{prefix}self_attn.{side}_proj.weight"] = weight
        found[f"{prefix}input_layernorm.weight"] = np.ones(width, dtype=np.float32)
    return found


@pytest.fixture
def model(tmp_path):
    config = {
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
    }
    return write_checkpoint(tmp_path / "model", tensors(), config)


def workers():
    """Worker processes of this one, by the table of processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if f"PPid:\t{os.getpid()}\n" in status and "popen_loky" in command:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("jobs", [2, 3, 16])
def test_any_number_of_processes_gives_the_same_numbers(model, jobs):
    assert audit(model, ASKED, jobs=jobs).heads == audit(model, ASKED, jobs=1).heads


def test_some_layers_and_heads_only(model):
    chosen = {"layers": [4, 1], "heads": [0, 3]}
    found = audit(model, ASKED, jobs=2, **chosen)
    assert found.heads == audit(model, ASKED, jobs=1, **chosen).heads
    assert {(h.layer, h.head) for h in found.heads} == {(1, 0), (1, 3), (4, 0), (4, 3)}


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_any_executor_will_do(model, kind):
    made = {
        "threads": lambda: ThreadPoolExecutor(2),
        "processes": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    }
    with made[kind]() as executor:
        found = audit(model, ASKED, executor=executor)
    assert found.heads == audit(model, ASKED, jobs=1).heads


def test_progress_counts_layers(model):
    seen = []
    audit(model, ASKED, jobs=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, LAYERS) for i in range(LAYERS + 1)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_an_audit_outlives_its_workers(model):
    killed = []

    def kill(done, total):
        if done == 1:
            for worker in workers():
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

    found = audit(model, ASKED, jobs=3, progress=kill)
    assert killed
    assert found.heads == audit(model, ASKED, jobs=1).heads


def test_a_worker_reports_what_is_wrong_with_a_layer(model):
    broken = tensors()
    broken["model.layers.0.self_attn.k_proj.weight"][3, 5] = np.nan
    write_safetensors(model / "model.safetensors", broken)
    messages = []
    for jobs in (1, 2):
        with pytest.raises(CheckpointError, match=r"layers\.0\.self_attn\.k_proj") as caught:
            audit(model, ASKED, jobs=jobs)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("jobs", [0, -1])
def test_jobs_are_at_least_one(model, jobs):
    with pytest.raises(ArgumentError, match="jobs must be at least 1"):
        audit(model, ASKED, jobs=jobs)


def test_small_models_stay_in_one_process(model):
    assert audit(model, ASKED).provenance["jobs"] == 1


def test_large_models_take_every_processor(monkeypatch, model):
    monkeypatch.setattr(tasks, "_WORTHWHILE", 1)
    monkeypatch.setattr(tasks, "processors", lambda: 3)
    assert audit(model, ASKED).provenance["jobs"] == 3


DAEMONIC = """
import sys
import time
from multiprocessing import get_context
from dispersion import audit, tasks
from dispersion.verdict import Target

def work(queue):
    tasks._WORTHWHILE = 1
    queue.put(audit(sys.argv[1], [Target(64)]).provenance["jobs"])

if __name__ == "__main__":
    context = get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,), daemon=True)
    process.start()
    print(queue.get(timeout=100))
    process.join()
"""


def test_a_daemonic_process_works_alone(model):
    path = model.parent / "daemonic.py"
    path.write_text(DAEMONIC)
    command = [sys.executable, str(path), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "1\n"


def test_a_script_needs_no_main_guard(model):
    """Nothing that a worker does imports the script that asked for it, nor prints anything."""
    script = f"""
from dispersion import audit
from dispersion.verdict import Target
print(len(audit({str(model)!r}, [Target(64)], jobs=2).heads))
"""
    path = model.parent / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == f"{4 * LAYERS}\n"
    assert not done.stderr


def test_a_state_dict_stays_in_this_process():
    config = {"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": 32}
    config |= {"num_attention_heads": 4, "max_position_embeddings": 4096}
    assert audit(tensors(), ASKED, config=config, jobs=2).provenance["jobs"] == 1


ORPHANING = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from dispersion import audit, tasks
from dispersion.verdict import Target
from test_tasks import workers

tasks._IDLE = 1.0

def die(done, total):
    if done == 1:
        print(*workers(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

audit({model!r}, [Target(64)], jobs=3, progress=die)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_workers_end_after_a_parent_that_was_killed(model):
    script = ORPHANING.format(folder=str(Path(__file__).parent), model=str(model))
    path = model.parent / "orphaning.py"
    path.write_text(script)
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as parent:
        left = [Path("/proc", pid) for pid in parent.stdout.readline().split()]
        parent.wait(timeout=60)
    assert parent.returncode == -signal.SIGKILL
    assert left
    end = time.monotonic() + 60
    while any(living(pid) for pid in left) and time.monotonic() < end:
        time.sleep(0.2)
    assert not any(living(pid) for pid in left)


def living(folder):
    """Whether a process has neither ended nor waits for somebody to notice that."""
    try:
        return "State:\tZ" not in (folder / "status").read_text()
    except OSError:
        return False
