/* Block-sparse attention: index keys of pages, choosing pages, attention over the chosen ones.
 *
 * A page is page_cells cells; chunks hold whole pages. As in attention.c the sum over cells has one
 * order: tiles and segments of the row's own list of cells (chosen pages ascending, then the open
 * page), so a row that chooses everything gets the bits of plain attention.
 */
#include <math.h>
#include <string.h>

#include "attention.h"
#include "layers_internal.h"

static float *index_key_at(const strata_kv *kv, int64_t lane, int64_t page, int64_t page_cells, int64_t key_dim) {
    const int64_t cell = page * page_cells;
    const int64_t chunk = kv->tables[lane * kv->n_table + cell / kv->chunk_cells];
    return (float *)(void *)(kv->cells + chunk * kv->chunk_bytes) + cell % kv->chunk_cells / page_cells * key_dim;
}

int64_t strata_tasks_store_index(const strata_store_index *op, int32_t n_threads) {
    (void)n_threads;
    return strata_count_runs(op->kv.lanes, op->n_rows);
}

/* The same angles as strata_rope_angles and the same turn as strata_rope by halves. */
static void rotate(float *x, const float *frequencies, int32_t n_pairs, int64_t position) {
    for (int32_t j = 0; j < n_pairs; j++) {
        const double angle = (double)position * (double)frequencies[j];
        const float c = (float)cos(angle), s = (float)sin(angle), a = x[j], b = x[j + n_pairs];
        x[j] = a * c - b * s;
        x[j + n_pairs] = a * s + b * c;
    }
}

void strata_do_store_index(const strata_worker *worker, const strata_store_index *op, int64_t task) {
    const int64_t dim = op->key_dim, n_open = op->page_cells - 1;
    int64_t first, stop;
    strata_find_run(op->kv.lanes, op->n_rows, task, &first, &stop);
    const int64_t lane = op->kv.lanes[first];
    float *open = (float *)(void *)(op->states + lane * op->lane_bytes);
    for (int64_t i = first; i < stop; i++) {
        const int64_t position = op->kv.positions[i], page = position / op->page_cells;
        const float *key = op->keys + i * dim;
        if (position % op->page_cells < n_open) {
            memcpy(open + position % op->page_cells * dim, key, (size_t)dim * sizeof(float));
            continue;
        }
        float *pooled = index_key_at(&op->kv, lane, page, op->page_cells, dim);
        for (int64_t d = 0; d < dim; d++) {
            float sum = 0;
            for (int64_t c = 0; c < n_open; c++) sum += open[c * dim + d];
            pooled[d] = (sum + key[d]) / (float)op->page_cells;
        }
        worker->kernels->rms_norm_row(pooled, op->norm, pooled, dim, op->epsilon);
        rotate(pooled, op->frequencies, op->n_pairs, page * op->page_cells);
    }
}

/* Scores of the pages first .. stop - 1; scratch is [n_heads, STRATA_SCORE_BLOCK]. */
static void score_pages(const strata_worker *worker, const strata_score_pages *op, int64_t row, int64_t first,
                        int64_t stop, float *scores, float *scratch) {
    const int64_t pages_per_chunk = op->kv.chunk_cells / op->page_cells;
    strata_dots dots = {
        .row_bytes = op->key_dim * (int64_t)sizeof(float),
        .n_cols = op->key_dim,
        .n_x = op->n_heads,
        .x = op->q + row * op->n_heads * op->key_dim,
        .y = scratch,
        .y_stride = STRATA_SCORE_BLOCK,
    };
    while (first < stop) { /* a run of pages in one chunk */
        int64_t n = pages_per_chunk - first % pages_per_chunk;
        if (n > stop - first) n = stop - first;
        if (n > STRATA_SCORE_BLOCK) n = STRATA_SCORE_BLOCK;
        dots.w = (const uint8_t *)index_key_at(&op->kv, op->kv.lanes[row], first, op->page_cells, op->key_dim);
        dots.n_w = n;
        worker->kernels->dot_floats[STRATA_F32](&dots);
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int32_t h = 0; h < op->n_heads; h++) {
                const float score = scratch[h * STRATA_SCORE_BLOCK + j];
                sum += score > 0 ? score : 0;
            }
            scores[first + j] = sum;
        }
        first += n;
    }
}

static int64_t score_blocks(const strata_score_pages *op) {
    return (op->n_pages + STRATA_SCORE_BLOCK - 1) / STRATA_SCORE_BLOCK;
}

int64_t strata_tasks_score_pages(const strata_score_pages *op, int32_t n_threads) {
    (void)n_threads;
    return op->n_rows * score_blocks(op);
}

void strata_do_score_pages(const strata_worker *worker, const strata_score_pages *op, int64_t task) {
    const int64_t row = task / score_blocks(op), first = task % score_blocks(op) * STRATA_SCORE_BLOCK;
    const int64_t n_whole = (op->kv.positions[row] + 1) / op->page_cells;
    const int64_t stop = first + STRATA_SCORE_BLOCK < n_whole ? first + STRATA_SCORE_BLOCK : n_whole;
    if (n_whole <= op->n_most || first >= stop) return;
    score_pages(worker, op, row, first, stop, op->scores + row * op->n_pages,
                op->scratch + worker->thread * op->n_heads * STRATA_SCORE_BLOCK);
}

/* The n-th largest of the values, n from 1 on; their order is lost. */
static float nth_largest(float *values, int64_t n_values, int64_t n) {
    int64_t low = 0, high = n_values - 1;
    n--;
    while (low < high) {
        const float pivot = values[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot) i++;
            while (values[j] < pivot) j--;
            if (i <= j) {
                const float kept = values[i];
                values[i++] = values[j];
                values[j--] = kept;
            }
        }
        if (n <= j)
            high = j;
        else if (n >= i)
            low = i;
        else
            break;
    }
    return values[n];
}

int64_t strata_tasks_select_pages(const strata_select_pages *op, int32_t n_threads) {
    (void)n_threads;
    return op->n_rows;
}

void strata_do_select_pages(const strata_worker *worker, const strata_select_pages *op, int64_t row) {
    const int64_t n_cells = op->positions[row] + 1, n_whole = n_cells / op->page_cells;
    int32_t *pages = op->pages + row * op->n_most;
    op->lasts[row] = (int32_t)(n_cells - 1);
    if (n_whole <= op->n_most) {
        for (int64_t j = 0; j < n_whole; j++) pages[j] = (int32_t)j;
        return;
    }
    op->lasts[row] -= (int32_t)(n_whole - op->n_most) * op->page_cells;
    const float *scores = op->scores + row * op->n_pages;
    float *sorted = op->scratch + worker->thread * (int64_t)op->n_pages;
    memcpy(sorted, scores, (size_t)n_whole * sizeof *sorted);
    const float least = nth_largest(sorted, n_whole, op->n_most);
    int64_t n_above = 0, n_taken = 0;
    for (int64_t j = 0; j < n_whole; j++) n_above += scores[j] > least;
    int64_t n_equal = op->n_most - n_above;
    for (int64_t j = 0; j < n_whole; j++)
        if (scores[j] > least || (scores[j] == least && n_equal-- > 0)) pages[n_taken++] = (int32_t)j;
}

/* K (or V, at an offset) of one head of the cells first .. stop - 1 of the row's list, as float32. */
static void load_tile(const strata_worker *worker, const strata_attend_pages *op, int64_t row,
                      int64_t offset_bytes, int64_t first, int64_t stop, float *y) {
    const int64_t dim = op->head_dim, cell_values = op->n_kv_heads * dim;
    const int64_t cell_bytes = cell_values * (op->is_half ? 2 : 4);
    const int64_t n_whole = (op->kv.positions[row] + 1) / op->page_cells;
    const int64_t n_pages = n_whole < op->n_most ? n_whole : op->n_most;
    while (first < stop) { /* a piece of a page */
        const int64_t at = first / op->page_cells, in_page = first % op->page_cells;
        const int64_t page = at < n_pages ? op->pages[row * op->n_most + at] : n_whole;
        const int64_t left = op->page_cells - in_page, n_cells = left < stop - first ? left : stop - first;
        const uint8_t *from =
            strata_cell_at(&op->kv, op->kv.lanes[row], page * op->page_cells + in_page, cell_bytes) + offset_bytes;
        strata_load_cells(worker->kernels, op->is_half, from, cell_values, y, n_cells, dim);
        first += n_cells;
        y += n_cells * dim;
    }
}

/* One segment of the row's list of cells, for all query heads of a K/V head. */
static void attend_segment(const strata_worker *worker, const strata_attend_pages *op, int64_t row,
                           int64_t kv_head, int64_t segment, float *tile, float *states) {
    const int64_t dim = op->head_dim, group = op->n_heads / op->n_kv_heads, n_cells = op->lasts[row] + 1;
    const int64_t k_offset = kv_head * dim * (op->is_half ? 2 : 4), first = segment * STRATA_SEGMENT_CELLS;
    const int64_t stop = first + STRATA_SEGMENT_CELLS < n_cells ? first + STRATA_SEGMENT_CELLS : n_cells;
    float *k = tile, *v = tile + STRATA_TILE_CELLS * dim;
    for (int64_t cell = first; cell < stop; cell += STRATA_TILE_CELLS) {
        const int64_t end = cell + STRATA_TILE_CELLS < stop ? cell + STRATA_TILE_CELLS : stop;
        load_tile(worker, op, row, k_offset, cell, end, k);
        load_tile(worker, op, row, k_offset + op->kv.v_offset_bytes, cell, end, v);
        for (int64_t head = 0; head < group; head++)
            worker->kernels->attend_tile(op->q + (row * op->n_heads + kv_head * group + head) * dim, k, v, dim,
                                         end - cell, op->scale, states + head * STRATA_STATE_FLOATS(dim));
    }
}

int64_t strata_tasks_attend_pages(const strata_attend_pages *op, int32_t n_threads) {
    (void)n_threads;
    return (int64_t)op->n_rows * op->n_kv_heads * (op->partials ? op->n_segments : 1);
}

void strata_do_attend_pages(const strata_worker *worker, const strata_attend_pages *op, int64_t task) {
    const int64_t dim = op->head_dim, group = op->n_heads / op->n_kv_heads, floats = STRATA_STATE_FLOATS(dim);
    const int64_t n_each = op->partials ? op->n_segments : 1;
    const int64_t kv_head = task / n_each % op->n_kv_heads, row = task / n_each / op->n_kv_heads;
    float *tile = op->scratch + worker->thread * strata_attend_scratch(op->n_heads, op->n_kv_heads, op->head_dim);
    float *total = tile + 2 * STRATA_TILE_CELLS * dim, *segment_states = total + group * floats;
    const int64_t n_segments = op->lasts[row] / STRATA_SEGMENT_CELLS + 1;
    if (op->partials) { /* a segment is a task; strata_attend_merge joins them */
        const int64_t segment = task % n_each;
        if (segment >= n_segments) return;
        strata_start_states(total, group, dim);
        attend_segment(worker, op, row, kv_head, segment, tile, total);
        for (int64_t head = 0; head < group; head++)
            memcpy(op->partials + ((row * op->n_heads + kv_head * group + head) * n_each + segment) * floats,
                   total + head * floats, (size_t)floats * sizeof(float));
        return;
    }
    strata_start_states(total, group, dim);
    for (int64_t segment = 0; segment < n_segments; segment++) {
        strata_start_states(segment_states, group, dim);
        attend_segment(worker, op, row, kv_head, segment, tile, segment_states);
        for (int64_t head = 0; head < group; head++)
            worker->kernels->attend_join(total + head * floats, segment_states + head * floats, dim);
    }
    for (int64_t head = 0; head < group; head++)
        strata_finish_state(total + head * floats, op->y + (row * op->n_heads + kv_head * group + head) * dim, dim);
}
