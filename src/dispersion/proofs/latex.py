"""The theorems as one LaTeX document in plain ASCII, for pdflatex."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import sympy as sp

from dispersion.proofs.steps import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.proofs.steps import Done, Theorem

_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "varepsilon", "θ": "theta",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho",
    "σ": "sigma", "τ": "tau", "φ": "varphi", "ψ": "psi", "ω": "omega", "Γ": "Gamma",
    "Δ": "Delta", "Σ": "Sigma",
}  # fmt: skip
MATH = {
    **{letter: f"\\{name} " for letter, name in _GREEK.items()},
    "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "±": "\\pm ", "·": "\\cdot ", "−": "-",
    "∈": "\\in ", "∞": "\\infty ", "→": "\\to ", "∝": "\\propto ", "√": "\\surd ", "∫": "\\int ",
    "Π": "\\prod ", "⟨": "\\langle ", "⟩": "\\rangle ", "⌈": "\\lceil ", "⌉": "\\rceil ",
    "⌊": "\\lfloor ", "⌋": "\\rfloor ", "‖": "\\|", "²": "^2", "½": "\\tfrac12 ", "ᵀ": "^{\\top}",
    "′": "'", "″": "''", "k̄": "\\bar k", "v̄": "\\bar v",
}  # fmt: skip
_TEXT = {"–": "--", "…": "\\dots ", "é": "\\'e", "č": "\\v{c}", "’": "'"}
_SPECIAL = {
    "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "_": "\\_", "^": "\\^{}", "&": "\\&",
    "%": "\\%", "$": "\\$", "#": "\\#", "~": "\\~{}",
}  # fmt: skip
_HEAD = r"""\documentclass{article}
\usepackage{amsmath,amssymb}
\setlength{\emergencystretch}{3em}
\allowdisplaybreaks
\title{Derivations behind \texttt{dispersion}}
\date{}
\begin{document}
\maketitle
\noindent Every displayed relation was decided by computer algebra when this document was made,
except where a step says otherwise.
"""
_SIGNS = {sp.Eq: "=", sp.Le: r"\le", sp.Lt: "<", sp.Ge: r"\ge"}
_LONG = 90


def document(parts: Sequence[tuple[Theorem, Sequence[Done]]]) -> str:
    """A whole document: a section for each theorem."""
    body = "\n".join(_section(theorem, done) for theorem, done in parts)
    text = f"{_HEAD}{body}\n\\end{{document}}\n"
    text.encode("ascii")  # a character without a translation must show here, not in pdflatex
    return text


def prose(text: str) -> str:
    """A sentence, with its mathematical characters in math mode."""
    out = []
    for piece in re.findall(r"[kv]\u0304|.", text, flags=re.DOTALL):
        if piece in MATH:
            out.append(f"${MATH[piece].strip()}$" if piece not in "²ᵀ′″" else _raised(piece))
        else:
            out.append(_TEXT.get(piece, _SPECIAL.get(piece, piece)))
    return "".join(out)


def _raised(piece: str) -> str:
    return {"²": "$^2$", "ᵀ": "$^{\\top}$", "′": "$'$", "″": "$''$"}[piece]


def formula(shown: Any) -> str:
    """A relation in display mode, broken at its sign where it is long."""
    if isinstance(shown, sp.And):
        return "\n".join(formula(part) for part in shown.args)
    left, right = (_expression(side) for side in shown.args)
    sign = _SIGNS[type(shown)]
    if len(left) + len(right) < _LONG:
        return f"\\[ {left} {sign} {right} \\]"
    return f"\\begin{{align*}}\n& {left} \\\\\n& \\quad {sign} {right}\n\\end{{align*}}"


def _expression(side: Any) -> str:
    symbols = side.atoms(sp.Symbol, sp.Dummy)
    names = {symbol: _name(symbol.name) for symbol in symbols}
    return _to_ascii(sp.latex(side, symbol_names=names))


def _name(name: str) -> str:
    """A symbol's name in math mode, such as ⟨a_i,b_j⟩, H_kv or max ‖S^-1(Au+a)‖."""
    words = re.sub(r"\b(max|min|log)\b", r"\\\1 ", name)
    words = re.sub(r"_(\w+)", r"_{\1}", words)
    words = re.sub(r"\^(-?\w+)", r"^{\1}", words)
    return "{" + _to_ascii(words) + "}"


def _to_ascii(text: str) -> str:
    for piece, replacement in MATH.items():
        text = text.replace(piece, replacement)
    return text


def _section(theorem: Theorem, steps: Sequence[Done]) -> str:
    lines = [
        f"\\section*{{{prose(theorem.name)}: {prose(theorem.title)}}}",
        prose(theorem.statement),
        formula(theorem.formula),
        "\\paragraph{Hypotheses.}",
        "\\begin{itemize}",
        *(f"\\item \\emph{{{prose(n)}}}: {prose(t)}." for n, t in theorem.hypotheses.items()),
        "\\end{itemize}",
    ]
    if theorem.scope:
        lines.append(f"\\paragraph{{Scope.}} {prose(theorem.scope)}")
    lines += ["\\paragraph{Derivation.}", "\\begin{enumerate}"]
    for done in steps:
        step = done.step
        lines.append(f"\\item {prose(step.claim)}{':' if step.relation is not None else '.'}")
        if step.relation is not None:
            lines.append(formula(step.relation))
        lines += [prose(step.why)] if step.why else []
        lines.append(f"{{\\small {prose(_verdict(done))}}}")
    lines += ["\\end{enumerate}", ""]
    return "\n".join(lines)


def _verdict(done: Done) -> str:
    if done.step.rests is not None:
        return f"[{done.verdict.value} {done.step.rests[1]}]"
    mark = done.verdict.value if done.verdict is Verdict.PROVED else done.verdict.name
    return f"[{mark}: {done.step.how}]"
