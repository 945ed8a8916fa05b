/* A plugin for QEMU that counts instructions. Each call of getppid prints the count since the previous call. */
#include <inttypes.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct block; /* a sequence of instructions without a jump */
enum { ADD = 0, GETPPID = 173 };

/* From qemu-plugin.h, version 1. */
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
size_t qemu_plugin_tb_n_insns(const struct block *);
void qemu_plugin_register_vcpu_tb_exec_inline(struct block *, int operation, void *, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t number, uint64_t, uint64_t,
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));

int qemu_plugin_version = 1;
static uint64_t count, before;

static void translate(plugin_id id, struct block *block) {
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &count, qemu_plugin_tb_n_insns(block));
}

static void report(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
    uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    if (number != GETPPID) return;
    fprintf(stderr, "instructions: %" PRIu64 "\n", count - before);
    before = count;
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_syscall_cb(id, report);
    return 0;
}
