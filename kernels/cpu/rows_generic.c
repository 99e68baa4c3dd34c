/* Row kernels for any processor: plain C that the compiler turns into what there is (SSE2, NEON). */
#define STRATA_FMA(a, b, c) ((a) * (b) + (c))
#include "rows.h"

static float value_of(strata_half bits) {
    _Float16 half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

static void quantize_row(const float *x, int8_t *qs, float *ds, int64_t n_cols) {
    for (int64_t b = 0; b < n_cols / 32; b++, x += 32, qs += 32, ds += 2) {
        float largest = 0;
        for (int i = 0; i < 32; i++) {
            const float size = __builtin_fabsf(x[i]);
            if (size > largest) largest = size;
        }
        const float scale = largest / STRATA_LARGEST_CODE;
        const float inverse = largest > 0 ? STRATA_LARGEST_CODE / largest : 0;
        int32_t sum = 0;
        for (int i = 0; i < 32; i++) {
            const int32_t q = (int32_t)((x[i] * inverse + 12582912.0f) - 12582912.0f); /* to nearest even */
            const int32_t high = (q + 64) >> 7;
            qs[i] = (int8_t)high;
            qs[i + n_cols] = (int8_t)(q - (high << 7));
            sum += q;
        }
        ds[0] = scale;
        ds[1] = scale * (float)sum;
    }
}

static float row_q4_1(const strata_block_q4_1 *w, const int8_t *qs, const float *ds, int64_t n_cols) {
    float sum = 0;
    for (int64_t b = 0; b < n_cols / 32; b++, w++, qs += 32, ds += 2) {
        const int8_t *low = qs + n_cols;
        int32_t high_sum = 0, low_sum = 0;
        for (int i = 0; i < 16; i++) {
            high_sum += (w->qs[i] & 15) * qs[i] + (w->qs[i] >> 4) * qs[i + 16];
            low_sum += (w->qs[i] & 15) * low[i] + (w->qs[i] >> 4) * low[i + 16];
        }
        const int32_t products = high_sum * 128 + low_sum;
        sum += value_of(w->d) * ds[0] * (float)products + value_of(w->m) * ds[1];
    }
    return sum;
}

static float row_q8_0(const strata_block_q8_0 *w, const int8_t *qs, const float *ds, int64_t n_cols) {
    float sum = 0;
    for (int64_t b = 0; b < n_cols / 32; b++, w++, qs += 32, ds += 2) {
        const int8_t *low = qs + n_cols;
        int32_t high_sum = 0, low_sum = 0;
        for (int i = 0; i < 32; i++) {
            high_sum += w->qs[i] * qs[i];
            low_sum += w->qs[i] * low[i];
        }
        const int32_t products = high_sum * 128 + low_sum;
        sum += value_of(w->d) * ds[0] * (float)products;
    }
    return sum;
}

#define DOT_BY_ROWS(name, row)                                                                          \
    static void name(const strata_dots *dots) {                                                       \
        const int64_t n_cols = dots->n_cols;                                                          \
        for (int64_t r = 0; r < dots->n_w; r++)                                                       \
            for (int64_t t = 0; t < dots->n_x; t++)                                                   \
                dots->y[t * dots->y_stride + r] =                                                     \
                    row((const void *)(dots->w + r * dots->row_bytes), dots->qs + t * 2 * n_cols,     \
                        dots->ds + t * (n_cols / 16), n_cols);                                        \
    }

DOT_BY_ROWS(dot_q4_1, row_q4_1)
DOT_BY_ROWS(dot_q8_0, row_q8_0)

const strata_kernels strata_kernels_generic = {
    .dot_codes = {[STRATA_Q4_1] = dot_q4_1, [STRATA_Q8_0] = dot_q8_0},
    .quantize_row = quantize_row,
    STRATA_SHARED_KERNELS,
};
