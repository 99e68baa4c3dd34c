/* Flat formats: 64 columns to codes. Which bit means what is said in include/blocks.h. */

INLINE bytes16 load_bytes16(const void *at) { return *(const bytes16 *)at; }
INLINE bytes32 load_bytes32(const void *at) { return *(const bytes32 *)at; }

INLINE bytes32 join(bytes16 a, bytes16 b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                   22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

INLINE codes32 widen(bytes32 x) { return __builtin_convertvector(x, codes32); }
INLINE codes32 widen_signed(bytes32 x) { return __builtin_convertvector((chars32)x, codes32); }

INLINE uint32_t half_at(const void *at) {
    strata_half bits;
    memcpy(&bits, at, sizeof bits);
    return bits;
}

INLINE uint32_t word_at(const void *at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Nibbles of two blocks: the low ones are columns 0..15 of each, the high ones 16..31. */
INLINE flat_group nibbles(const uint8_t *first, const uint8_t *second) {
    const codes32 both = widen(join(load_bytes16(first), load_bytes16(second)));
    return (flat_group){.w = {both & 15, both >> 4}};
}

/* Nibbles of two blocks as names of levels. */
INLINE flat_group levels(const uint8_t *first, const uint8_t *second, const int8_t *table) {
    const bytes32 both = join(load_bytes16(first), load_bytes16(second));
    return (flat_group){.w = {widen_signed(lookup16(both & 15, table)), widen_signed(lookup16(both >> 4, table))}};
}

/* 16 where a bit is set, for 16 columns of each of two blocks. */
INLINE codes32 fifth_bits(uint32_t first, uint32_t second) {
    return with_bits(first & 0xffff | second << 16, 16);
}

INLINE flat_group unpack_q4_0(const void *first, const void *second) {
    const strata_block_q4_0 *a = first, *b = second;
    flat_group y = nibbles(a->qs, b->qs);
    y.w[0] -= 8, y.w[1] -= 8;
    y.scales[0] = half_at(a), y.scales[1] = half_at(b);
    return y;
}

INLINE flat_group unpack_q4_1(const void *first, const void *second) {
    const strata_block_q4_1 *a = first, *b = second;
    flat_group y = nibbles(a->qs, b->qs);
    y.scales[0] = word_at(a), y.scales[1] = word_at(b);
    return y;
}

INLINE flat_group unpack_q5_0(const void *first, const void *second) {
    const strata_block_q5_0 *a = first, *b = second;
    const uint32_t a_bits = word_at(a->qh), b_bits = word_at(b->qh);
    flat_group y = nibbles(a->qs, b->qs);
    y.w[0] = (y.w[0] | fifth_bits(a_bits, b_bits)) - 16;
    y.w[1] = (y.w[1] | fifth_bits(a_bits >> 16, b_bits >> 16)) - 16;
    y.scales[0] = half_at(a), y.scales[1] = half_at(b);
    return y;
}

INLINE flat_group unpack_q5_1(const void *first, const void *second) {
    const strata_block_q5_1 *a = first, *b = second;
    const uint32_t a_bits = word_at(a->qh), b_bits = word_at(b->qh);
    flat_group y = nibbles(a->qs, b->qs);
    y.w[0] |= fifth_bits(a_bits, b_bits);
    y.w[1] |= fifth_bits(a_bits >> 16, b_bits >> 16);
    y.scales[0] = word_at(a), y.scales[1] = word_at(b);
    return y;
}

INLINE flat_group unpack_q8_0(const void *first, const void *second) {
    const strata_block_q8_0 *a = first, *b = second;
    return (flat_group){
        .w = {widen_signed(join(load_bytes16(a->qs), load_bytes16(b->qs))),
              widen_signed(join(load_bytes16(a->qs + 16), load_bytes16(b->qs + 16)))},
        .scales = {half_at(a), half_at(b)},
    };
}

/* One block of 64: four neighbours a byte. A code is moved up to bits 6 and 7, then down. */
INLINE flat_group unpack_q2_0(const void *first, const void *second) {
    const strata_block_q2_0 *a = first;
    const bytes16 qs = load_bytes16(a->qs);
    const bytes32 even = __builtin_shufflevector(qs, qs, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 8, 8, 8, 8, 9,
                                                 9, 9, 9, 10, 10, 10, 10, 11, 11, 11, 11);
    const bytes32 odd = __builtin_shufflevector(qs, qs, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 12, 12, 12, 12,
                                                13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15);
    const codes32 up = {64, 16, 4, 1, 64, 16, 4, 1, 64, 16, 4, 1, 64, 16, 4, 1,
                        64, 16, 4, 1, 64, 16, 4, 1, 64, 16, 4, 1, 64, 16, 4, 1};
    const uint32_t d = half_at(a);
    (void)second;
    return (flat_group){.w = {(widen(even) * up >> 6 & 3) - 1, (widen(odd) * up >> 6 & 3) - 1}, .scales = {d, d}};
}

static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* Twice the levels of a 4-bit float. */
static const int8_t fp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

INLINE flat_group unpack_iq4_nl(const void *first, const void *second) {
    const strata_block_iq4_nl *a = first, *b = second;
    flat_group y = levels(a->qs, b->qs, iq4_levels);
    y.scales[0] = half_at(a), y.scales[1] = half_at(b);
    return y;
}

/* Bits of the float 2^(e - 128); the smallest two are below the normal floats. */
INLINE uint32_t power_of_two(uint32_t e) { return e < 2 ? 0x200000u << e : (e - 1) << 23; }

INLINE flat_group unpack_mxfp4(const void *first, const void *second) {
    const strata_block_mxfp4 *a = first, *b = second;
    flat_group y = levels(a->qs, b->qs, fp4_levels);
    y.scales[0] = power_of_two(a->e), y.scales[1] = power_of_two(b->e);
    return y;
}
