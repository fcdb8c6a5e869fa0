/* Start-up code of Cortex-M in QEMU's mps2 machines: memory, FPU, semihosting, and SysTick as a counter. */
#include <stdint.h>
#include "firmware.h"

#define SYST_CSR (*(volatile uint32_t *)0xe000e010)
#define SYST_RVR (*(volatile uint32_t *)0xe000e014)
#define SYST_CVR (*(volatile uint32_t *)0xe000e018)
#define CPACR (*(volatile uint32_t *)0xe000ed88)
#define PER_TICK 40 /* instructions: one takes 1 ns of QEMU's time, and the machine's clock has 25 MHz */

extern uint32_t stack_top[], data_start[], data_end[], data_load[], bss_start[], bss_end[];
int main(void);
void reset(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {stack_top, reset};

static void semihosting(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void say(const char *text)
{
    semihosting(0x04, text);
}

/* The counter has 24 bits: between two calls no more than 2^24 ticks may pass, 671 million instructions. */
uint32_t instructions(void)
{
    static uint32_t last = 0xffffffu, total;
    uint32_t now = SYST_CVR;
    total += ((last - now) & 0xffffffu) * PER_TICK;
    last = now;
    return total;
}

void reset(void)
{
    for (uint32_t *to = data_start, *from = data_load; to < data_end;)
        *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;)
        *to++ = 0;
    CPACR |= 0xfu << 20;
    __asm__ volatile("dsb\n isb");
    SYST_RVR = 0xffffffu;
    SYST_CVR = 0;
    SYST_CSR = 5; /* the processor's clock, no interrupt */
    const uint32_t normal_end[2] = {0x20026, (uint32_t)main()};
    semihosting(0x20, normal_end);
    for (;;)
        ;
}
