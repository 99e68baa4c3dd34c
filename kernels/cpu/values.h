/* Weights as floats, out of the same codes and scales that products use. */

#define FIRST_HALF(v) __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define SECOND_HALF(v) __builtin_shufflevector(v, v, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)

/* Quarter q of a group as floats. */
INLINE floats16 quarter(const codes32 *w, int q) {
    const codes32 both = w[q % 2];
    return __builtin_convertvector(q < 2 ? FIRST_HALF(both) : SECOND_HALF(both), floats16);
}

/* Only the addition of a shift rounds, as in kernels/reference/quants.py. */
INLINE void dequantize_quarter(const codes32 *w, int q, float scale, float shift, int has_shifts, float *y) {
    const floats16 scaled = scale * quarter(w, q);
    store16(y, has_shifts ? scaled + shift : scaled);
}

INLINE void dequantize_flat(const format *f, const uint8_t *w, float *y, int64_t n) {
    const int64_t pair_bytes = f->block_bytes * (64 / f->block_weights);
    for (int64_t at = 0; at < n; at += 64, w += pair_bytes, y += 64) {
        const int n_quarters = n - at < 64 ? 2 : 4;
        const flat_group group = f->flat(w, n_quarters < 4 ? w : w + f->block_bytes);
        for (int q = 0; q < n_quarters; q++) {
            _Float16 halves[2];
            float d;
            memcpy(&d, &group.scales[q / 2], 4);
            memcpy(halves, &group.scales[q / 2], 4);
            if (f->scales == HALF_SCALES) d = (float)halves[0];
            dequantize_quarter(group.w, q, d, (float)halves[1], f->has_shifts, y + 16 * q);
        }
    }
}

INLINE void dequantize_super(const format *f, const uint8_t *w, float *y, int64_t n) {
    for (int64_t at = 0; at < n; at += STRIP, w += f->block_bytes, y += STRIP) {
        const super_block block = f->super(w);
        float scales[16], shifts[16];
        store16(scales, __builtin_convertvector(block.scales, floats16) * block.d);
        if (f->has_shifts) store16(shifts, __builtin_convertvector(block.minima, floats16) * -block.m);
        for (int q = 0; q < STRIP_QUARTERS; q++)
            dequantize_quarter(block.w + q / 4 * 2, q % 4, scales[q], f->has_shifts ? shifts[q] : 0, f->has_shifts,
                               y + 16 * q);
    }
}
