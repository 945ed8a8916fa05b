/* A window: the past values, normalised by `center` and `spread`, the covariates, and the series' vector. */
typedef struct {
    float values[LOOK_BACK];
    float known[LOOK_BACK + HORIZON][KNOWN];
    float series[SERIES_SIZE];
    float center, spread;
} window;

/* The numbers of a step of the forecast in units of the series: the value, then the quantiles. */
static void finish(const window *w, const float *raw, float *result) {
#ifdef GAUSSIAN
    const float mean = raw[0] * w->spread + w->center;
    const float above = raw[1] > 20 ? raw[1] : (float)log1p(exp(raw[1]));
    for (int k = 0; k < LEVELS; k++) result[1 + k] = mean + (above + 1e-6f) * w->spread * (float)deviations[k];
    result[0] = mean;
#else
    for (int k = 0; k < HEAD_SIZE; k++) { /* in ascending order */
        const float value = raw[k] * w->spread + w->center;
        int place = k;
        for (; place > 0 && result[place] > value; place--) result[place + 1] = result[place];
        result[place + 1] = value;
    }
    result[0] = result[1 + MIDDLE];
#endif
}

#ifdef MODEL_DIRECT
/* Forecasts all steps from the last states over the past. */
static void forecast(window *w, float result[HORIZON][RESULT_SIZE]) {
    static float x[LOOK_BACK * net_encoder_input_size], y[LOOK_BACK * net_encoder_output_size];
    float last[net_encoder_output_size], raw[HORIZON * HEAD_SIZE];
    for (int t = 0; t < LOOK_BACK; t++) {
        float *at = x + t * net_encoder_input_size;
        *at++ = w->values[t];
        memcpy(at, w->known[t], KNOWN_COUNT * sizeof *at);
        memcpy(at + KNOWN_COUNT, w->series, SERIES_COUNT * sizeof *at);
    }
    net_encoder_reset(&encoder);
    net_encoder_run(&encoder, x, y, LOOK_BACK);
    last_states(y, LOOK_BACK, net_encoder_output_size, DIRECTIONS, last);
    net_steps_step(&steps, last, raw);
#if LINEAR
    float from_past[HORIZON * HEAD_SIZE];
    net_linear_step(&linear, w->values, from_past);
    for (int k = 0; k < HORIZON * HEAD_SIZE; k++) raw[k] += from_past[k];
#endif
    for (int t = 0; t < HORIZON; t++) {
#if KNOWN_COUNT
        float ahead_input[net_ahead_input_size], more[HEAD_SIZE];
        memcpy(ahead_input, last, sizeof last);
        memcpy(ahead_input + net_encoder_output_size, w->known[LOOK_BACK + t], KNOWN_COUNT * sizeof *ahead_input);
        net_ahead_step(&ahead, ahead_input, more);
        for (int k = 0; k < HEAD_SIZE; k++) raw[t * HEAD_SIZE + k] += more[k];
#endif
        finish(w, raw + t * HEAD_SIZE, result[t]);
    }
}
#endif
#ifdef MODEL_RECURSIVE
/* Reads the value before step t, and the covariates of step t. */
static void read_step(const window *w, float value, int t, float *y) {
    float x[net_encoder_input_size];
    x[0] = value;
    memcpy(x + 1, w->known[t], KNOWN_COUNT * sizeof *x);
    memcpy(x + 1 + KNOWN_COUNT, w->series, SERIES_COUNT * sizeof *x);
    net_encoder_step(&encoder, x, y);
}

/* Forecasts step by step: each step reads the forecast of the step before it. */
static void forecast(window *w, float result[HORIZON][RESULT_SIZE]) {
    float y[net_encoder_output_size], raw[HEAD_SIZE], value = w->values[LOOK_BACK - 1];
    net_encoder_reset(&encoder);
    for (int t = 1; t < LOOK_BACK; t++) read_step(w, w->values[t - 1], t, y);
    for (int t = 0; t < HORIZON; t++) {
        read_step(w, value, LOOK_BACK + t, y);
        net_steps_step(&steps, y, raw);
        finish(w, raw, result[t]);
        value = (result[t][0] - w->center) / w->spread;
    }
}
#endif
#ifdef MODEL_SEGMENTS
/* Forecasts segment by segment, each from the last states over the segments of the past. */
static void forecast(window *w, float result[HORIZON][RESULT_SIZE]) {
    float x[SEGMENT * (1 + KNOWN)], inner[net_encoder_input_size], y[net_encoder_output_size];
    float raw[SEGMENT * HEAD_SIZE];
    net_encoder_reset(&encoder);
    for (int start = 0; start < LOOK_BACK; start += SEGMENT) {
        memcpy(x, w->values + start, SEGMENT * sizeof *x);
        for (int k = 0; k < KNOWN_COUNT; k++)
            for (int t = 0; t < SEGMENT; t++) x[SEGMENT * (1 + k) + t] = w->known[start + t][k];
        net_embed_step(&embed, x, inner);
        net_encoder_step(&encoder, inner, y);
    }
    for (int start = 0; start < HORIZON; start += SEGMENT) {
        const float number = (float)(start / SEGMENT);
        net_places_step(&places, &number, inner);
        memcpy(inner + net_places_output_size, w->series, SERIES_COUNT * sizeof *inner);
#if KNOWN_COUNT
        float more[net_encoder_input_size];
        for (int k = 0; k < KNOWN_COUNT; k++)
            for (int t = 0; t < SEGMENT; t++) /* after the end, the last step again */
                x[k * SEGMENT + t] = w->known[LOOK_BACK + (start + t < HORIZON ? start + t : HORIZON - 1)][k];
        net_ahead_step(&ahead, x, more);
        for (int k = 0; k < net_encoder_input_size; k++) inner[k] += more[k];
#endif
        net_encoder_state after = encoder;
        net_encoder_step(&after, inner, y);
        net_steps_step(&steps, y, raw);
        for (int t = 0; t < SEGMENT && start + t < HORIZON; t++) finish(w, raw + t * HEAD_SIZE, result[start + t]);
    }
}
#endif

/* Forecasts a series from its look-back window and prints a line for each step: series, value and quantiles. */
static void answer(const row *r) {
    static window w;
    static float result[HORIZON][RESULT_SIZE];
    const int index = index_at(r, 0, SERIES);
    const double shift = shifts[index], scale = scales[index];
    double mean = 0, variance = 0;
    if (r->count != 1 + LOOK_BACK + (LOOK_BACK + HORIZON) * KNOWN_COUNT)
        fail(r, "expected the index of a series, the values of the look-back, and the covariates of each step");
    for (int t = 0; t < LOOK_BACK; t++) {
        w.values[t] = (float)((r->items[1 + t] - shift) / scale);
        mean += w.values[t] / (double)LOOK_BACK;
    }
    for (int t = 0; t < LOOK_BACK; t++) variance += (w.values[t] - mean) * (w.values[t] - mean) / LOOK_BACK;
    w.center = NORMALIZE_LAST ? w.values[LOOK_BACK - 1] : NORMALIZE_WINDOW ? (float)mean : 0;
    w.spread = NORMALIZE_WINDOW ? (float)sqrt(variance + 1e-5) : 1;
    for (int t = 0; t < LOOK_BACK; t++) w.values[t] = (w.values[t] - w.center) / w.spread;
    for (int k = 0; k < (LOOK_BACK + HORIZON) * KNOWN_COUNT; k++)
        w.known[k / KNOWN][k % KNOWN] = (float)r->items[1 + LOOK_BACK + k];
#if SERIES_COUNT
    const float number = (float)index;
    net_series_step(&series, &number, w.series);
#endif
    forecast(&w, result);
    for (int t = 0; t < HORIZON; t++) {
        printf("%s", series_names[index]);
        for (int k = 0; k <= LEVELS; k++) printf("\t%.6g", result[t][k] * scale + shift);
        putchar('\n');
    }
}
