"""Full attention in float64 NumPy, and every statistic of a row by its definition."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Reference:
    """Per head and query: logits (H, n, m), -inf where hidden; coefficients; the sink's share."""

    logits: np.ndarray
    coefficients: np.ndarray
    sink_share: np.ndarray


def attention(
    q, k, *, scale, causal=True, window=None, soft_cap=None, sinks=None, key_mask=None, mask=None,
    offset=0,
):  # fmt: skip
    q, k = (np.asarray(x).astype(np.float64) for x in (q, k))
    k = np.repeat(k, q.shape[0] // k.shape[0], axis=0)
    logits = np.einsum("hid,hjd->hij", q, k) * scale
    if soft_cap is not None:
        logits = soft_cap * np.tanh(logits / soft_cap)
    distance = offset + np.arange(q.shape[1])[:, None] - np.arange(k.shape[1])[None, :]
    seen = np.ones(distance.shape, bool)
    if causal:
        seen &= distance >= 0
    if window is not None:
        seen &= np.abs(distance) < window
    if key_mask is not None:
        seen &= key_mask[None, :]
    if mask is not None:
        seen &= mask
    logits = np.where(seen, logits, -np.inf)
    sink = np.full(q.shape[0], -np.inf) if sinks is None else np.asarray(sinks, np.float64)
    row = np.concatenate([logits, np.broadcast_to(sink[:, None, None], (*logits.shape[:2], 1))], 2)
    with np.errstate(invalid="ignore"):
        weight = np.exp(row - row.max(2, keepdims=True))
        share = weight / weight.sum(2, keepdims=True)
    share[:, ~seen.any(1)] = np.nan
    return Reference(logits, share[..., :-1], share[..., -1])


def row_statistics(reference, head, query, *, position):
    """One row by the definitions, as a dict; nan where it sees no key."""
    logit = reference.logits[head, query]
    seen = np.isfinite(logit)
    n = int(seen.sum())
    if n == 0:
        return {"items": 0}
    values, share = np.sort(logit[seen])[::-1], reference.coefficients[head, query]
    alone = np.exp(values - values[0])
    alone /= alone.sum()
    with np.errstate(divide="ignore"):
        left = np.log(np.exp(values[1:] - values[0]).sum()) if n > 1 else -np.inf
        sink = reference.sink_share[head, query]
        extra = np.log(sink) - np.log(share.max()) if sink > 0 else -np.inf
        log_odds = -np.logaddexp(left, extra)
        gaps = values[0] - values
        scale = max((np.log(np.arange(2, n + 1)) / gaps[1:]).max(), 0) if n > 1 else 0.0
    distance = np.abs(position - np.arange(len(logit)))
    bins = np.where(distance == 0, 0, np.floor(np.log2(np.maximum(distance, 1))).astype(int) + 1)
    return {
        "items": n,
        "spread": values[0] - values[-1],
        "entropy": -(alone * np.log(np.where(alone > 0, alone, 1))).sum(),
        "coefficient": share.max(),
        "log_odds": log_odds,
        "effective_spread": max(np.log(n - 1) + log_odds, 0.0) if n > 1 else 0.0,
        "sink_share": sink,
        "profile": np.bincount(bins[seen], share[seen]),
        "share": np.where(seen, share, 0.0),
        "gaps": gaps,
        "accumulation_scale": scale,
    }
