/* Records of the ops that hybrid and mixture-of-experts models need besides those of strata.h.
 *
 * Rows of a lane are neighbours and in the order of their positions: a run. Ops with a state go
 * through a run row by row and leave the lane's state as its last row makes it, so that it does not
 * matter in which pieces a lane's rows come.
 */
#ifndef STRATA_LAYERS_H
#define STRATA_LAYERS_H

#include <stdint.h>

/* One part of the recurrent state of every lane, and which lane each row belongs to. */
typedef struct {
    uint8_t *states;        /* this part of lane 0 */
    const int32_t *lanes;   /* [n_rows] */
    int64_t lane_bytes;     /* from a lane's part to the next lane's */
} strata_state;

/* y = n_copies times x, side by side. */
typedef struct {
    int32_t kind, n_copies;
    const float *x; /* [n_rows, n_cols] */
    float *y;       /* [n_rows, n_copies, n_cols] */
    int64_t n_rows, n_cols;
} strata_repeat;

/* Some columns of each group: y[i, g] = x[i, g, first : first + n_taken]. */
typedef struct {
    int32_t kind, n_groups;
    const float *x; /* [n_rows, n_groups, n_cols] */
    float *y;       /* [n_rows, n_groups, n_taken] */
    int64_t n_rows, n_cols, first, n_taken;
} strata_columns;

/* As strata_rms_norm, each group of a row by itself and with weights of its own. */
typedef struct {
    int32_t kind;
    float epsilon;
    const float *x;      /* [n_rows, n_groups, n_cols] */
    const float *weight; /* [n_groups, n_cols] */
    float *y;            /* [n_rows, n_groups, n_cols] */
    int64_t n_rows, n_groups, n_cols;
} strata_grouped_norm;

/* The first n_heads heads of each row, in place: x / sqrt(sum(x^2) + epsilon). */
typedef struct {
    int32_t kind;
    float epsilon;
    float *x; /* [n_rows, n_cols] */
    int64_t n_rows, n_cols, n_heads, head_dim;
} strata_l2_norm;

/* x = silu(scale * x), in place. */
typedef struct {
    int32_t kind;
    float scale;
    float *x; /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_silu;

/* x = sigmoid(x), in place. */
typedef struct {
    int32_t kind, reserved;
    float *x; /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_sigmoid;

/* x *= sigmoid(gate), in place; a gate of n_gates values serves n_cols / n_gates values each. */
typedef struct {
    int32_t kind, reserved;
    float *x;          /* [n_rows, n_cols] */
    const float *gate; /* [n_rows, n_gates] */
    int64_t n_rows, n_cols, n_gates;
} strata_gate;

/* x = exp(rate * softplus(x + bias)), in place: what is left of a state after a token. */
typedef struct {
    int32_t kind, reserved;
    float *x;          /* [n_rows, n_heads] */
    const float *rate; /* [n_heads], negative */
    const float *bias; /* [n_heads] */
    int64_t n_rows, n_heads;
} strata_decay;

/* y = silu(causal depthwise convolution over the rows of a lane). Tap n_taps - 1 is the row itself,
 * the others reach back by `dilation` rows each; before the first row of a lane there are zeros.
 * State: the last (n_taps - 1) * dilation rows of x, oldest first. */
typedef struct {
    int32_t kind, n_taps;
    const float *x;      /* [n_rows, n_cols] */
    const float *weight; /* [n_taps, n_cols] */
    float *y;            /* [n_rows, n_cols] */
    strata_state state;
    int64_t n_rows, n_cols;
    int32_t dilation, reserved;
} strata_conv;

/* The gated delta rule, for each value head: S = decay S; S += k (x) strength (v - S^T k); y = S^T q.
 * State: S f32[n_value_heads, head_dim, head_dim], keys down, values across. */
typedef struct {
    int32_t kind;
    float scale;           /* of q */
    const float *qkv;      /* [n_rows, n_key_heads + n_key_heads + n_value_heads, head_dim] */
    const float *decay;    /* [n_rows, n_value_heads] */
    const float *strength; /* [n_rows, n_value_heads] */
    float *y;              /* [n_rows, n_value_heads, head_dim] */
    strata_state state;
    int32_t n_rows, n_key_heads, n_value_heads, head_dim;
    int32_t is_tiled; /* value head h has key head h mod n_key_heads, else h / (values a key head) */
} strata_delta;

/* y = mean over the streams of sigmoid(gate) * x. */
typedef struct {
    int32_t kind, n_streams;
    const float *x;    /* [n_rows, n_streams, n_cols] */
    const float *gate; /* [n_rows, n_streams, n_cols] */
    float *y;          /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_mix_streams;

/* x[c] += 2 sigmoid(gate[c] / n_streams) * y, in place. */
typedef struct {
    int32_t kind, n_streams;
    float *x;          /* [n_rows, n_streams, n_cols] */
    const float *y;    /* [n_rows, n_cols] */
    const float *gate; /* [n_rows, n_streams] */
    int64_t n_rows, n_cols;
} strata_inject;

/* The n_used largest logits of each row, largest first (the first of equals), and softmax over them. */
typedef struct {
    int32_t kind, n_used;
    const float *logits; /* [n_rows, n_experts] */
    int32_t *experts;    /* [n_rows, n_used] */
    float *shares;       /* [n_rows, n_used] */
    int64_t n_rows, n_experts;
} strata_route;

/* Sorts the picks of all rows by expert: a pick is a (row, place among the row's n_used) pair. */
typedef struct {
    int32_t kind, n_used;
    const int32_t *experts; /* [n_rows, n_used] */
    int32_t *rows;          /* [n_picks]: row of each pick, sorted by expert, then by row */
    int32_t *places;        /* [n_rows, n_used]: where a pick went */
    int32_t *groups;        /* [n_groups]: the experts picked at all, ascending */
    int32_t *firsts;        /* [n_groups + 1]: their first picks; n_picks where there are no more */
    int32_t *scratch;       /* [n_experts] */
    int64_t *counts;        /* [n_experts]: goes up by one with each pick */
    int64_t n_rows, n_experts, n_groups; /* n_groups: the most there can be */
} strata_group_picks;

/* y[i] = x[i] weight^T, with the weight of the expert that pick i is of. */
typedef struct {
    int32_t kind, quant;
    const void *weight;    /* blocks of [n_out, n_cols] of expert 0 */
    const float *x;        /* [n_picks, n_cols] */
    const int16_t *qs;     /* as for strata_matmul, or null */
    const float *ds;
    float *y;              /* [n_picks, n_out] */
    float *scratch;        /* [n_threads, n_cols] */
    const int32_t *groups; /* [n_groups] */
    const int32_t *firsts; /* [n_groups + 1] */
    int64_t n_groups, n_out, n_cols, row_bytes, expert_bytes;
} strata_matmul_picks;

/* y = sum over a row's picks of share * x[place]. */
typedef struct {
    int32_t kind, n_used;
    const float *x;        /* [n_picks, n_cols] */
    const int32_t *places; /* [n_rows, n_used] */
    const float *shares;   /* [n_rows, n_used] */
    float *y;              /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_sum_picks;

/* Rows of the n-gram table for each token: for the orders 2 .. n_gram and each head of an order, the
 * xor of id * multiplier over the token and its predecessors, mod size, plus offset.
 * State: the last n_gram - 1 ids, newest first. */
typedef struct {
    int32_t kind, n_gram;
    const int32_t *ids;          /* [n_rows] */
    const int32_t *positions;    /* [n_rows] */
    const uint64_t *multipliers; /* [n_gram] */
    const uint64_t *offsets;     /* [n_heads] */
    const uint64_t *sizes;       /* [n_heads] */
    int64_t *y;                  /* [n_rows, n_heads] */
    strata_state state;
    int64_t n_rows;
    int32_t n_heads; /* of all orders together */
    int32_t end_id;  /* cuts n-grams */
} strata_ngram_rows;

/* y[i] = table[rows[i]], dequantised. */
typedef struct {
    int32_t kind, quant;
    const void *table;   /* blocks of [?, n_cols] */
    const int64_t *rows; /* [n_rows] */
    float *y;            /* [n_rows, n_cols] */
    int64_t n_rows, n_cols, row_bytes;
} strata_embed_far;

/* y[c] = sigmoid(signed root of z) * value, with z = key[c] . query[c] / sqrt(n_cols). */
typedef struct {
    int32_t kind, n_streams;
    const float *key;   /* [n_rows, n_streams, n_cols] */
    const float *query; /* [n_rows, n_streams, n_cols] */
    const float *value; /* [n_rows, n_cols] */
    float *y;           /* [n_rows, n_streams, n_cols] */
    int64_t n_rows, n_cols;
} strata_ngram_gate;

/* Index keys: a page of page_cells cells gets the mean of their raw keys, normed and rotated at the
 * page's first position, when its last cell comes. kv.cells is the index of this layer in chunk 0,
 * f32[chunk_cells / page_cells, key_dim]. State: raw keys of the open page, f32[page_cells - 1, key_dim]. */
typedef struct {
    int32_t kind;
    float epsilon;
    const float *keys;        /* [n_rows, key_dim] */
    const float *norm;        /* [key_dim] */
    const float *frequencies; /* [n_pairs] */
    strata_kv kv;
    uint8_t *states;
    int64_t lane_bytes;
    int32_t n_rows, key_dim, n_pairs, page_cells;
} strata_store_index;

/* Pages scored by a task. */
#define STRATA_SCORE_BLOCK 256

/* scores[i, j] = sum over heads of max(0, q . key of page j), for the whole pages of row i's lane up
 * to its position. Rows with no more than n_most of them need no scores and get none. */
typedef struct {
    int32_t kind, n_heads;
    const float *q; /* [n_rows, n_heads, key_dim] */
    float *scores;  /* [n_rows, n_pages] */
    strata_kv kv;
    float *scratch; /* [n_threads, n_heads, STRATA_SCORE_BLOCK] */
    int32_t n_rows, key_dim, page_cells, n_pages, n_most, reserved;
} strata_score_pages;

/* The n_most whole pages of each row with the highest scores (the first of equals), ascending. */
typedef struct {
    int32_t kind, n_most;
    const float *scores;      /* [n_rows, n_pages] */
    const int32_t *positions; /* [n_rows] */
    int32_t *pages;           /* [n_rows, n_most] */
    int32_t *lasts;           /* [n_rows]: cells attended to, the open page's included, less one */
    float *scratch;           /* [n_threads, n_pages] */
    int32_t n_rows, page_cells, n_pages, reserved;
} strata_select_pages;

/* As strata_attend, over the cells of the chosen pages and of the open page. */
typedef struct {
    int32_t kind, is_half;
    const float *q; /* [n_rows, n_heads, head_dim] */
    float *y;       /* [n_rows, n_heads, head_dim] */
    strata_kv kv;
    const int32_t *pages; /* [n_rows, n_most] */
    const int32_t *lasts; /* [n_rows] */
    float *partials;      /* [n_rows, n_heads, n_segments, 32 + head_dim], or null */
    float *scratch;       /* [n_threads, strata_attend_scratch(...)] */
    int32_t n_rows, n_heads, n_kv_heads, head_dim;
    int32_t n_segments, page_cells, n_most;
    float scale;
} strata_attend_pages;

#endif
