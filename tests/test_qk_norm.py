"""The QK-norm experiment: its tasks, its model against NumPy, certificates, interrupted runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention_toy import forward as by_hand
from dispersion.experiments import qk_norm_certificates, recall
from dispersion.experiments import qk_norm_model as model
from dispersion.experiments import qk_norm_runs as runs
from dispersion.experiments import qk_norm_training as training
from dispersion.experiments.qk_norm_results import above_ceiling

TINY = training.Recipe(steps=4, batch=2, shortest=12, longest=16, warm=1, chunk=2)
SMOKE = runs.Plan(recipe=TINY, longer=(), lengths=(16, 32), contexts=4, rooms=(32,))


def quickly(compiled, static):
    """The same function, compiled with less optimisation: it runs for a few steps only."""
    options = {"xla_backend_optimization_level": 0}
    return jax.jit(compiled.__wrapped__, static_argnums=static, compiler_options=options)


@pytest.fixture(autouse=True, scope="module")
def quick_to_compile():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_chunk", quickly(training._chunk, (0, 1)))
        patch.setattr(training, "_batches", quickly(training._batches, 0))
        patch.setattr(runs, "_tested", quickly(runs._tested, 1))
        yield


def contexts(seed=0, sets=3, n=20, count=17):
    return recall.make_contexts(jax.random.key(seed), sets, n, jnp.full(sets, count))


def one(batch, index=0):
    return jax.tree.map(lambda x: x[index], batch)


def jiggled(p, seed=5):
    """Parameters that are nowhere at their start: gains, sinks and s of each head differ."""
    keys = jax.random.split(jax.random.key(seed), len(p))
    return {
        name: x * jnp.exp(0.3 * jax.random.normal(key, x.shape))
        + (0.5 * jax.random.normal(key, x.shape) if name.endswith("sink") else 0.0)
        for (name, x), key in zip(p.items(), keys, strict=True)
    }


def parameters(variant):
    return jiggled(model.make_parameters(jax.random.key(2), variant, 64))


def test_answers_are_values_of_the_items_asked_for():
    c = contexts(sets=8)
    for j in range(8):
        here = jax.tree.map(np.asarray, one(c, j))
        held = here.marks[: here.count]
        assert np.count_nonzero(held) == recall.NEEDLES
        assert not here.marks[here.count :].any()
        for mark, key, place, answer in zip(
            here.asked_marks, here.asked_keys, here.place, here.answer, strict=True
        ):
            if mark:
                same = np.flatnonzero(held == mark)
            else:
                same = np.flatnonzero((here.keys[: here.count] == key).all(axis=1))
            if place < 0:
                assert len(same) == 0
                assert answer == recall.NOTHING
            else:
                assert list(same) == [place]
                assert answer == here.values[place]
        kinds = here.asked_marks > 0
        assert kinds[: recall.QUERIES].all()
        assert not kinds[recall.QUERIES :].any()
        for part in np.split(here.place, 2):
            assert np.count_nonzero(part < 0) == recall.QUERIES - recall.NEEDLES


@pytest.mark.parametrize("variant", model.VARIANTS, ids=lambda v: v.name)
def test_the_model_agrees_with_numpy(variant):
    p, c = parameters(variant), one(contexts())
    got, rows = model.forward(p, variant, c)
    sizes = {"layers": model.LAYERS, "heads": model.HEADS, "head_dim": model.HEAD_DIM}
    expected, held = by_hand(p, variant.qk_norm, c, **sizes)
    # float32 sums of 64 to 128 products, through two layers, against float64
    assert np.asarray(got) == pytest.approx(expected, rel=1e-3, abs=1e-3)
    exists = np.append(np.arange(len(c.keys) + 1) <= c.count, True)
    for i, layer in enumerate(rows):
        shares = np.asarray(layer["shares"])
        assert not shares[..., ~exists].any()
        seen = np.concatenate([shares[..., exists], np.asarray(layer["sink"])[..., None]], axis=-1)
        seen = seen if variant.remedy == "sink" else seen[..., :-1]
        assert seen == pytest.approx(np.array(held[i]), rel=1e-3, abs=1e-5)
        assert seen.sum(axis=-1) == pytest.approx(1, rel=32 * 2**-23)


def differs(variant, change):
    p, c = parameters(variant), one(contexts())
    sizes = {"layers": model.LAYERS, "heads": model.HEADS, "head_dim": model.HEAD_DIM}
    expected, _ = by_hand(p, variant.qk_norm, c, **sizes)
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        got, _ = model.forward(p, variant, c)
    return np.asarray(got) != pytest.approx(expected, rel=1e-3, abs=1e-3)


def sink_in_the_numerator(patch):
    right = model.shares

    def wrong(p, i, logits):
        held, sink = right(p, i, logits)
        return held + sink[..., None] / held.shape[-1], sink

    patch.setattr(model, "shares", wrong)


def sink_scaled(patch):
    right = model.shares
    patch.setattr(
        model,
        "shares",
        lambda p, i, logits: right({**p, f"{i}.sink": p[f"{i}.sink"] / 4}, i, logits),
    )


def plain_factor(patch):
    patch.setattr(model, "length_factor", lambda p, i, seen: p[f"{i}.s"][:, None] + 0.0 * seen)


def one_key_too_many(patch):
    right = model.length_factor
    patch.setattr(model, "length_factor", lambda p, i, seen: right(p, i, seen + 1))


def no_gain(patch):
    right = model.rms_norm
    patch.setattr(
        model, "rms_norm", lambda x, gain: right(x, gain if gain.size == model.WIDTH else 1.0)
    )


@pytest.mark.parametrize(
    ("variant", "change"),
    [
        (("none", "sink"), sink_in_the_numerator),
        (("headwise", "sink"), sink_scaled),
        (("none", "log"), plain_factor),
        (("headwise", "log"), one_key_too_many),
        (("headwise", "nothing"), no_gain),
    ],
)
def test_a_planted_error_is_noticed(variant, change):
    assert differs(model.Variant(*variant), change)
    assert not differs(model.Variant(*variant), lambda patch: None)


def test_what_does_not_exist_changes_nothing():
    variant = model.Variant("headwise", "log")
    p, c = parameters(variant), one(contexts())
    other = c._replace(keys=c.keys.at[17:].multiply(-1), values=(c.values.at[17:].add(1)) % 16)
    short = c._replace(**{name: getattr(c, name)[:17] for name in ("keys", "values", "marks")})
    found = [np.asarray(model.forward(p, variant, x)[0]) for x in (c, other, short)]
    assert (found[0] == found[1]).all()
    # sums over more keys that weigh 0, in another order
    assert found[2] == pytest.approx(found[0], rel=1e-4, abs=1e-4)


def test_variants_differ_in_nothing_but_themselves():
    key = jax.random.key(0)
    made = {v: model.make_parameters(key, v, 64) for v in model.VARIANTS}
    plain = made[model.VARIANTS[0]]
    for variant, p in made.items():
        assert all((p[name] == plain[name]).all() for name in plain), variant
        extra = {name.split(".")[-1] for name in set(p) - set(plain)}
        gains = {"q_gain", "k_gain"} if variant.qk_norm != "none" else set()
        own = {"sink": {"sink"}, "gate": {"gate"}, "log": {"s"}}.get(variant.remedy, set())
        assert extra == gains | own


def test_training_lowers_the_loss_and_seeds_matter():
    recipe = training.Recipe(steps=120, batch=4, shortest=12, longest=16, warm=10, chunk=40)
    variant = model.Variant("headwise", "nothing")
    p, losses = training.train(variant, recipe, 0)
    again, same = training.train(variant, recipe, 0)
    assert losses == same
    assert all((p[name] == again[name]).all() for name in p)
    _, other = training.train(variant, recipe, 1)
    assert other != losses
    # entropy of the answers: a quarter NOTHING, else one of VALUES
    chance = -0.25 * np.log(0.25) + 0.75 * np.log(recall.VALUES / 0.75)
    assert losses[-1] < losses[0]
    assert losses[-1] < chance + 0.1


@pytest.fixture(scope="module")
def smoke():
    """Every variant, a few steps of it, tested and certified: stopped after 5 runs, gone on."""
    kept, said = [], []

    def keep(value):
        kept.append({**value, "runs": list(value["runs"])})
        if len(kept) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run_missing({}, 1, keep, said.append, SMOKE)
    whole = runs.run_missing(kept[-1], 1, kept.append, said.append, SMOKE)
    return whole, kept, said


def without_times(record):
    return {name: value for name, value in record.items() if "seconds" not in name}


def test_every_variant_runs_and_an_interrupted_experiment_goes_on(smoke):
    whole, kept, said = smoke
    assert [len(value["runs"]) for value in kept] == list(range(1, len(model.VARIANTS) + 1))
    assert len(said) == len(model.VARIANTS) - 1  # the interrupted one said nothing
    assert "layerwise+log, 4 steps, seed 0 (7 of 7)" in said[-1]
    names = [(r["qk_norm"], r["remedy"]) for r in whole["runs"]]
    assert names == list(model.VARIANTS)
    for record in whole["runs"]:
        assert np.isfinite(record["losses"]).all()
        assert ("sink" in record["learned"]) == (record["remedy"] == "sink")
        assert ("s" in record["learned"]) == (record["remedy"] == "log")
    # Nothing is left to do, and what was kept is what an uninterrupted run gives.
    assert runs.run_missing(whole, 1, kept.append, said.append, SMOKE) == whole
    fresh = runs.run(model.VARIANTS[6], TINY.steps, 0, SMOKE)
    assert without_times(fresh) == without_times(whole["runs"][6])


def test_other_settings_start_afresh(smoke, monkeypatch):
    whole, _, _ = smoke
    nine = {**whole["runs"][0], "seed": 9}
    monkeypatch.setattr(runs, "run", lambda variant, steps, seed, plan: nine)
    changed = {"settings": {**whole["settings"], "width": 1}, "runs": whole["runs"]}
    plan = SMOKE._replace(variants=model.VARIANTS[:1])
    found = runs.run_missing(changed, 1, lambda _: None, plan=plan)
    assert [r["seed"] for r in found["runs"]] == [9]


def test_longer_trainings_come_last(monkeypatch):
    asked = []

    def run(variant, steps, seed, plan):
        asked.append((variant, steps, seed))
        record = {"qk_norm": variant.qk_norm, "remedy": variant.remedy, "cpu_seconds": 0}
        measured = {str(n): {"all": 1.0} for n in plan.lengths}
        return {**record, "steps": steps, "seed": seed, "measured": measured}

    monkeypatch.setattr(runs, "run", run)
    plan = runs.Plan()
    whole = runs.run_missing({}, 2, lambda _: None, plan=plan)
    steps = plan.recipe.steps
    assert asked[:24] == [(v, steps, seed) for seed in range(2) for v in model.VARIANTS]
    assert asked[24:] == [(v, plan.more * steps, seed) for seed in (0, 1) for v in runs.PLAIN]
    # sorted by steps, variant and seed, and nothing left out
    assert [runs._key(r) for r in whole["runs"]][:2] == [
        (model.VARIANTS[0], steps, i) for i in (0, 1)
    ]
    assert len(runs.run_missing(whole, 3, lambda _: None, plan=plan)["runs"]) == 3 * (12 + 3)


def test_no_smoke_coefficient_exceeds_its_certified_ceiling(smoke):
    whole, _, _ = smoke
    for record in whole["runs"]:
        assert not above_ceiling(record)
    broken = {**whole["runs"][0]}
    broken["measured"] = {n: {**m, "largest": [0.99] * 8} for n, m in broken["measured"].items()}
    broken["certified"] = {**broken["certified"], "one": [[0.5, 0.5]] * 8}
    assert len(above_ceiling(broken)) == 16


@pytest.mark.parametrize("variant", model.VARIANTS, ids=lambda v: v.name)
def test_certificates_hold_where_queries_and_keys_are_chosen_to_break_them(variant):
    """Aligned extremes within the norms, far beyond what tokens do."""
    p = parameters(variant)
    n = 34
    for i in range(model.LAYERS):
        g = jax.random.normal(jax.random.key(i), (256, model.WIDTH))
        x = model.rms_norm(g, p[f"{i}.norm"])
        q, k, _ = model.project(p, i, variant, x)
        factor = model.length_factor(p, i, jnp.full(256, n))[..., None]
        logits = np.asarray(jnp.einsum("hrd,hkd->hrk", q, k) * factor, dtype=np.float64)
        reached = (logits.max(axis=-1) - logits.min(axis=-1)).max(axis=-1)
        for h in range(model.HEADS):
            bound = qk_norm_certificates.certificates(p, variant, [n - 2])
            spread = bound["spread"][i * model.HEADS + h][0]
            assert 0.05 * spread < reached[h] <= spread * (1 + 1e-5)
        top = np.sort(logits, axis=-1)
        rows = np.concatenate([top[..., -1:], top[..., : n - 1]], axis=-1)
        held, _ = model.shares(p, i, jnp.asarray(rows, jnp.float32))
        largest = np.asarray(held).max(axis=(1, 2))
        assert (largest <= np.array(bound["one"])[i * 4 : i * 4 + 4, 0] * (1 + 1e-5)).all()
