/* Row kernels for any processor: plain C that the compiler turns into what there is (SSE2, NEON). */
#define STRATA_FMA(a, b, c) ((a) * (b) + (c))
#include "rows.h"

/* Tiles of rows of weights and of x whose sums stay in registers. */
#define TILE_W 2
#define TILE_X 2

#define EVEN(v) \
    __builtin_shufflevector(v, v, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(v) \
    __builtin_shufflevector(v, v, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)

/* Adds products of neighbours. */
INLINE ints16 dot2(ints16 sum, codes32 w, codes32 x) {
    return sum + __builtin_convertvector(EVEN(w), ints16) * __builtin_convertvector(EVEN(x), ints16) +
           __builtin_convertvector(ODD(w), ints16) * __builtin_convertvector(ODD(x), ints16);
}

/* table[code] for codes below 16. */
INLINE bytes32 lookup16(bytes32 codes, const int8_t *table) {
    uint8_t names[32], named[32]; /* element by element in a vector is ten times slower */
    bytes32 y;
    memcpy(names, &codes, sizeof names);
    for (int i = 0; i < 32; i++) named[i] = (uint8_t)table[names[i]];
    memcpy(&y, named, sizeof y);
    return y;
}

/* All ones where a bit is set. */
INLINE codes32 bit_masks(uint32_t bits) {
    const codes32 one_bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768,
                             1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768};
    const int16_t low = (int16_t)bits, high = (int16_t)(bits >> 16);
    const codes32 spread = {low,  low,  low,  low,  low,  low,  low,  low,  low,  low,  low,
                            low,  low,  low,  low,  low,  high, high, high, high, high, high,
                            high, high, high, high, high, high, high, high, high, high};
    return (spread & one_bit) != 0;
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

const strata_kernels strata_kernels_generic = {STRATA_FORMAT_KERNELS, STRATA_SHARED_KERNELS};
