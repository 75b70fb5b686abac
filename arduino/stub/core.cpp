/* Runs a sketch: setup(), then loop() twice. */

#include "Arduino.h"

#include "semihosting.h"

/* Destructors of global variables never run. */
extern "C" int __aeabi_atexit(void *, void (*)(void *), void *) { return 0; }
extern "C" void *__dso_handle;
void *__dso_handle = nullptr;

StubSerial Serial;

void StubSerial::print(const char *text) { ::print(text); }

void StubSerial::println(const char *text)
{
    print(text);
    print("\n");
}

void StubSerial::println(unsigned long number)
{
    char digits[12];
    char *at = digits + sizeof digits - 1;
    *at = 0;
    do {
        *--at = static_cast<char>('0' + number % 10);
        number /= 10;
    } while (number);
    println(at);
}

void StubSerial::println(double number, int decimals)
{
    unsigned long scale = 1;
    for (int digit = 0; digit < decimals; digit++)
        scale *= 10;
    double size = number < 0 ? -number : number;
    unsigned long scaled = static_cast<unsigned long>(size * static_cast<double>(scale) + 0.5);
    if (number < 0)
        print("-");
    char text[24];
    char *at = text + sizeof text - 1;
    *at = 0;
    for (int digit = 0; digit < decimals; digit++, scaled /= 10)
        *--at = static_cast<char>('0' + scaled % 10);
    *--at = '.';
    do {
        *--at = static_cast<char>('0' + scaled % 10);
        scaled /= 10;
    } while (scaled);
    println(at);
}

/* Constructors of global variables, from the linker script. */
extern "C" void (*init_array_start[])();
extern "C" void (*init_array_end[])();

int main()
{
    for (auto constructor = init_array_start; constructor < init_array_end; constructor++)
        (*constructor)();
    setup();
    loop();
    loop();
    return 0;
}
