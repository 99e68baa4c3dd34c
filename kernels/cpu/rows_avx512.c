/* Row kernels for x86-64 with AVX-512 F, DQ, BW, VL and VNNI. */
#if defined(__x86_64__)
#include <immintrin.h>

#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c"))), \
                             apply_to = function)

#define STRATA_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#include "rows.h"

/* Tiles of rows of weights and of x whose sums stay in 32 registers. */
#define TILE_W 4
#define TILE_X 4

/* Adds products of neighbours. */
INLINE ints16 dot2(ints16 sum, codes32 w, codes32 x) {
    return (ints16)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
}

/* table[code] for codes below 16. */
INLINE bytes32 lookup16(bytes32 codes, const int8_t *table) {
    const __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)table);
    return (bytes32)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), (__m256i)codes);
}

/* -x where a bit is set. */
INLINE codes32 negate(codes32 x, uint32_t bits) {
    return (codes32)_mm512_mask_sub_epi16((__m512i)x, bits, _mm512_setzero_si512(), (__m512i)x);
}

/* value where a bit is set, else 0. */
INLINE codes32 with_bits(uint32_t bits, int16_t value) { return (codes32)_mm512_maskz_set1_epi16(bits, value); }

#include "codes.h"
#include "values.h"
#include "unpack_flat.h"
#include "unpack_k.h"
#include "unpack_iq.h"
#include "formats.h"

const strata_kernels strata_kernels_avx512 = {STRATA_FORMAT_KERNELS, STRATA_SHARED_KERNELS};

#pragma clang attribute pop
#endif
