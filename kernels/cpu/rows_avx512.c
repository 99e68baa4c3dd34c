/* Row kernels for x86-64 with AVX-512 F, DQ, BW, VL and VNNI: two blocks of 32 at a time. */
#if defined(__x86_64__)
#include <immintrin.h>

#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c"))), \
                             apply_to = function)

#define STRATA_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#include "rows.h"

INLINE int32_t sum16_ints(__m512i x) {
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

INLINE float largest16(__m512 x) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/* 16 codes as high and low bytes. */
INLINE void store_codes(__m512i codes, int8_t *high, int8_t *low) {
    const __m512i h = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(64)), 7);
    const __m512i l = _mm512_sub_epi32(codes, _mm512_slli_epi32(h, 7));
    _mm_storeu_si128((__m128i *)(void *)high, _mm512_cvtepi32_epi8(h));
    _mm_storeu_si128((__m128i *)(void *)low, _mm512_cvtepi32_epi8(l));
}

static void quantize_row(const float *x, int8_t *qs, float *ds, int64_t n_cols) {
    for (int64_t b = 0; b < n_cols / 32; b++, x += 32, qs += 32, ds += 2) {
        const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        const float largest = largest16(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
        const float scale = largest / STRATA_LARGEST_CODE;
        const __m512 inverse = _mm512_set1_ps(largest > 0 ? STRATA_LARGEST_CODE / largest : 0);
        const __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
        const __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
        store_codes(q0, qs, qs + n_cols);
        store_codes(q1, qs + 16, qs + n_cols + 16);
        ds[0] = scale;
        ds[1] = scale * (float)sum16_ints(_mm512_add_epi32(q0, q1));
    }
}

/* What two blocks of weights are turned into, once for several rows of x. */
typedef struct {
    __m512i codes; /* unsigned, 32 of each block */
    __mmask64 is_negative;
    __m128 scales; /* d, m of the first block, d, m of the second; m = 0 where there is none */
} block_pair;

INLINE __m512i join_blocks(__m256i first, __m256i second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

INLINE block_pair pair_q4_1(const strata_block_q4_1 *w, const int n_blocks) {
    const __m128i p0 = _mm_loadu_si128((const __m128i *)(const void *)w[0].qs);
    const __m128i p1 = n_blocks > 1 ? _mm_loadu_si128((const __m128i *)(const void *)w[1].qs) : _mm_setzero_si128();
    const __m512i twice = join_blocks(_mm256_broadcastsi128_si256(p0), _mm256_broadcastsi128_si256(p1));
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    int32_t s0, s1 = 0;
    memcpy(&s0, &w[0].d, 4);
    if (n_blocks > 1) memcpy(&s1, &w[1].d, 4);
    block_pair pair;
    pair.codes = _mm512_and_si512(_mm512_srlv_epi64(twice, shift), _mm512_set1_epi8(15));
    pair.is_negative = 0;
    pair.scales = _mm_cvtph_ps(_mm_setr_epi32(s0, s1, 0, 0));
    return pair;
}

INLINE block_pair pair_q8_0(const strata_block_q8_0 *w, const int n_blocks) {
    const __m256i c0 = _mm256_loadu_si256((const __m256i *)(const void *)w[0].qs);
    const __m256i c1 = n_blocks > 1 ? _mm256_loadu_si256((const __m256i *)(const void *)w[1].qs) : _mm256_setzero_si256();
    const __m512i codes = join_blocks(c0, c1);
    block_pair pair;
    pair.codes = _mm512_abs_epi8(codes);
    pair.is_negative = _mm512_movepi8_mask(codes);
    pair.scales = _mm_cvtph_ps(_mm_setr_epi32(w[0].d, n_blocks > 1 ? w[1].d : 0, 0, 0));
    return pair;
}

/* sums += products of one pair and one row of x; shifts lanes 1 and 3 += m * sum(x). */
INLINE void add_pair(const block_pair *pair, const int is_signed, __m512i high, __m512i low, __m128 xs, __m512 *sums,
                     __m128 *shifts) {
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i zero = _mm512_setzero_si512();
    if (is_signed) {
        high = _mm512_mask_sub_epi8(high, pair->is_negative, zero, high);
        low = _mm512_mask_sub_epi8(low, pair->is_negative, zero, low);
    }
    const __m128 both = _mm_mul_ps(pair->scales, xs);
    const __m512i high_sums = _mm512_slli_epi32(_mm512_dpbusd_epi32(zero, pair->codes, high), 7);
    const __m512 products = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(high_sums, pair->codes, low));
    const __m512 scales = _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(both));
    *sums = _mm512_fmadd_ps(products, scales, *sums);
    if (!is_signed) *shifts = _mm_add_ps(*shifts, both);
}

#define CODES_TILE(name, block, unpack, is_signed)                                                              \
    INLINE void name(const strata_dots *dots, int64_t row, const int n_w, int64_t first_x, const int n_x) {    \
        const int64_t n_cols = dots->n_cols, n_blocks = n_cols / 32, ds_stride = n_cols / 16;                  \
        const uint8_t *w = dots->w + row * dots->row_bytes;                                                    \
        const int8_t *qs = dots->qs + first_x * 2 * n_cols;                                                    \
        const float *ds = dots->ds + first_x * ds_stride;                                                      \
        __m512 sums[4][4];                                                                                     \
        __m128 shifts[4][4];                                                                                   \
        int64_t b = 0;                                                                                         \
        for (int r = 0; r < n_w; r++)                                                                          \
            for (int t = 0; t < n_x; t++) sums[r][t] = _mm512_setzero_ps(), shifts[r][t] = _mm_setzero_ps();   \
        for (; b + 2 <= n_blocks; b += 2) {                                                                    \
            block_pair pairs[4];                                                                               \
            for (int r = 0; r < n_w; r++)                                                                      \
                pairs[r] = unpack((const block *)(const void *)(w + r * dots->row_bytes) + b, 2);              \
            for (int t = 0; t < n_x; t++) {                                                                    \
                const __m512i high = _mm512_loadu_si512(qs + t * 2 * n_cols + 32 * b);                         \
                const __m512i low = _mm512_loadu_si512(qs + (t * 2 + 1) * n_cols + 32 * b);                    \
                const __m128 xs = _mm_loadu_ps(ds + t * ds_stride + 2 * b);                                    \
                for (int r = 0; r < n_w; r++)                                                                  \
                    add_pair(&pairs[r], is_signed, high, low, xs, &sums[r][t], &shifts[r][t]);                 \
            }                                                                                                  \
        }                                                                                                      \
        if (b < n_blocks) {                                                                                    \
            for (int r = 0; r < n_w; r++) {                                                                    \
                const block_pair pair = unpack((const block *)(const void *)(w + r * dots->row_bytes) + b, 1); \
                for (int t = 0; t < n_x; t++) {                                                                \
                    const int8_t *x = qs + t * 2 * n_cols + 32 * b;                                            \
                    const __m512i high = _mm512_maskz_loadu_epi8(0xffffffffu, x);                              \
                    const __m512i low = _mm512_maskz_loadu_epi8(0xffffffffu, x + n_cols);                      \
                    const __m128 xs = _mm_maskz_loadu_ps(3, ds + t * ds_stride + 2 * b);                       \
                    add_pair(&pair, is_signed, high, low, xs, &sums[r][t], &shifts[r][t]);                     \
                }                                                                                              \
            }                                                                                                  \
        }                                                                                                      \
        for (int r = 0; r < n_w; r++)                                                                          \
            for (int t = 0; t < n_x; t++)                                                                      \
                dots->y[(first_x + t) * dots->y_stride + row + r] =                                            \
                    sum16((floats16)sums[r][t]) + (is_signed ? 0.0f : shifts[r][t][1] + shifts[r][t][3]);      \
    }

CODES_TILE(tile_q4_1, strata_block_q4_1, pair_q4_1, 0)
CODES_TILE(tile_q8_0, strata_block_q8_0, pair_q8_0, 1)
DOT_CODES(dot_q4_1, tile_q4_1, 4)
DOT_CODES(dot_q8_0, tile_q8_0, 4)

const strata_kernels strata_kernels_avx512 = {
    .dot_codes = {[STRATA_Q4_1] = dot_q4_1, [STRATA_Q8_0] = dot_q8_0},
    .quantize_row = quantize_row,
    STRATA_SHARED_KERNELS,
};

#pragma clang attribute pop
#endif
