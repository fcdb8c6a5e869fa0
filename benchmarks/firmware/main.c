/* Runs a network on the images behind it, and says by semihosting what each took and gave, a line for each. */
#include <stdint.h>
#include "network.h"
#include "firmware.h"

extern const input_t images[IMAGES][NETWORK_INPUTS];
extern uint32_t stack_low[]; /* the last word that the stack may take */

static input_t input[NETWORK_INPUTS];
static output_t output[NETWORK_OUTPUTS];

static void say_number(uint32_t number, char last)
{
    char text[10];
    int at = 9;
    text[at--] = 0;
    text[at--] = last;
    for (int digit = 0; digit < 8; digit++, number >>= 4)
        text[at >= 0 ? at-- : 0] = "0123456789abcdef"[number & 15];
    say(text);
}

static uint32_t bits(output_t number)
{
    union {
        output_t number;
        uint32_t bits;
    } both = {.bits = 0};
    both.number = number;
    return both.bits;
}

int main(void)
{
    for (int image = 0; image < IMAGES; image++) {
        volatile uint32_t *top = (uint32_t *)__builtin_frame_address(0) - 64;
        for (int at = 0; at < NETWORK_INPUTS; at++)
            input[at] = images[image][at];
        for (volatile uint32_t *word = stack_low; word < top; word++)
            *word = 0xa5a5a5a5u;
        uint32_t before = instructions();
        network_predict(input, output);
        uint32_t took = instructions() - before;
        volatile uint32_t *deepest = stack_low;
        while (deepest < top && *deepest == 0xa5a5a5a5u)
            deepest++;
        say_number(took, ' ');
        say_number((uint32_t)((char *)__builtin_frame_address(0) - (char *)deepest), ' ');
        for (int at = 0; at < NETWORK_OUTPUTS; at++)
            say_number(bits(output[at]), at + 1 < NETWORK_OUTPUTS ? ' ' : '\n');
    }
    return 0;
}

/* The compiler calls these two for loops that copy and clear. */
void *memcpy(void *to, const void *from, unsigned size)
{
    for (unsigned at = 0; at < size; at++)
        ((char *)to)[at] = ((const char *)from)[at];
    return to;
}

void *memset(void *to, int value, unsigned size)
{
    for (unsigned at = 0; at < size; at++)
        ((char *)to)[at] = (char)value;
    return to;
}
