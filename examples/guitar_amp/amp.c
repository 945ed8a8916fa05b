/* amp IN.wav OUT.wav applies the network of net.c to a recording with 16 bits per sample, sample by sample. Each
   channel has its own state. The program prints the fraction of a core that the network needs in real time. */
#include "net.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CHANNELS 8

static uint32_t little_endian(const unsigned char *bytes, int count) {
    uint32_t value = 0;
    while (count--) value = value << 8 | bytes[count];
    return value;
}

/* Returns the content of the chunk of a wav file with this name, and sets `size` to its bytes; NULL without one. */
static unsigned char *chunk(unsigned char *file, size_t length, const char *name, size_t *size) {
    if (length < 12 || memcmp(file, "RIFF", 4) || memcmp(file + 8, "WAVE", 4)) return NULL;
    for (size_t at = 12; at + 8 <= length; at += 8 + *size + *size % 2) {
        *size = little_endian(file + at + 4, 4);
        if (*size > length - at - 8) *size = length - at - 8;
        if (!memcmp(file + at, name, 4)) return file + at + 8;
    }
    return NULL;
}

static int fail(const char *path, const char *message) {
    fprintf(stderr, "%s: %s\n", path, message);
    return 1;
}

int main(int argc, char **argv) {
    static net_state states[MAX_CHANNELS];
    if (argc != 3) return fail(argv[0], "expected two arguments: IN.wav OUT.wav");
    FILE *in = fopen(argv[1], "rb");
    if (!in) return fail(argv[1], "cannot be read");
    fseek(in, 0, SEEK_END);
    const long length = ftell(in);
    unsigned char *file = (unsigned char *)malloc(length > 0 ? (size_t)length : 1);
    rewind(in);
    if (!file || length < 0 || fread(file, 1, (size_t)length, in) != (size_t)length) return fail(argv[1], "cannot be read");
    fclose(in);

    size_t format_size, size;
    const unsigned char *format = chunk(file, (size_t)length, "fmt ", &format_size);
    unsigned char *samples = chunk(file, (size_t)length, "data", &size);
    if (!format || format_size < 16 || !samples) return fail(argv[1], "not a wav file");
    const uint32_t channels = little_endian(format + 2, 2), rate = little_endian(format + 4, 4);
    if (little_endian(format, 2) != 1 || little_endian(format + 14, 2) != 16 || channels < 1 || channels > MAX_CHANNELS)
        return fail(argv[1], "expected 16 bits per sample in at most 8 channels; convert it: sox IN -b 16 OUT");

    for (uint32_t channel = 0; channel < channels; channel++) net_init(&states[channel]);
    const size_t count = size / 2;
    const clock_t start = clock();
    for (size_t k = 0; k < count; k++) {
        const float x = (float)(int16_t)little_endian(samples + 2 * k, 2) / 32768;
        float y;
        net_step(&states[k % channels], &x, &y);
        const float limited = y > 1 ? 1 : y < -1 ? -1 : y;
        const int16_t sample = (int16_t)(32767 * limited);
        samples[2 * k] = (unsigned char)(sample & 0xFF);
        samples[2 * k + 1] = (unsigned char)((sample >> 8) & 0xFF);
    }
    const double used = (double)(clock() - start) / CLOCKS_PER_SEC, lasts = (double)count / channels / rate;

    FILE *out = fopen(argv[2], "wb");
    if (!out || fwrite(file, 1, (size_t)length, out) != (size_t)length || fclose(out)) return fail(argv[2], "cannot be written");
    printf("%.1f s of audio at %lu Hz, %.2f %% of a core\n", lasts, (unsigned long)rate, 100 * used / lasts);
    free(file);
    return 0;
}
