/* Super formats that name lattice points by an index (IQ1, IQ2, IQ3). Indices and signs of a block are
 * taken out of its bits in registers; points are looked up one by one, since gathers are slower on many
 * processors. */
#include "../include/grids.h"

typedef uint16_t shorts32 __attribute__((vector_size(64), aligned(2)));

/* 32 columns, 8 a point: those of four indices from `at` on and `at` + 4 on, in the order of codes.h. */
#define POINTS(grid, indices, at)                                                                          \
    widen_signed((bytes32)(longs4){(grid)[(indices)[at]], (grid)[(indices)[(at) + 1]], (grid)[(indices)[(at) + 4]], \
                                   (grid)[(indices)[(at) + 5]]})

/* The same, 4 a point. */
#define QUADS(grid, indices, at)                                                                               \
    widen_signed((bytes32)(words8){(grid)[(indices)[at]], (grid)[(indices)[(at) + 1]], (grid)[(indices)[(at) + 2]], \
                                   (grid)[(indices)[(at) + 3]], (grid)[(indices)[(at) + 8]],                   \
                                   (grid)[(indices)[(at) + 9]], (grid)[(indices)[(at) + 10]],                  \
                                   (grid)[(indices)[(at) + 11]]})

/* Sign bits of 256 columns, 32 a word, as they go with the registers of codes. */
INLINE void order_signs(words8 signs, uint32_t *masks) {
    const shorts16 x = (shorts16)signs;
    const shorts16 y = __builtin_shufflevector(x, x, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    memcpy(masks, &y, sizeof y);
}

INLINE words8 load_words8(const void *at) { return *(const words8 *)at; }

/* Bytes of seven sign bits: the eighth makes the number of minus signs even. */
INLINE words8 with_parity(words8 signs) {
    words8 parity = signs ^ signs >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return signs | (parity & 0x01010101) << 7;
}

/* 4 x 7 bits of each word to four bytes of eight. */
INLINE words8 even_signs(words8 tails) {
    return with_parity(tails & 0x7f | tails << 1 & 0x7f00 | tails << 2 & 0x7f0000 | tails << 3 & 0x7f000000);
}

/* 2 s + 1 of the four top bits of each word, for two groups of 16 columns. */
INLINE codes16 top_scales(words8 tails) {
    const shorts8 x = __builtin_convertvector(tails >> 28, shorts8) * 2 + 1;
    return (codes16)__builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
}

/* Nibble g of eight bytes is the scale of group g of 16 columns: 2 s + 1. */
INLINE codes16 nibble_scales(const uint8_t *nibbles) {
    const bytes16 x = bytes_of_words(word_at(nibbles), word_at(nibbles + 4), 0, 0);
    const bytes16 low = x & 15, high = x >> 4;
    return widen16(__builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)) * 2 + 1;
}

INLINE super_block unpack_iq2_xxs(const void *block) {
    const strata_block_iq2_xxs *b = block;
    const words8 first = load_words8(b->qs), second = load_words8(b->qs + 16);
    const words8 tails = __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15);
    const uint8_t *indices = (const uint8_t *)b->qs;
    uint32_t masks[8];
    super_block y = {.scales = top_scales(tails), .d = half_value(&b->d) * 0.125f};
    order_signs(even_signs(tails), masks);
    for (int g = 0; g < 4; g++) {
        const uint8_t *at = indices + 16 * g;
        const uint8_t eight[8] = {at[0], at[1], at[2], at[3], at[8], at[9], at[10], at[11]};
        y.w[2 * g] = negate(POINTS(strata_grid_iq2_xxs, eight, 0), masks[2 * g]);
        y.w[2 * g + 1] = negate(POINTS(strata_grid_iq2_xxs, eight, 2), masks[2 * g + 1]);
    }
    return y;
}

INLINE super_block unpack_iq2_xs(const void *block) {
    const strata_block_iq2_xs *b = block;
    const shorts32 words = *(const shorts32 *)(const void *)b->qs;
    const shorts32 kept = words & 511;
    uint16_t indices[32];
    uint32_t masks[8];
    super_block y = {.scales = nibble_scales(b->scales), .d = half_value(&b->d) * 0.125f};
    memcpy(indices, &kept, sizeof kept);
    order_signs(with_parity((words8)__builtin_convertvector(words >> 9, bytes32)), masks);
    for (int k = 0; k < 8; k++)
        y.w[k] = negate(POINTS(strata_grid_iq2_xs, indices, k / 2 * 8 + k % 2 * 2), masks[k]);
    return y;
}

/* Two more bits for each of 32 indices, four a byte. */
INLINE super_block unpack_iq2_s(const void *block) {
    const strata_block_iq2_s *b = block;
    const bytes16 qh = bytes_of_words(word_at(b->qh), word_at(b->qh + 4), 0, 0);
    const bytes32 spread = __builtin_shufflevector(qh, qh, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5,
                                                   5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
    const shorts32 up = {256, 64, 16, 4, 256, 64, 16, 4, 256, 64, 16, 4, 256, 64, 16, 4,
                         256, 64, 16, 4, 256, 64, 16, 4, 256, 64, 16, 4, 256, 64, 16, 4};
    const shorts32 joined = __builtin_convertvector(load_bytes32(b->qs), shorts32) |
                            __builtin_convertvector(spread, shorts32) * up & 0x300;
    uint16_t indices[32];
    uint32_t masks[8];
    super_block y = {.scales = nibble_scales(b->scales), .d = half_value(&b->d) * 0.125f};
    memcpy(indices, &joined, sizeof joined);
    order_signs(load_words8(b->signs), masks);
    for (int k = 0; k < 8; k++)
        y.w[k] = negate(POINTS(strata_grid_iq2_s, indices, k / 2 * 8 + k % 2 * 2), masks[k]);
    return y;
}

INLINE super_block unpack_iq3_xxs(const void *block) {
    const strata_block_iq3_xxs *b = block;
    const words8 tails = load_words8(b->tails);
    uint32_t masks[8];
    super_block y = {.scales = top_scales(tails), .d = half_value(&b->d) * 0.25f};
    order_signs(even_signs(tails), masks);
    for (int k = 0; k < 8; k++)
        y.w[k] = negate(QUADS(strata_grid_iq3_xxs, b->qs, k / 2 * 16 + k % 2 * 4), masks[k]);
    return y;
}

INLINE super_block unpack_iq3_s(const void *block) {
    const strata_block_iq3_s *b = block;
    const uint32_t nibbles = word_at(b->scales);
    const words8 shifts = {0, 4, 8, 12, 16, 20, 24, 28};
    uint16_t indices[64];
    uint32_t masks[8];
    for (int half = 0; half < 2; half++) {
        const codes32 joined = widen(load_bytes32(b->qs + 32 * half)) | with_bits(word_at(b->qh + 4 * half), 256);
        memcpy(indices + 32 * half, &joined, sizeof joined);
    }
    super_block y = {.scales = top_scales(((words8){0} + nibbles >> shifts) << 28), .d = half_value(&b->d)};
    order_signs(load_words8(b->signs), masks);
    for (int k = 0; k < 8; k++)
        y.w[k] = negate(QUADS(strata_grid_iq3_s, indices, k / 2 * 16 + k % 2 * 4), masks[k]);
    return y;
}

/* Points -1, 0, 1 with an eighth as the unit: 8 point + 1, or - 1 where a bit is set. */
INLINE codes32 shifted(codes32 points, uint32_t minus) { return points * 8 + 1 - with_bits(minus, 2); }

/* Three more bits for each of 32 indices: bits 3 k of a word for the four of a group. */
INLINE super_block unpack_iq1_s(const void *block) {
    const strata_block_iq1_s *b = block;
    const shorts8 qh = *(const shorts8 *)(const void *)b->qh;
    const shorts32 spread = __builtin_shufflevector(qh, qh, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4,
                                                    5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
    const shorts32 up = {256, 32, 4, 0, 256, 32, 4, 0, 256, 32, 4, 0, 256, 32, 4, 0,
                         256, 32, 4, 0, 256, 32, 4, 0, 256, 32, 4, 0, 256, 32, 4, 0};
    const shorts32 last = {0, 0, 0, 0x700, 0, 0, 0, 0x700, 0, 0, 0, 0x700, 0, 0, 0, 0x700,
                           0, 0, 0, 0x700, 0, 0, 0, 0x700, 0, 0, 0, 0x700, 0, 0, 0, 0x700};
    const shorts32 joined = __builtin_convertvector(load_bytes32(b->qs), shorts32) | spread * up & 0x700 | spread >> 1 & last;
    const words8 words = __builtin_convertvector(qh, words8);
    uint16_t indices[32];
    uint32_t masks[8];
    super_block y = {.scales = top_scales((words >> 12 & 7) << 28), .d = half_value(&b->d) * 0.125f};
    memcpy(indices, &joined, sizeof joined);
    order_signs((words8)(words >> 15 != 0), masks);
    for (int k = 0; k < 8; k++)
        y.w[k] = shifted(POINTS(strata_grid_iq1_s, indices, k / 2 * 8 + k % 2 * 2), masks[k]);
    return y;
}

/* A nibble for each of 32 indices: three more bits, and the sign of the shift. */
INLINE super_block unpack_iq1_m(const void *block) {
    const strata_block_iq1_m *b = block;
    const bytes16 packed = load_bytes16(b->qh), low = packed & 15, high = packed >> 4;
    const bytes32 nibbles = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24,
                                                    9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    const codes32 joined = widen(load_bytes32(b->qs)) | widen(nibbles & 7) << 8;
    const words4 words = {half_at(b->scales), half_at(b->scales + 1), half_at(b->scales + 2), half_at(b->scales + 3)};
    const bytes16 scales = (bytes16)(words & 7 | words << 5 & 0x700 | words << 10 & 0x70000 | words << 15 & 0x7000000);
    const strata_half d = (strata_half)(words[0] >> 12 | words[1] >> 8 & 0xf0 | words[2] >> 4 & 0xf00 | words[3] & 0xf000);
    uint16_t indices[32];
    uint32_t masks[8];
    super_block y = {.scales = widen16(scales) * 2 + 1, .d = half_value(&d) * 0.125f};
    memcpy(indices, &joined, sizeof joined);
    order_signs((words8)((nibbles & 8) != 0), masks);
    for (int k = 0; k < 8; k++)
        y.w[k] = shifted(POINTS(strata_grid_iq1_s, indices, k / 2 * 8 + k % 2 * 2), masks[k]);
    return y;
}
