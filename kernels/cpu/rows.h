/* Row kernels in plain vectors of 16 floats; each level compiles them with its own instructions.
 *
 * The including file defines STRATA_FMA(a, b, c) = a * b + c, fused or not. Contraction is off for the
 * whole library, so the order and rounding of every sum is what is written here.
 */
#include <string.h>

#include "internal.h"

typedef float floats16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t ints16 __attribute__((vector_size(64), aligned(4)));
typedef uint32_t words16 __attribute__((vector_size(64), aligned(4)));
typedef uint16_t shorts16 __attribute__((vector_size(32), aligned(2)));
typedef _Float16 halves16 __attribute__((vector_size(32), aligned(2)));
typedef float floats8 __attribute__((vector_size(32), aligned(4)));
typedef uint32_t words8 __attribute__((vector_size(32), aligned(4)));
typedef uint32_t words4 __attribute__((vector_size(16), aligned(4)));
typedef uint64_t longs4 __attribute__((vector_size(32), aligned(8)));
typedef uint16_t shorts8 __attribute__((vector_size(16), aligned(2)));
typedef _Float16 halves8 __attribute__((vector_size(16), aligned(2)));
typedef uint8_t bytes16 __attribute__((vector_size(16), aligned(1)));
typedef uint8_t bytes32 __attribute__((vector_size(32), aligned(1)));
typedef int8_t chars16 __attribute__((vector_size(16), aligned(1)));
typedef int8_t chars32 __attribute__((vector_size(32), aligned(1)));
typedef int16_t codes16 __attribute__((vector_size(32), aligned(2)));
typedef int16_t codes32 __attribute__((vector_size(64), aligned(2)));

#define INLINE static inline __attribute__((always_inline))

INLINE floats16 load16(const float *x) { return *(const floats16 *)(const void *)x; }
INLINE void store16(float *y, floats16 x) { *(floats16 *)(void *)y = x; }
INLINE floats16 all16(float x) { return (floats16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

/* The first n of 16 values, zeros behind. */
INLINE floats16 load_some(const float *x, int64_t n) {
    float padded[16] = {0};
    memcpy(padded, x, (size_t)n * sizeof(float));
    return load16(padded);
}

INLINE void store_some(float *y, floats16 x, int64_t n) {
    float padded[16];
    store16(padded, x);
    memcpy(y, padded, (size_t)n * sizeof(float));
}

/* Adds 16 lanes as a tree: i and i + 8, then + 4, + 2, + 1. */
INLINE float sum16(floats16 x) {
    x += __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15);
    x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return x[0] + x[1];
}

/* exp(x) to 2e-7 relative; 0 far below, capped far above. Range reduction by ln 2 in two parts and
 * the Taylor polynomial of degree 7 on half an interval of ln 2. */
INLINE floats16 exp16(floats16 x) {
    const floats16 lowest = all16(-87.0f), highest = all16(88.0f);
    const ints16 is_zero = x < lowest;
    x = __builtin_elementwise_min(__builtin_elementwise_max(x, lowest), highest);
    const floats16 rounder = all16(12582912.0f); /* 1.5 * 2^23: adding it rounds to whole numbers */
    const floats16 n = (x * 1.44269504f + rounder) - rounder;
    floats16 r = STRATA_FMA(n, all16(-0.693359375f), x);
    r = STRATA_FMA(n, all16(2.12194440e-4f), r);
    floats16 p = all16(1.0f / 5040);
    p = STRATA_FMA(p, r, all16(1.0f / 720));
    p = STRATA_FMA(p, r, all16(1.0f / 120));
    p = STRATA_FMA(p, r, all16(1.0f / 24));
    p = STRATA_FMA(p, r, all16(1.0f / 6));
    p = STRATA_FMA(p, r, all16(0.5f));
    p = STRATA_FMA(p, r, all16(1.0f));
    p = STRATA_FMA(p, r, all16(1.0f));
    const ints16 power = (__builtin_convertvector(n, ints16) + 127) << 23;
    const floats16 y = p * (floats16)power;
    return (floats16)((ints16)y & ~is_zero);
}

static void load_cells(const strata_half *cells, int64_t cell_values, float *y, int64_t n_cells,
                       int64_t head_dim) {
    for (int64_t c = 0; c < n_cells; c++, cells += cell_values, y += head_dim) {
        int64_t d = 0;
        /* The next tile: heads lie apart, which processors do not foresee across pages. */
        for (; d < head_dim; d += 32) __builtin_prefetch(cells + STRATA_TILE_CELLS * cell_values + d);
        d = 0;
        for (; d + 16 <= head_dim; d += 16)
            store16(y + d, __builtin_convertvector(*(const halves16 *)(const void *)(cells + d), floats16));
        for (; d < head_dim; d++) {
            _Float16 half;
            memcpy(&half, cells + d, sizeof half);
            y[d] = (float)half;
        }
    }
}

static void float_to_half(const float *x, strata_half *y, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) *(halves16 *)(void *)(y + i) = __builtin_convertvector(load16(x + i), halves16);
    for (; i < n; i++) {
        const _Float16 half = (_Float16)x[i];
        memcpy(y + i, &half, sizeof half);
    }
}

static void rms_norm_row(const float *x, const float *weight, float *y, int64_t n_cols, float epsilon) {
    floats16 squares = all16(0);
    int64_t i = 0;
    for (; i + 16 <= n_cols; i += 16) squares = STRATA_FMA(load16(x + i), load16(x + i), squares);
    if (i < n_cols) {
        const floats16 rest = load_some(x + i, n_cols - i);
        squares = STRATA_FMA(rest, rest, squares);
    }
    const float factor = 1.0f / __builtin_sqrtf(sum16(squares) / (float)n_cols + epsilon);
    for (i = 0; i + 16 <= n_cols; i += 16) store16(y + i, load16(x + i) * factor * load16(weight + i));
    for (; i < n_cols; i++) y[i] = x[i] * factor * weight[i];
}

INLINE floats16 silu16(floats16 x) { return x / (1.0f + exp16(-x)); }

static void swiglu_row(const float *gate, const float *up, float *y, int64_t n_cols) {
    int64_t i = 0;
    for (; i + 16 <= n_cols; i += 16) store16(y + i, silu16(load16(gate + i)) * load16(up + i));
    if (i < n_cols) {
        const int64_t n = n_cols - i;
        store_some(y + i, silu16(load_some(gate + i, n)) * load_some(up + i, n), n);
    }
}

static void add_row(float *x, const float *y, int64_t n_cols) {
    for (int64_t i = 0; i < n_cols; i++) x[i] += y[i];
}

/* Products with float32 activations: two vectors of sums a row, joined at the end. */
INLINE floats16 load_f32(const void *w, int64_t i) { return load16((const float *)w + i); }
INLINE floats16 load_f16(const void *w, int64_t i) {
    return __builtin_convertvector(*(const halves16 *)(const void *)((const strata_half *)w + i), floats16);
}
INLINE floats16 load_bf16(const void *w, int64_t i) {
    const shorts16 bits = *(const shorts16 *)(const void *)((const uint16_t *)w + i);
    return (floats16)(__builtin_convertvector(bits, words16) << 16);
}

#define DOT_FLOATS(name, load, bytes)                                                                       \
    INLINE void name##_some(const void *w, const float *x, int64_t n_cols, const int n_x, float *y,         \
                            int64_t y_stride) {                                                             \
        floats16 even[4], odd[4];                                                                           \
        int64_t i = 0;                                                                                      \
        for (int t = 0; t < n_x; t++) even[t] = odd[t] = all16(0);                                          \
        for (; i + 32 <= n_cols; i += 32) {                                                                 \
            const floats16 w0 = load(w, i), w1 = load(w, i + 16);                                           \
            for (int t = 0; t < n_x; t++) {                                                                 \
                even[t] = STRATA_FMA(w0, load16(x + t * n_cols + i), even[t]);                              \
                odd[t] = STRATA_FMA(w1, load16(x + t * n_cols + i + 16), odd[t]);                           \
            }                                                                                               \
        }                                                                                                   \
        for (; i < n_cols; i += 16) {                                                                       \
            const int64_t n = n_cols - i < 16 ? n_cols - i : 16;                                            \
            uint8_t padded[64] = {0};                                                                       \
            memcpy(padded, (const uint8_t *)w + i * (bytes), (size_t)n * (bytes));                          \
            const floats16 rest = load(padded, 0);                                                          \
            for (int t = 0; t < n_x; t++)                                                                   \
                even[t] = STRATA_FMA(rest, load_some(x + t * n_cols + i, n), even[t]);                      \
        }                                                                                                   \
        for (int t = 0; t < n_x; t++) y[t * y_stride] = sum16(even[t] + odd[t]);                            \
    }                                                                                                       \
    static void name(const strata_dots *dots) {                                                             \
        const int64_t n_cols = dots->n_cols;                                                                \
        int64_t t = 0;                                                                                      \
        for (; t + 4 <= dots->n_x; t += 4)                                                                  \
            for (int64_t r = 0; r < dots->n_w; r++)                                                         \
                name##_some(dots->w + r * dots->row_bytes, dots->x + t * n_cols, n_cols, 4,                 \
                            dots->y + t * dots->y_stride + r, dots->y_stride);                              \
        for (; t < dots->n_x; t++)                                                                          \
            for (int64_t r = 0; r < dots->n_w; r++)                                                         \
                name##_some(dots->w + r * dots->row_bytes, dots->x + t * n_cols, n_cols, 1,                 \
                            dots->y + t * dots->y_stride + r, dots->y_stride);                              \
    }

DOT_FLOATS(dot_f32, load_f32, 4)
DOT_FLOATS(dot_f16, load_f16, 2)
DOT_FLOATS(dot_bf16, load_bf16, 2)

/* Sums of 16 vectors at once: at each level a vector and the one 8, 4, 2, 1 further give their halves,
 * quarters, ... to one vector. Each sum is a tree over its own lanes only. */
INLINE floats16 sums_of_16(floats16 *v) {
    for (int j = 0; j < 8; j++)
        v[j] = __builtin_shufflevector(v[j], v[j + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(v[j], v[j + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    for (int j = 0; j < 4; j++)
        v[j] = __builtin_shufflevector(v[j], v[j + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
               __builtin_shufflevector(v[j], v[j + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int j = 0; j < 2; j++)
        v[j] = __builtin_shufflevector(v[j], v[j + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
               __builtin_shufflevector(v[j], v[j + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    return __builtin_shufflevector(v[0], v[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
           __builtin_shufflevector(v[0], v[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}

/* q . k of 16 cells, or of the first n_cells of them with zeros behind. */
INLINE floats16 scores16(const float *q, const float *k, int64_t head_dim, const int n_cells) {
    floats16 sums[16];
    for (int c = 0; c < 16; c++) sums[c] = all16(0);
    int64_t d = 0;
    for (; d + 16 <= head_dim; d += 16) {
        const floats16 part = load16(q + d);
        for (int c = 0; c < n_cells; c++) sums[c] = STRATA_FMA(part, load16(k + c * head_dim + d), sums[c]);
    }
    if (d < head_dim) {
        const floats16 part = load_some(q + d, head_dim - d);
        for (int c = 0; c < n_cells; c++)
            sums[c] = STRATA_FMA(part, load_some(k + c * head_dim + d, head_dim - d), sums[c]);
    }
    return sums_of_16(sums);
}

/* values[n_vectors * 16] += shares . v, each value summed over cells in their order. */
INLINE void add_values(const float *shares, const float *v, int64_t head_dim, int64_t n_cells, float *values,
                       const int n_vectors) {
    floats16 sums[4];
    for (int j = 0; j < n_vectors; j++) sums[j] = load16(values + 16 * j);
    for (int64_t c = 0; c < n_cells; c++, v += head_dim)
        for (int j = 0; j < n_vectors; j++) sums[j] = STRATA_FMA(all16(shares[c]), load16(v + 16 * j), sums[j]);
    for (int j = 0; j < n_vectors; j++) store16(values + 16 * j, sums[j]);
}

INLINE void scale_values(float *values, float factor, int64_t head_dim) {
    for (int64_t d = 0; d < head_dim; d++) values[d] *= factor;
}

static void attend_tile(const float *q, const float *k, const float *v, int64_t head_dim, int64_t n_cells,
                        float scale, float *state) {
    float shares[STRATA_TILE_CELLS];
    float *values = state + 32;
    float maximum = state[0];
    int64_t n_scored = 0;
    for (; n_scored + 16 <= n_cells; n_scored += 16)
        store16(shares + n_scored, scores16(q, k + n_scored * head_dim, head_dim, 16) * scale);
    for (; n_scored < n_cells; n_scored++)
        shares[n_scored] = scores16(q, k + n_scored * head_dim, head_dim, 1)[0] * scale;
    for (int64_t c = n_cells; c < STRATA_TILE_CELLS; c++) shares[c] = -__builtin_inff(); /* a share of 0 */
    floats16 highest = load16(shares);
    for (int c = 16; c < STRATA_TILE_CELLS; c += 16) highest = __builtin_elementwise_max(highest, load16(shares + c));
    maximum = __builtin_fmaxf(maximum, __builtin_reduce_max(highest));
    floats16 sums = load16(state + 16);
    if (maximum > state[0]) {
        const float factor = exp16(all16(state[0] - maximum))[0];
        sums *= factor;
        scale_values(values, factor, head_dim);
        state[0] = maximum;
    }
    for (int64_t c = 0; c < n_cells; c += 16) {
        const floats16 some = exp16(load16(shares + c) - maximum);
        store16(shares + c, some);
        sums += some;
    }
    store16(state + 16, sums);
    int64_t d = 0;
    for (; d + 64 <= head_dim; d += 64) add_values(shares, v + d, head_dim, n_cells, values + d, 4);
    for (; d + 16 <= head_dim; d += 16) add_values(shares, v + d, head_dim, n_cells, values + d, 1);
    for (; d < head_dim; d++)
        for (int64_t c = 0; c < n_cells; c++) values[d] += shares[c] * v[c * head_dim + d];
}

static void attend_join(float *total, const float *segment, int64_t head_dim) {
    const float maximum = total[0] > segment[0] ? total[0] : segment[0];
    if (segment[0] == -__builtin_inff()) return; /* the segment lies past this row's position */
    const float keep = exp16(all16(total[0] - maximum))[0], take = exp16(all16(segment[0] - maximum))[0];
    total[0] = maximum;
    store16(total + 16, load16(total + 16) * keep + load16(segment + 16) * take);
    for (int64_t d = 0; d < head_dim; d++) total[32 + d] = total[32 + d] * keep + segment[32 + d] * take;
}

/* Row kernels that are the same text at every level. */
#define STRATA_SHARED_KERNELS                                                                              \
    .dot_floats = {[STRATA_F32] = dot_f32, [STRATA_F16] = dot_f16, [STRATA_BF16] = dot_bf16},              \
    .rms_norm_row = rms_norm_row, .swiglu_row = swiglu_row, .add_row = add_row,                            \
    .load_cells = load_cells, .float_to_half = float_to_half, .attend_tile = attend_tile,            \
    .attend_join = attend_join
