"""The symbols that the derivations share, with what is assumed of each."""

import sympy as sp

n = sp.Symbol("n", integer=True, positive=True)  # items of a row, keys of a context
m = sp.Symbol("m", integer=True, nonnegative=True)  # n = m + 1, where a sign is asked for
j = sp.Symbol("j", integer=True, positive=True)  # an index that is summed over
d = sp.Symbol("δ", nonnegative=True)  # spread
h = sp.Symbol("h", nonnegative=True)  # slack: how far an inequality is from equality
x = sp.Symbol("x", real=True)  # a logit
y = sp.Symbol("y", real=True)  # another logit
p = sp.Symbol("p", positive=True)  # a coefficient
odds = sp.Symbol("ω", positive=True)  # p/(1−p)
theta = sp.Symbol("θ", positive=True)  # temperature
