/* Time stamps are microseconds since 1970, or whole numbers where the data has no dates. */
typedef long long moment;

#if DATED
#define DAY 86400000000LL

/* The days from 1970-01-01 to a date of the Gregorian calendar. */
static moment day_of(moment year, int month, int day) {
    year -= month <= 2;
    const moment era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    const int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* The date that is `days` days after 1970-01-01. */
static void date_of(moment days, moment *year, int *month, int *day) {
    days += 719468;
    const moment era = (days >= 0 ? days : days - 146096) / 146097, of_era = days - era * 146097;
    const moment years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int of_year = (int)(of_era - (365 * years + years / 4 - years / 100)), m = (5 * of_year + 2) / 153;
    *day = of_year - (153 * m + 2) / 5 + 1;
    *month = m < 10 ? m + 3 : m - 9;
    *year = years + era * 400 + (*month <= 2);
}

/* The whole days from 1970-01-01 to a time stamp, rounded down. */
static moment days_before(moment time) { return (time >= 0 ? time : time - DAY + 1) / DAY; }

#endif
/* The time stamp that is `offset` steps after the first one. */
static moment time_at(moment start, moment offset) {
#if EVEN
    return start + offset * COUNT;
#endif
#if WEEKDAYS_ONLY
    moment days = days_before(start);
    const moment clock = start - days * DAY;
    while ((days + 3) % 7 > 4) days++; /* Monday is 0 */
    const moment weekday = (days + 3) % 7, rest = offset * COUNT % 5;
    return (days + offset * COUNT / 5 * 7 + rest + (weekday + rest > 4 ? 2 : 0)) * DAY + clock;
#endif
#if MONTHS
    moment year;
    int month, day;
    const moment days = days_before(start);
    date_of(days, &year, &month, &day);
    const moment months = year * 12 + month - 1 + offset * COUNT;
    const moment first = day_of(months / 12, (int)(months % 12) + 1, 1);
    const moment last = day_of((months + 1) / 12, (int)((months + 1) % 12) + 1, 1) - 1;
    const moment same = LAST_DAY || first + day - 1 > last ? last : first + day - 1;
    return same * DAY + start - days * DAY;
#endif
}

/* Reads a time stamp such as 2024-01-31 15:00:00; 0 if it is none. */
static int read_time(const char *text, moment *time) {
#if DATED
    int year, month, day, hour = 0, minute = 0;
    double second = 0;
    char between;
    const int found = sscanf(text, "%d-%d-%d%c%d:%d:%lf", &year, &month, &day, &between, &hour, &minute, &second);
    if ((found != 3 && found < 6) || month < 1 || month > 12) return 0;
    if (found == 6) second = 0;
    *time = day_of(year, month, day) * DAY + (hour * 60LL + minute) * 60000000 + (moment)(second * 1e6 + 0.5);
    return 1;
#else
    char *after;
    *time = strtoll(text, &after, 10);
    return after > text && !*after;
#endif
}

static void print_time(moment time) {
#if DATED
    moment year;
    int month, day;
    const moment days = days_before(time), seconds = (time - days * DAY) / 1000000;
    date_of(days, &year, &month, &day);
    printf("%04lld-%02d-%02d", year, month, day);
    if (SHOWS_CLOCK || seconds)
        printf(" %02d:%02d:%02d", (int)(seconds / 3600), (int)(seconds / 60 % 60), (int)(seconds % 60));
#else
    printf("%lld", time);
#endif
}

#if CALENDAR
/* The place of a time stamp in its year, week and day, as sines and cosines. */
static void calendar(moment time, float *x) {
    double parts[CALENDAR / 2];
    int count = 0, month, day;
    moment year;
    const moment days = days_before(time);
    date_of(days, &year, &month, &day);
    parts[count++] = (double)(days - day_of(year, 1, 1)) / 365.25;
    if (count < CALENDAR / 2) parts[count++] = (double)((days + 3) % 7) / 7;
    if (count < CALENDAR / 2) parts[count++] = (double)(time - days * DAY) / DAY;
    for (int k = 0; k < count; k++) {
        x[k] = (float)sin(2 * PI * parts[k]);
        x[count + k] = (float)cos(2 * PI * parts[k]);
    }
}

#endif
/* A window: the past values, normalised by `center` and `spread`, the calendar, and the series' vector. */
typedef struct {
    float values[LOOK_BACK];
    float known[LOOK_BACK + HORIZON][KNOWN];
    float series[SERIES_SIZE];
    float center, spread;
} window;

/* The numbers of a step of the forecast in units of the series: the value, then the quantiles. */
static void finish(const window *w, const float *raw, float *result) {
#if GAUSSIAN
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

#if DIRECT
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
    const int half = net_encoder_output_size / DIRECTIONS;
    memcpy(last, y + (LOOK_BACK - 1) * net_encoder_output_size, half * sizeof *last);
    if (DIRECTIONS == 2) memcpy(last + half, y + half, half * sizeof *last); /* the reverse direction ends there */
    net_steps_step(&steps, last, raw);
#if LINEAR
    float from_past[HORIZON * HEAD_SIZE];
    net_linear_step(&linear, w->values, from_past);
    for (int k = 0; k < HORIZON * HEAD_SIZE; k++) raw[k] += from_past[k];
#endif
    for (int t = 0; t < HORIZON; t++) {
#if CALENDAR
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
#if RECURSIVE
/* Reads the value before step t, and the calendar at step t. */
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
#if SEGMENTS
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
#if CALENDAR
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

/* Forecasts a series from its end and prints a line for each step: series, time, value and quantiles. */
static void answer(int series, const double *values, size_t length, moment start) {
    static window w;
    static float result[HORIZON][RESULT_SIZE];
    const double shift = shifts[series], scale = scales[series];
    double mean = 0, variance = 0;
    for (int t = 0; t < LOOK_BACK; t++) {
        w.values[t] = (float)((values[length - LOOK_BACK + t] - shift) / scale);
        mean += w.values[t] / (double)LOOK_BACK;
    }
    for (int t = 0; t < LOOK_BACK; t++) variance += (w.values[t] - mean) * (w.values[t] - mean) / LOOK_BACK;
    w.center = NORMALIZE_LAST ? w.values[LOOK_BACK - 1] : NORMALIZE_WINDOW ? (float)mean : 0;
    w.spread = NORMALIZE_WINDOW ? (float)sqrt(variance + 1e-5) : 1;
    for (int t = 0; t < LOOK_BACK; t++) w.values[t] = (w.values[t] - w.center) / w.spread;
#if CALENDAR
    for (int t = 0; t < LOOK_BACK + HORIZON; t++)
        calendar(time_at(start, (moment)length - LOOK_BACK + t), w.known[t]);
#endif
#if SEVERAL
    const float number = (float)series;
    net_series_step(&vectors, &number, w.series);
#endif
    forecast(&w, result);
    for (int t = 0; t < HORIZON; t++) {
        printf("%s\t", series_names[series]);
        print_time(time_at(start, (moment)length + t));
        for (int k = 0; k <= LEVELS; k++) printf("\t%.6g", result[t][k] * scale + shift);
        putchar('\n');
    }
}

/* The next cell of a row, without its quotes; NULL after the last one. The row is changed. */
static char *next_cell(char **at, char separator) {
    char *cell = *at, *to, *from;
    if (!cell) return NULL;
    for (from = cell; *from == ' '; from++) continue;
    const int quoted = *from == '"';
    for (to = cell, from += quoted; *from && (quoted || *from != separator); from++) {
        if (quoted && *from == '"' && *++from != '"') break; /* two quotes inside of a cell are one */
        *to++ = *from;
    }
    while (*from && *from != separator) from++;
    *at = *from ? from + 1 : NULL;
    while (!quoted && to > cell && to[-1] == ' ') to--;
    *to = 0;
    return cell;
}

int main(int argc, char **argv) {
    line l = {NULL, 0, 0, 0};
    double *values[SERIES];
    int *column_series = NULL, columns = 0, found = 0, time_column = -1;
    size_t length = 0, room = 0;
    moment first = 0;
    start(argc, argv);
    if (!next_line(&l)) fail(&l, "expected a table with a header");
    char separator = strchr(l.text, ',') ? ',' : strchr(l.text, ';') ? ';' : '\t';
    for (char *at = l.text, *cell; (cell = next_cell(&at, separator)); columns++) {
        column_series = (int *)resized(column_series, (size_t)(columns + 1) * sizeof *column_series);
        column_series[columns] = -1;
        for (int k = 0; k < SERIES; k++)
            if (!strcmp(cell, series_names[k])) column_series[columns] = k;
        if (column_series[columns] >= 0) found++;
        else if (time_column < 0 && (!*TIME_NAME || !strcmp(cell, TIME_NAME))) time_column = columns;
    }
    if (found != SERIES) {
        fputs("expected a table with a column for each of these series:", stderr);
        for (int k = 0; k < SERIES; k++) fprintf(stderr, " %s", series_names[k]);
        fputs("\n", stderr);
        fail(&l, "some of these columns are missing");
    }
    for (int k = 0; k < SERIES; k++) values[k] = NULL;
    while (next_line(&l)) {
        char *at = l.text, *after;
        if (!*at) continue;
        if (length == room) {
            room = 2 * room + 64;
            for (int k = 0; k < SERIES; k++) values[k] = (double *)resized(values[k], room * sizeof(double));
        }
        int found_in_row = 0;
        for (int column = 0; column < columns; column++) {
            char *cell = next_cell(&at, separator);
            moment time;
            if (!cell) break;
            if (column == time_column) {
                if (!read_time(cell, &time)) fail(&l, "expected a time stamp such as " EXAMPLE_TIME);
                if (length == 0) first = time;
                if (time != time_at(first, (moment)length)) fail(&l, "expected time stamps in steps of " FREQUENCY);
            }
            if (column_series[column] < 0) continue;
            values[column_series[column]][length] = strtod(cell, &after);
            if (after == cell || *after) fail(&l, "expected a number in each column of a series");
            found_in_row++;
        }
        if (found_in_row != SERIES) fail(&l, "expected a number in each column of a series");
        length++;
    }
    if (length < LOOK_BACK) fail(&l, "the table has fewer rows than the look-back of the model");
    for (int k = 0; k < SERIES; k++) {
        answer(k, values[k], length, first);
        free(values[k]);
    }
    free(column_series);
    free(l.text);
    return 0;
}
