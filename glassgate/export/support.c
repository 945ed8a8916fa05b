/* `lanes` are numbers of neighbouring units, side by side: a vector register with GCC and Clang, else one number.
   Arithmetic on them is written as on single numbers. */
#if defined(__GNUC__) && !defined(ONE_LANE)
#if defined(__AVX512F__)
#define REGISTER 64
#elif defined(__AVX__)
#define REGISTER 32
#else
#define REGISTER 16
#endif
#define BYTES (BLOCK * SIZE < REGISTER ? BLOCK * SIZE : REGISTER)
#define LANES (BYTES / SIZE)
typedef real lanes __attribute__((vector_size(BYTES)));
typedef whole mask __attribute__((vector_size(BYTES)));
#define ALIGNED __attribute__((aligned(64)))
#define HELPER static inline __attribute__((unused, always_inline))
#define LANE(x, j) ((x)[j])
#define NOT(m) (~(m))
#define WHOLE(x) __builtin_convertvector(x, mask)
#define REAL(n) __builtin_convertvector(n, lanes)
#else
#define LANES 1
typedef real lanes;
typedef whole mask;
#define ALIGNED
#define HELPER static inline
#define LANE(x, j) (x)
#define NOT(m) (!(m))
#define WHOLE(x) ((mask)(x))
#define REAL(n) ((lanes)(n))
#endif

#define ROWS (BLOCK / LANES) /* registers for the units of a block */

/* Before a loop over registers: the compiler computes them side by side. Short registers would be too many for that. */
#if defined(__AVX__) && __GNUC__ >= 8
#define UNROLL _Pragma("GCC unroll 8")
#else
#define UNROLL
#endif

HELPER lanes load(const real *from) {
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

HELPER void store(real *to, lanes x) { memcpy(to, &x, sizeof x); }

/* The same number in all lanes. */
HELPER lanes all(real number) {
    const lanes zero = {0};
    return zero + number;
}

/* `yes` where the mask is true, else `no`. */
HELPER lanes pick(mask where, lanes yes, lanes no) {
#if LANES > 1
    return (lanes)((where & (mask)yes) | (~where & (mask)no));
#else
    return where ? yes : no;
#endif
}

/* The smaller and the larger of two; NaN where x is NaN. */
HELPER lanes least(lanes x, lanes bound) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = LANE(bound, j) < LANE(x, j) ? LANE(bound, j) : LANE(x, j);
    return x;
}

HELPER lanes most(lanes x, lanes bound) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = LANE(bound, j) > LANE(x, j) ? LANE(bound, j) : LANE(x, j);
    return x;
}

/* The first `count` lanes, then zeros. */
HELPER lanes first(lanes x, int count) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = j < count ? LANE(x, j) : 0;
    return x;
}

HELPER real total(lanes x) {
    real sum = 0;
    for (int j = 0; j < LANES; j++) sum += LANE(x, j);
    return sum;
}

/* A function of the C library, lane by lane. */
#define LANE_BY_LANE(name, expression)                \
    HELPER lanes name(lanes x) {                      \
        for (int j = 0; j < LANES; j++) {             \
            const real v = LANE(x, j);                \
            LANE(x, j) = (real)(expression);          \
        }                                             \
        return x;                                     \
    }

LANE_BY_LANE(roots, MATH(sqrt)(v))
LANE_BY_LANE(logs, MATH(log)(v))
LANE_BY_LANE(logs1p, MATH(log1p)(v))
LANE_BY_LANE(exps_minus_1, MATH(expm1)(v))
LANE_BY_LANE(sines, MATH(sin)(v))
LANE_BY_LANE(cosines, MATH(cos)(v))
LANE_BY_LANE(tangents, MATH(tan)(v))
LANE_BY_LANE(arctangents, MATH(atan)(v))
LANE_BY_LANE(erfs, MATH(erf)(v))
LANE_BY_LANE(floors, MATH(floor)(v))
LANE_BY_LANE(ceilings, MATH(ceil)(v))
LANE_BY_LANE(rounded, MATH(rint)(v))
LANE_BY_LANE(truncated, MATH(trunc)(v))

HELPER lanes powers(lanes x, lanes y) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = MATH(pow)(LANE(x, j), LANE(y, j));
    return x;
}

HELPER lanes sizes(lanes x) { return pick(x < all(0), -x, x); }

HELPER lanes signs(lanes x) { return pick(x > all(0), all(1), pick(x < all(0), all(-1), x)); }

#if SIZE == 8

LANE_BY_LANE(exps, exp(v))
LANE_BY_LANE(tanhs, tanh(v))
LANE_BY_LANE(sigmoids, 1 / (1 + exp(-v)))

#else

/* e^x = 2^n e^r with |r| <= log(2) / 2: a polynomial of Cephes (S. Moshier), and n in the exponent's bits. */
HELPER lanes exps(lanes x) {
    const lanes bounded = most(least(x, all(88.72f)), all(-87.33f));
    const lanes scaled = bounded * 1.44269504f;
    const mask n = WHOLE(scaled + pick(scaled < all(0), all(-0.5f), all(0.5f)));
    const lanes whole_part = REAL(n);
    const lanes r = (bounded - whole_part * 0.693359375f) + whole_part * 2.12194440e-4f;
    lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* In two factors, for 2^128 is too large for one. */
    const mask half = n >> 1, bits_a = (half + 127) << 23, bits_b = (n - half + 127) << 23;
    lanes a, b;
    memcpy(&a, &bits_a, sizeof a);
    memcpy(&b, &bits_b, sizeof b);
    const lanes y = p * a * b;
    return pick(x < all(-103.9f), all(0), pick(x > all(88.72f), all(INFINITY), pick(x == x, y, x)));
}

/* x p(x^2) / d(x^2), within 2e-8 of tanh(x) up to |x| = 8.7, from where tanh(x) is 1 in float. d begins with x^8,
   without a factor. */
HELPER lanes tanhs(lanes x) {
    x = most(least(x, all(8.7f)), all(-8.7f));
    const lanes q = x * x;
    lanes p = q * 0.0173794776f + 26.2538319f;
    p = p * q + 4400.39648f;
    p = p * q + 167581.281f;
    p = p * q + 1250564.0f;
    lanes d = q + 415.640472f;
    d = d * q + 32470.6953f;
    d = d * q + 584435.812f;
    d = d * q + 1250564.0f;
    return x * p / d;
}

/* 1/2 + tanh(x / 2) / 2. */
HELPER lanes sigmoids(lanes x) {
    x = most(least(x, all(17.4f)), all(-17.4f));
    const lanes q = x * x;
    lanes p = q * 0.00434486801f + 26.2538357f;
    p = p * q + 17601.5879f;
    p = p * q + 2681300.5f;
    p = p * q + 80036104.0f;
    lanes d = q + 1662.56201f;
    d = d * q + 519531.188f;
    d = d * q + 37403892.0f;
    d = d * q + 320144416.0f;
    return x * p / d + 0.5f;
}

#endif
