/* What the start-up code of a processor gives the main program. */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include <stdint.h>

void say(const char *text);
uint32_t instructions(void); /* that were executed, under `-icount shift=0` */

#endif
