/* `lanes` hold the numbers of LANES adjacent units. With GCC and Clang they are a vector register, with other compilers
   one number. Arithmetic operators work on both. */
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
typedef integer mask __attribute__((vector_size(BYTES)));
#define ALIGNED __attribute__((aligned(64)))
#define HELPER static inline __attribute__((unused, always_inline))
#define LANE(x, j) ((x)[j])
#define NOT(m) (~(m))
#define INTEGER(x) __builtin_convertvector(x, mask)
#define REAL(n) __builtin_convertvector(n, lanes)
#else
#define LANES 1
typedef real lanes;
typedef integer mask;
#define ALIGNED
#define HELPER static inline
#define LANE(x, j) (x)
#define NOT(m) (!(m))
#define INTEGER(x) ((mask)(x))
#define REAL(n) ((lanes)(n))
#endif

#define ROWS (BLOCK / LANES) /* the number of registers for a block of units */

/* Unrolls a loop over the registers of a block. Without AVX, a block has too many registers for that. */
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

/* Sets all lanes to one number. */
HELPER lanes broadcast(real number) {
    const lanes zero = {0};
    return number - zero; /* the difference keeps the sign of zero */
}

/* Selects `yes` where the mask is true, else `no`. */
HELPER lanes select_lanes(mask where, lanes yes, lanes no) {
#if LANES > 1
    return (lanes)((where & (mask)yes) | (~where & (mask)no));
#else
    return where ? yes : no;
#endif
}

/* A mask with the same truth value in all lanes. */
HELPER mask broadcast_mask(int truth) { return (mask)(broadcast((real)truth) != broadcast(0)); }

/* In memory, masks are ones and zeros. */
HELPER mask load_mask(const real *from) { return (mask)(load(from) != broadcast(0)); }

HELPER void store_mask(real *to, mask x) { store(to, select_lanes(x, broadcast(1), broadcast(0))); }

/* Bounds x from above; NaN where x is NaN. */
HELPER lanes at_most(lanes x, lanes bound) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = LANE(bound, j) < LANE(x, j) ? LANE(bound, j) : LANE(x, j);
    return x;
}

/* Bounds x from below; NaN where x is NaN. */
HELPER lanes at_least(lanes x, lanes bound) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = LANE(bound, j) > LANE(x, j) ? LANE(bound, j) : LANE(x, j);
    return x;
}

/* The minimum; NaN where x or y is NaN. */
HELPER lanes minimum_lanes(lanes x, lanes y) { return select_lanes((mask)(y == y), at_most(x, y), y); }

/* The maximum; NaN where x or y is NaN. */
HELPER lanes maximum_lanes(lanes x, lanes y) { return select_lanes((mask)(y == y), at_least(x, y), y); }

/* Sets all lanes after the first `count` to zero. */
HELPER lanes first_lanes(lanes x, int count) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = j < count ? LANE(x, j) : 0;
    return x;
}

HELPER real sum_lanes(lanes x) {
    real sum = 0;
    for (int j = 0; j < LANES; j++) sum += LANE(x, j);
    return sum;
}

/* Defines a function that computes an expression of v for each lane, usually with the C library. */
#define LANE_BY_LANE(name, expression)                \
    HELPER lanes name(lanes x) {                      \
        for (int j = 0; j < LANES; j++) {             \
            const real v = LANE(x, j);                \
            LANE(x, j) = (real)(expression);          \
        }                                             \
        return x;                                     \
    }

LANE_BY_LANE(sqrt_lanes, MATH(sqrt)(v))
LANE_BY_LANE(log_lanes, MATH(log)(v))
LANE_BY_LANE(log1p_lanes, MATH(log1p)(v))
LANE_BY_LANE(expm1_lanes, MATH(expm1)(v))
LANE_BY_LANE(sin_lanes, MATH(sin)(v))
LANE_BY_LANE(cos_lanes, MATH(cos)(v))
LANE_BY_LANE(tan_lanes, MATH(tan)(v))
LANE_BY_LANE(atan_lanes, MATH(atan)(v))
LANE_BY_LANE(erf_lanes, MATH(erf)(v))
LANE_BY_LANE(floor_lanes, MATH(floor)(v))
LANE_BY_LANE(ceil_lanes, MATH(ceil)(v))
LANE_BY_LANE(round_lanes, MATH(rint)(v))
LANE_BY_LANE(trunc_lanes, MATH(trunc)(v))
LANE_BY_LANE(abs_lanes, MATH(fabs)(v))

HELPER lanes pow_lanes(lanes x, lanes y) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = MATH(pow)(LANE(x, j), LANE(y, j));
    return x;
}

HELPER lanes fmod_lanes(lanes x, lanes y) {
    for (int j = 0; j < LANES; j++) LANE(x, j) = MATH(fmod)(LANE(x, j), LANE(y, j));
    return x;
}

#if SIZE == 8

LANE_BY_LANE(exp_lanes, exp(v))
LANE_BY_LANE(tanh_lanes, tanh(v))
LANE_BY_LANE(sigmoid_lanes, 1 / (1 + exp(-v)))

#else

/* e^x = 2^n e^r with |r| <= log(2) / 2. A polynomial approximates e^r (Cephes library, S. Moshier). n becomes the
   exponent bits of a float. */
HELPER lanes exp_lanes(lanes x) {
    const lanes bounded = at_least(at_most(x, broadcast(88.72283f)), broadcast(-87.33f));
    const lanes scaled = bounded * 1.44269504f;
    const mask n = INTEGER(scaled + select_lanes(scaled < broadcast(0), broadcast(-0.5f), broadcast(0.5f)));
    const lanes integer_part = REAL(n);
    const lanes r = (bounded - integer_part * 0.693359375f) + integer_part * 2.12194440e-4f;
    lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* 2^n is the product of two floats, because n can be 128, and 2^128 is not a finite float. */
    const mask half = n >> 1, bits_a = (half + 127) << 23, bits_b = (n - half + 127) << 23;
    lanes a, b;
    memcpy(&a, &bits_a, sizeof a);
    memcpy(&b, &bits_b, sizeof b);
    const lanes y = p * a * b;
    const lanes finite = select_lanes(x > broadcast(88.72283f), broadcast(INFINITY), y);
    return select_lanes(x == x, select_lanes(x < broadcast(-87.33f), broadcast(0), finite), x);
}

/* The rational function x p(x^2) / d(x^2). Its error is below 2e-8 for |x| <= 8.7. From 9.1 on, the quotient is
   at least 1, and the result is 1 or -1. The polynomial d has the leading coefficient 1. */
HELPER lanes tanh_lanes(lanes x) {
    x = at_least(at_most(x, broadcast(9.1f)), broadcast(-9.1f));
    const lanes q = x * x;
    lanes p = q * 0.0173794776f + 26.2538319f;
    p = p * q + 4400.39648f;
    p = p * q + 167581.281f;
    p = p * q + 1250564.0f;
    lanes d = q + 415.640472f;
    d = d * q + 32470.6953f;
    d = d * q + 584435.812f;
    d = d * q + 1250564.0f;
    return at_least(at_most(x * p / d, broadcast(1)), broadcast(-1));
}

/* 1/2 + tanh(x / 2) / 2, with the same rational function; 0 or 1 from 18.4 on. */
HELPER lanes sigmoid_lanes(lanes x) {
    x = at_least(at_most(x, broadcast(18.4f)), broadcast(-18.4f));
    const lanes q = x * x;
    lanes p = q * 0.00434486801f + 26.2538357f;
    p = p * q + 17601.5879f;
    p = p * q + 2681300.5f;
    p = p * q + 80036104.0f;
    lanes d = q + 1662.56201f;
    d = d * q + 519531.188f;
    d = d * q + 37403892.0f;
    d = d * q + 320144416.0f;
    return at_least(at_most(x * p / d + 0.5f, broadcast(1)), broadcast(0));
}

#endif
