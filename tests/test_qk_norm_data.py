"""What the committed results of the QK-norm experiment hold, and what is said of them."""

import numpy as np
import pytest

from dispersion.drawing import catalogue
from dispersion.errors import CheckpointError
from dispersion.experiments import qk_norm_model as model
from dispersion.experiments import qk_norm_results as results
from dispersion.experiments import qk_norm_runs as runs

DATA = catalogue.results("qk_norm_sinks.json")
STEPS = DATA["settings"]["steps"]


def of(norm, remedy, steps=None):
    return results.runs_of(DATA, norm, remedy, steps)


def test_the_data_come_from_these_settings_and_are_complete():
    assert DATA["settings"] == runs.settings(runs.Plan())
    for variant in model.VARIANTS:
        assert [run["seed"] for run in of(*variant)] == [0, 1, 2, 3, 4]
    assert sorted(map(runs._key, DATA["runs"])) == sorted(set(map(runs._key, DATA["runs"])))
    size = (catalogue.folder() / "data" / "qk_norm_sinks.json").stat().st_size
    assert size < 2**20
    # three hours of one core
    assert sum(run["cpu_seconds"] for run in DATA["runs"]) < 3 * 3600
    for run in DATA["runs"]:
        assert set(run["versions"]) == {"python", "jax", "numpy", "dispersion"}
        assert 0 < run["training_cpu_seconds"] < run["cpu_seconds"]


def test_no_measured_coefficient_or_spread_exceeds_its_certificate():
    for run in DATA["runs"]:
        assert not results.above_ceiling(run)


def test_accuracies_are_known_to_two_points():
    for variant in model.VARIANTS:
        errors = 100 * results.measured(of(*variant), "error")
        pooled = np.sqrt((errors**2).sum(axis=0)) / len(errors)
        assert pooled.max() <= 2
        assert 100 * results.measured(of(*variant), "all_error").max() <= 2


def test_every_run_learned_its_tasks():
    for run in DATA["runs"]:
        first = run["measured"][str(DATA["settings"]["longest"])]
        assert first["all"] >= 0.95, (run["qk_norm"], run["remedy"], run["seed"])


def test_qk_norm_costs_no_accuracy_here():
    """Neither kind is worse than none by more than two standard errors."""
    for norm in ("headwise", "layerwise"):
        lost = -results.changed(of(norm, "nothing"), of("none", "nothing"))
        assert lost.mean() < 2 * lost.std(ddof=1) / len(lost) ** 0.5


def test_training_longer_moves_more_than_qk_norm_does():
    longer = STEPS * DATA["settings"]["more"]
    moved = [
        results.changed(of(norm, "nothing", longer), of(norm, "nothing")).mean()
        for norm in model.QK_NORMS
    ]
    of_norm = [
        results.changed(of(norm, "nothing"), of("none", "nothing")).mean()
        for norm in ("headwise", "layerwise")
    ]
    assert min(moved) > max(map(abs, of_norm))
    assert [run["seed"] for run in of("none", "nothing", longer)] == [0, 1, 2, 3, 4]


def test_the_log_scale_alone_helps_every_seed():
    helped = {
        remedy: [
            (results.changed(of(norm, remedy), of(norm, "nothing")) > 0).all()
            for norm in model.QK_NORMS
        ]
        for remedy in model.REMEDIES[1:]
    }
    assert all(helped["log"])
    assert not all(helped["sink"])
    assert not all(helped["gate"])


def test_the_log_scale_finds_too_much_without_qk_norm_and_under_the_layerwise_one():
    for norm in model.QK_NORMS:
        gained = results.changed(of(norm, "log"), of(norm, "nothing"), "nothing")
        assert (gained.mean() > 0) == (norm == "headwise")


def test_heads_under_qk_norm_see_less_of_the_needle_and_more_of_the_rest():
    """In the mean; the first token's share differs more between seeds than between norms."""
    plain = {norm: of(norm, "nothing") for norm in model.QK_NORMS}
    needle = {k: results.needle(r).max(axis=-1)[:, -1].mean() for k, r in plain.items()}
    entropy = {k: results.entropy(r, "answered")[:, -1].mean() for k, r in plain.items()}
    shed = {k: results.shed(r, "nothing").max(axis=-1)[:, 0] for k, r in plain.items()}
    means = [values.mean() for values in shed.values()]
    for norm in ("headwise", "layerwise"):
        assert needle[norm] < needle["none"]
        assert entropy[norm] > entropy["none"]
        assert np.ptp(shed[norm]) > max(means) - min(means)
    assert np.ptp(shed["none"]) > max(means) - min(means)


def test_the_lowest_ceilings_are_those_of_the_last_layer():
    ceilings = results.certified(of("headwise", "nothing"), "one")[:, -1]
    assert (ceilings.argmin(axis=-1) >= DATA["settings"]["heads"]).all()


def test_only_headwise_norm_without_a_length_scale_leaves_ceilings_that_fall_with_length():
    for variant in model.VARIANTS:
        lowest = results.certified(of(*variant), "one").min(axis=-1)[:, -1]
        if variant.remedy != "log":
            assert (lowest < 0.6).all() == (variant.qk_norm == "headwise")
            assert (lowest > 0.99).all() == (variant.qk_norm != "headwise")


def test_capacity_grows_with_length_under_the_log_scale_alone():
    for variant in model.VARIANTS:
        capacity = results.certified(of(*variant), "log_capacity").max(axis=-1)
        grows = capacity[:, -1] > capacity[:, 0]
        assert grows.all() if variant.remedy == "log" else not grows.any()


def test_a_learned_sink_that_holds_much_on_short_contexts_holds_less_on_long_ones():
    for norm in model.QK_NORMS:
        share = results.shed(of(norm, "sink"), "nothing").max(axis=-1).mean(axis=0)
        assert share[-1] < share[0]
        assert share[0] > results.shed(of(norm, "nothing"), "nothing").max(axis=-1).mean(axis=0)[0]


def test_missing_runs_are_named():
    with pytest.raises(CheckpointError, match=r"It lacks none\+log after 7 steps"):
        of("none", "log", 7)
