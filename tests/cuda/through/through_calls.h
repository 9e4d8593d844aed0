/* tests/cuda/through/through_calls.h - the calls of through.h: name, parameters, and these as the device gets them: a view or
 * struct `there`, an array of n elements by `array` or, if it is a result, `array_out` (through.c). A new operation adds its
 * calls here. */
#ifndef NAPIER_TESTS_THROUGH_CALLS_H
#define NAPIER_TESTS_THROUGH_CALLS_H

// clang-format off
#define THROUGH_CALLS(CALL) \
    /* softmax */ \
    CALL(softmax, (napier_const_matrix x, napier_matrix y, const napier_softmax_options *o), (there(x), there(y), o)) \
    CALL(log_softmax, (napier_const_matrix x, napier_matrix y, const napier_softmax_options *o), (there(x), there(y), o)) \
    CALL(sparsemax, (napier_const_matrix x, napier_matrix y, const napier_softmax_options *o), (there(x), there(y), o)) \
    CALL(logsumexp, (napier_const_matrix x, napier_vector lse, const napier_softmax_options *o), \
         (there(x), there(lse), o)) \
    CALL(logsumexp_all, (napier_const_matrix x, napier_vector lse, const napier_softmax_options *o), \
         (there(x), there(lse), o)) \
    CALL(dot_rows, (napier_const_matrix a, napier_const_matrix b, napier_vector dots), (there(a), there(b), there(dots))) \
    CALL(softmax_backward, \
         (napier_const_matrix y, napier_const_matrix g, napier_matrix out, const napier_softmax_options *o), \
         (there(y), there(g), there(out), o)) \
    CALL(log_softmax_backward, \
         (napier_const_matrix y, napier_const_matrix g, napier_matrix out, const napier_softmax_options *o), \
         (there(y), there(g), there(out), o)) \
    CALL(sparsemax_backward, \
         (napier_const_matrix y, napier_const_matrix g, napier_matrix out, const napier_softmax_options *o), \
         (there(y), there(g), there(out), o)) \
    CALL(logsumexp_backward, \
         (napier_const_matrix x, napier_const_vector g, napier_matrix out, const napier_softmax_options *o), \
         (there(x), there(g), there(out), o)) \
    CALL(logsumexp_all_backward, \
         (napier_const_matrix x, napier_const_vector g, napier_matrix out, const napier_softmax_options *o), \
         (there(x), there(g), there(out), o)) \
    CALL(softmax_state_update, \
         (void *states, napier_dtype compute, int64_t first, napier_const_matrix x, const napier_softmax_options *o), \
         (visit(states, 1, true), compute, first, there(x), o)) \
    CALL(softmax_part_save, \
         (napier_dtype compute, napier_const_matrix x, const napier_softmax_options *o, napier_cuda_softmax_part part), \
         (compute, there(x), o, part_there(part))) \
    CALL(softmax_part_update, \
         (void *states, int64_t rows, napier_dtype compute, const napier_cuda_softmax_part *parts, int64_t count, \
          const napier_softmax_options *o), \
         (visit(states, 1, true), rows, compute, parts_there(parts, count), count, o)) \
    CALL(softmax_state_apply, \
         (const void *states, napier_dtype compute, napier_softmax_kind kind, napier_const_matrix x, napier_matrix y, \
          const napier_softmax_options *o), \
         (visit(states, 1, false), compute, kind, there(x), there(y), o)) \
    /* tokens */ \
    CALL(gather_logprobs, (napier_const_matrix logprobs, napier_indices ids, napier_vector gathered), \
         (there(logprobs), there(ids), there(gathered))) \
    CALL(gather_logprobs_backward, (napier_const_vector g, napier_indices ids, napier_matrix out), \
         (there(g), there(ids), there(out))) \
    CALL(token_logprobs, \
         (napier_const_matrix x, napier_indices ids, const napier_token_options *o, const napier_token_results *r), \
         (there(x), there(ids), rules_there(o, x.rows, x.cols), results_there(r, x.rows, ids.size))) \
    CALL(token_logprobs_backward, \
         (napier_const_matrix x, napier_indices ids, const napier_token_options *o, const napier_token_gradients *g, \
          napier_matrix out), \
         (there(x), there(ids), rules_there(o, x.rows, x.cols), there(g), there(out))) \
    CALL(sample, (napier_const_matrix x, const napier_sample_options *o, const napier_sample_results *r), \
         (there(x), sample_there(o, x.rows, x.cols), drawn_there(r, x.rows))) \
    /* losses */ \
    CALL(kl_per_response, \
         (napier_const_vector policy, napier_const_vector ref, napier_indices offsets, const uint8_t *mask, \
          const napier_kl_options *o, napier_vector kl), \
         (there(policy), there(ref), there(offsets), array(mask, policy.size), o, there(kl))) \
    CALL(kl_per_response_backward, \
         (napier_const_vector policy, napier_const_vector ref, napier_indices offsets, const uint8_t *mask, \
          const napier_kl_options *o, napier_const_vector g, napier_vector grad_policy, napier_vector grad_ref), \
         (there(policy), there(ref), there(offsets), array(mask, policy.size), o, there(g), there(grad_policy), \
          there(grad_ref))) \
    CALL(kl_full, \
         (napier_const_matrix policy, napier_const_matrix ref, const napier_softmax_options *o, napier_vector kl), \
         (there(policy), there(ref), o, there(kl))) \
    CALL(kl_full_backward, \
         (napier_const_matrix policy, napier_const_matrix ref, const napier_softmax_options *o, napier_const_vector g, \
          napier_matrix grad_policy, napier_matrix grad_ref), \
         (there(policy), there(ref), o, there(g), there(grad_policy), there(grad_ref))) \
    CALL(rubric_score, \
         (napier_const_vector logprobs, napier_indices ids, napier_indices offsets, napier_const_matrix rubric, \
          napier_const_vector weights, napier_matrix scores, napier_vector rewards), \
         (there(logprobs), there(ids), there(offsets), there(rubric), there(weights), there(scores), there(rewards))) \
    CALL(rubric_score_backward, \
         (napier_indices ids, napier_indices offsets, napier_const_matrix rubric, napier_const_vector weights, \
          napier_const_matrix grad_scores, napier_const_vector grad_rewards, napier_vector out), \
         (there(ids), there(offsets), there(rubric), there(weights), there(grad_scores), there(grad_rewards), \
          there(out))) \
    CALL(grpo_token_loss, \
         (const napier_grpo_batch *b, const napier_grpo_options *o, napier_vector losses, napier_vector out), \
         (there(b), o, there(losses), there(out))) \
    CALL(grpo_token_loss_backward, \
         (const napier_grpo_batch *b, const napier_grpo_options *o, napier_const_vector grad, napier_vector out), \
         (there(b), o, there(grad), there(out))) \
    CALL(grpo_loss, \
         (const napier_grpo_batch *b, const napier_grpo_options *o, napier_grpo_metrics *metrics, \
          napier_vector grad_logprobs, napier_vector grad_entropies), \
         (there(b), o, array_out(metrics, 1), there(grad_logprobs), there(grad_entropies))) \
    CALL(grpo_from_logits, \
         (napier_const_matrix x, napier_indices ids, const napier_grpo_batch *b, const napier_grpo_options *o, \
          const napier_token_options *rules, napier_grpo_metrics *metrics, napier_matrix out, napier_vector logprobs, \
          napier_vector entropies), \
         (there(x), there(ids), there(b), o, rules_there(rules, x.rows, x.cols), array_out(metrics, 1), there(out), \
          there(logprobs), there(entropies))) \
    /* linear, head and attention */ \
    CALL(matmul, (napier_const_matrix a, napier_const_matrix b, napier_matrix product), \
         (there(a), there(b), there(product), through_mode)) \
    CALL(linear_token_logprobs, \
         (napier_const_matrix hidden, napier_const_matrix weights, napier_indices ids, const napier_token_options *o, \
          const napier_token_results *r), \
         (there(hidden), there(weights), there(ids), rules_there(o, hidden.rows, weights.rows), \
          results_there(r, hidden.rows, ids.size), through_mode)) \
    CALL(linear_token_logprobs_backward, \
         (napier_const_matrix hidden, napier_const_matrix weights, napier_indices ids, const napier_token_options *o, \
          const napier_token_gradients *g, napier_matrix grad_hidden, napier_matrix grad_weights), \
         (there(hidden), there(weights), there(ids), rules_there(o, hidden.rows, weights.rows), there(g), \
          there(grad_hidden), there(grad_weights), through_mode)) \
    CALL(attention, \
         (napier_const_heads q, napier_const_heads k, napier_const_heads v, napier_heads output, napier_matrix lse, \
          const napier_attention_options *o), \
         (there(q), there(k), there(v), there(output), there(lse), there(o), through_mode)) \
    CALL(attention_backward, \
         (napier_const_heads g, napier_const_heads q, napier_const_heads k, napier_const_heads v, \
          napier_const_heads output, napier_const_matrix lse, napier_heads grad_q, napier_heads grad_k, \
          napier_heads grad_v, const napier_attention_options *o), \
         (there(g), there(q), there(k), there(v), there(output), there(lse), there(grad_q), there(grad_k), \
          there(grad_v), there(o))) \
    /* umap */ \
    CALL(nearest_neighbors, \
         (napier_umap_samples samples, const napier_neighbors_options *o, int32_t *indices, float *distances), \
         (there(samples), there(o), array_out(indices, samples.dense.rows * o->n_neighbors), \
          array_out(distances, samples.dense.rows * o->n_neighbors))) \
    CALL(nearest_neighbors_of, \
         (napier_umap_samples samples, napier_umap_samples queries, const napier_neighbors_options *o, \
          int32_t *indices, float *distances), \
         (there(samples), there(queries), there(o), array_out(indices, queries.dense.rows * o->n_neighbors), \
          array_out(distances, queries.dense.rows * o->n_neighbors))) \
    CALL(umap_smooth_knn_dist, \
         (const float *distances, int64_t n, int64_t k, double connectivity, float *rhos, float *sigmas), \
         (array(distances, n * k), n, k, connectivity, array_out(rhos, n), array_out(sigmas, n))) \
    CALL(umap_fuzzy_simplicial_set, \
         (const int32_t *indices, const float *distances, int64_t n, int64_t k, double connectivity, double mix, \
          int64_t *starts, uint32_t *targets, float *weights), \
         (array(indices, n * k), array(distances, n * k), n, k, connectivity, mix, array_out(starts, n + 1), \
          array_out(targets, 2 * n * k), array_out(weights, 2 * n * k))) \
    CALL(umap_edge_gradients, \
         (const napier_umap_params *p, napier_const_matrix y, const napier_umap_edge *edges, int64_t count, \
          napier_matrix source, napier_matrix target), \
         (p, there(y), array(edges, count), count, there(source), there(target))) \
    CALL(umap_segments, \
         (const napier_umap_edge *edges, int64_t count, int64_t n, int64_t *starts, int64_t *counts), \
         (array(edges, count), count, n, array_out(starts, n), array_out(counts, n))) \
    CALL(umap_reduce_segments, \
         (napier_const_matrix rows, const int64_t *starts, const int64_t *counts, napier_matrix sums), \
         (there(rows), array(starts, sums.rows), array(counts, sums.rows), there(sums))) \
    CALL(umap_apply, (float rate, napier_const_matrix g, napier_matrix y), (rate, there(g), there(y))) \
    CALL(umap_negative_targets, (uint64_t seed, int64_t epoch, int64_t n, int64_t rate, uint32_t *targets), \
         (seed, epoch, n, rate, array_out(targets, n * rate))) \
    CALL(umap_negative_gradients, \
         (const napier_umap_params *p, napier_const_matrix y, const uint32_t *targets, int64_t rate, napier_matrix g), \
         (p, there(y), array(targets, y.rows * rate), rate, there(g))) \
    CALL(umap_gradients, \
         (const napier_umap_params *p, napier_const_matrix y, const napier_umap_edge *edges, int64_t count, int move, \
          napier_matrix g), \
         (p, there(y), array(edges, count), count, move, there(g))) \
    CALL(umap_optimize_layout, \
         (const napier_cuda_umap_graph *graph, const napier_umap_options *o, napier_matrix y), \
         (there(graph), o, there(y)))

/* Those that never take a workspace. */
#define THROUGH_PLAIN_CALLS(CALL) \
    CALL(softmax_state_clear, (void *states, int64_t rows, napier_dtype compute), \
         (visit(states, 1, true), rows, compute)) \
    CALL(softmax_state_merge, (void *into, const void *from, int64_t rows, napier_dtype compute), \
         (visit(into, 1, true), visit(from, 1, false), rows, compute)) \
    CALL(softmax_state_finish, (const void *states, napier_dtype compute, napier_vector lse), \
         (visit(states, 1, false), compute, there(lse)))
// clang-format on

#endif
