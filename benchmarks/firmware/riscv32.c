/* Start-up code of RV32 in QEMU's virt machine: memory, FPU, semihosting, and the counter of retired instructions. */
#include <stdint.h>
#include "firmware.h"

extern uint32_t data_start[], data_end[], data_load[], bss_start[], bss_end[];
int main(void);

/* Control registers are an extension by themselves; no library is built for a processor whose name says so. */
#define CONTROL ".option push\n .option arch, +zicsr\n"

__asm__(".section .vectors, \"ax\"\n"
        ".global reset\n"
        "reset:\n"
        ".option push\n.option norelax\n la gp, __global_pointer$\n.option pop\n"
        " la sp, stack_top\n"
        " li t0, 0x6000\n"
        CONTROL " csrs mstatus, t0\n .option pop\n" /* the FPU, if there is one */
        " j started\n"
        ".text\n");

static void semihosting(int operation, const void *argument)
{
    register int a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = argument;
    __asm__ volatile(".option push\n .option norvc\n .balign 16\n slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n .option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
}

void say(const char *text)
{
    semihosting(0x04, text);
}

uint32_t instructions(void)
{
    uint32_t count;
    __asm__ volatile(CONTROL "csrr %0, minstret\n .option pop" : "=r"(count));
    return count;
}

__attribute__((used)) void started(void)
{
    for (uint32_t *to = data_start, *from = data_load; to < data_end;)
        *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;)
        *to++ = 0;
    const uint32_t normal_end[2] = {0x20026, (uint32_t)main()};
    semihosting(0x20, normal_end);
    for (;;)
        ;
}
