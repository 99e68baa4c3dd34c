/* K/V cells: writing them, and attention over them through chunk tables.
 *
 * The sum over cells has one order for every way of calling: tiles of STRATA_TILE_CELLS cells by cell
 * number, joined in segments of STRATA_SEGMENT_CELLS. So neither the span a row came in, nor the
 * other rows, nor where chunks lie, nor the number of threads can change a bit of the result.
 */
#include "attention.h"

int64_t strata_tasks_store_kv(const strata_store_kv *op, int32_t n_threads) {
    return strata_n_shares(op->n_rows, n_threads);
}

void strata_do_store_kv(const strata_worker *worker, const strata_store_kv *op, int64_t task) {
    const int64_t cell_bytes = op->kv_dim * (op->is_half ? 2 : 4);
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) {
        uint8_t *k = strata_cell_at(&op->kv, op->kv.lanes[i], op->kv.positions[i], cell_bytes);
        uint8_t *v = k + op->kv.v_offset_bytes;
        if (op->is_half) {
            worker->kernels->float_to_half(op->k + i * op->kv_dim, (strata_half *)(void *)k, op->kv_dim);
            worker->kernels->float_to_half(op->v + i * op->kv_dim, (strata_half *)(void *)v, op->kv_dim);
        } else {
            memcpy(k, op->k + i * op->kv_dim, (size_t)cell_bytes);
            memcpy(v, op->v + i * op->kv_dim, (size_t)cell_bytes);
        }
    }
}

static int64_t group_states(const strata_attend *op) {
    return (int64_t)(op->n_heads / op->n_kv_heads) * STRATA_STATE_FLOATS(op->head_dim);
}

int64_t strata_attend_scratch(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim) {
    const int64_t states = (int64_t)(n_heads / n_kv_heads) * STRATA_STATE_FLOATS(head_dim) * STRATA_QUERY_ROWS;
    return 2 * STRATA_TILE_CELLS * head_dim + 2 * states;
}

/* K (or V, at an offset) of one head of the cells first .. stop - 1, as float32. */
static void load_tile(const strata_worker *worker, const strata_attend *op, int64_t lane, int64_t offset_bytes,
                      int64_t first, int64_t stop, float *y) {
    const int64_t dim = op->head_dim, cell_values = op->n_kv_heads * dim;
    const int64_t cell_bytes = cell_values * (op->is_half ? 2 : 4);
    while (first < stop) { /* a run of cells in one chunk */
        const int64_t left = op->kv.chunk_cells - first % op->kv.chunk_cells;
        const int64_t n_cells = left < stop - first ? left : stop - first;
        const uint8_t *from = strata_cell_at(&op->kv, lane, first, cell_bytes) + offset_bytes;
        strata_load_cells(worker->kernels, op->is_half, from, cell_values, y, n_cells, dim);
        first += n_cells;
        y += n_cells * dim;
    }
}

/* One segment for the query rows first_row .. stop_row - 1 (all of one lane) and one K/V head. */
static void attend_segment(const strata_worker *worker, const strata_attend *op, int64_t first_row,
                           int64_t stop_row, int32_t kv_head, int64_t first_cell, float *tile, float *states) {
    const int64_t dim = op->head_dim, group = op->n_heads / op->n_kv_heads;
    const int64_t k_offset = kv_head * dim * (op->is_half ? 2 : 4);
    float *k = tile, *v = tile + STRATA_TILE_CELLS * dim;
    int64_t last_cell = -1;
    for (int64_t row = first_row; row < stop_row; row++)
        if (op->kv.positions[row] > last_cell) last_cell = op->kv.positions[row];
    int64_t stop_cell = first_cell + STRATA_SEGMENT_CELLS;
    if (stop_cell > last_cell + 1) stop_cell = last_cell + 1;

    for (int64_t cell = first_cell; cell < stop_cell; cell += STRATA_TILE_CELLS) {
        const int64_t stop = cell + STRATA_TILE_CELLS < stop_cell ? cell + STRATA_TILE_CELLS : stop_cell;
        load_tile(worker, op, op->kv.lanes[first_row], k_offset, cell, stop, k);
        load_tile(worker, op, op->kv.lanes[first_row], k_offset + op->kv.v_offset_bytes, cell, stop, v);
        for (int64_t row = first_row; row < stop_row; row++) {
            int64_t n_cells = op->kv.positions[row] + 1 - cell;
            if (n_cells > stop - cell) n_cells = stop - cell;
            if (n_cells <= 0) continue;
            const float *q = op->q + (row * op->n_heads + kv_head * group) * dim;
            float *state = states + (row - first_row) * group_states(op);
            for (int64_t head = 0; head < group; head++, q += dim, state += STRATA_STATE_FLOATS(dim))
                worker->kernels->attend_tile(q, k, v, dim, n_cells, op->scale, state);
        }
    }
}

/* Query rows first .. stop - 1 of one lane, all segments one after another. */
static void attend_rows(const strata_worker *worker, const strata_attend *op, int64_t first, int64_t stop,
                        int32_t kv_head, float *scratch) {
    const int64_t dim = op->head_dim, group = op->n_heads / op->n_kv_heads, n_states = (stop - first) * group;
    float *tile = scratch, *total = tile + 2 * STRATA_TILE_CELLS * dim;
    float *segment = total + STRATA_QUERY_ROWS * group_states(op);
    int64_t last_cell = 0;
    for (int64_t row = first; row < stop; row++)
        if (op->kv.positions[row] > last_cell) last_cell = op->kv.positions[row];

    strata_start_states(total, n_states, dim);
    for (int64_t cell = 0; cell <= last_cell; cell += STRATA_SEGMENT_CELLS) {
        strata_start_states(segment, n_states, dim);
        attend_segment(worker, op, first, stop, kv_head, cell, tile, segment);
        for (int64_t s = 0; s < n_states; s++)
            worker->kernels->attend_join(total + s * STRATA_STATE_FLOATS(dim),
                                         segment + s * STRATA_STATE_FLOATS(dim), dim);
    }
    for (int64_t row = first; row < stop; row++)
        for (int64_t head = 0; head < group; head++)
            strata_finish_state(total + (row - first) * group_states(op) + head * STRATA_STATE_FLOATS(dim),
                   op->y + (row * op->n_heads + kv_head * group + head) * dim, dim);
}

/* Few rows: each (row, K/V head, segment) is a task, so that all threads work on one long lane. */
static void attend_partially(const strata_worker *worker, const strata_attend *op, int64_t task, float *scratch) {
    const int64_t dim = op->head_dim, group = op->n_heads / op->n_kv_heads, floats = STRATA_STATE_FLOATS(dim);
    float *states = scratch + 2 * STRATA_TILE_CELLS * dim;
    const int64_t segment = task % op->n_segments, row = task / op->n_segments / op->n_kv_heads;
    const int32_t kv_head = (int32_t)(task / op->n_segments % op->n_kv_heads);
    if (segment * STRATA_SEGMENT_CELLS > op->kv.positions[row]) return;
    strata_start_states(states, group, dim);
    attend_segment(worker, op, row, row + 1, kv_head, segment * STRATA_SEGMENT_CELLS, scratch, states);
    for (int64_t head = 0; head < group; head++) {
        const int64_t at = (row * op->n_heads + kv_head * group + head) * op->n_segments + segment;
        memcpy(op->partials + at * floats, states + head * floats, (size_t)floats * sizeof(float));
    }
}

/* Many rows: a block of them with one K/V head is a task; the longest come first. */
static void attend_block(const strata_worker *worker, const strata_attend *op, int64_t task, float *scratch) {
    const int64_t n_blocks = (op->n_rows + STRATA_QUERY_ROWS - 1) / STRATA_QUERY_ROWS;
    const int64_t block = n_blocks - 1 - task / op->n_kv_heads, stop_block = (block + 1) * STRATA_QUERY_ROWS;
    const int64_t stop = stop_block < op->n_rows ? stop_block : op->n_rows;
    for (int64_t first = block * STRATA_QUERY_ROWS, next; first < stop; first = next) {
        for (next = first + 1; next < stop && op->kv.lanes[next] == op->kv.lanes[first]; next++) {
        }
        attend_rows(worker, op, first, next, (int32_t)(task % op->n_kv_heads), scratch);
    }
}

int64_t strata_tasks_attend(const strata_attend *op, int32_t n_threads) {
    (void)n_threads;
    if (op->partials) return (int64_t)op->n_rows * op->n_kv_heads * op->n_segments;
    return (int64_t)((op->n_rows + STRATA_QUERY_ROWS - 1) / STRATA_QUERY_ROWS) * op->n_kv_heads;
}

void strata_do_attend(const strata_worker *worker, const strata_attend *op, int64_t task) {
    float *scratch =
        op->scratch + worker->thread * strata_attend_scratch(op->n_heads, op->n_kv_heads, op->head_dim);
    if (op->partials)
        attend_partially(worker, op, task, scratch);
    else
        attend_block(worker, op, task, scratch);
}

int64_t strata_tasks_attend_merge(const strata_attend_merge *op, int32_t n_threads) {
    return strata_n_shares(op->n_rows * op->n_heads, n_threads);
}

void strata_do_attend_merge(const strata_worker *worker, const strata_attend_merge *op, int64_t task) {
    const int64_t floats = STRATA_STATE_FLOATS(op->head_dim);
    int64_t first, stop;
    strata_share(op->n_rows * op->n_heads, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) {
        /* The first segment's place holds the total from here on. */
        float *total = (float *)op->partials + i * op->n_segments * floats;
        for (int64_t s = 1; s * STRATA_SEGMENT_CELLS <= op->positions[i / op->n_heads]; s++)
            worker->kernels->attend_join(total, total + s * floats, op->head_dim);
        strata_finish_state(total, op->y + i * op->head_dim, op->head_dim);
    }
}
