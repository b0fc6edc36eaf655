"""The model of the QK-norm experiment written again in NumPy, one query and one head at a time."""

import math

import numpy as np


def forward(p, qk_norm, c, *, layers, heads, head_dim):
    """Class logits (queries, classes) and coefficients [layer][head][query], a sink's behind."""
    p = {name: np.asarray(value, dtype=np.float64) for name, value in p.items()}
    count = int(c.count)
    context = [p["kind"][0]]
    for j in range(count):
        token = np.asarray(c.keys[j], float) @ p["key"] + p["value"][int(c.values[j])]
        token = token + p["kind"][1]
        if int(c.marks[j]):
            token = token + p["mark"][int(c.marks[j]) - 1]
        context.append(token)
    answers, found = [], [[[] for _ in range(heads)] for _ in range(layers)]
    for mark, key in zip(np.asarray(c.asked_marks), np.asarray(c.asked_keys, float), strict=True):
        of_mark = p["mark"][int(mark) - 1] + p["kind"][2]
        query = of_mark if mark else key @ p["key"] + p["kind"][3]
        tokens = [*context, query]
        for i in range(layers):
            normed = [_rms(x) * p[f"{i}.norm"] for x in tokens]
            parts = []
            for h in range(heads):
                part = slice(h * head_dim, (h + 1) * head_dim)
                q = _side(p, i, qk_norm, "q", normed[-1], part)
                keys = [_side(p, i, qk_norm, "k", x, part) for x in normed]
                logits = [float(q @ k) / math.sqrt(head_dim) for k in keys]
                if f"{i}.s" in p:
                    logits = [x * p[f"{i}.s"][h] * math.log(len(keys)) for x in logits]
                weights = [math.exp(x) for x in logits]
                whole = sum(weights)
                if f"{i}.sink" in p:
                    extra = math.exp(p[f"{i}.sink"][h])
                    whole += extra
                    weights.append(extra)
                shares = [w / whole for w in weights]
                found[i][h].append(shares)
                values = [x @ p[f"{i}.v"][:, part] for x in normed]
                mixed = sum(a * v for a, v in zip(shares, values, strict=False))
                if f"{i}.gate" in p:
                    mixed = mixed / (1 + np.exp(-normed[-1] @ p[f"{i}.gate"][:, part]))
                parts.append(mixed)
            tokens[-1] = tokens[-1] + np.concatenate(parts) @ p[f"{i}.o"]
            tokens = [x + _mlp(p, i, x) for x in tokens]
        answers.append(_rms(tokens[-1]) * p["norm"] @ p["out"])
    return np.array(answers), found


def _rms(x):
    return x / np.sqrt(np.mean(x * x) + 1e-6)


def _side(p, i, qk_norm, side, x, part):
    every = x @ p[f"{i}.{side}"]
    if qk_norm == "layerwise":
        return (_rms(every) * p[f"{i}.{side}_gain"])[part]
    if qk_norm == "headwise":
        return _rms(every[part]) * p[f"{i}.{side}_gain"]
    return every[part]


def _mlp(p, i, x):
    hidden = _rms(x) * p[f"{i}.mlp_norm"] @ p[f"{i}.up"]
    bent = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
    return bent @ p[f"{i}.down"]
