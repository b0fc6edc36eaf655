"""Biases that positions add to logits: ALiBi and tables by distance."""

import math
from dataclasses import replace

import numpy as np
import pytest

import mechanism_checks
from dispersion import ceilings, position_bias, witness
from dispersion.architectures import alibi, falcon, plan
from dispersion.architectures.alibi import bloom_slope, in_bfloat16, mpt_slope
from dispersion.ceilings import Bounds
from dispersion.checking import check_head
from dispersion.checkpoint import from_arrays, open_checkpoint
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError
from dispersion.head import BallImage, Head
from dispersion.position_bias import LinearBias, TableBias, coefficient_of_nearest
from dispersion.rotary import rotary
from dispersion.verdict import Target, Verdict

DATA = mechanism_checks.DATA
ONE = Enclosure.exact(1.0)
HALF = LinearBias(Enclosure.exact(0.5))


def best_row(slope, spread, n, tokens):
    """The most that `tokens` of n keys hold, over all rows with contents in [0, spread]: floats."""
    logits = -slope * np.arange(n)
    logits[:tokens] += spread
    share = np.exp(logits - logits.max())
    return share[:tokens].sum() / share.sum()


@pytest.mark.parametrize("slope", [0.0, 1e-9, 0.03, 0.5, 4.0])
@pytest.mark.parametrize("n", [1, 2, 3, 17, 400])
def test_the_ceiling_is_attained_by_the_nearest_keys(slope, n):
    bias = LinearBias(Enclosure.exact(slope))
    for spread in (0.0, 1.0, 9.0):
        for tokens in {1, 2, n // 2 + 1, n}:
            if tokens > n:
                continue
            found = bias.ceiling(spread, n, tokens)
            assert found == pytest.approx(best_row(slope, spread, n, tokens), rel=1e-12)
            assert found >= best_row(slope, spread, n, tokens) * (1 - 1e-14)


def test_no_row_exceeds_the_ceiling():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, slope, spread = int(rng.integers(2, 30)), rng.exponential(0.5), rng.exponential(3)
        bias = LinearBias(Enclosure.exact(slope))
        contents = rng.choice([0.0, spread], size=n) if rng.random() < 0.5 else rng.random(n)
        contents = np.minimum(contents, spread)
        logits = contents - slope * np.arange(n)
        share = np.sort(np.exp(logits - logits.max()))[::-1]
        for tokens in (1, 2):
            reached = share[:tokens].sum() / share.sum()
            assert reached <= bias.ceiling(spread, n, tokens) * (1 + 1e-14)
        assert np.ptp(logits) <= bias.spread(n) + spread


def test_a_slope_that_rounding_blurs_gives_the_ceiling_of_the_worst_biases():
    """Biases off by up to rounding·slope·position, in the direction that helps the target most."""
    for slope, n, rounding in ((0.5, 300, 2.0**-8), (0.1, 2000, 2.0**-6)):
        bias = LinearBias(Enclosure.exact(slope), rounding)
        positions = np.arange(n)
        biases = slope * positions * (1 - rounding)
        biases[-1] = slope * (n - 1) * (1 + rounding)
        biases[-1] += 2.0
        share = np.exp(biases - biases.max())
        assert share[-1] / share.sum() <= bias.ceiling(2.0, n, 1)
        assert np.ptp(biases) <= bias.spread(n) + 2.0
        assert bias.settled() is None
    rounded = (np.float32(0.3) * np.arange(4096, dtype=np.float32)).astype(alibi.ml_dtypes.bfloat16)
    exact = 0.3 * np.arange(4096)
    worst = np.abs(rounded.astype(np.float64) - exact)[1:] / exact[1:]
    assert worst.max() <= falcon.BFLOAT16


def test_far_lengths_keep_a_share_for_the_nearest_keys():
    limit = 1 / (1 + math.exp(-3) / (math.exp(0.5) - 1))
    assert HALF.ceiling(3.0, 2**60, 1) == pytest.approx(limit, rel=1e-12)
    assert HALF.ceiling(math.inf, 10, 1) == 1.0
    small = LinearBias(Enclosure.exact(2.0**-8))
    assert small.ceiling(3.0, 2**40, 1) == pytest.approx(math.exp(3) / 256, rel=0.1)


# --- heads ------------------------------------------------------------------------------------


def biased_head(bias, size=4, **more):
    ball = BallImage(matrix=np.eye(size), radius=Enclosure.exact(2.0))
    return Head(query=ball, key=ball, scale=ONE, bias=bias, **more)


def test_verdicts_and_lengths_of_a_head_with_linear_biases():
    small = LinearBias(Enclosure.exact(2.0**-10))
    head = biased_head(small)
    targets = [Target(n) for n in (2, 1000, 10**6)]
    result = check_head(head, targets)
    # The content spread is 8; e^8 keys outweigh the target, but only 2^10 of them count.
    assert [r.verdict for r in result.results][-1] is not Verdict.RULED_OUT
    assert result.largest_length == math.inf
    assert result.spread.upper == pytest.approx(8 + (10**6 - 1) / 1024, rel=1e-9)
    assert "linear position bias" in result.cap
    assert "10" in result.notes[0]
    flat = check_head(biased_head(LinearBias(Enclosure.exact(0.0))), targets)
    plain = check_head(replace(head, bias=None), targets)
    for one, other in zip(flat.results, plain.results, strict=True):
        assert one.ceiling.upper == pytest.approx(other.ceiling.upper, rel=1e-12)
        assert one.verdict is other.verdict
    assert flat.largest_length == plain.largest_length
    weak = replace(head, scale=Enclosure.exact(1 / 8))
    short = check_head(weak, targets)
    assert 2 <= short.largest_length < math.inf
    bounds = Bounds(weak, 1.0, 1.0)
    length = int(short.largest_length)
    assert bounds.ceiling(Target(length)) >= 0.5 > bounds.ceiling(Target(length + 1))


def test_any_token_does_not_rest_on_the_median_key_where_keys_have_biases():
    """Keys on a line with a convex bias can all be retrieved, which T13″ would rule out."""
    line = BallImage(matrix=np.array([[4.0], [0.0]]))
    head = Head(query=line, key=line, scale=ONE, bias=LinearBias(Enclosure.exact(0.01)))
    target = Target(64, 0.05, retrieval="any")
    plain = check_head(replace(head, bias=None), [target]).results[0].ceiling.upper
    biased = check_head(head, [target]).results[0].ceiling.upper
    assert biased > plain
    assert check_head(head, [target]).results[0].ceiling.lower == 0


def test_what_does_not_go_together_is_named():
    turn = rotary([1.0, 0.1], 4)
    for more in ({"sink": 0.0}, {"window": 4}, {"rotary": turn}):
        with pytest.raises(ArgumentError, match="bias must come without"):
            biased_head(HALF, **more)
    with pytest.raises(ArgumentError, match="soft_cap must come without"):
        biased_head(HALF, soft_cap=3.0)
    with pytest.raises(ArgumentError, match="both sides"):
        biased_head(HALF, causal=False)
    for wrong in (Enclosure(-0.1, 0.1), Enclosure(0.0, math.inf)):
        with pytest.raises(ArgumentError, match="slope must be finite"):
            LinearBias(wrong)


@pytest.mark.parametrize("rounding", [0.0, 2.0**-8])
def test_witnesses_claim_what_their_rows_give(rounding):
    rng = np.random.default_rng(3)
    for slope in (0.01, 0.5, 3.0):
        bias = LinearBias(Enclosure(slope * (1 - 1e-7), slope * (1 + 1e-7)), rounding)
        for n in (2, 3, 9, 200):
            others = n - 1
            top, bottom, own = np.sort(rng.normal(scale=3, size=3))[[2, 0, 1]]
            for tokens in {1, others}:
                logits = bottom - slope * np.arange(n)
                logits[0] = own
                logits[1 : 1 + tokens] = top - slope * np.arange(1, 1 + tokens)
                share = np.exp(logits - logits.max())
                reached = share[1 : 1 + tokens].sum() / share.sum()
                claimed = coefficient_of_nearest(bias, top, bottom, own, others, tokens)
                assert claimed <= reached
                if rounding == 0:
                    assert claimed == pytest.approx(reached, rel=1e-4)


# --- tables -----------------------------------------------------------------------------------


def test_tables_count_every_bucket_that_a_length_can_reach():
    rng = np.random.default_rng(5)
    for buckets, furthest in ((8, 20), (32, 128), (16, 500)):
        values = tuple(rng.normal(size=buckets).tolist())
        table = TableBias(values, buckets // 2, furthest)
        for n in (1, 2, 5, 17, 40, 130, 2000):
            used = [values[mechanism_checks.t5_bucket(d, buckets, furthest)] for d in range(n)]
            assert table.spread(n) >= np.ptp(used)
            assert table.spread(n) <= table.settled().spread(n)
            row = np.array(used)
            row[int(np.argmax(row))] += 1.5
            share = np.exp(row - row.max())
            assert share.max() / share.sum() <= table.ceiling(1.5, n, 1) * (1 + 1e-14)
        both = TableBias(values + values[::-1], buckets // 2, furthest, directions=2)
        assert both.buckets == buckets
        assert not both.one_sided


@pytest.mark.parametrize("rows", [(4, 9), (8, 20), (8, 9), (32, 128), (32, 17), (64, 1000)])
def test_no_key_has_a_bucket_beyond_the_counted_ones(rows):
    """Buckets as T5's code has them, in float32."""
    buckets, furthest = rows
    exact = buckets // 2
    table = TableBias(tuple(np.zeros(buckets)), exact, furthest)
    distances = np.arange(1, 3 * furthest)
    quotient = (distances.astype(np.float32) / np.float32(exact)).astype(np.float32)
    scaled = np.log(quotient) / np.float32(math.log(furthest / exact)) * np.float32(exact)
    growing = np.minimum(exact + scaled.astype(np.int64), buckets - 1)
    own = np.where(distances < exact, distances, growing)
    counts = np.array([table.reached(int(d) + 1) for d in distances])
    assert np.all(own < counts)
    # At most where rounding decides is one more counted.
    assert np.mean(own + 1 < counts) <= 1 / 16


def test_encoder_and_decoder_of_t5_have_their_own_tables():
    checkpoint = open_checkpoint(DATA / "t5")
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    rng = np.random.default_rng(8)
    for name in list(arrays):
        if not name.startswith("encoder.block."):
            continue
        other = name.replace("encoder", "decoder")
        shape = arrays[name].shape
        arrays[other.replace("layer.1.", "layer.2.")] = rng.normal(size=shape)
        if "layer.0." in name and "bias" not in name:
            cross = other.replace("layer.0.", "layer.1.")
            arrays[cross.replace("SelfAttention", "EncDecAttention")] = rng.normal(size=shape)
    found = plan(from_arrays(arrays, checkpoint.config))
    assert [layer.layer for layer in found.layers] == [0, 1, 0, 0, 1, 1]
    assert not found.refused
    for stack, layers in (("encoder", found.layers[:2]), ("decoder", found.layers[2::2])):
        name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        for layer in layers:
            for index, _, head in layer.heads():
                assert head.bias.values == tuple(arrays[name][:, index].tolist())
                assert head.causal is (stack == "decoder")
                assert head.scale == ONE
                assert head.bias.directions == (2 if stack == "encoder" else 1)
                assert head.bias.exact == (2 if stack == "encoder" else 4)
    names = [s.name for s in found.skipped]
    assert len(names) == len(set(names))


def test_a_table_that_does_not_fit_is_named():
    with pytest.raises(CheckpointError, match="relative_attention_num_buckets"):
        changed("t5", relative_attention_num_buckets=7)
    with pytest.raises(CheckpointError, match="relative_attention_bias"):
        changed("t5", relative_attention_num_buckets=16)


def test_a_table_left_out_of_the_spread_is_caught(monkeypatch):
    monkeypatch.setattr(TableBias, "spread", lambda self, length: 0.0)
    caught("t5")


def test_bounds_with_a_table_are_near_what_was_reached():
    found = mechanism_checks.certified("t5")
    for n, layer, head, spread in mechanism_checks.reached("t5"):
        result = found[n, layer, head]
        # The farthest buckets may not be free for the extreme keys.
        assert result.spread.upper <= spread * 1.0001 + 3.0
        assert result.results[0].ceiling.lower == 0
        assert "relative position bias" in result.cap


# --- slopes and checkpoints ---------------------------------------------------------------------


def bloom_slopes(heads):
    return [bloom_slope(heads, head) for head in range(heads)]


def mpt_slopes(heads, largest):
    return [mpt_slope(heads, largest, head) for head in range(heads)]


def test_slopes_are_those_of_the_definition():
    assert pytest.approx([s.upper for s in bloom_slopes(4)], rel=1e-5) == [
        1 / 4,
        1 / 16,
        1 / 64,
        1 / 256,
    ]
    three = [2.0**-4, 2.0**-8, 2.0**-2]
    assert all(x in s for x, s in zip(three, bloom_slopes(3), strict=True))
    six = [2.0**-x for x in (2, 4, 6, 8, 1, 3)]
    assert all(x in s for x, s in zip(six, bloom_slopes(6), strict=True))
    mpt = [2.0**-x for x in (2, 4, 1)]
    assert all(x in s for x, s in zip(mpt, mpt_slopes(3, 4.0), strict=True))
    assert 2.0**-8 in mpt_slopes(8, 8.0)[7]
    rounded = in_bfloat16(bloom_slopes(16)[0])
    assert rounded == Enclosure.exact(float(alibi.ml_dtypes.bfloat16(2**-0.5)))


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon__alibi"])
def test_bounds_are_near_what_was_reached_in_the_real_module(name):
    found = mechanism_checks.certified(name)
    slopes = {}
    for layer in plan(open_checkpoint(DATA / name)).layers:
        for index, _, head in layer.heads():
            slopes[layer.layer, index] = head.bias.slope.upper
    for n, layer, head, spread in mechanism_checks.reached(name):
        certified = found[n, layer, head].spread
        # The query's own key is not free: at most one token's bias, and Falcon's rounding twice.
        rounding = 0.1 if name.startswith("falcon") else 0.0
        near = max(spread, certified.lower)
        assert certified.upper <= near * 1.0001 + slopes[layer, head] * 1.001 + rounding
        assert certified.lower >= 0.9 * spread


@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_inputs_of_witnesses_reach_what_is_claimed_by_the_normal_form(name):
    for layer in plan(open_checkpoint(DATA / name)).layers:
        for _, _, head in layer.heads():
            for n in (3, 20):
                found = witness.build(head, n)
                states = found.inputs(n)
                gain = head.reach.gain
                shift = 0.0 if head.reach.bias is None else head.reach.bias
                u = (states - shift) / gain / head.reach.radius
                points = [
                    b.radius.upper * u @ b.matrix.T + (0 if b.offset is None else b.offset)
                    for b in (head.query, head.key)
                ]
                lags = np.arange(n - 1, -1, -1)
                row = head.scale.upper * points[1] @ points[0][-1] - head.bias.slope.upper * lags
                share = np.exp(row - row.max())
                assert share[:-1].max() / share.sum() >= found.coefficient(n) * (1 - 1e-5)
                assert np.ptp(row) >= found.spread(n) * (1 - 1e-5)


# --- planted errors -----------------------------------------------------------------------------


def caught(name):
    # A witness above a wrong certificate is an error, too.
    with pytest.raises((AssertionError, RuntimeError)):
        mechanism_checks.check_all(name)


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon__alibi"])
def test_a_bias_left_out_of_the_spread_is_caught(monkeypatch, name):
    monkeypatch.setattr(LinearBias, "spread", lambda self, length: 0.0)
    caught(name)


def test_slopes_in_another_order_are_caught(monkeypatch):
    from dispersion.architectures import bloom

    monkeypatch.setattr(bloom, "bloom_slope", lambda n, head: bloom_slope(n, n - 1 - head))
    caught("bloom")


def test_a_ceiling_of_keys_behind_the_target_is_caught(monkeypatch):
    """As if every other key were as near as the target."""
    real = position_bias._geometric_ceiling
    monkeypatch.setattr(
        position_bias,
        "_geometric_ceiling",
        lambda slope, spread, seen, tokens: real(0.0, spread, seen, tokens),
    )
    with pytest.raises(AssertionError):
        test_no_row_exceeds_the_ceiling()


def test_a_bias_that_a_witness_forgets_is_caught(monkeypatch):
    monkeypatch.setattr(
        witness.biased_witness,
        "coefficient_of_nearest",
        lambda bias, *rest: coefficient_of_nearest(LinearBias(Enclosure.exact(0.0)), *rest),
    )
    with pytest.raises(AssertionError):
        test_inputs_of_witnesses_reach_what_is_claimed_by_the_normal_form("bloom")


# --- configs -------------------------------------------------------------------------------------


def changed(name, inner=None, **config):
    checkpoint = open_checkpoint(DATA / name)
    arrays = {n: checkpoint.read(n) for n in checkpoint.names}
    full = checkpoint.config | config
    if inner is not None:
        full["attn_config"] = full["attn_config"] | inner
    return plan(from_arrays(arrays, full))


def test_variants_of_mpt_are_refused_by_name():
    for key, value in (("qk_ln", True), ("prefix_lm", True), ("alibi", False)):
        with pytest.raises(UnsupportedError, match=key):
            changed("mpt", {key: value})
    scaled = next(iter(changed("mpt", {"softmax_scale": 0.25}).layers[0].heads()))[2]
    assert scaled.scale == Enclosure.exact(0.25)
    clipped = next(iter(changed("mpt", {"clip_qkv": 0.5}).layers[0].heads()))[2]
    assert "clip 0.5" in clipped.cap


def test_falcon_layouts_that_do_not_fit_are_named():
    with pytest.raises(CheckpointError, match="query_key_value"):
        changed("falcon", multi_query=False)
    with pytest.raises(CheckpointError, match="num_kv_heads"):
        changed("falcon__alibi", num_kv_heads=2)
    with pytest.raises(UnsupportedError, match="partial_rotary_factor"):
        changed("falcon", partial_rotary_factor=0.5)
    heads = [h for *_, h in changed("falcon__new_decoder").layers[0].heads()]
    assert heads[0].key is heads[1].key
    assert heads[2].key is not heads[1].key
    assert ceilings.visible(heads[0], 7) == 7
