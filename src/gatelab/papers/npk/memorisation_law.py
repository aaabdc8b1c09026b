r"""What the variance of K₀ predicts for memorisation networks, without training one (npk, Appendix E, corrected).

Over gates Ber(μ) and signs, K₀(s, s)/d has mean 1, and its variance grows with d/(μw): deep networks have diagonals
that differ by factors, and their smallest entries are learnt last. Entries off the diagonal have mean μ^{d−1}: shallow
networks have one large eigenvalue, which bounds the step. The best depth lies between.
"""

from math import exp, log, sqrt
from statistics import NormalDist


def lookup_variance(width: int, depth: int, mu: float) -> float:
    """Var[K₀(s, s)]/E² over gates and signs: the recursion of :mod:`gatelab.kernels.tangent_moments`, c ~ Bin(w, μ).

    Example:
        >>> round(lookup_variance(500, 2, 0.5), 4)  # K₀/d = c/(μw), a binomial share
        0.002
    """
    sigma_squared = 1 / (mu * width)
    once, twice = width * mu, width * (width - 1) * mu**2  # E[c], E[c(c − 1)]
    layers = [(once, twice)] * (depth - 1) + [(1.0, 0.0)]
    # (U, V, R) with none, one or both strands past a redrawn layer; for one example X = V.
    none, one, two = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    for c, pairs in layers:
        renewed = [[((c + pairs) if i == 0 else c) * strands[0] for i in range(3)] for strands in (none, one)]
        shared = [_shared(strands, c, pairs, sigma_squared) for strands in (none, one, two)]
        two = tuple(s + a + 2 * sigma_squared * b for s, a, b in zip(shared[2], *renewed, strict=True))
        one = tuple(s + sigma_squared * a for s, a in zip(shared[1], renewed[0], strict=True))
        none = shared[0]
    return two[0] / depth**2 - 1


def _shared(strands: tuple[float, ...], c: float, pairs: float, sigma_squared: float) -> tuple[float, float, float]:
    u, v, r = strands
    meeting = c * (u + 2 * v - 2 * r)
    s = sigma_squared**2
    return s * (pairs * u + meeting), s * (pairs * v + meeting), s * meeting


def predicted_steps(n: int, width: int, depth: int, mu: float, share: float = 0.01) -> float:
    """Steps of size 0.1/ρ_max until the error is ``share`` of its start, if K₀ did not change.

    The diagonal is taken as lognormal with the exact variance, all other entries as their mean μ^{d−1}; then
    ‖e_t‖²/‖e_0‖² is the mean of (1 − 0.1 ρ_i/ρ_max)^{2t} over examples.
    """
    common, spread = mu ** (depth - 1), sqrt(log(1 + lookup_variance(width, depth, mu)))
    normal = NormalDist()
    diagonal = [exp(spread * normal.inv_cdf((i + 0.5) / n) - spread**2 / 2) for i in range(n)]
    largest = max(1 + (n - 1) * common, diagonal[-1])
    rates = [-2 * log(1 - 0.1 * (1 - common) * entry / largest) for entry in diagonal]
    low, high = 1.0, 1e9
    while high / low > 1.001:
        middle = sqrt(low * high)
        left = sum(exp(-rate * middle) for rate in rates) / n
        low, high = (middle, high) if left > share else (low, middle)
    return high
