/* Row kernels for x86-64 with AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include <immintrin.h>

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)

#define STRATA_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#include "rows.h"

/* Tiles of rows of weights and of x whose sums stay in 16 registers. */
#define TILE_W 2
#define TILE_X 2

INLINE __m256i low_half(codes32 x) {
    return (__m256i)__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE __m256i high_half(codes32 x) {
    return (__m256i)__builtin_shufflevector(x, x, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

typedef int32_t ints8 __attribute__((vector_size(32)));

/* Adds products of neighbours. */
INLINE ints16 dot2(ints16 sum, codes32 w, codes32 x) {
    const ints8 low = (ints8)_mm256_madd_epi16(low_half(w), low_half(x));
    const ints8 high = (ints8)_mm256_madd_epi16(high_half(w), high_half(x));
    return sum + __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* table[code] for codes below 16. */
INLINE bytes32 lookup16(bytes32 codes, const int8_t *table) {
    const __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)table);
    return (bytes32)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), (__m256i)codes);
}

/* All ones where a bit is set. */
INLINE codes32 bit_masks(uint32_t bits) {
    const codes16 one_bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768};
    const codes16 low = ((codes16)_mm256_set1_epi16((int16_t)bits) & one_bit) == one_bit;
    const codes16 high = ((codes16)_mm256_set1_epi16((int16_t)(bits >> 16)) & one_bit) == one_bit;
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                   21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

/* -x where a bit is set. */
INLINE codes32 negate(codes32 x, uint32_t bits) {
    const codes32 masks = bit_masks(bits);
    return (x ^ masks) - masks;
}

/* value where a bit is set, else 0. */
INLINE codes32 with_bits(uint32_t bits, int16_t value) { return bit_masks(bits) & value; }

#include "codes.h"
#include "values.h"
#include "unpack_flat.h"
#include "unpack_k.h"
#include "unpack_iq.h"
#include "formats.h"

const strata_kernels strata_kernels_avx2 = {STRATA_FORMAT_KERNELS, STRATA_SHARED_KERNELS};

#pragma clang attribute pop
#endif
