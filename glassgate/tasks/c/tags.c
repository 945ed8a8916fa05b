#ifdef CHAIN
/* The labels of the best path: its score is the sum of its labels' scores and of its transitions' scores. */
static void choose(const float *scores, int steps, int *best) {
    int *before = (int *)resized(NULL, (size_t)steps * LABELS * sizeof *before);
    float total[LABELS], longer[LABELS];
    for (int k = 0; k < LABELS; k++) total[k] = start_scores[k] + scores[k];
    for (int t = 1; t < steps; t++) {
        for (int k = 0; k < LABELS; k++) {
            int from = 0;
            for (int j = 1; j < LABELS; j++)
                if (total[j] + transition_scores[j * LABELS + k] > total[from] + transition_scores[from * LABELS + k]) from = j;
            longer[k] = total[from] + transition_scores[from * LABELS + k] + scores[t * LABELS + k];
            before[t * LABELS + k] = from;
        }
        memcpy(total, longer, sizeof total);
    }
    for (int k = 0; k < LABELS; k++) total[k] += end_scores[k];
    best[steps - 1] = largest(total, LABELS);
    for (int t = steps - 1; t > 0; t--) best[t - 1] = before[t * LABELS + best[t]];
    free(before);
}
#else
/* The label with the highest score for each token. */
static void choose(const float *scores, int steps, int *best) {
    for (int t = 0; t < steps; t++) best[t] = largest(scores + t * LABELS, LABELS);
}
#endif

#ifdef CHARACTERS
/* The last states of both directions over the characters of a token. Returns the position after them. */
static size_t spell(const row *r, size_t at, float *ends) {
    static float numbers[LONGEST_WORD], states[LONGEST_WORD * net_spelling_output_size];
    const size_t length = (size_t)index_at(r, at++, LONGEST_WORD + 1);
    if (length == 0) fail(r, "expected the characters of each token");
    for (size_t k = 0; k < length; k++) numbers[k] = (float)index_at(r, at++, CHARACTERS);
    net_spelling_reset(&spelling);
    net_spelling_run(&spelling, numbers, states, length);
    last_states(states, length, net_spelling_output_size, 2, ends);
    return at;
}
#endif

/* The input of the encoder. Returns the number of tokens. */
static size_t read_tokens(const row *r, float *x) {
    size_t steps = 0;
    for (size_t at = 0; at < r->count; steps++, x += net_encoder_input_size) {
        const float number = (float)index_at(r, at++, UNITS);
        net_words_step(&words, &number, x);
#ifdef CHARACTERS
        at = spell(r, at, x + net_words_output_size);
#endif
    }
    return steps;
}

static void answer(const row *r) {
    float *x = (float *)resized(NULL, r->count * net_encoder_input_size * sizeof *x);
    const size_t steps = read_tokens(r, x);
    float *y = (float *)resized(NULL, steps * net_encoder_output_size * sizeof *y);
    float *scores = (float *)resized(NULL, steps * LABELS * sizeof *scores);
    int *best = (int *)resized(NULL, steps * sizeof *best);
    net_encoder_reset(&encoder);
    if (net_encoder_run(&encoder, x, y, steps)) fail(r, TOO_LONG);
    net_labels_run(&labels, y, scores, steps);
    choose(scores, (int)steps, best);
#ifdef INTENTS
    float peaks[net_encoder_output_size], of_intents[net_intents_output_size];
    peaks_of(y, steps, net_encoder_output_size, peaks);
    net_intents_step(&intents, peaks, of_intents);
    printf("# intent = %s\n", intent_names[largest(of_intents, net_intents_output_size)]);
#endif
    for (size_t t = 0; t < steps; t++) puts(label_names[best[t]]);
    putchar('\n');
    free(x);
    free(y);
    free(scores);
    free(best);
}
