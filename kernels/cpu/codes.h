/* Products of weights with activation codes, for every format: what is the same for all of them.
 *
 * Weights are unpacked to 16-bit codes, 256 columns (a strip) at a time, and multiplied with 16-bit
 * codes of x; whole numbers are summed as far as one scale reaches, exactly, then floats. Two families:
 *   flat: a float scale (and a shift) for each block of 32 columns;
 *   super: blocks of 256 with a float scale (and one for minima) and whole scales for groups of 16
 *     columns. These scales are multiplied into the codes, so that a block is one sum of integers:
 *     16 products of at most 4096 * 32767 in each of 16 lanes stay below 2^31.
 *
 * Codes lie in quarters of 16 columns in the order 0, 2, 1, 3 of each 64. So the two blocks of a flat
 * group fall into the two halves of a register, and so do the nibbles of most formats.
 *
 *   columns of 64      0..15 | 16..31 | 32..47 | 48..63
 *   in two registers   w[0] = 0..15, 32..47      w[1] = 16..31, 48..63
 *
 * The including file gives dot2(), lookup16() and negate() in its own instructions. Every row of
 * weights with every row of x is summed by the same operations in the same order, whether alone
 * (row_flat, row_super) or in a tile of several.
 */
#define STRIP 256
#define STRIP_REGISTERS (STRIP / 32)
#define STRIP_GROUPS (STRIP / 64)
#define STRIP_QUARTERS (STRIP / 16)
/* Rows of weights and of x that share unpacked strips: 8 and 16 KiB of codes, 32 KiB of sums. */
#define W_ROWS 16
#define X_ROWS 32

/* 64 columns of two flat blocks. A scale is the bits of two halves, d below the shift m; in a format
 * with float scales, the bits of d. */
typedef struct {
    codes32 w[2];
    uint32_t scales[2];
} flat_group;

/* A block of 256 columns: (d * scale) * code - m * minimum. */
typedef struct {
    codes32 w[STRIP_REGISTERS];
    codes16 scales;
    codes16 minima; /* where the format has them */
    float d, m;
} super_block;

/* Loops over what lies in registers: counts are constants. */
#define UNROLLED _Pragma("clang loop unroll(full)")
/* A load across two cache lines costs two. */
#define CACHE_LINE _Alignas(64)

/* An unpacked strip of one row of weights. */
typedef struct {
    CACHE_LINE codes32 w[STRIP_REGISTERS]; /* super: times their scales */
    floats16 scales[STRIP_GROUPS]; /* flat: of each lane */
    floats16 shifts;               /* of each quarter, where the format has them */
    float d;                       /* super */
} strip;

typedef flat_group (*unpack_flat)(const void *first, const void *second);
typedef super_block (*unpack_super)(const void *block);

/* How the scales of a format are written. */
enum { HALF_SCALES, FLOAT_SCALES };

/* What the loops must know of a format. */
typedef struct {
    unpack_flat flat; /* or */
    unpack_super super;
    int64_t block_bytes, block_weights;
    int scales, has_shifts;
} format;

/* One strip of one row of x. */
typedef struct {
    const codes32 *codes;
    const float *sums; /* of each quarter, times the scale */
    float scale;
} x_strip;

INLINE x_strip x_at(const strata_dots *dots, int64_t row, int64_t s) {
    const float *ds = dots->ds + row * strata_scale_stride(dots->n_cols);
    return (x_strip){(const codes32 *)(const void *)(dots->qs + row * strata_code_stride(dots->n_cols) + s * STRIP),
                     ds + s * STRIP_QUARTERS, ds[strata_n_strips(dots->n_cols) * STRIP_QUARTERS + s]};
}

/* Groups of 64 columns in strip s, the last perhaps half empty. */
INLINE int groups_at(int64_t n_cols, int64_t s) {
    const int64_t n = (n_cols - s * STRIP + 63) / 64;
    return n < STRIP_GROUPS ? (int)n : STRIP_GROUPS;
}

/* ---------------------------------------------------------------- codes of x */

/* Where the quarters of 64 columns lie. */
static const int8_t quarter_place[4] = {0, 2, 1, 3};

static void quantize_row(const float *x, int16_t *qs, float *ds, int64_t n_cols) {
    const floats16 rounder = all16(12582912.0f); /* 1.5 * 2^23: adding it rounds to whole numbers */
    const int64_t n_strips = strata_n_strips(n_cols);
    for (int64_t s = 0; s < n_strips; s++, x += STRIP, qs += STRIP) {
        const int64_t left = n_cols - s * STRIP, n_quarters = left < STRIP ? left / 16 : STRIP_QUARTERS;
        floats16 sizes = all16(0), sums[STRIP_QUARTERS];
        for (int64_t q = 0; q < n_quarters; q++)
            sizes = __builtin_elementwise_max(sizes, __builtin_elementwise_abs(load16(x + 16 * q)));
        const float largest = __builtin_reduce_max(sizes);
        const int is_zero = largest < STRATA_SMALLEST;
        const float scale = is_zero ? 0 : largest / STRATA_LARGEST_CODE;
        const float inverse = is_zero ? 0 : STRATA_LARGEST_CODE / largest;
        for (int64_t q = 0; q < STRIP_QUARTERS; q++) {
            sums[q] = all16(0);
            if (q >= (n_quarters + 3) / 4 * 4) continue;
            if (q < n_quarters) sums[q] = (load16(x + 16 * q) * inverse + rounder) - rounder;
            const codes16 codes = __builtin_convertvector(__builtin_convertvector(sums[q], ints16), codes16);
            *(codes16 *)(void *)(qs + q / 4 * 64 + quarter_place[q % 4] * 16) = codes;
        }
        store16(ds + s * STRIP_QUARTERS, sums_of_16(sums) * scale);
        ds[n_strips * STRIP_QUARTERS + s] = scale;
    }
}

/* ---------------------------------------------------------------- strips of weights */

#define SPREAD(v, a, b) \
    __builtin_shufflevector(v, v, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b)
#define SPREAD_FLOATS(v, a, b) __builtin_shufflevector(v, v, a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b)

/* Scales of 8 blocks (the first n are there) as they go with lanes, and their shifts with quarters. */
INLINE void spread_scales(const uint32_t *bits, const format *f, floats16 *scales, floats16 *shifts) {
    const words8 all = {bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], bits[6], bits[7]};
    if (f->scales == FLOAT_SCALES) {
        const floats8 d = (floats8)all;
        scales[0] = SPREAD_FLOATS(d, 0, 1);
        scales[1] = SPREAD_FLOATS(d, 2, 3);
        scales[2] = SPREAD_FLOATS(d, 4, 5);
        scales[3] = SPREAD_FLOATS(d, 6, 7);
    } else if (f->has_shifts) {
        const floats16 both = __builtin_convertvector((halves16)all, floats16);
        scales[0] = SPREAD_FLOATS(both, 0, 2);
        scales[1] = SPREAD_FLOATS(both, 4, 6);
        scales[2] = SPREAD_FLOATS(both, 8, 10);
        scales[3] = SPREAD_FLOATS(both, 12, 14);
        *shifts = __builtin_shufflevector(both, both, 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15);
    } else {
        const floats8 d = __builtin_convertvector((halves8)__builtin_convertvector(all, shorts8), floats8);
        scales[0] = SPREAD_FLOATS(d, 0, 1);
        scales[1] = SPREAD_FLOATS(d, 2, 3);
        scales[2] = SPREAD_FLOATS(d, 4, 5);
        scales[3] = SPREAD_FLOATS(d, 6, 7);
    }
}

INLINE void unpack_flat_strip(const format *f, const uint8_t *row, int64_t s, int64_t n_cols, const int n_groups,
                              strip *y) {
    const int64_t pair_bytes = f->block_bytes * (64 / f->block_weights);
    const uint8_t *w = row + s * STRIP_GROUPS * pair_bytes;
    const int is_odd = f->block_weights == 32 && n_cols - s * STRIP < n_groups * 64; /* half a group at the end */
    uint32_t bits[8] = {0};
    UNROLLED for (int g = 0; g < n_groups; g++, w += pair_bytes) {
        /* Where there is no second block the first stands for it: codes of x are zero there. */
        const flat_group group = f->flat(w, is_odd && g == n_groups - 1 ? w : w + f->block_bytes);
        y->w[2 * g] = group.w[0];
        y->w[2 * g + 1] = group.w[1];
        bits[2 * g] = group.scales[0];
        bits[2 * g + 1] = group.scales[1];
    }
    spread_scales(bits, f, y->scales, &y->shifts);
}

INLINE void unpack_rest(const format *f, const uint8_t *row, int64_t s, int64_t n_cols, int n_groups, strip *y) {
    switch (n_groups) { /* counts are constants, so that nothing goes through memory */
        case 1: return unpack_flat_strip(f, row, s, n_cols, 1, y);
        case 2: return unpack_flat_strip(f, row, s, n_cols, 2, y);
        case 3: return unpack_flat_strip(f, row, s, n_cols, 3, y);
    }
}

INLINE void unpack_super_strip(const format *f, const uint8_t *row, int64_t s, strip *y) {
    const super_block block = f->super(row + s * f->block_bytes);
    y->w[0] = block.w[0] * SPREAD(block.scales, 0, 2);
    y->w[1] = block.w[1] * SPREAD(block.scales, 1, 3);
    y->w[2] = block.w[2] * SPREAD(block.scales, 4, 6);
    y->w[3] = block.w[3] * SPREAD(block.scales, 5, 7);
    y->w[4] = block.w[4] * SPREAD(block.scales, 8, 10);
    y->w[5] = block.w[5] * SPREAD(block.scales, 9, 11);
    y->w[6] = block.w[6] * SPREAD(block.scales, 12, 14);
    y->w[7] = block.w[7] * SPREAD(block.scales, 13, 15);
    y->d = block.d;
    if (f->has_shifts) y->shifts = __builtin_convertvector(block.minima, floats16) * -block.m;
}

/* ---------------------------------------------------------------- sums */

INLINE ints16 no_sum(void) { return (ints16){0}; }
INLINE floats16 as_floats(ints16 x) { return __builtin_convertvector(x, floats16); }

/* Part is what a strip of flat groups gives, but for the scale of x: sums of groups in their order. */
INLINE floats16 add_group(floats16 part, ints16 products, floats16 scales) {
    return STRATA_FMA(as_floats(products), scales, part);
}

INLINE floats16 add_flat(floats16 sum, floats16 part, float x_scale) {
    return STRATA_FMA(part, all16(x_scale), sum);
}

INLINE floats16 add_super(floats16 sum, ints16 products, float d, float x_scale) {
    return STRATA_FMA(as_floats(products), all16(d * x_scale), sum);
}

INLINE floats16 add_shifts(floats16 sum, floats16 shifts, const float *x_sums) {
    return STRATA_FMA(shifts, load16(x_sums), sum);
}

/* One strip of one row of weights with one row of x. */
INLINE floats16 add_strip(const format *f, floats16 sum, const strip *w, const int n_groups, x_strip x) {
    if (f->flat) {
        floats16 part = all16(0);
        UNROLLED for (int g = 0; g < n_groups; g++) {
            const ints16 half = dot2(no_sum(), w->w[2 * g], x.codes[2 * g]);
            part = add_group(part, dot2(half, w->w[2 * g + 1], x.codes[2 * g + 1]), w->scales[g]);
        }
        sum = add_flat(sum, part, x.scale);
    } else {
        ints16 even = no_sum(), odd = no_sum(); /* two chains: exact in any order */
        for (int k = 0; k < STRIP_REGISTERS; k += 2) {
            even = dot2(even, w->w[k], x.codes[k]);
            odd = dot2(odd, w->w[k + 1], x.codes[k + 1]);
        }
        sum = add_super(sum, even + odd, w->d, x.scale);
    }
    return f->has_shifts ? add_shifts(sum, w->shifts, x.sums) : sum;
}

/* A last strip that is not full. */
INLINE floats16 add_rest(const format *f, const strata_dots *dots, const uint8_t *row, int64_t s, const int n_groups,
                         floats16 sum) {
    strip w;
    unpack_flat_strip(f, row, s, dots->n_cols, n_groups, &w);
    return add_strip(f, sum, &w, n_groups, x_at(dots, 0, s));
}

/* A row of weights with the only row of x. */
INLINE floats16 row_sums(const format *f, const strata_dots *dots, int64_t r) {
    const uint8_t *row = dots->w + r * dots->row_bytes;
    const int64_t n_cols = dots->n_cols;
    floats16 sum = all16(0);
    int64_t s = 0;
    for (; (s + 1) * STRIP <= n_cols; s++) {
        strip w;
        if (f->flat)
            unpack_flat_strip(f, row, s, n_cols, STRIP_GROUPS, &w);
        else
            unpack_super_strip(f, row, s, &w);
        sum = add_strip(f, sum, &w, STRIP_GROUPS, x_at(dots, 0, s));
    }
    if (!f->flat || s * STRIP >= n_cols) return sum;
    switch (groups_at(n_cols, s)) { /* counts are constants, so that nothing goes through memory */
        case 1: return add_rest(f, dots, row, s, 1, sum);
        case 2: return add_rest(f, dots, row, s, 2, sum);
        case 3: return add_rest(f, dots, row, s, 3, sum);
    }
    return add_rest(f, dots, row, s, STRIP_GROUPS, sum); /* with half a group */
}

/* TILE_W strips of weights with n_x strips of x; sums[t][r] are W_ROWS apart. */
INLINE void add_tile_flat(const strip *w, const x_strip *x, const int n_x, const int n_groups, const int has_shifts,
                          floats16 *sums) {
    floats16 parts[TILE_X][TILE_W];
    UNROLLED for (int t = 0; t < n_x; t++)
        UNROLLED for (int r = 0; r < TILE_W; r++) parts[t][r] = all16(0);
    for (int g = 0; g < n_groups; g++)
        UNROLLED for (int r = 0; r < TILE_W; r++) {
            const codes32 first = w[r].w[2 * g], second = w[r].w[2 * g + 1];
            const floats16 scales = w[r].scales[g];
            UNROLLED for (int t = 0; t < n_x; t++) {
                const ints16 products = dot2(dot2(no_sum(), first, x[t].codes[2 * g]), second, x[t].codes[2 * g + 1]);
                parts[t][r] = add_group(parts[t][r], products, scales);
            }
        }
    UNROLLED for (int t = 0; t < n_x; t++)
        UNROLLED for (int r = 0; r < TILE_W; r++) {
            floats16 *sum = sums + t * W_ROWS + r;
            *sum = add_flat(*sum, parts[t][r], x[t].scale);
            if (has_shifts) *sum = add_shifts(*sum, w[r].shifts, x[t].sums);
        }
}

INLINE void add_tile_super(const strip *w, const x_strip *x, const int n_x, const int has_shifts, floats16 *sums) {
    ints16 products[TILE_X][TILE_W];
    UNROLLED for (int t = 0; t < n_x; t++)
        UNROLLED for (int r = 0; r < TILE_W; r++) products[t][r] = no_sum();
    for (int k = 0; k < STRIP_REGISTERS; k++)
        UNROLLED for (int r = 0; r < TILE_W; r++)
            UNROLLED for (int t = 0; t < n_x; t++)
                products[t][r] = dot2(products[t][r], w[r].w[k], x[t].codes[k]);
    UNROLLED for (int t = 0; t < n_x; t++)
        UNROLLED for (int r = 0; r < TILE_W; r++) {
            floats16 *sum = sums + t * W_ROWS + r;
            *sum = add_super(*sum, products[t][r], w[r].d, x[t].scale);
            if (has_shifts) *sum = add_shifts(*sum, w[r].shifts, x[t].sums);
        }
}

INLINE void add_tile(const strip *w, const x_strip *x, const int n_x, const int n_groups, const int has_shifts,
                     floats16 *sums) {
    if (n_groups == 0)
        add_tile_super(w, x, n_x, has_shifts, sums);
    else if (n_groups == STRIP_GROUPS)
        add_tile_flat(w, x, n_x, STRIP_GROUPS, has_shifts, sums);
    else
        add_tile_flat(w, x, n_x, n_groups, has_shifts, sums);
}

/* All tiles of n_w strips of weights, a multiple of TILE_W, with n_x rows of x; n_groups is 0 for super. */
INLINE void add_tiles(const strip *w, int64_t n_w, const x_strip *x, int64_t n_x, const int n_groups,
                      const int has_shifts, floats16 *sums) {
    for (int64_t r = 0; r < n_w; r += TILE_W) {
        int64_t t = 0;
        for (; t + TILE_X <= n_x; t += TILE_X)
            add_tile(w + r, x + t, TILE_X, n_groups, has_shifts, sums + t * W_ROWS + r);
        for (; t < n_x; t++) add_tile(w + r, x + t, 1, n_groups, has_shifts, sums + t * W_ROWS + r);
    }
}

static void add_tiles_with_shifts(const strip *w, int64_t n_w, const x_strip *x, int64_t n_x, int n_groups,
                                  floats16 *sums) {
    add_tiles(w, n_w, x, n_x, n_groups, 1, sums);
}

static void add_tiles_without_shifts(const strip *w, int64_t n_w, const x_strip *x, int64_t n_x, int n_groups,
                                     floats16 *sums) {
    add_tiles(w, n_w, x, n_x, n_groups, 0, sums);
}

/* The sums of up to W_ROWS rows of weights to their places. */
INLINE void store_sums(float *y, floats16 *sums, int64_t n_w) {
    const floats16 all = sums_of_16(sums);
    if (n_w == W_ROWS)
        store16(y, all);
    else
        store_some(y, all, n_w);
}

INLINE void dot_one(const format *f, const strata_dots *dots) {
    for (int64_t r = 0; r < dots->n_w; r += W_ROWS) {
        const int64_t n_w = dots->n_w - r < W_ROWS ? dots->n_w - r : W_ROWS;
        CACHE_LINE floats16 sums[W_ROWS];
        for (int64_t i = 0; i < n_w; i++) sums[i] = row_sums(f, dots, r + i);
        for (int64_t i = n_w; i < W_ROWS; i++) sums[i] = all16(0);
        store_sums(dots->y + r, sums, n_w);
    }
}

INLINE void dot_many(const format *f, const strata_dots *dots) {
    const int64_t n_strips = strata_n_strips(dots->n_cols);
    for (int64_t t0 = 0; t0 < dots->n_x; t0 += X_ROWS) {
        const int64_t n_x = dots->n_x - t0 < X_ROWS ? dots->n_x - t0 : X_ROWS;
        for (int64_t r0 = 0; r0 < dots->n_w; r0 += W_ROWS) {
            const int64_t n_w = dots->n_w - r0 < W_ROWS ? dots->n_w - r0 : W_ROWS;
            const int64_t n_tiled = (n_w + TILE_W - 1) / TILE_W * TILE_W; /* the last row again, for nothing */
            CACHE_LINE floats16 sums[X_ROWS * W_ROWS];
            for (int64_t i = 0; i < n_x * W_ROWS; i++) sums[i] = all16(0);
            for (int64_t s = 0; s < n_strips; s++) {
                strip w[W_ROWS];
                x_strip x[X_ROWS];
                const int n_groups = f->flat ? groups_at(dots->n_cols, s) : 0;
                for (int64_t i = 0; i < n_tiled; i++) {
                    const uint8_t *row = dots->w + (r0 + (i < n_w ? i : n_w - 1)) * dots->row_bytes;
                    if (!f->flat)
                        unpack_super_strip(f, row, s, w + i);
                    else if (n_groups == STRIP_GROUPS)
                        unpack_flat_strip(f, row, s, dots->n_cols, STRIP_GROUPS, w + i);
                    else
                        unpack_rest(f, row, s, dots->n_cols, n_groups, w + i);
                }
                for (int64_t t = 0; t < n_x; t++) x[t] = x_at(dots, t0 + t, s);
                if (f->has_shifts)
                    add_tiles_with_shifts(w, n_tiled, x, n_x, n_groups, sums);
                else
                    add_tiles_without_shifts(w, n_tiled, x, n_x, n_groups, sums);
            }
            for (int64_t t = 0; t < n_x; t++)
                store_sums(dots->y + (t0 + t) * dots->y_stride + r0, sums + t * W_ROWS, n_w);
        }
    }
}

INLINE void dot_codes(const format *f, const strata_dots *dots) {
    if (dots->n_x == 1)
        dot_one(f, dots);
    else
        dot_many(f, dots);
}
