#pragma once
// Where the numbers at a GPU's address are: there, if there is no device, or where the recorded one keeps them.
#include <cstdint>
#include <functional>
#include <string>

namespace tensorrt_double {

// Null where the recorded device has no such memory.
void* backing(const void* address, std::size_t bytes);

// Does work now, and each time that a graph in which the stream captures it is launched. False if the device refuses.
bool in_stream(void* stream, std::function<void()> work);

// Writes down what is wrong with work that a graph repeats, where the recorded device is; else ends the process.
void misused(const std::string& what);

}  // namespace tensorrt_double
