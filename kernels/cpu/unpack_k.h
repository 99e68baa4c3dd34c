/* Super formats of evenly spaced levels (K-quants), and IQ4_XS: a block to codes, scales, minima. */

INLINE float half_value(const void *at) {
    _Float16 half;
    memcpy(&half, at, sizeof half);
    return (float)half;
}

/* Two runs of 32 columns to the order of codes.h. */
INLINE void put_runs(codes32 *w, codes32 first, codes32 second) {
    w[0] = __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 32, 33, 34, 35,
                                   36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47);
    w[1] = __builtin_shufflevector(first, second, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 48,
                                   49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63);
}

INLINE codes16 widen16(bytes16 x) { return __builtin_convertvector(x, codes16); }

INLINE bytes16 bytes_of_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return (bytes16)(words4){a, b, c, d};
}

/* Eight bytes, each for two groups of 16 columns. */
INLINE codes16 twice(uint32_t low, uint32_t high) {
    const bytes16 x = bytes_of_words(low, high, 0, 0);
    return widen16(__builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7));
}

INLINE super_block unpack_q2_k(const void *block) {
    const strata_block_q2_k *b = block;
    const bytes16 both = load_bytes16(b->scales);
    super_block y = {.scales = widen16(both & 15), .minima = widen16(both >> 4)};
    y.d = half_value(&b->d), y.m = half_value(&b->m);
    for (int half = 0; half < 2; half++) {
        const codes32 qs = widen(load_bytes32(b->qs + 32 * half));
        put_runs(y.w + 4 * half, qs & 3, qs >> 2 & 3);
        put_runs(y.w + 4 * half + 2, qs >> 4 & 3, qs >> 6);
    }
    return y;
}

/* Groups 4 k .. 4 k + 3 have their low nibbles side by side and their high bits in bits 2 k of bytes 8..11. */
INLINE super_block unpack_q3_k(const void *block) {
    const strata_block_q3_k *b = block;
    const uint32_t s0 = word_at(b->scales), s1 = word_at(b->scales + 4), high = word_at(b->scales + 8);
    const uint32_t nibble = 0x0f0f0f0f, top = 0x30303030;
    const bytes16 scales = bytes_of_words(s0 & nibble | high << 4 & top, s1 & nibble | high << 2 & top,
                                          s0 >> 4 & nibble | high & top, s1 >> 4 & nibble | high >> 2 & top);
    const codes32 hmask = widen(load_bytes32(b->hmask));
    super_block y = {.scales = widen16(scales) - 32, .d = half_value(&b->d)};
    for (int half = 0; half < 2; half++) {
        const codes32 qs = widen(load_bytes32(b->qs + 32 * half)), high_bits = hmask >> 4 * half;
        put_runs(y.w + 4 * half, (qs & 3 | high_bits << 2 & 4) - 4, (qs >> 2 & 3 | high_bits << 1 & 4) - 4);
        put_runs(y.w + 4 * half + 2, (qs >> 4 & 3 | high_bits & 4) - 4, (qs >> 6 | high_bits >> 1 & 4) - 4);
    }
    return y;
}

INLINE super_block scales_q4_k(strata_half d, strata_half m, const uint8_t *scales) {
    const uint32_t s0 = word_at(scales), s1 = word_at(scales + 4), s2 = word_at(scales + 8);
    const uint32_t six = 0x3f3f3f3f, nibble = 0x0f0f0f0f, top = 0x30303030;
    return (super_block){
        .scales = twice(s0 & six, s2 & nibble | s0 >> 2 & top),
        .minima = twice(s1 & six, s2 >> 4 & nibble | s1 >> 2 & top),
        .d = half_value(&d),
        .m = half_value(&m),
    };
}

INLINE super_block unpack_q4_k(const void *block) {
    const strata_block_q4_k *b = block;
    super_block y = scales_q4_k(b->d, b->m, b->scales);
    for (int g = 0; g < 4; g++) {
        const codes32 qs = widen(load_bytes32(b->qs + 32 * g));
        put_runs(y.w + 2 * g, qs & 15, qs >> 4);
    }
    return y;
}

/* Fifth bits: bit j of byte i is that of column 32 j + i. */
INLINE super_block unpack_q5_k(const void *block) {
    const strata_block_q5_k *b = block;
    const codes32 qh = widen(load_bytes32(b->qh));
    super_block y = scales_q4_k(b->d, b->m, b->scales);
    for (int g = 0; g < 4; g++) {
        const codes32 qs = widen(load_bytes32(b->qs + 32 * g)), high = qh << 4 >> 2 * g;
        put_runs(y.w + 2 * g, qs & 15 | high & 16, qs >> 4 | high >> 1 & 16);
    }
    return y;
}

INLINE super_block unpack_q6_k(const void *block) {
    const strata_block_q6_k *b = block;
    super_block y = {.scales = __builtin_convertvector((chars16)load_bytes16(b->scales), codes16),
                     .d = half_value(&b->d)};
    for (int half = 0; half < 2; half++) {
        const codes32 low0 = widen(load_bytes32(b->ql + 64 * half)), low1 = widen(load_bytes32(b->ql + 64 * half + 32));
        const codes32 high = widen(load_bytes32(b->qh + 32 * half));
        put_runs(y.w + 4 * half, (low0 & 15 | high << 4 & 48) - 32, (low1 & 15 | high << 2 & 48) - 32);
        put_runs(y.w + 4 * half + 2, (low0 >> 4 | high & 48) - 32, (low1 >> 4 | high >> 2 & 48) - 32);
    }
    return y;
}

/* Nibble g of four bytes to byte g of eight, and bits 2 g to bits 4 and 5 of byte g. */
INLINE super_block unpack_iq4_xs(const void *block) {
    const strata_block_iq4_xs *b = block;
    const uint32_t low = word_at(b->scales_l), high = half_at(&b->scales_h);
    uint32_t scales[2] = {0, 0};
    for (int g = 0; g < 8; g++) scales[g / 4] |= (low >> 4 * g & 15 | (high >> 2 * g & 3) << 4) << g % 4 * 8;
    super_block y = {.scales = twice(scales[0], scales[1]) - 32, .d = half_value(&b->d)};
    for (int g = 0; g < 4; g++) {
        const flat_group group = levels(b->qs + 32 * g, b->qs + 32 * g + 16, iq4_levels);
        y.w[2 * g] = group.w[0];
        y.w[2 * g + 1] = group.w[1];
    }
    return y;
}
