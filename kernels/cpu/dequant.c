/* Blocks to float32, one format a function: the bits of y are the same on every machine. */
#include <string.h>

#include "internal.h"

static float value_of(strata_half bits) {
    _Float16 half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

static void dequantize_f32(const void *blocks, float *y, int64_t n) { memcpy(y, blocks, (size_t)n * 4); }

static void dequantize_f16(const void *blocks, float *y, int64_t n) {
    const strata_half *x = blocks;
    for (int64_t i = 0; i < n; i++) y[i] = value_of(x[i]);
}

static void dequantize_bf16(const void *blocks, float *y, int64_t n) {
    const uint16_t *x = blocks;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(y + i, &bits, 4);
    }
}

static void dequantize_q4_0(const void *blocks, float *y, int64_t n) {
    const strata_block_q4_0 *w = blocks;
    for (int64_t b = 0; b < n / 32; b++, w++, y += 32) {
        const float d = value_of(w->d);
        for (int i = 0; i < 16; i++) {
            y[i] = (float)((w->qs[i] & 15) - 8) * d;
            y[i + 16] = (float)((w->qs[i] >> 4) - 8) * d;
        }
    }
}

static void dequantize_q4_1(const void *blocks, float *y, int64_t n) {
    const strata_block_q4_1 *w = blocks;
    for (int64_t b = 0; b < n / 32; b++, w++, y += 32) {
        const float d = value_of(w->d), m = value_of(w->m);
        for (int i = 0; i < 16; i++) {
            y[i] = (float)(w->qs[i] & 15) * d + m;
            y[i + 16] = (float)(w->qs[i] >> 4) * d + m;
        }
    }
}

/* Bit i of four bytes. */
static int bit_of(const uint8_t *qh, int i) { return qh[i / 8] >> (i % 8) & 1; }

static void dequantize_q5_0(const void *blocks, float *y, int64_t n) {
    const strata_block_q5_0 *w = blocks;
    for (int64_t b = 0; b < n / 32; b++, w++, y += 32) {
        const float d = value_of(w->d);
        for (int i = 0; i < 16; i++) {
            y[i] = (float)(((w->qs[i] & 15) | bit_of(w->qh, i) << 4) - 16) * d;
            y[i + 16] = (float)((w->qs[i] >> 4 | bit_of(w->qh, i + 16) << 4) - 16) * d;
        }
    }
}

static void dequantize_q5_1(const void *blocks, float *y, int64_t n) {
    const strata_block_q5_1 *w = blocks;
    for (int64_t b = 0; b < n / 32; b++, w++, y += 32) {
        const float d = value_of(w->d), m = value_of(w->m);
        for (int i = 0; i < 16; i++) {
            y[i] = (float)((w->qs[i] & 15) | bit_of(w->qh, i) << 4) * d + m;
            y[i + 16] = (float)(w->qs[i] >> 4 | bit_of(w->qh, i + 16) << 4) * d + m;
        }
    }
}

static void dequantize_q8_0(const void *blocks, float *y, int64_t n) {
    const strata_block_q8_0 *w = blocks;
    for (int64_t b = 0; b < n / 32; b++, w++, y += 32) {
        const float d = value_of(w->d);
        for (int i = 0; i < 32; i++) y[i] = (float)w->qs[i] * d;
    }
}

/* Each half of 128 weights: 32 bytes whose bit pairs 0-1, 2-3, 4-5, 6-7 are four runs of 32 weights. */
static void dequantize_q2_k(const void *blocks, float *y, int64_t n) {
    const strata_block_q2_k *w = blocks;
    for (int64_t b = 0; b < n / 256; b++, w++) {
        const float d = value_of(w->d), m = value_of(w->m);
        for (int run = 0; run < 8; run++) {
            const uint8_t *qs = w->qs + run / 4 * 32;
            for (int i = 0; i < 32; i++) {
                const uint8_t scale = w->scales[run * 2 + i / 16];
                *y++ = d * (float)(scale & 15) * (float)(qs[i] >> (run % 4 * 2) & 3) - m * (float)(scale >> 4);
            }
        }
    }
}

/* Group g's scale: 4 low bits in byte g % 8 (high nibble from group 8 on), 2 high bits in bytes 8-11. */
static int scale_q3_k(const uint8_t *scales, int g) {
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    return (low | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
}

static void dequantize_q3_k(const void *blocks, float *y, int64_t n) {
    const strata_block_q3_k *w = blocks;
    for (int64_t b = 0; b < n / 256; b++, w++) {
        const float d = value_of(w->d);
        for (int run = 0; run < 8; run++) {
            const uint8_t *qs = w->qs + run / 4 * 32;
            for (int i = 0; i < 32; i++) {
                const int low = qs[i] >> (run % 4 * 2) & 3;
                const int q = low - (w->hmask[i] >> run & 1 ? 0 : 4);
                *y++ = d * (float)scale_q3_k(w->scales, run * 2 + i / 16) * (float)q;
            }
        }
    }
}

/* Group g of 8: scales and minima of 0-3 are the low 6 bits of bytes 0-3 and 4-7; those of 4-7 have
 * their 4 low bits in bytes 8-11 and their 2 high bits on top of bytes 0-3 and 4-7. */
static void scale_q4_k(const uint8_t *scales, int g, int *scale, int *minimum) {
    if (g < 4) {
        *scale = scales[g] & 63;
        *minimum = scales[g + 4] & 63;
    } else {
        *scale = (scales[g + 4] & 15) | (scales[g - 4] >> 6) << 4;
        *minimum = scales[g + 4] >> 4 | (scales[g] >> 6) << 4;
    }
}

static void dequantize_q4_k(const void *blocks, float *y, int64_t n) {
    const strata_block_q4_k *w = blocks;
    for (int64_t b = 0; b < n / 256; b++, w++) {
        const float d = value_of(w->d), m = value_of(w->m);
        for (int g = 0; g < 8; g++) { /* low nibbles of 32 bytes, then their high nibbles */
            int scale, minimum;
            scale_q4_k(w->scales, g, &scale, &minimum);
            const float ds = d * (float)scale, ms = m * (float)minimum;
            for (int i = 0; i < 32; i++) *y++ = ds * (float)(w->qs[g / 2 * 32 + i] >> (g % 2 * 4) & 15) - ms;
        }
    }
}

static void dequantize_q5_k(const void *blocks, float *y, int64_t n) {
    const strata_block_q5_k *w = blocks;
    for (int64_t b = 0; b < n / 256; b++, w++) {
        const float d = value_of(w->d), m = value_of(w->m);
        for (int g = 0; g < 8; g++) {
            int scale, minimum;
            scale_q4_k(w->scales, g, &scale, &minimum);
            const float ds = d * (float)scale, ms = m * (float)minimum;
            for (int i = 0; i < 32; i++) {
                const int low = w->qs[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
                *y++ = ds * (float)(low | (w->qh[i] >> g & 1) << 4) - ms;
            }
        }
    }
}

/* Each half of 128 weights: four runs of 32. Runs 0, 1 are low nibbles of the half's 64 bytes of ql,
 * runs 2, 3 the high ones; qh[i] has the two high bits of weight i of each run. */
static void dequantize_q6_k(const void *blocks, float *y, int64_t n) {
    const strata_block_q6_k *w = blocks;
    for (int64_t b = 0; b < n / 256; b++, w++) {
        const float d = value_of(w->d);
        for (int run = 0; run < 8; run++) {
            const uint8_t *ql = w->ql + run / 4 * 64 + run % 2 * 32, *qh = w->qh + run / 4 * 32;
            for (int i = 0; i < 32; i++) {
                const int low = ql[i] >> (run % 4 / 2 * 4) & 15;
                const int q = (low | (qh[i] >> (run % 4 * 2) & 3) << 4) - 32;
                *y++ = d * (float)w->scales[run * 2 + i / 16] * (float)q;
            }
        }
    }
}

strata_dequantize_row strata_dequantizer(int32_t quant) {
    switch (quant) {
        case STRATA_F32: return dequantize_f32;
        case STRATA_F16: return dequantize_f16;
        case STRATA_BF16: return dequantize_bf16;
        case STRATA_Q4_0: return dequantize_q4_0;
        case STRATA_Q4_1: return dequantize_q4_1;
        case STRATA_Q5_0: return dequantize_q5_0;
        case STRATA_Q5_1: return dequantize_q5_1;
        case STRATA_Q8_0: return dequantize_q8_0;
        case STRATA_Q2_K: return dequantize_q2_k;
        case STRATA_Q3_K: return dequantize_q3_k;
        case STRATA_Q4_K: return dequantize_q4_k;
        case STRATA_Q5_K: return dequantize_q5_k;
        case STRATA_Q6_K: return dequantize_q6_k;
    }
    return 0;
}

int32_t strata_dequantize(int32_t quant, const void *blocks, float *y, int64_t n_values) {
    const strata_dequantize_row dequantize = strata_dequantizer(quant);
    if (!dequantize) return -1;
    dequantize(blocks, y, n_values);
    return 0;
}
