/* Computes the probability of speech in a frame of 512 samples, after the last 64 samples of the previous frame. */

#include "speech.h"
#include "spectrum.h"

typedef struct {
    spectrum_state spectrum;
    speech_state speech;
} vad_state;

size_t vad_size(void) { return sizeof(vad_state); }

void vad_init(vad_state *s) {
    spectrum_init(&s->spectrum);
    speech_init(&s->speech);
}

float vad_step(vad_state *s, const float *frame) {
    float samples[640], spectra[4 * 129], probability;
    for (int k = 0; k < 576; k++) samples[k] = frame[k];
    for (int k = 0; k < 64; k++) samples[576 + k] = frame[574 - k]; /* the end of the frame, reversed */
    for (int k = 0; k < 4; k++) spectrum_step(&s->spectrum, samples + 128 * k, spectra + 129 * k);
    speech_step(&s->speech, spectra, &probability);
    return probability;
}
