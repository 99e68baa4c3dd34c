/* The n-gram embedding: which rows of its table a token reads, reading them, and their gate. */
#include <math.h>
#include <string.h>

#include "layers_internal.h"

int64_t strata_tasks_ngram_rows(const strata_ngram_rows *op, int32_t n_threads) {
    (void)n_threads;
    return strata_count_runs(op->state.lanes, op->n_rows);
}

/* The id `back` tokens before row i; end_id before the start of the lane. */
static int32_t id_before(const strata_ngram_rows *op, const int32_t *kept, int64_t first, int64_t i, int32_t back) {
    if (op->positions[i] < back) return op->end_id;
    return i - back >= first ? op->ids[i - back] : kept[back - 1 - (i - first)];
}

void strata_do_ngram_rows(const strata_worker *worker, const strata_ngram_rows *op, int64_t task) {
    (void)worker;
    const int32_t n_kept = op->n_gram - 1, n_each = op->n_heads / n_kept;
    int64_t first, stop;
    strata_find_run(op->state.lanes, op->n_rows, task, &first, &stop);
    int32_t *kept = strata_state_of(&op->state, first);
    for (int64_t i = first; i < stop; i++) {
        int64_t *y = op->y + i * op->n_heads;
        uint64_t hash = (uint64_t)op->ids[i] * op->multipliers[0];
        int is_cut = 0;
        for (int32_t back = 1; back < op->n_gram; back++) {
            int32_t id = is_cut ? op->end_id : id_before(op, kept, first, i, back);
            is_cut |= id == op->end_id;
            hash ^= (uint64_t)id * op->multipliers[back];
            for (int32_t g = (back - 1) * n_each; g < back * n_each; g++)
                y[g] = (int64_t)(hash % op->sizes[g] + op->offsets[g]);
        }
    }
    for (int64_t j = n_kept - 1; j >= 0; j--) /* from the oldest, since older ones come from newer places */
        kept[j] = j < stop - first ? op->ids[stop - 1 - j] : kept[j - (stop - first)];
}

int64_t strata_tasks_embed_far(const strata_embed_far *op, int32_t n_threads) {
    return strata_n_shares(op->n_rows, n_threads);
}

void strata_do_embed_far(const strata_worker *worker, const strata_embed_far *op, int64_t task) {
    const strata_dequantize_row dequantize = worker->kernels->dequantize[op->quant];
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        dequantize((const uint8_t *)op->table + op->rows[i] * op->row_bytes, op->y + i * op->n_cols, op->n_cols);
}

int64_t strata_tasks_ngram_gate(const strata_ngram_gate *op, int32_t n_threads) {
    return strata_n_shares(op->n_rows, n_threads);
}

void strata_do_ngram_gate(const strata_worker *worker, const strata_ngram_gate *op, int64_t task) {
    const float scale = 1.0f / sqrtf((float)op->n_cols);
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first * op->n_streams; i < stop * op->n_streams; i++) {
        const float *key = op->key + i * op->n_cols, *query = op->query + i * op->n_cols;
        const float z = worker->layers->dot_row(key, query, op->n_cols) * scale;
        const float root = z == 0 ? 0 : copysignf(sqrtf(fmaxf(fabsf(z), 1e-6f)), z);
        float *y = op->y + i * op->n_cols;
        memcpy(y, op->value + i / op->n_streams * op->n_cols, (size_t)op->n_cols * sizeof *y);
        worker->layers->scale_row(y, strata_sigmoid_of(root), op->n_cols);
    }
}
