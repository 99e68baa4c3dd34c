/* Row kernels for x86-64 with AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include <immintrin.h>

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)

#define STRATA_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#include "rows.h"

INLINE float largest8(__m256 x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE int32_t sum8(__m256i x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

INLINE float sum_floats8(__m256 x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static void quantize_row(const float *x, int8_t *qs, float *ds, int64_t n_cols) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the packs' lanes */
    for (int64_t b = 0; b < n_cols / 32; b++, x += 32, qs += 32, ds += 2) {
        __m256 v[4];
        for (int j = 0; j < 4; j++) v[j] = _mm256_loadu_ps(x + 8 * j);
        const __m256 low = _mm256_max_ps(_mm256_andnot_ps(sign, v[0]), _mm256_andnot_ps(sign, v[1]));
        const __m256 high = _mm256_max_ps(_mm256_andnot_ps(sign, v[2]), _mm256_andnot_ps(sign, v[3]));
        const float largest = largest8(_mm256_max_ps(low, high));
        const float scale = largest / STRATA_LARGEST_CODE;
        const __m256 inverse = _mm256_set1_ps(largest > 0 ? STRATA_LARGEST_CODE / largest : 0);
        __m256i q[4];
        for (int j = 0; j < 4; j++) q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse));
        const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
        /* Codes fit 16 bits; packing keeps the halves of a register apart, which `order` undoes. */
        const __m256i c0 = _mm256_packs_epi32(q[0], q[1]), c1 = _mm256_packs_epi32(q[2], q[3]);
        const __m256i half = _mm256_set1_epi16(64);
        const __m256i h0 = _mm256_srai_epi16(_mm256_add_epi16(c0, half), 7);
        const __m256i h1 = _mm256_srai_epi16(_mm256_add_epi16(c1, half), 7);
        const __m256i l0 = _mm256_sub_epi16(c0, _mm256_slli_epi16(h0, 7));
        const __m256i l1 = _mm256_sub_epi16(c1, _mm256_slli_epi16(h1, 7));
        const __m256i high_bytes = _mm256_packs_epi16(h0, h1), low_bytes = _mm256_packs_epi16(l0, l1);
        _mm256_storeu_si256((__m256i *)(void *)qs, _mm256_permutevar8x32_epi32(high_bytes, order));
        _mm256_storeu_si256((__m256i *)(void *)(qs + n_cols), _mm256_permutevar8x32_epi32(low_bytes, order));
        ds[0] = scale;
        ds[1] = scale * (float)sum8(sum);
    }
}

/* [d, m, 0, 0] of a q4_1 block, as floats. */
INLINE __m128 scales_q4_1(const strata_block_q4_1 *w) {
    int32_t bits;
    memcpy(&bits, &w->d, 4);
    return _mm_cvtph_ps(_mm_cvtsi32_si128(bits));
}

INLINE __m128 scale_and_sum(const float *ds) { return _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)ds)); }

INLINE __m256i load_bytes(const void *at) { return _mm256_loadu_si256((const __m256i *)at); }

/* Sums of 4 products of unsigned w and codes of x, as floats. The madd of the high bytes' sums is by
 * 128, which joins them to the low ones. */
INLINE __m256 products(__m256i w, __m256i high, __m256i low) {
    const __m256i high_sums = _mm256_madd_epi16(_mm256_maddubs_epi16(w, high), _mm256_set1_epi16(128));
    const __m256i low_sums = _mm256_madd_epi16(_mm256_maddubs_epi16(w, low), _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(high_sums, low_sums));
}

INLINE void tile_q4_1(const strata_dots *dots, int64_t row, const int n_w, int64_t first_x, const int n_x) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const int64_t n_cols = dots->n_cols;
    const uint8_t *w = dots->w + row * dots->row_bytes;
    const int8_t *qs = dots->qs + first_x * 2 * n_cols;
    const float *ds = dots->ds + first_x * (n_cols / 16);
    __m256 sums[4][4];
    __m128 shifts[4][4]; /* lane 1: the sum of m * sum(x) */
    for (int r = 0; r < n_w; r++)
        for (int t = 0; t < n_x; t++) sums[r][t] = _mm256_setzero_ps(), shifts[r][t] = _mm_setzero_ps();
    for (int64_t b = 0; b < n_cols / 32; b++) {
        for (int r = 0; r < n_w; r++) {
            const strata_block_q4_1 *block = (const strata_block_q4_1 *)(const void *)(w + r * dots->row_bytes) + b;
            const __m128i packed = _mm_loadu_si128((const __m128i *)(const void *)block->qs);
            const __m256i codes = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed), nibble);
            const __m128 scales = scales_q4_1(block);
            for (int t = 0; t < n_x; t++) {
                const int8_t *x = qs + t * 2 * n_cols + 32 * b;
                const __m128 both = _mm_mul_ps(scales, scale_and_sum(ds + t * (n_cols / 16) + 2 * b));
                const __m256 values = products(codes, load_bytes(x), load_bytes(x + n_cols));
                sums[r][t] = _mm256_fmadd_ps(values, _mm256_broadcastss_ps(both), sums[r][t]);
                shifts[r][t] = _mm_add_ps(shifts[r][t], both);
            }
        }
    }
    for (int r = 0; r < n_w; r++)
        for (int t = 0; t < n_x; t++)
            dots->y[(first_x + t) * dots->y_stride + row + r] =
                sum_floats8(sums[r][t]) + _mm_cvtss_f32(_mm_movehdup_ps(shifts[r][t]));
}

INLINE void tile_q8_0(const strata_dots *dots, int64_t row, const int n_w, int64_t first_x, const int n_x) {
    const int64_t n_cols = dots->n_cols;
    const uint8_t *w = dots->w + row * dots->row_bytes;
    const int8_t *qs = dots->qs + first_x * 2 * n_cols;
    const float *ds = dots->ds + first_x * (n_cols / 16);
    __m256 sums[4][4];
    for (int r = 0; r < n_w; r++)
        for (int t = 0; t < n_x; t++) sums[r][t] = _mm256_setzero_ps();
    for (int64_t b = 0; b < n_cols / 32; b++) {
        for (int r = 0; r < n_w; r++) {
            const strata_block_q8_0 *block = (const strata_block_q8_0 *)(const void *)(w + r * dots->row_bytes) + b;
            const __m256i codes = load_bytes(block->qs);
            const __m256i sizes = _mm256_abs_epi8(codes);
            const float d = _cvtsh_ss(block->d);
            for (int t = 0; t < n_x; t++) {
                const int8_t *x = qs + t * 2 * n_cols + 32 * b;
                const __m256i high = _mm256_sign_epi8(load_bytes(x), codes);
                const __m256i low = _mm256_sign_epi8(load_bytes(x + n_cols), codes);
                const __m256 scale = _mm256_set1_ps(d * ds[t * (n_cols / 16) + 2 * b]);
                sums[r][t] = _mm256_fmadd_ps(products(sizes, high, low), scale, sums[r][t]);
            }
        }
    }
    for (int r = 0; r < n_w; r++)
        for (int t = 0; t < n_x; t++)
            dots->y[(first_x + t) * dots->y_stride + row + r] = sum_floats8(sums[r][t]);
}

DOT_CODES(dot_q4_1, tile_q4_1, 2)
DOT_CODES(dot_q8_0, tile_q8_0, 2)

const strata_kernels strata_kernels_avx2 = {
    .dot_codes = {[STRATA_Q4_1] = dot_q4_1, [STRATA_Q8_0] = dot_q8_0},
    .quantize_row = quantize_row,
    STRATA_SHARED_KERNELS,
};

#pragma clang attribute pop
#endif
