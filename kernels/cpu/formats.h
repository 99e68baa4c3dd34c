/* Every weight format by name: how it is unpacked, and its row kernels. */

#define FLAT(name, type, weights, scales_are, shifts)                                            \
    static const format format_##name = {                                                        \
        unpack_##name, 0, sizeof(strata_block_##name), weights, scales_are, shifts};             \
    static void dot_##name(const strata_dots *dots) { dot_codes(&format_##name, dots); }         \
    static void dequantize_##name(const void *blocks, float *y, int64_t n) {                     \
        dequantize_flat(&format_##name, blocks, y, n);                                           \
    }

#define SUPER(name, type, shifts)                                                                \
    static const format format_##name = {                                                        \
        0, unpack_##name, sizeof(strata_block_##name), STRIP, HALF_SCALES, shifts};              \
    static void dot_##name(const strata_dots *dots) { dot_codes(&format_##name, dots); }         \
    static void dequantize_##name(const void *blocks, float *y, int64_t n) {                     \
        dequantize_super(&format_##name, blocks, y, n);                                          \
    }

#define EACH_FLAT(DO)                          \
    DO(q4_0, STRATA_Q4_0, 32, HALF_SCALES, 0)  \
    DO(q4_1, STRATA_Q4_1, 32, HALF_SCALES, 1)  \
    DO(q5_0, STRATA_Q5_0, 32, HALF_SCALES, 0)  \
    DO(q5_1, STRATA_Q5_1, 32, HALF_SCALES, 1)  \
    DO(q8_0, STRATA_Q8_0, 32, HALF_SCALES, 0)  \
    DO(q2_0, STRATA_Q2_0, 64, HALF_SCALES, 0)  \
    DO(iq4_nl, STRATA_IQ4_NL, 32, HALF_SCALES, 0) \
    DO(mxfp4, STRATA_MXFP4, 32, FLOAT_SCALES, 0)

#define EACH_SUPER(DO)               \
    DO(q2_k, STRATA_Q2_K, 1)         \
    DO(q3_k, STRATA_Q3_K, 0)         \
    DO(q4_k, STRATA_Q4_K, 1)         \
    DO(q5_k, STRATA_Q5_K, 1)         \
    DO(q6_k, STRATA_Q6_K, 0)         \
    DO(iq1_s, STRATA_IQ1_S, 0)       \
    DO(iq1_m, STRATA_IQ1_M, 0)       \
    DO(iq2_xxs, STRATA_IQ2_XXS, 0)   \
    DO(iq2_xs, STRATA_IQ2_XS, 0)     \
    DO(iq2_s, STRATA_IQ2_S, 0)       \
    DO(iq3_xxs, STRATA_IQ3_XXS, 0)   \
    DO(iq3_s, STRATA_IQ3_S, 0)       \
    DO(iq4_xs, STRATA_IQ4_XS, 0)

EACH_FLAT(FLAT)
EACH_SUPER(SUPER)

static void dequantize_f32(const void *blocks, float *y, int64_t n) { memcpy(y, blocks, (size_t)n * 4); }

static void dequantize_f16(const void *blocks, float *y, int64_t n) { load_cells(blocks, n, y, 1, n); }

static void dequantize_bf16(const void *blocks, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = half_at((const uint16_t *)blocks + i) << 16;
        memcpy(y + i, &bits, 4);
    }
}

#define DOT_ENTRY(name, type, ...) [type] = dot_##name,
#define DEQUANTIZE_ENTRY(name, type, ...) [type] = dequantize_##name,

/* Row kernels of formats, for the table of a level. */
#define STRATA_FORMAT_KERNELS                                                                      \
    .dot_codes = {EACH_FLAT(DOT_ENTRY) EACH_SUPER(DOT_ENTRY)},                                     \
    .dequantize = {EACH_FLAT(DEQUANTIZE_ENTRY) EACH_SUPER(DEQUANTIZE_ENTRY)                        \
                   [STRATA_F32] = dequantize_f32, [STRATA_F16] = dequantize_f16, [STRATA_BF16] = dequantize_bf16}, \
    .quantize_row = quantize_row
