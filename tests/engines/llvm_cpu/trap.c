/* AMX's instructions for a processor without them: each is refused, decoded from its bytes, and done here.

Written after Intel's manual and the bytes alone; shares nothing with the interpreter that kernels can be built with.
What a processor with AMX would refuse ends the process. */

#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static __thread struct {
    int configured, rows[8], width[8];
    uint8_t data[8][16][64];
} tiles;

static long counts[6];
static const int REGISTERS[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void refuse(const char *why) {
    fprintf(stderr, "AMX: %s\n", why);
    abort();
}

static void check(int tile) {
    if (!tiles.configured || tiles.rows[tile] == 0) refuse("a tile without a size");
}

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static float number(const uint8_t *at) {
    uint32_t bits = (uint32_t)(at[0] | at[1] << 8) << 16;
    float x;
    memcpy(&x, &bits, 4);
    return flushed(x);
}

static void configure(const uint8_t *from) {
    memset(&tiles, 0, sizeof tiles);
    if (from[0] == 0) return;
    for (int k = 1; k < 64; k++)
        if (from[k] && (k < 16 || (k >= 32 && k < 48) || k >= 56)) refuse("reserved bytes of a configuration");
    if (from[0] != 1) refuse("a palette that there is not");
    for (int t = 0; t < 8; t++) {
        tiles.rows[t] = from[48 + t];
        tiles.width[t] = from[16 + 2 * t] | from[17 + 2 * t] << 8;
        if (tiles.rows[t] > 16 || tiles.width[t] > 64 || tiles.width[t] % 4 || !tiles.rows[t] != !tiles.width[t])
            refuse("a size that no tile has");
    }
    tiles.configured = 1;
}

static void dot(int c, int a, int b) {
    check(c), check(a), check(b);
    if (c == a || c == b || a == b) refuse("one tile twice");
    if (tiles.rows[c] != tiles.rows[a] || tiles.width[c] != tiles.width[b] || tiles.width[a] != 4 * tiles.rows[b])
        refuse("tiles that do not fit");
    for (int m = 0; m < tiles.rows[c]; m++)
        for (int n = 0; n < tiles.width[c] / 4; n++) {
            float total, half[2] = {0, 0};
            for (int k = 0; k < tiles.rows[b]; k++)
                for (int h = 0; h < 2; h++)
                    half[h] = flushed(fmaf(number(&tiles.data[a][m][4 * k + 2 * h]),
                                           number(&tiles.data[b][k][4 * n + 2 * h]), half[h]));
            memcpy(&total, &tiles.data[c][m][4 * n], 4);
            total = flushed(flushed(total) + flushed(half[0] + half[1]));
            memcpy(&tiles.data[c][m][4 * n], &total, 4);
        }
}

static void refused(int signal, siginfo_t *information, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    if (at[0] != 0xc4 || (at[1] & 31) != 2 || (at[2] & 0x84)) refuse("an instruction that is none of AMX");
    int x = !(at[1] & 64) * 8, b = !(at[1] & 32) * 8, third = ~(at[2] >> 3) & 7, prefix = at[2] & 3, opcode = at[3];
    int mode = at[4] >> 6, reg = (at[4] >> 3) & 7, rm = at[4] & 7, length = 5;
    uint8_t *base = 0;
    int64_t index = 0, displacement = 0;
    if (mode != 3) {
        int has_base = 1, base_register = rm + b;
        if (rm == 4) {
            int sib = at[length++], index_register = ((sib >> 3) & 7) + x;
            base_register = (sib & 7) + b;
            has_base = !((sib & 7) == 5 && mode == 0);
            if (index_register != 4) index = registers[REGISTERS[index_register]] << (sib >> 6);
        } else if (rm == 5 && mode == 0)
            refuse("an address relative to the instruction");
        if (mode == 1)
            displacement = (int8_t)at[length++];
        else if (mode == 2 || !has_base) {
            int32_t wide;
            memcpy(&wide, at + length, 4);
            displacement = wide, length += 4;
        }
        base = (uint8_t *)((has_base ? registers[REGISTERS[base_register]] : 0) + displacement);
    }
    if (opcode == 0x49 && prefix == 0 && mode == 3)
        memset(&tiles, 0, sizeof tiles), counts[0]++;
    else if (opcode == 0x49 && prefix == 0)
        configure(base + index), counts[1]++;
    else if (opcode == 0x49 && prefix == 3 && mode == 3)
        check(reg), memset(tiles.data[reg], 0, 1024), counts[2]++;
    else if (opcode == 0x4b && prefix == 3) {
        check(reg), memset(tiles.data[reg], 0, 1024), counts[3]++;
        for (int row = 0; row < tiles.rows[reg]; row++) memcpy(tiles.data[reg][row], base + row * index, tiles.width[reg]);
    } else if (opcode == 0x4b && prefix == 2) {
        check(reg), counts[4]++;
        for (int row = 0; row < tiles.rows[reg]; row++) memcpy(base + row * index, tiles.data[reg][row], tiles.width[reg]);
    } else if (opcode == 0x5c && prefix == 2 && mode == 3)
        dot(reg, rm, third), counts[5]++;
    else
        refuse("an instruction that is none of these six");
    registers[REG_RIP] += length;
}

/* From now on; returns how often each was done: release, configure, zero, load, store, dot. */
long *install(void) {
    struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    return counts;
}
