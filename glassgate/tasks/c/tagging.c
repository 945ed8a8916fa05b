#if SPELLING
/* The last states of both directions over the characters of a unit; of long units, the middle is left out. */
static void spell(unit u, float *ends) {
    static float numbers[LONGEST_WORD], states[LONGEST_WORD * net_spelling_output_size];
    const int half = net_spelling_output_size / 2;
    int length = 0, number = 0;
    for (const char *at = u.text; at < u.text + u.length; length++) decoded(&at, u.text + u.length);
    for (const char *at = u.text, *start = at; at < u.text + u.length; start = at, number++) {
        decoded(&at, u.text + u.length);
        const int place = length <= LONGEST_WORD || number < LONGEST_WORD / 2 ? number : number - length + LONGEST_WORD;
        if (place >= 0 && (number < LONGEST_WORD / 2 || place >= LONGEST_WORD / 2))
            numbers[place] = (float)NUMBER_OF(character_table, start, (int)(at - start));
    }
    if (length > LONGEST_WORD) length = LONGEST_WORD;
    net_spelling_reset(&spelling);
    net_spelling_run(&spelling, numbers, states, (size_t)length);
    memcpy(ends, states + (length - 1) * net_spelling_output_size, (size_t)half * sizeof *ends);
    memcpy(ends + half, states + half, (size_t)half * sizeof *ends);
}
#endif

#if CHAIN
/* The labels of the best path: its score is the sum of its labels' scores and of its transitions' scores. */
static void choose(const float *scores, int steps, int *best) {
    int *before = (int *)resized(NULL, (size_t)steps * LABELS * sizeof *before);
    float total[LABELS], longer[LABELS];
    for (int k = 0; k < LABELS; k++) total[k] = start_scores[k] + scores[k];
    for (int t = 1; t < steps; t++) {
        for (int k = 0; k < LABELS; k++) {
            int from = 0;
            for (int j = 1; j < LABELS; j++)
                if (total[j] + transition_scores[j][k] > total[from] + transition_scores[from][k]) from = j;
            longer[k] = total[from] + transition_scores[from][k] + scores[t * LABELS + k];
            before[t * LABELS + k] = from;
        }
        memcpy(total, longer, sizeof total);
    }
    best[steps - 1] = 0;
    for (int k = 1; k < LABELS; k++)
        if (total[k] + end_scores[k] > total[best[steps - 1]] + end_scores[best[steps - 1]]) best[steps - 1] = k;
    for (int t = steps - 1; t > 0; t--) best[t - 1] = before[t * LABELS + best[t]];
    free(before);
}
#else
/* The label with the highest score for each unit. */
static void choose(const float *scores, int steps, int *best) {
    for (int t = 0; t < steps; t++) {
        best[t] = 0;
        for (int k = 1; k < LABELS; k++)
            if (scores[t * LABELS + k] > scores[t * LABELS + best[t]]) best[t] = k;
    }
}
#endif

/* Prints a unit; one with a character that is not printable is printed with escapes, as Python does. */
static void print_unit(unit u) {
    const char *end = u.text + u.length;
    int plain = 1;
    for (const char *at = u.text; at < end;) plain &= IN(printable, decoded(&at, end));
    for (const char *at = u.text; !plain && at < end;) {
        const long c = decoded(&at, end);
        if (c == '\\') printf("\\\\");
        else if (c == '\t') printf("\\t");
        else if (c >= 32 && c < 127) putchar((int)c);
        else printf(c < 0x100 ? "\\x%02lx" : c < 0x10000 ? "\\u%04lx" : "\\U%08lx", (unsigned long)c);
    }
    if (plain) fwrite(u.text, 1, (size_t)u.length, stdout);
}

/* Prints a label for each unit of a sequence. */
static void answer(const line *l, const units *list) {
    const size_t steps = (size_t)list->count;
    float *x = (float *)resized(NULL, steps * net_encoder_input_size * sizeof *x);
    float *y = (float *)resized(NULL, steps * net_encoder_output_size * sizeof *y);
    float *scores = (float *)resized(NULL, steps * LABELS * sizeof *scores);
    int *best = (int *)resized(NULL, steps * sizeof *best);
    for (size_t t = 0; t < steps; t++) {
        const float number = (float)number_of_unit(list->items[t]);
        net_words_step(&words, &number, x + t * net_encoder_input_size);
#if SPELLING
        spell(list->items[t], x + t * net_encoder_input_size + net_words_output_size);
#endif
    }
    net_encoder_reset(&encoder);
    if (net_encoder_run(&encoder, x, y, steps)) fail(l, TOO_LONG);
    net_labels_run(&labels, y, scores, steps);
    choose(scores, list->count, best);
#if INTENTS
    for (size_t t = 1; t < steps; t++) /* the largest value of each state at all steps */
        for (int j = 0; j < net_encoder_output_size; j++)
            if (y[t * net_encoder_output_size + j] > y[j]) y[j] = y[t * net_encoder_output_size + j];
    float of_intents[net_intents_output_size];
    int intent = 0;
    net_intents_step(&intents, y, of_intents);
    for (int k = 1; k < net_intents_output_size; k++)
        if (of_intents[k] > of_intents[intent]) intent = k;
    printf("# intent = %s\n", intent_names[intent]);
#endif
    for (size_t t = 0; t < steps; t++) {
        print_unit(list->items[t]);
        printf("\t%s\n", label_names[best[t]]);
    }
    putchar('\n');
    free(x);
    free(y);
    free(scores);
    free(best);
}

int main(int argc, char **argv) {
    line l = {NULL, 0, 0, 0};
    units list = {NULL, 0, 0};
    start(argc, argv);
    while (next_line(&l)) {
        split(l.text, l.text + l.length, &list);
        if (list.count) answer(&l, &list);
    }
    free(l.text);
    free(list.items);
    return 0;
}
