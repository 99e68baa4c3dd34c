/* Partial sums of attention, shared by attention over all cells and over chosen pages. */
#ifndef STRATA_ATTENTION_H
#define STRATA_ATTENTION_H

#include <string.h>

#include "internal.h"

static inline uint8_t *strata_cell_at(const strata_kv *kv, int64_t lane, int64_t cell, int64_t cell_bytes) {
    const int64_t chunk = kv->tables[lane * kv->n_table + cell / kv->chunk_cells];
    return kv->cells + chunk * kv->chunk_bytes + cell % kv->chunk_cells * cell_bytes;
}

/* One head's K or V of n_cells cells in a row, side by side as floats, whatever they are kept in. */
static inline void strata_load_cells(const strata_kernels *kernels, int32_t is_half, const uint8_t *from,
                                     int64_t cell_values, float *y, int64_t n_cells, int64_t head_dim) {
    if (is_half) {
        kernels->load_cells((const strata_half *)(const void *)from, cell_values, y, n_cells, head_dim);
        return;
    }
    const float *cells = (const float *)(const void *)from;
    for (int64_t c = 0; c < n_cells; c++)
        memcpy(y + c * head_dim, cells + c * cell_values, (size_t)head_dim * sizeof(float));
}

static inline void strata_start_states(float *states, int64_t n_states, int64_t head_dim) {
    for (int64_t s = 0; s < n_states; s++, states += STRATA_STATE_FLOATS(head_dim)) {
        memset(states, 0, (size_t)STRATA_STATE_FLOATS(head_dim) * sizeof(float));
        states[0] = -__builtin_inff();
    }
}

/* The attention's result from the state after all segments. */
static inline void strata_finish_state(const float *state, float *y, int64_t head_dim) {
    float sum = 0;
    for (int j = 16; j < 32; j++) sum += state[j];
    for (int64_t d = 0; d < head_dim; d++) y[d] = state[32 + d] / sum;
}

#endif
