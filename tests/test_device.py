"""Gram matrices by JAX: digits against whole numbers, audits with and without, wrong devices."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import head_checks
from checkpoints import write_checkpoint
from dispersion import Target, audit, device, digits, tasks
from dispersion.cholesky import gamma
from dispersion.cli import main
from dispersion.device import grams, open_device, with_grams
from dispersion.errors import ArgumentError
from dispersion.head import BallImage
from dispersion.norms import qk_norm_ball
from dispersion.offsets import exact_spread
from dispersion.spread import spread_bound
from matrix_truth import fraction, rational
from test_tasks import ASKED, LAYERS, tensors

DATA = Path(__file__).parent / "data"
WEIGHTS = 256 ** np.arange(digits.DIGITS - 1, -1, -1, dtype=object)


def products(parts, dtype=np.int64):
    """P_0 … P_6 of T_0 … T_6, shape (7, rows, width), summed in some type."""
    parts = parts.astype(dtype)
    return np.stack(
        [sum(parts[p] @ parts[k - p].T for p in range(k + 1)) for k in range(len(parts))]
    )


def on_this_machine(words, multiply=products):
    """What a device returns, from NumPy."""
    found = [digits.digits_of(matrix) for matrix in np.ascontiguousarray(words).view("<f8")]
    levels = np.stack([multiply(parts) for parts, _ in found])[None]
    return levels, np.stack([exponents for _, exponents in found])


@pytest.fixture
def on_host(monkeypatch):
    """NumPy in place of JAX, which compiles for every shape anew and gives the same."""
    monkeypatch.setattr(device, "_multiply", lambda: on_this_machine)


def on_device(head):
    return next(with_grams([("", head)], open_device("cpu")))[1]


def rows(rng, kind):
    """Matrices that are hard on digits, one way each."""
    count, width = int(rng.integers(1, 6)), int(rng.integers(1, 40))
    x = rng.standard_normal((count, width))
    match kind:
        case "random":
            return x
        case "graded rows":
            return x * 10.0 ** rng.uniform(-90, 90, (count, 1))
        case "graded entries":
            return x * 10.0 ** rng.uniform(-20, 0, (count, width))
        case "one large entry":
            x = x * 1e-5
            x[:, 0] = 1 - 2.0**-53
            return x
        case "equal entries":
            return np.full((count, width), 1 - 2.0**-53) * rng.choice([-1, 1], (count, width))
        case "bfloat16":
            return (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32) * 1.0
        case "zeros":
            x[0] = 0
            return x
    raise AssertionError(kind)


KINDS = ["random", "graded rows", "graded entries", "one large entry", "equal entries"]
KINDS += ["bfloat16", "zeros"]


def check_grams(multiply=products, coefficient=1.0):
    """Within the stated error of the exact Gram matrix, by rational arithmetic, squared."""
    rng = np.random.default_rng(3)
    for kind in KINDS:
        for _ in range(6):
            matrix = np.asarray(rows(rng, kind), dtype=np.float64)
            parts, exponents = digits.digits_of(matrix)
            gram = digits.gram_of(matrix, multiply(parts), exponents)
            exact = rational(matrix) * rational(matrix).transpose()
            square = fraction(gram.coefficient * coefficient) ** 2
            for i in range(len(matrix)):
                for j in range(len(matrix)):
                    gap = fraction(gram.value[i, j]) - exact[i, j]
                    assert gap**2 <= square * exact[i, i] * exact[j, j], (kind, i, j)


def test_the_error_of_a_gram_matrix():
    check_grams()


def test_levels_left_out_are_caught():
    def fewer(parts):
        found = products(parts)
        found[-2:] = 0
        return found

    with pytest.raises(AssertionError):
        check_grams(fewer)


def test_digits_left_out_are_caught():
    with pytest.raises(AssertionError):
        check_grams(lambda parts: products(parts * (np.arange(7) < 6)[:, None, None]))


def test_digits_are_the_entries_cut_short():
    edge = [0.5, -0.5, 1 - 2.0**-53, -1 + 2.0**-53, 2.0**-54, -(2.0**-54), 2.0**-55, 127 / 255]
    x = np.array([edge, [*np.random.default_rng(1).standard_normal(7), 4.0]])
    parts, exponents = digits.digits_of(x)
    assert parts.dtype == np.int8
    got = (np.moveaxis(parts, 0, -1).astype(object) * WEIGHTS).sum(axis=-1)
    for row, exponent, entries in zip(x, exponents, got, strict=True):
        assert 0.5 <= np.abs(row).max() / 2.0**exponent < 1
        for value, whole in zip(row, entries, strict=True):
            scaled = fraction(value) * fraction(2.0 ** (54 - int(exponent)))
            assert abs(scaled - int(whole)) < 1
            assert abs(int(whole)) <= abs(scaled)


def bits(matrices):
    return np.stack(matrices).view("<u4")


def test_devices_find_these_digits():
    rng = np.random.default_rng(13)
    width = 600
    wide = rng.standard_normal((6, width)) * 2.0 ** rng.integers(-80, 1, (6, width))
    wide[0, :] = 0.0
    wide[1, ::2] = -0.0
    wide[2, 0], wide[2, 1:3] = 2.0**60, 5e-324
    wide[3] = rng.choice([-1.0, 1.0], width) * 2.0 ** rng.integers(-70, 1, width)
    wide[4] = np.nextafter(2.0 ** rng.integers(-70, 1, width), rng.choice([0.0, 9.0], width))
    for matrices in ([wide, -wide], [wide * 2.0**-300, wide * 2.0**300]):
        levels, exponents = device._multiply()(bits(matrices))
        expected = on_this_machine(bits(matrices))
        np.testing.assert_array_equal(exponents, expected[1])
        np.testing.assert_array_equal(levels, expected[0])


@pytest.mark.parametrize(
    "matrix",
    [
        [[np.nan, 1.0]],
        [[1.0, np.inf]],
        [[-np.inf, 1.0]],
        [[1e-200, 0.0], [1.0, 1.0]],
        [[1e200, 0.0], [1.0, 1.0]],
        [[5e-324, -5e-324], [1.0, 1.0]],
    ],
)
def test_extreme_matrices_are_left_to_the_host(matrix):
    assert grams([np.array(matrix)], open_device("cpu")) == [None]


def test_senseless_diagonals_are_left_to_the_host():
    levels = np.zeros((7, 2, 2), dtype=np.int64)
    assert digits.gram_of(np.eye(2), levels, np.array([1, 1])) is None


def test_the_largest_sums_fit():
    """Digits as large as they get, in as many columns as are taken at once, and in one more."""
    assert digits.DIGITS * digits.MOST_COLUMNS * 128**2 < 2**31
    for width in (digits.MOST_COLUMNS, digits.MOST_COLUMNS + 1):
        matrix = np.full((2, width), -(63 * 2.0**48 + 0x808080808080) / 2.0**54)
        matrix[1] *= -1
        assert digits.digits_of(matrix)[0][:, 0, 0].tolist() == [-63, *6 * [-128]]
        levels, _ = device._multiply()(bits([matrix]))
        levels = np.asarray(levels)
        assert levels.dtype == np.int32
        assert len(levels) == -(-width // digits.MOST_COLUMNS)
        expected, _ = on_this_machine(bits([matrix]))
        np.testing.assert_array_equal(levels.sum(axis=0, dtype=np.int64), expected[0])


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 33), (2, 16, digits.MOST_COLUMNS + 70)])
def test_jax_multiplies_whole_numbers(shape):
    rng = np.random.default_rng(5)
    matrices = [rng.standard_normal(shape[1:]) for _ in range(shape[0])]
    found = grams(matrices, open_device("cpu"))
    for matrix, gram in zip(matrices, found, strict=True):
        parts, exponents = digits.digits_of(matrix)
        expected = digits.gram_of(matrix, products(parts), exponents)
        np.testing.assert_array_equal(gram.value, expected.value)
        assert gram.of is matrix
        assert gram.coefficient == expected.coefficient


def test_wide_rows_lose_no_more_than_in_float64():
    matrix = np.random.default_rng(7).standard_normal((4, 4096))
    parts, exponents = digits.digits_of(matrix)
    assert digits.gram_of(matrix, products(parts), exponents).coefficient < gamma(4096) / 4


@pytest.mark.parametrize(
    ("check", "bound"),
    [
        (head_checks.check_products, spread_bound),
        (head_checks.check_biased, spread_bound),
        (head_checks.check_free_phases, spread_bound),
        (head_checks.check_errors, spread_bound),
        (head_checks.check_offsets, exact_spread),
    ],
    ids=lambda x: x.__name__,
)
def test_bounds_are_as_true_and_as_tight_as_without(check, bound, on_host):
    check(lambda head, *rest: bound(on_device(head), *rest))


class TestHeads:
    def heads(self, count=6):
        rng = np.random.default_rng(9)
        keys = [BallImage(rng.standard_normal((4, 10))) for _ in range(count // 2)]
        for i in range(count):
            query = BallImage(rng.standard_normal((4, 12)))
            yield i, head_checks.plain(query, keys[i // 2])

    @pytest.mark.parametrize("entries", [1, 100, 10**6])
    def test_order_and_shared_keys(self, entries, on_host):
        before = list(self.heads())
        after = list(with_grams(iter(before), open_device("cpu"), entries=entries))
        assert [label for label, _ in after] == list(range(6))
        for (_, old), (_, new) in zip(before, after, strict=True):
            for mine, given in ((old.query, new.query), (old.key, new.key)):
                assert given.given is not None
                assert given.matrix is mine.matrix
                np.testing.assert_allclose(given.gram, mine.gram, rtol=1e-12, atol=1e-12)
        if entries == 10**6:
            assert after[0][1].key is after[1][1].key

    def test_batches_hold_what_they_may(self, monkeypatch):
        sizes = []

        def multiply(matrices, handle):
            sizes.append(sum(m.size for m in matrices))
            return [None for _ in matrices]

        monkeypatch.setattr(device, "grams", multiply)
        assert len(list(with_grams(self.heads(), open_device("cpu"), entries=100))) == 6
        assert sum(sizes) >= 6 * 48 + 3 * 40
        assert max(sizes) < 100 + 48

    def test_a_gram_matrix_of_another_array_is_not_used(self, on_host):
        ball = on_device(next(self.heads())[1]).query
        other = replace(ball, matrix=2 * ball.matrix)
        np.testing.assert_array_equal(other.gram, other.matrix @ other.matrix.T)
        assert other.coefficient == gamma(12 + 16)
        assert replace(ball, cap="").gram is ball.gram

    def test_diagonals_and_unbounded_heads_are_left_alone(self, monkeypatch):
        monkeypatch.setattr(device, "grams", lambda matrices, handle: pytest.fail("multiplied"))
        ball = qk_norm_ball(None, kind="rms", head_dim=4)
        head = head_checks.plain(ball, ball)
        assert on_device(head).query is ball
        open_ended = replace(head, query=None, key=None)
        assert on_device(open_ended).query is None


class TestAudits:
    @pytest.mark.parametrize(
        "name",
        [
            "llama",
            "gpt2",
            "bert",
            "gpt_neox",
            "qwen2",
            "phi__qk_layernorm",
            "qwen3",
            "opt__postnorm",
        ],
    )
    def test_the_same_answers(self, name, on_host):
        asked = [Target(8, 0.9), Target(64), Target(32, 0.5, "any")]
        plain, found = audit(DATA / name, asked), audit(DATA / name, asked, device="cpu")
        assert len(plain.heads) == len(found.heads) > 0
        for mine, theirs in zip(plain.heads, found.heads, strict=True):
            assert [r.verdict for r in mine.results] == [r.verdict for r in theirs.results]
            # Branching stops at 2e-3 (refine.py), elsewhere only rounding differs.
            assert theirs.spread.upper == pytest.approx(mine.spread.upper, rel=2e-3)
            assert theirs.spread.lower <= mine.spread.upper
            assert mine.spread.lower <= theirs.spread.upper

    def test_provenance(self, on_host):
        assert "device" not in audit(DATA / "llama", [Target(8)]).provenance
        said = audit(DATA / "llama", [Target(8)], device="cpu:0").provenance["device"]
        assert said["name"] == "cpu:0"
        assert said["platform"] == "cpu"
        assert "int8" in said["products"]

    def test_exact_offsets(self, on_host):
        asked = [Target(8)]
        plain = audit(DATA / "llama", asked, offsets="exact", layers=[0])
        found = audit(DATA / "llama", asked, offsets="exact", layers=[0], device="cpu")
        for mine, theirs in zip(plain.heads, found.heads, strict=True):
            assert theirs.spread_kind == "exact"
            assert theirs.spread.upper == pytest.approx(mine.spread.upper, rel=2e-3)

    def test_processes_open_it_too(self, tmp_path):
        config = {
            "model_type": "llama",
            "num_hidden_layers": LAYERS,
            "hidden_size": 32,
            "num_attention_heads": 4,
            "max_position_embeddings": 4096,
        }
        model = write_checkpoint(tmp_path / "model", tensors(), config)
        one = audit(model, ASKED, device="cpu", jobs=1)
        assert audit(model, ASKED, device="cpu", jobs=2).heads == one.heads

    def test_a_resumed_audit_has_one_kind_of_products(self, tmp_path, on_host):
        kept = tmp_path / "kept.jsonl"
        audit(DATA / "llama", [Target(8)], resume=kept, device="cpu")
        again = audit(DATA / "llama", [Target(8)], resume=kept, device="cpu:0")
        assert again.heads == audit(DATA / "llama", [Target(8)], device="cpu").heads
        with pytest.raises(ArgumentError, match="another audit"):
            audit(DATA / "llama", [Target(8)], resume=kept)

    def test_the_command_line(self, capsys):
        arguments = ["check", str(DATA / "llama"), "--length", "64", "--quiet", "--json", "-"]
        assert main([*arguments, "--device", "cpu"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["provenance"]["device"]["platform"] == "cpu"
        assert report["heads"]

    def test_jax_is_not_loaded_without_a_device(self):
        code = (
            "import sys, dispersion; from dispersion import demo;"
            "dispersion.audit(demo.path('plain')); print('jax' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "False"


class TestRefusals:
    @pytest.mark.parametrize(
        "name",
        ["", "abacus", "cpu:99", "cpu:", "cpu:x", ":0", "cpu:-1", "cpu:²", "cpu:" + 400 * "9"],
    )
    def test_unknown_devices(self, name):
        with pytest.raises(ArgumentError, match=r"device must be cpu, gpu or tpu.*cpu:0") as caught:
            audit(DATA / "llama", device=name)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 250

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "jax", None)
        open_device.cache_clear()
        with pytest.raises(ArgumentError, match="pip install 'jax"):
            audit(DATA / "llama", device="cpu")

    def test_other_inputs(self):
        with pytest.raises(ArgumentError, match="inputs 'ball'"):
            audit(DATA / "llama", inputs="vocabulary", device="cpu")

    def test_something_else_than_a_name(self):
        with pytest.raises(ArgumentError, match="Got int"):
            audit(DATA / "llama", device=0)

    @pytest.mark.parametrize(
        "arguments",
        [["wq.npy", "wk.npy"], ["demo:plain", "--inputs", "vocabulary"]],
    )
    def test_what_does_not_go_with_it(self, arguments, capsys):
        assert main(["check", *arguments, "--device", "cpu"]) == 2
        assert "--device" in capsys.readouterr().err

    def test_a_device_for_one_process(self, monkeypatch):
        alone = replace(open_device("cpu"), platform="tpu")
        monkeypatch.setattr(device, "open_device", lambda name: alone)
        with pytest.raises(ArgumentError, match="jobs must be 1 with device 'tpu'"):
            audit(DATA / "llama", device="tpu", jobs=2)
        monkeypatch.setattr(tasks, "_WORTHWHILE", 0)
        assert audit(DATA / "llama", [Target(8)], device="tpu").provenance["jobs"] == 1

    @pytest.mark.parametrize("fault", ["one", "saturated", "exponent"])
    def test_a_device_with_wrong_integers(self, fault, monkeypatch):
        def multiply(words):
            levels, exponents = on_this_machine(words)
            if fault == "one":
                levels[0, 0, 3, 1, 2] += 1
            elif fault == "saturated":
                levels = np.clip(levels, -(2**15), 2**15 - 1)
            else:
                exponents[0, 1] += 1
            return levels, exponents

        monkeypatch.setattr(device, "_multiply", lambda: multiply)
        with pytest.raises(ArgumentError, match="integers exactly"):
            audit(DATA / "llama", device="cpu")

    def test_a_device_that_sums_in_floats(self, monkeypatch):
        """Whole numbers beyond 2²⁴ do not survive that; smaller ones do, and then all is well."""

        def floats(parts):
            return products(parts, np.float32).astype(np.int64)

        monkeypatch.setattr(device, "_multiply", lambda: partial(on_this_machine, multiply=floats))
        rng = np.random.default_rng(11)
        assert grams([rng.standard_normal((4, 64))], open_device("cpu"))[0] is not None
        with pytest.raises(ArgumentError, match="integers exactly"):
            grams([rng.standard_normal((4, digits.MOST_COLUMNS))], open_device("cpu"))

    def test_a_device_that_fails(self, monkeypatch):
        def multiply(planes):
            msg = "RESOURCE_EXHAUSTED:\nout of memory"
            raise RuntimeError(msg)

        monkeypatch.setattr(device, "_multiply", lambda: multiply)
        with pytest.raises(ArgumentError, match="failed: RESOURCE_EXHAUSTED: out of memory"):
            audit(DATA / "llama", device="cpu")
