"""Functions of numbers with the same bits on every machine: additions, multiplications, divisions and roots alone.

`math.sin` and its like come from the system's library, whose last bit depends on its version and the processor. The
polynomials are those of fdlibm (Sun Microsystems, 1993). Plain Python, which Numba compiles where a game does.
"""

from __future__ import annotations

import math

# pi / 2 in three parts of which the first two have 33 bits each: multiples below 2^20 of them are exact.
HALF_PI_1, HALF_PI_2, HALF_PI_3 = 1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
S1, S2, S3 = -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04
S4, S5, S6 = 2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10
C1, C2, C3 = 4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05
C4, C5, C6 = -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11
LOG2_E, LN2_1, LN2_2 = 1.44269504088896338700e00, 6.93147180369123816490e-01, 1.90821492927058770002e-10
P1, P2, P3 = 1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05
P4, P5 = -1.65339022054652515390e-06, 4.13813679705723846039e-08
L1, L2, L3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
L4, L5, L6, L7 = 2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01
LARGEST_ANGLE = 1_000_000.0


def _sine(x: float, low: float) -> float:
    """Return the sine of x + low, for |x| <= pi / 4."""
    z = x * x
    r = S2 + z * (S3 + z * (S4 + z * (S5 + z * S6)))
    v = z * x
    return x - ((z * (0.5 * low - v * r) - low) - v * S1)


def _cosine(x: float, low: float) -> float:
    """Return the cosine of x + low, for |x| <= pi / 4."""
    z = x * x
    r = z * (C1 + z * (C2 + z * (C3 + z * (C4 + z * (C5 + z * C6)))))
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + (z * r - x * low))


def _reduced(x: float) -> tuple[int, float, float]:
    """Return the quarter, and x less a multiple of pi / 2 in two parts."""
    n = math.floor(x * (2.0 / math.pi) + 0.5)
    rest = x - n * HALF_PI_1
    first = rest - n * HALF_PI_2
    lost = (rest - first) - n * HALF_PI_2 - n * HALF_PI_3
    high = first + lost
    return int(n) & 3, high, (first - high) + lost


def sin(x: float) -> float:
    """Return the sine of x in radians, to one unit in the last place; NaN beyond a million."""
    if not abs(x) <= LARGEST_ANGLE:
        return math.nan
    quarter, high, low = _reduced(x)
    value = _cosine(high, low) if quarter & 1 else _sine(high, low)
    return -value if quarter & 2 else value


def cos(x: float) -> float:
    """Return the cosine of x in radians, to one unit in the last place; NaN beyond a million."""
    if not abs(x) <= LARGEST_ANGLE:
        return math.nan
    quarter, high, low = _reduced(x)
    value = _sine(high, low) if quarter & 1 else _cosine(high, low)
    return -value if quarter == 1 or quarter == 2 else value


def exp(x: float) -> float:
    """Return e^x, to one unit in the last place; 0 below -700 and infinite above 700."""
    if x != x:
        return x
    if x < -700.0:
        return 0.0
    if x > 700.0:
        return math.inf
    n = math.floor(x * LOG2_E + 0.5)
    high, low = x - n * LN2_1, n * LN2_2
    r = high - low
    z = r * r
    c = r - z * (P1 + z * (P2 + z * (P3 + z * (P4 + z * P5))))
    value = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    scale, power, count = 1.0, 2.0 if n >= 0 else 0.5, abs(int(n))
    while count:  # 2^n by squaring, which is exact
        if count & 1:
            scale *= power
        power *= power
        count >>= 1
    return value * scale


def log(x: float) -> float:
    """Return the natural logarithm, to one unit in the last place; minus infinity of 0, NaN below."""
    if not x > 0.0 or x == math.inf:
        return -math.inf if x == 0.0 else x if x > 0.0 else math.nan
    m, n = math.frexp(x)  # exact
    if m < 0.7071067811865476:
        m, n = 2.0 * m, n - 1
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = z * (L1 + z * (L2 + z * (L3 + z * (L4 + z * (L5 + z * (L6 + z * L7))))))
    half = 0.5 * f * f
    return n * LN2_1 - ((half - (s * (half + r) + n * LN2_2)) - f)


def tanh(x: float) -> float:
    """Return the hyperbolic tangent of x, to three units in the last place."""
    size = abs(x)
    if size < 1.0:  # a continued fraction (Lambert, 1770), where 1 - 2 / (exp + 1) would cancel
        z = x * x
        rest = 21.0
        for odd in range(19, 0, -2):
            rest = odd + z / rest
        return x / rest
    if size > 22.0:
        return 1.0 if x > 0 else -1.0
    value = 1.0 - 2.0 / (exp(2.0 * size) + 1.0)
    return value if x > 0 else -value
