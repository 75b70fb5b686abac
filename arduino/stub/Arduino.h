/* The functions of an Arduino core that the example sketches use, for the tests. They print through
 * semihosting, and time stands still. */

#ifndef ARDUINO_H
#define ARDUINO_H

#include <stddef.h>
#include <stdint.h>

void setup();
void loop();

struct StubSerial {
    void begin(unsigned long) {}
    void print(const char *text);
    void println(const char *text);
    void println(unsigned long number);
    void println(double number, int decimals);
};

extern StubSerial Serial;

inline void delay(unsigned long) {}
inline unsigned long micros() { return 0; }

#endif
