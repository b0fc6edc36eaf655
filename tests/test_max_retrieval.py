"""The max-retrieval experiment: the task, its rows, and runs that go on where they stopped."""

import jax
import numpy as np
import pytest

from dispersion.experiments import max_retrieval as task
from dispersion.experiments import max_retrieval_runs as runs


def test_the_answer_is_the_class_of_the_item_of_highest_priority():
    priority, kind, query, answer = task.make_sets(jax.random.key(3), 64, 12)
    rows = np.arange(64)
    assert (np.asarray(kind)[rows, np.asarray(priority).argmax(axis=1)] == np.asarray(answer)).all()
    assert query.shape == (64, 1)
    assert set(np.unique(kind)) <= set(range(task.CLASSES))


def test_training_lowers_the_loss():
    _, losses = task.train(0, 2 * task.CHUNK)
    # log 10 is what chance costs
    assert losses[-1] < losses[0] < 1.5 * np.log(task.CLASSES)


def test_the_logits_and_coefficients_are_those_of_the_definition():
    p = task.make_parameters(jax.random.key(0))
    found = task.rows(p, jax.random.key(1), 8, 16)
    one = task.sharpened(p, found, np.ones(8, np.float32))
    shares = np.asarray(one["shares"], dtype=np.float64)
    assert shares.sum(axis=1) == pytest.approx(np.ones(8), rel=16 * 2**-23)
    logits = np.asarray(found["logits"], dtype=np.float64)
    direct = np.exp(logits - logits.max(axis=1, keepdims=True))
    direct /= direct.sum(axis=1, keepdims=True)
    # float32: a few units in the last place, times the spread for the exponentials
    assert shares == pytest.approx(direct, rel=64 * 2**-23)
    sharper = np.asarray(task.sharpened(p, found, np.full(8, 3, np.float32))["shares"])
    assert (sharper.max(axis=1) > shares.max(axis=1)).all()
    assert np.exp(np.asarray(one["classes"])).sum(axis=1) == pytest.approx(np.ones(8), rel=1e-5)


def test_an_interrupted_experiment_goes_on_and_other_settings_start_afresh(monkeypatch):
    asked, kept = [], []

    def run(seed):
        asked.append(seed)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"seed": seed}

    monkeypatch.setattr(runs, "run", run)
    with pytest.raises(KeyboardInterrupt):
        runs.run_missing({}, 4, kept.append)
    assert [[r["seed"] for r in value["runs"]] for value in kept] == [[0], [0, 1]]
    whole = runs.run_missing(kept[-1], 4, kept.append)
    assert [r["seed"] for r in whole["runs"]] == [0, 1, 2, 3]
    assert asked == [0, 1, 2, 2, 3]
    changed = {"settings": {**whole["settings"], "width": 1}, "runs": whole["runs"]}
    assert runs.run_missing(changed, 1, kept.append)["runs"] == [{"seed": 0}]
