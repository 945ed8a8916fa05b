#if SERIES
/* Whether a line begins with a tag, in letters of either case. */
static int has_tag(const char *text, const char *tag) {
    while (*tag && tolower((unsigned char)*text) == *tag) text++, tag++;
    return !*tag;
}

/* Reads a row of a .ts file: channels separated by colons, values by commas. Returns the number of steps. */
static size_t read_series(const line *l, int labelled, float **x, size_t *room) {
    const char *at = l->text;
    size_t steps = 0;
    for (int channel = 0; channel < CHANNELS; channel++) {
        size_t t = 0;
        while (*at && *at != ':') {
            char *after;
            const double value = (float)strtod(at, &after);
            if (after == at) fail(l, "expected numbers separated by commas, without missing values");
            if (t == *room) {
                *room = 2 * *room + 64;
                *x = (float *)resized(*x, *room * CHANNELS * sizeof **x);
            }
            (*x)[t++ * CHANNELS + channel] = (float)((value - means[channel]) / deviations[channel]);
            for (at = after; *at == ' ' || *at == '\t'; at++) continue;
            if (*at == ',') at++;
        }
        if (channel > 0 && t != steps) fail(l, "expected channels of one length");
        steps = t;
        if (channel < CHANNELS - 1 && *at++ != ':') fail(l, "expected the channels of the training data");
    }
    if (*at != (labelled ? ':' : 0) || steps == 0) fail(l, "expected the channels of the training data");
    return steps;
}

#endif
/* The states of all steps as one vector: that of the last step, their mean, their largest values or a weighted mean. */
static void pool(const float *y, size_t steps, float *pooled, float *shares) {
    const size_t size = net_encoder_output_size;
#if LAST
    const size_t half = size / DIRECTIONS;
    memcpy(pooled, y + (steps - 1) * size, half * sizeof *pooled);
    if (DIRECTIONS == 2) memcpy(pooled + half, y + half, half * sizeof *pooled); /* the reverse direction ends there */
    (void)shares;
#endif
#if MAX
    memcpy(pooled, y, size * sizeof *pooled);
    for (size_t t = 1; t < steps; t++)
        for (size_t j = 0; j < size; j++)
            if (y[t * size + j] > pooled[j]) pooled[j] = y[t * size + j];
    (void)shares;
#endif
#if MEAN
    for (size_t j = 0; j < size; j++) {
        double sum = 0;
        for (size_t t = 0; t < steps; t++) sum += y[t * size + j];
        pooled[j] = (float)(sum / (double)steps);
    }
    (void)shares;
#endif
#if ATTENTION
    double sum = 0;
    float largest = -INFINITY;
    net_attention_run(&attention, y, shares, steps);
    for (size_t t = 0; t < steps; t++)
        if (shares[t] > largest) largest = shares[t];
    for (size_t t = 0; t < steps; t++) sum += exp(shares[t] - largest);
    for (size_t t = 0; t < steps; t++) shares[t] = (float)(exp(shares[t] - largest) / sum);
    for (size_t j = 0; j < size; j++) {
        sum = 0;
        for (size_t t = 0; t < steps; t++) sum += shares[t] * y[t * size + j];
        pooled[j] = (float)sum;
    }
#endif
}

#if LABELLED
/* Prints the most probable label and its probability. */
static void print_answer(const float *scores) {
    int best = 0;
    double sum = 0;
    for (int k = 1; k < net_head_output_size; k++)
        if (scores[k] > scores[best]) best = k;
    for (int k = 0; k < net_head_output_size; k++) sum += exp(scores[k] - scores[best]);
    printf("%s\t%.4f", label_names[best], 1 / sum);
}
#else
/* Prints the numbers in units of the data. */
static void print_answer(const float *scores) {
    for (int k = 0; k < net_head_output_size; k++)
        printf("%s%.6g", k ? "\t" : "", scores[k] * number_deviations[k] + number_means[k]);
}
#endif

int main(int argc, char **argv) {
    line l = {NULL, 0, 0, 0};
#if SERIES
    float *x = NULL;
    size_t room = 0;
    int labelled = 0, data = 0;
#else
    units list = {NULL, 0, 0};
#endif
    start(argc, argv);
    while (next_line(&l)) {
#if SERIES
        if (l.text[0] == 0 || l.text[0] == '#') continue;
        if (!data) { /* tags, of which @classLabel and @targetLabel say whether rows end with a label */
            labelled |= has_tag(l.text, "@classlabel true") || has_tag(l.text, "@targetlabel true");
            data = has_tag(l.text, "@data");
            continue;
        }
        const size_t steps = read_series(&l, labelled, &x, &room);
#else
        split(l.text, l.text + l.length, &list);
        const size_t steps = (size_t)list.count;
        if (steps == 0) continue;
        float *x = (float *)resized(NULL, steps * net_encoder_input_size * sizeof *x);
        for (size_t t = 0; t < steps; t++) {
            const float number = (float)number_of_unit(list.items[t]);
            net_words_step(&words, &number, x + t * net_encoder_input_size);
        }
#endif
        float pooled[net_encoder_output_size], scores[net_head_output_size];
        float *y = (float *)resized(NULL, steps * net_encoder_output_size * sizeof *y);
        float *shares = (float *)resized(NULL, steps * sizeof *shares); /* the weight of each step in the answer */
        net_encoder_reset(&encoder);
        if (net_encoder_run(&encoder, x, y, steps)) fail(&l, TOO_LONG);
        pool(y, steps, pooled, shares);
        net_head_step(&head, pooled, scores);
        print_answer(scores);
#if ATTENTION
        for (size_t t = 0; t < steps; t++) {
#if SERIES
            printf("%c%ld:%.3f", t ? ' ' : '\t', (long)t + 1, shares[t]);
#else
            printf("%c%.*s:%.3f", t ? ' ' : '\t', list.items[t].length, list.items[t].text, shares[t]);
#endif
        }
#endif
        putchar('\n');
        free(y);
        free(shares);
#if SERIES
    }
    free(x);
#else
        free(x);
    }
    free(list.items);
#endif
    free(l.text);
    return 0;
}
