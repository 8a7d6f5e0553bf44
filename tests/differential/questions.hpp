// What all questions share: how an answer is printed without an address in it, and the sizes that are asked
// about. An answer is the driver's code and what it wrote, told relative to the block in question. Owns no
// device memory. Addresses, alignment and content of fresh memory are not asked: the driver promises none of
// them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace questions {

// One line: what was asked, the driver's code, what it wrote.
void say(const std::string& question, CUresult code, const std::string& answer = "");
// A preparation that must succeed for the questions to mean anything; the program ends when it does not.
void must(CUresult code, const char* what);
#define MUST(call) ::questions::must((call), #call)

// "size 513, round 2: ", put before each question until the next call.
void set_place(const std::string& place);

// Every edge of a size class of ours and of the driver's.
inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;
inline constexpr size_t kSizes[] = {
    1,       4,       255,     256,      257,           511,       512,           513,
    1023,    1024,    1025,    4095,     4096,          4097,      4608,          4609,
    16384,   16385,   28672,   28673,    32767,         32768,     32769,         49152,
    49153,   65536,   65537,   262144,   262145,        1048575,   1048576,       1048577,
    2097151, 2097152, 2097153, 3 * kMiB, 20 * kMiB - 1, 20 * kMiB, 20 * kMiB + 1, 33 * kMiB + 5};
inline constexpr unsigned kRounds = 3;

// One that all three rounds of every size would be too slow for.
inline constexpr size_t kFewSizes[] = {4, 513, 32769, 1048577, 20 * kMiB};

CUdevice device();

// Everything that can be asked about one address, of a block that starts at `block`. `block` 0: none is known
// there.
void ask_range(const char* where, CUdeviceptr address, CUdeviceptr block);
void ask_attributes(const char* where, CUdeviceptr address, CUdeviceptr block);
// Both, at the start, inside, at the last byte.
void ask_all(CUdeviceptr block, size_t bytes);
// Whether its number was never seen before and is the same everywhere in the block.
void ask_identity(CUdeviceptr block, size_t bytes);

void about_the_time_before();  // no driver initialised, no context
void about_pointers();
void about_calls();
void about_sharing();
void about_managed();
void about_contexts();
void about_work();

}  // namespace questions
