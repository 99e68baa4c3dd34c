/* Ops with a state per lane: short convolutions and the gated delta rule. A task is a part of the
 * columns of one run of rows; it alone reads and writes that part of the lane's state. */
#include <string.h>

#include "layers_internal.h"

#define CONV_COLUMNS 256
#define DELTA_COLUMNS 64
/* The most taps of a convolution; the loader of a model checks it. */
#define MOST_TAPS 16

static int64_t n_parts(int64_t n_cols, int64_t part) { return (n_cols + part - 1) / part; }

int64_t strata_tasks_conv(const strata_conv *op, int32_t n_threads) {
    (void)n_threads;
    return strata_count_runs(op->state.lanes, op->n_rows) * n_parts(op->n_cols, CONV_COLUMNS);
}

void strata_do_conv(const strata_worker *worker, const strata_conv *op, int64_t task) {
    const int64_t n_each = n_parts(op->n_cols, CONV_COLUMNS), column = task % n_each * CONV_COLUMNS;
    const int64_t n = op->n_cols - column < CONV_COLUMNS ? op->n_cols - column : CONV_COLUMNS;
    const int64_t n_kept = (op->n_taps - 1) * (int64_t)op->dilation;
    int64_t first, stop;
    strata_find_run(op->state.lanes, op->n_rows, task / n_each, &first, &stop);
    float *kept = (float *)strata_state_of(&op->state, first) + column; /* [n_kept, n_cols] */
    const float *x = op->x + first * op->n_cols + column;
    const int64_t n_new = stop - first;
    for (int64_t i = 0; i < n_new; i++) {
        const float *inputs[MOST_TAPS];
        for (int32_t t = 0; t < op->n_taps; t++) {
            const int64_t at = i - (op->n_taps - 1 - t) * (int64_t)op->dilation;
            inputs[t] = at < 0 ? kept + (n_kept + at) * op->n_cols : x + at * op->n_cols;
        }
        worker->layers->conv_row(inputs, op->weight + column, op->n_cols, op->n_taps,
                                 op->y + (first + i) * op->n_cols + column, n);
    }
    for (int64_t j = 0; j < n_kept; j++) {
        const int64_t at = j + n_new; /* among the kept rows with the new ones behind */
        const float *from = at < n_kept ? kept + at * op->n_cols : x + (at - n_kept) * op->n_cols;
        memcpy(kept + j * op->n_cols, from, (size_t)n * sizeof(float));
    }
}

int64_t strata_tasks_delta(const strata_delta *op, int32_t n_threads) {
    (void)n_threads;
    return strata_count_runs(op->state.lanes, op->n_rows) * op->n_value_heads * n_parts(op->head_dim, DELTA_COLUMNS);
}

void strata_do_delta(const strata_worker *worker, const strata_delta *op, int64_t task) {
    const int64_t dim = op->head_dim, n_each = n_parts(dim, DELTA_COLUMNS), column = task % n_each * DELTA_COLUMNS;
    const int64_t n = dim - column < DELTA_COLUMNS ? dim - column : DELTA_COLUMNS;
    const int64_t head = task / n_each % op->n_value_heads, run = task / n_each / op->n_value_heads;
    const int64_t key_head = op->is_tiled ? head % op->n_key_heads : head / (op->n_value_heads / op->n_key_heads);
    const int64_t n_cols = (2 * op->n_key_heads + op->n_value_heads) * dim;
    int64_t first, stop;
    strata_find_run(op->state.lanes, op->n_rows, run, &first, &stop);
    float *state = (float *)strata_state_of(&op->state, first) + head * dim * dim + column;
    for (int64_t i = first; i < stop; i++) {
        const float *q = op->qkv + i * n_cols + key_head * dim;
        const strata_delta_token token = {
            .q = q,
            .k = q + op->n_key_heads * dim,
            .decay = op->decay[i * op->n_value_heads + head],
            .strength = op->strength[i * op->n_value_heads + head],
            .scale = op->scale,
            .head_dim = dim,
        };
        const float *v = op->qkv + i * n_cols + (2 * op->n_key_heads + head) * dim + column;
        worker->layers->delta_columns(&token, state, v, op->y + (i * op->n_value_heads + head) * dim + column, n);
    }
}
