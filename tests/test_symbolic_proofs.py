"""`dispersion.proofs`: every step is decided, by algebra alone, and a wrong step is refused."""

import dataclasses
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sympy as sp

from dispersion import proofs, symbolic
from dispersion.cli import main
from dispersion.proofs import FILES, deciding, find, latex, theorem
from dispersion.proofs.formal_names import formal
from dispersion.proofs.formulas import Named, one_line, plain
from dispersion.proofs.steps import (
    Method,
    Verdict,
    at_most,
    at_most_from_zero,
    cited,
    equal,
    rests_on_formal,
    tends,
    verdict_of,
)
from dispersion.proofs.vectors import dot, square, vectors

x = sp.Symbol("x", nonnegative=True)
y = sp.Symbol("y", real=True)
n = sp.Symbol("n", integer=True, positive=True)


def no_numbers(_expression):
    return iter(())


@pytest.mark.parametrize("name", FILES)
def test_every_step_is_decided_by_algebra_alone(name, monkeypatch):
    monkeypatch.setattr(deciding, "_values", no_numbers)
    done = list(theorem(name).run())
    assert len(done) >= 5
    assert [d.step.claim for d in done if d.verdict is not Verdict.PROVED] == []


def _relation(step, right):
    return step.relation.func(step.relation.lhs, right, evaluate=False)


@pytest.mark.parametrize("name", FILES)
def test_every_step_can_fail(name):
    """The same step with something added to its smaller side is not proved."""
    for step in theorem(name).steps():
        if step.rests is not None:
            continue
        right = step.relation.rhs
        wrong = dataclasses.replace(step, relation=_relation(step, right - 1000))
        if right == sp.oo:
            wrong = dataclasses.replace(step, relation=_relation(step, sp.Integer(7)))
        assert verdict_of(wrong) in (Verdict.REFUTED, Verdict.UNDECIDED), step.claim


@pytest.mark.parametrize("name", FILES)
def test_no_step_says_that_a_thing_is_itself(name):
    for step in theorem(name).steps():
        if step.relation is not None:
            left, right = step.relation.args
            assert plain(left) != plain(right), step.claim


@pytest.mark.parametrize("name", FILES)
def test_a_theorem_is_complete(name):
    found = theorem(name)
    assert found.name == name
    assert found.hypotheses
    assert all(found.hypotheses.values())
    assert found.statement.endswith(".")
    assert one_line(found.formula)


class TestDeciding:
    @pytest.mark.parametrize(
        ("left", "right"),
        [
            ((x + 1) ** 2, x**2 + 2 * x),
            (sp.exp(x) * sp.exp(y), sp.exp(x * y)),
            (sp.log(1 + x), x),
            (sp.sqrt(y**2), y),
            (sp.Sum(n, (n, 1, 4)), 9),
            (sp.tanh(x), sp.sinh(x)),
            (sp.gamma(x + 1), (x + 1) * sp.gamma(x + 1)),
            (square(vectors("a")[0]), 0),
        ],
    )
    def test_false_identities_are_refuted(self, left, right):
        assert verdict_of(equal("", left, right)) is Verdict.REFUTED

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            (x**2, x),
            (1, x),
            (0, -x),
            (0, y),
            (0, y**3),
            (1 / (1 + x), 0),
            (sp.exp(-x), sp.exp(-x - 1)),
            (0, (x - 1) * (x - 2)),
        ],
    )
    def test_false_inequalities_are_refuted(self, left, right):
        assert verdict_of(at_most("", left, right)) is Verdict.REFUTED

    def test_a_strict_inequality_needs_a_positive_term(self):
        assert verdict_of(at_most("", 0, x)) is Verdict.PROVED
        assert verdict_of(at_most("", 0, x, strict=True)) is Verdict.UNDECIDED
        assert verdict_of(at_most("", 0, x + 1, strict=True)) is Verdict.PROVED

    def test_numbers_never_prove(self):
        """True, or false by too little for any point to show: not proved all the same."""
        assert verdict_of(at_most("", 0, x**2 - x + 1)) is Verdict.UNDECIDED
        assert verdict_of(at_most("", x, sp.exp(x))) is Verdict.UNDECIDED
        tiny = sp.Rational(1, 10**40)
        assert verdict_of(equal("", x, x + tiny)) is Verdict.UNDECIDED
        assert verdict_of(at_most("", x + tiny, x)) is Verdict.UNDECIDED
        # Equal at every integer, as far as any sample of integers can tell.
        hidden = sp.Function("f")(n)
        assert verdict_of(equal("", hidden, 0)) is not Verdict.PROVED

    def test_a_matrix_identity_is_proved_or_undecided(self):
        a, b = sp.MatrixSymbol("A", n, n), sp.MatrixSymbol("B", n, n)
        assert verdict_of(equal("", sp.Trace((a * b).T), sp.Trace(b.T * a.T))) is Verdict.PROVED
        assert verdict_of(equal("", sp.Trace(a * b), sp.Trace(a * a))) is Verdict.UNDECIDED

    def test_slopes(self):
        assert verdict_of(at_most_from_zero("", 1 + x, sp.exp(x), x, 2)) is Verdict.PROVED
        assert verdict_of(at_most_from_zero("", 2 + x, sp.exp(x), x, 2)) is Verdict.REFUTED
        assert verdict_of(at_most_from_zero("", sp.exp(x), 1 + x, x, 2)) is Verdict.REFUTED
        # One derivative is not enough for this one: not decided, though true.
        wave = x - sp.sin(x) + x**2
        assert verdict_of(at_most_from_zero("", 0, wave, x, 3)) is Verdict.UNDECIDED

    def test_a_negative_start_is_not_saved_by_slopes(self):
        assert verdict_of(at_most_from_zero("", 1, x, x, 1)) is Verdict.REFUTED

    @pytest.mark.parametrize("right", [1 / (1 - x), 1 / (x - 2) - 1 / (x - 3), sp.tan(x)])
    def test_slopes_do_not_reach_across_a_pole(self, right):
        step = at_most_from_zero("", 0, right, x)
        assert verdict_of(step) in (Verdict.REFUTED, Verdict.UNDECIDED)

    def test_a_sign_is_not_taken_from_a_denominator_that_changes_its_own(self):
        assert verdict_of(at_most("", 0, 1 / (y - 1))) is Verdict.REFUTED
        assert verdict_of(at_most("", 0, x / (1 - x) ** 3)) is Verdict.REFUTED

    def test_limits(self):
        assert verdict_of(tends("", (1 + 1 / x) ** x, x, sp.oo, sp.E)) is Verdict.PROVED
        assert verdict_of(tends("", 1 / x, x, sp.oo, 1)) is Verdict.REFUTED
        assert verdict_of(tends("", x, x, sp.oo, sp.oo)) is Verdict.PROVED
        assert verdict_of(tends("", 1 / x, x, sp.oo, sp.oo)) is Verdict.UNDECIDED

    def test_derivatives_of_unknown_functions_are_told_apart(self):
        f = sp.Function("f")(y)
        slope = sp.Derivative(f, y)
        assert verdict_of(equal("", sp.diff(f**2, y), 2 * f * slope)) is Verdict.PROVED
        assert verdict_of(equal("", sp.Derivative(f, (y, 2)), slope)) is Verdict.REFUTED

    def test_substitutions_come_last(self):
        shown = equal("", sp.Derivative(x**2, x), 6, where={x: sp.Integer(3)})
        assert verdict_of(shown) is Verdict.PROVED

    def test_what_rests_on_others_is_not_called_proved(self):
        step = rests_on_formal("", formal("T3", "T3_floor"))
        assert verdict_of(step) is Verdict.FORMAL
        assert verdict_of(cited("", "a paper")) is Verdict.CITED
        assert step.method is Method.NONE
        with pytest.raises(KeyError):
            formal("T3", "T3_missing")


class TestVectors:
    def test_inner_products_are_bilinear_and_symmetric(self):
        a, b = vectors("a b")
        assert dot(a, b).doit() == dot(b, a).doit()
        assert sp.expand(dot(2 * a + b, b).doit() - 2 * dot(a, b).doit() - square(b).doit()) == 0

    def test_an_inner_product_may_be_a_coefficient(self):
        a, b = vectors("a b")
        projected = dot(a, dot(a, b) * b).doit()
        assert sp.expand(projected - dot(a, b).doit() ** 2) == 0

    def test_what_is_not_linear_is_refused(self):
        a, b = vectors("a b")
        with pytest.raises(ValueError, match="linear combination"):
            dot(a * b, a).doit()
        with pytest.raises(ValueError, match="linear combination"):
            dot(a + 1, b).doit()

    def test_named_expressions_open(self):
        assert Named("f(x)", x**2).doit() == x**2
        assert plain(2 * Named("f(x)", x**2)) == "2·f(x)"


# A formula of `symbolic` with a planted error, and a theorem whose derivation then fails.
PLANTED = [
    ("max_coefficient", "T1", lambda n, spread, *, temperature=1: 1 / (1 + n * sp.exp(-spread))),
    ("min_coefficient", "T1", lambda n, spread, *, temperature=1: 1 / (1 + n * sp.exp(spread))),
    ("loose_max_coefficient", "T1", lambda n, spread, *, temperature=1: sp.exp(spread) / (n + 1)),
    ("set_mass", "T2", lambda m, n, spread, *, temperature=1: m / (m + n * sp.exp(-spread))),
    ("min_set_mass", "T2", lambda m, n, spread, *, temperature=1: m / (m + n * sp.exp(spread))),
    ("two_level_entropy", "T3", lambda k, n, spread: sp.log(n) - spread * k / n),
    ("turning_point", "T3", lambda n, spread: n / spread),
    ("closed_min_entropy", "T3", lambda n, spread, *, temperature=1: sp.log(n) - spread**2 / 8),
    ("norm_max_coefficient", "T3′", lambda n, norm: 1 / (1 + (n - 1) * sp.exp(-norm))),
    ("norm_min_entropy", "T3′", lambda n, norm: sp.log(n) - norm),
    (
        "required_spread",
        "T4",
        lambda n, coefficient, *, items=1, temperature=1: (
            temperature * sp.log(n * coefficient / (items * (1 - coefficient)))
        ),
    ),
    (
        "reachable_length",
        "T4",
        lambda spread, coefficient, *, items=1, temperature=1: (
            items * sp.exp(spread / temperature) / coefficient
        ),
    ),
    ("entropy_slope", "T5", lambda logits, *, inverse_temperature=1: -sum(logits)),
    ("length_scaled_max_coefficient", "T6", lambda n, spread, *, scale=1: 1 / (1 + n**-scale)),
    (
        "max_coefficient_with_sink",
        "T7",
        lambda n, spread, top, *, sink=0: 1 / (1 + (n - 1) * sp.exp(-spread) + sp.exp(top - sink)),
    ),
    ("sink_share", "T7", lambda n, level, *, sink=0: sp.exp(sink) / (n * sp.exp(level))),
    ("capped_spread", "T8", lambda spread, cap: cap * sp.tanh(spread / cap)),
    ("capped_intercept", "T8", lambda slope, cap: cap * (1 - slope)),
    ("simplex_ceiling", "T12", lambda n, value: 1 / (1 + (n - 1) * sp.exp(-value))),
    ("log_capacity_at", "T13", lambda t, values: t + sum(sp.log(k / t) for k in values) / 2),
    ("water_pull", "T13", lambda t, values: sum((k - t) / (k + t) for k in values)),
    ("flat_log_capacity", "T13′", lambda dimension, value: value),
    ("sphere_mean", "T13′", lambda dimension, kappa: sp.cosh(kappa)),
    ("steep_ceiling", "T13″", lambda n, second, first=sp.oo: 1 / (1 + n * sp.exp(-second))),
    ("softmax_coefficient", "witness", lambda target, others: 1 / sp.Integer(1 + len(others))),
]


@pytest.mark.parametrize(("name", "where", "wrong"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_wrong_formula_breaks_the_derivation_of_its_theorem(name, where, wrong, monkeypatch):
    file = f"dispersion.proofs.{FILES[where][0]}"
    # Before the formula is wrong: other tests of this process see the module that is loaded here.
    module = importlib.import_module(file)
    monkeypatch.setattr(symbolic, name, wrong)
    fresh = {"__name__": file}
    exec(compile(inspect.getsource(module), file, "exec"), fresh)
    verdicts = [done.verdict for done in fresh["THEOREM"].run()]
    assert Verdict.REFUTED in verdicts or Verdict.UNDECIDED in verdicts


class TestNames:
    def test_all_in_order_or_the_ones_asked_for_once_each(self):
        assert find([]) == list(FILES)
        assert find(["t13''", "T3'", "WITNESS", "T3′", 'T13"']) == ["T13″", "T3′", "witness"]

    def test_an_unknown_name_is_one_line_with_all_names(self, capsys):
        assert main(["prove", "T99"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "'T99'" in err
        assert all(name in err for name in FILES)


def run(capsys, *arguments):
    capsys.readouterr()
    code = main(["prove", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


class TestCommand:
    def test_a_theorem_reads_as_a_lecture(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        code, out, err = run(capsys, "T3")
        assert (code, err) == (0, "")
        assert out.startswith("T3  entropy floor\n  The entropy of a row")
        assert "Hypotheses\n    row: n ≥ 2" in out
        assert "   1. With all weights but one fixed" in out
        assert out.count("[proved: ") == len(list(theorem("T3").steps()))
        assert "1 theorem, " in out.splitlines()[-1]
        assert max(map(len, out.splitlines())) <= 80

    def test_the_readme_shows_what_is_printed(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
        (shown,) = re.findall(r"    \$ dispersion prove T1\n((?:    .*\n)+?)    \.\.\.\n", text)
        _, out, _ = run(capsys, "T1")
        printed = re.sub(r"\d+\.\d\d(\s+)s\]", r"0.01\1s]", out)
        lines = [line.removeprefix("    ") for line in shown.splitlines()]
        assert printed.splitlines()[: len(lines)] == lines

    def test_what_rests_on_others_says_so(self, capsys, monkeypatch):
        real = theorem("T3")

        def steps():
            yield rests_on_formal("The floor", formal("T3", "T3_floor"))
            yield cited("Another", "a paper")

        monkeypatch.setattr(
            "dispersion.proving.theorem", lambda name: dataclasses.replace(real, steps=steps)
        )
        code, out, _ = run(capsys, "T3")
        assert code == 0
        assert "rests on the machine-checked T3_floor (proofs/formal)" in " ".join(out.split())
        assert "not decided here; cited from a paper." in out
        assert "2 steps: 1 rests on, 1 cited" in out.splitlines()[-1]

    def test_a_step_that_fails_is_named_and_returns_1(self, capsys, monkeypatch):
        real = theorem("T2")

        def steps():
            yield equal("One is two", 1, 2)
            yield at_most("A square is large", 1, y**2 + y + 2, why="Never mind.")

        monkeypatch.setattr(
            "dispersion.proving.theorem", lambda name: dataclasses.replace(real, steps=steps)
        )
        code, out, _ = run(capsys, "T2")
        assert code == 1
        assert "FAILED (refuted): One is two" in out
        assert "FAILED (undecided): A square is large" in out
        assert "REFUTED" in out

    def test_the_list_needs_no_sympy(self, capsys):
        code, out, _ = run(capsys, "--list")
        assert code == 0
        assert all(f"  {name} " in out for name in FILES)
        loaded = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from dispersion.cli import main; main(['prove', '--list']);"
                "print('sympy' in sys.modules)",
            ],
            capture_output=True,
            check=True,
        )
        assert loaded.stdout.split()[-1] == b"False"

    @pytest.mark.parametrize("missing", ["sympy", "mpmath"])
    def test_a_missing_sympy_is_one_line_with_the_remedy(self, missing, tmp_path):
        code = (
            f"import sys; sys.modules[{missing!r}] = None;"
            "from dispersion.cli import main; sys.exit(main(['prove', 'T1', '--latex', 'x.tex']))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        assert b"pip install 'dispersion[proofs]'" in done.stderr
        assert list(tmp_path.iterdir()) == []

    def test_a_latex_file_that_cannot_be_written_is_refused_first(self, capsys, tmp_path):
        code, out, err = run(capsys, "T1", "--latex", str(tmp_path / "no" / "x.tex"))
        assert (code, out) == (2, "")
        assert err.count("\n") == 1


@pytest.fixture(scope="module")
def document():
    return latex.document([(theorem(name), list(theorem(name).run())) for name in FILES])


class TestLatex:
    def test_it_is_ascii_and_balanced(self, document):
        assert document.isascii()
        assert document.count("{") - document.count("\\{") == (
            document.count("}") - document.count("\\}")
        )
        for environment in ("itemize", "enumerate", "align*", "document"):
            begun = document.count(f"\\begin{{{environment}}}")
            assert begun == document.count(f"\\end{{{environment}}}") > 0
        assert document.count("\\[ ") == document.count(" \\]") > 100
        assert document.count("\\section*") == len(FILES)

    @pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
    def test_it_compiles(self, document, tmp_path):
        (tmp_path / "theorems.tex").write_text(document, encoding="ascii")
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "theorems.tex"],
            cwd=tmp_path,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout[-2000:]
        assert (tmp_path / "theorems.pdf").stat().st_size > 10_000

    def test_a_character_without_a_translation_is_noticed(self):
        odd = dataclasses.replace(theorem("T1"), statement="ש.")
        with pytest.raises(UnicodeEncodeError):
            latex.document([(odd, [])])

    def test_prose_is_escaped(self):
        assert latex.prose("a_b 5% δ ≤ 1") == r"a\_b 5\% $\delta$ $\le$ 1"


def test_the_table_of_contents_loads_no_sympy():
    code = "import sys, dispersion.proofs; print('sympy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]
    assert proofs.FILES
