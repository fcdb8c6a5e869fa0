/* A plugin of QEMU 7: the instructions that a program executed, written at its end to the file that it is given.
   The declarations are those of qemu-plugin.h, which Debian does not package. */
#include <inttypes.h>
#include <stdio.h>

typedef uint64_t plugin_t;
struct block;

size_t qemu_plugin_tb_n_insns(const struct block *block);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_t id, void (*translated)(plugin_t, struct block *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct block *block, int operation, void *to, uint64_t number);
void qemu_plugin_register_atexit_cb(plugin_t id, void (*ended)(plugin_t, void *), void *given);

int qemu_plugin_version = 1;
static uint64_t executed;
static char file[4096];

static void translated(plugin_t id, struct block *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, 0 /* add */, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(plugin_t id, void *given)
{
    (void)id, (void)given;
    FILE *out = fopen(file, "w");
    if (out) {
        fprintf(out, "%" PRIu64 "\n", executed);
        fclose(out);
    }
}

int qemu_plugin_install(plugin_t id, const void *info, int count, char **arguments)
{
    (void)info;
    if (count != 1 || sscanf(arguments[0], "out=%4095s", file) != 1)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, 0);
    return 0;
}
