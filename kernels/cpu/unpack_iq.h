/* Super formats that name lattice points by an index (IQ1, IQ2, IQ3). Points are looked up one by one and
 * joined in registers: gathers are slower on many processors. */
#include "../include/grids.h"

/* 32 columns, 8 a point. */
INLINE codes32 of_points(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return widen_signed((bytes32)(longs4){a, b, c, d});
}

/* 64 columns of 8 points with a sign bit each, to the order of codes.h. */
INLINE void put_points(codes32 *w, const uint64_t *points, uint64_t signs) {
    const uint32_t even = (uint32_t)(signs & 0xffff | signs >> 16 & 0xffff0000);
    const uint32_t odd = (uint32_t)(signs >> 16 & 0xffff | signs >> 32 & 0xffff0000);
    w[0] = negate(of_points(points[0], points[1], points[4], points[5]), even);
    w[1] = negate(of_points(points[2], points[3], points[6], points[7]), odd);
}

/* Four bytes of seven sign bits: the eighth makes the number of minus signs even. */
INLINE uint32_t with_parity(uint32_t signs) {
    uint32_t parity = signs ^ signs >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return signs | (parity & 0x01010101) << 7;
}

/* 4 x 7 bits to four bytes of eight. */
INLINE uint64_t even_signs(uint32_t bits) {
    return with_parity(bits & 0x7f | bits << 1 & 0x7f00 | bits << 2 & 0x7f0000 | bits << 3 & 0x7f000000);
}

/* Nibble g of eight bytes is the scale of group g of 16 columns; 2 scale + 1. */
INLINE codes16 odd_scales(const uint8_t *nibbles) {
    const bytes16 x = bytes_of_words(word_at(nibbles), word_at(nibbles + 4), 0, 0);
    const bytes16 low = x & 15, high = x >> 4;
    return widen16(__builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)) * 2 + 1;
}

INLINE super_block unpack_iq2_xxs(const void *block) {
    const strata_block_iq2_xxs *b = block;
    super_block y = {.d = half_value(&b->d) * 0.125f};
    uint32_t scales[2] = {0, 0};
    for (int g = 0; g < 4; g++) {
        const uint8_t *at = (const uint8_t *)b->qs + 16 * g;
        const uint32_t tail0 = word_at(at + 4), tail1 = word_at(at + 12);
        uint64_t points[8];
        for (int k = 0; k < 4; k++) {
            points[k] = strata_grid_iq2_xxs[at[k]];
            points[k + 4] = strata_grid_iq2_xxs[at[k + 8]];
        }
        put_points(y.w + 2 * g, points, even_signs(tail0) | even_signs(tail1) << 32);
        scales[g / 2] |= (tail0 >> 28 | tail1 >> 28 << 8) << g % 2 * 16;
    }
    y.scales = twice(scales[0], scales[1]) * 2 + 1;
    return y;
}

INLINE super_block unpack_iq2_xs(const void *block) {
    const strata_block_iq2_xs *b = block;
    super_block y = {.scales = odd_scales(b->scales), .d = half_value(&b->d) * 0.125f};
    for (int g = 0; g < 4; g++) {
        uint64_t points[8];
        uint32_t signs[2] = {0, 0};
        for (int k = 0; k < 8; k++) {
            const uint32_t word = half_at(b->qs + 8 * g + k);
            points[k] = strata_grid_iq2_xs[word & 511];
            signs[k / 4] |= word >> 9 << k % 4 * 8;
        }
        put_points(y.w + 2 * g, points, (uint64_t)with_parity(signs[0]) | (uint64_t)with_parity(signs[1]) << 32);
    }
    return y;
}

INLINE super_block unpack_iq2_s(const void *block) {
    const strata_block_iq2_s *b = block;
    super_block y = {.scales = odd_scales(b->scales), .d = half_value(&b->d) * 0.125f};
    for (int g = 0; g < 4; g++) {
        uint64_t points[8], signs;
        memcpy(&signs, b->signs + 8 * g, sizeof signs);
        for (int k = 0; k < 8; k++) {
            const uint32_t high = b->qh[2 * g + k / 4] >> k % 4 * 2 & 3;
            points[k] = strata_grid_iq2_s[b->qs[8 * g + k] | high << 8];
        }
        put_points(y.w + 2 * g, points, signs);
    }
    return y;
}

INLINE super_block unpack_iq3_xxs(const void *block) {
    const strata_block_iq3_xxs *b = block;
    super_block y = {.d = half_value(&b->d) * 0.25f};
    uint32_t scales[2] = {0, 0};
    for (int g = 0; g < 4; g++) {
        const uint8_t *at = b->qs + 16 * g;
        const uint32_t tail0 = word_at(b->tails + 4 * g), tail1 = word_at(b->tails + 4 * g + 2);
        uint64_t points[8];
        for (int k = 0; k < 8; k++)
            points[k] = strata_grid_iq3_xxs[at[2 * k]] | (uint64_t)strata_grid_iq3_xxs[at[2 * k + 1]] << 32;
        put_points(y.w + 2 * g, points, even_signs(tail0) | even_signs(tail1) << 32);
        scales[g / 2] |= (tail0 >> 28 | tail1 >> 28 << 8) << g % 2 * 16;
    }
    y.scales = twice(scales[0], scales[1]) * 2 + 1;
    return y;
}

INLINE super_block unpack_iq3_s(const void *block) {
    const strata_block_iq3_s *b = block;
    const uint32_t nibbles = word_at(b->scales);
    uint32_t scales[2] = {0, 0};
    super_block y = {.d = half_value(&b->d)};
    for (int g = 0; g < 8; g++) scales[g / 4] |= (nibbles >> 4 * g & 15) << g % 4 * 8;
    y.scales = twice(scales[0], scales[1]) * 2 + 1;
    for (int g = 0; g < 4; g++) {
        const uint8_t *at = b->qs + 16 * g;
        const uint32_t ninth = half_at(b->qh + 2 * g);
        uint64_t points[8], signs;
        memcpy(&signs, b->signs + 8 * g, sizeof signs);
        for (int k = 0; k < 8; k++) {
            const uint32_t low = at[2 * k] | (ninth >> 2 * k & 1) << 8;
            const uint32_t high = at[2 * k + 1] | (ninth >> (2 * k + 1) & 1) << 8;
            points[k] = strata_grid_iq3_s[low] | (uint64_t)strata_grid_iq3_s[high] << 32;
        }
        put_points(y.w + 2 * g, points, signs);
    }
    return y;
}

/* 64 columns of points -1, 0, 1: 8 point + 1, or - 1 where a bit of `minus` is set, an eighth being the unit. */
INLINE void put_shifted(codes32 *w, const uint64_t *points, uint64_t minus) {
    const codes32 one = (codes32){0} + 1;
    const uint32_t even = (uint32_t)(minus & 0xffff | minus >> 16 & 0xffff0000);
    const uint32_t odd = (uint32_t)(minus >> 16 & 0xffff | minus >> 32 & 0xffff0000);
    w[0] = of_points(points[0], points[1], points[4], points[5]) * 8 + negate(one, even);
    w[1] = of_points(points[2], points[3], points[6], points[7]) * 8 + negate(one, odd);
}

INLINE super_block unpack_iq1_s(const void *block) {
    const strata_block_iq1_s *b = block;
    super_block y = {.d = half_value(&b->d) * 0.125f};
    uint32_t scales[2] = {0, 0};
    for (int g = 0; g < 4; g++) {
        const uint32_t qh[2] = {half_at(b->qh + 2 * g), half_at(b->qh + 2 * g + 1)};
        uint64_t points[8];
        for (int k = 0; k < 8; k++)
            points[k] = strata_grid_iq1_s[b->qs[8 * g + k] | (qh[k / 4] >> k % 4 * 3 & 7) << 8];
        put_shifted(y.w + 2 * g, points,
                    (qh[0] >> 15 ? 0xffffffff : 0) | (uint64_t)(qh[1] >> 15 ? 0xffffffff : 0) << 32);
        scales[g / 2] |= (qh[0] >> 12 & 7 | (qh[1] >> 12 & 7) << 8) << g % 2 * 16;
    }
    y.scales = twice(scales[0], scales[1]) * 2 + 1;
    return y;
}

INLINE super_block unpack_iq1_m(const void *block) {
    const strata_block_iq1_m *b = block;
    uint32_t words[4], scales[4] = {0, 0, 0, 0}, bits = 0;
    super_block y;
    for (int g = 0; g < 4; g++) {
        words[g] = half_at(b->scales + g);
        bits |= words[g] >> 12 << 4 * g;
        for (int k = 0; k < 4; k++) scales[g] |= (words[g] >> 3 * k & 7) << 8 * k;
    }
    const strata_half d = (strata_half)bits;
    y.d = half_value(&d) * 0.125f;
    y.scales = widen16(bytes_of_words(scales[0], scales[1], scales[2], scales[3])) * 2 + 1;
    for (int g = 0; g < 4; g++) {
        const uint32_t nibbles = word_at(b->qh + 4 * g);
        uint64_t points[8], minus = 0;
        for (int k = 0; k < 8; k++) {
            const uint32_t nibble = nibbles >> 4 * k & 15;
            points[k] = strata_grid_iq1_s[b->qs[8 * g + k] | (nibble & 7) << 8];
            minus |= (uint64_t)(nibble >> 3) << 8 * k;
        }
        put_shifted(y.w + 2 * g, points, minus * 255);
    }
    return y;
}
