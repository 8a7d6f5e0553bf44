// What an address is asked: its range and every attribute, at the start, inside, at the end, and after its
// free.
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include "questions.hpp"

namespace questions {

namespace {

enum class Form { kNumber, kWord, kAddress, kNearby, kContext, kAnyNumber, kCodeOnly };
struct Attribute {
  CUpointer_attribute which;
  const char* name;
  size_t bytes;
  Form form;
};

constexpr CUpointer_attribute unknown(int number) { return static_cast<CUpointer_attribute>(number); }

const Attribute kAttributes[] = {
    {CU_POINTER_ATTRIBUTE_CONTEXT, "CONTEXT", 8, Form::kContext},
    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "MEMORY_TYPE", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "DEVICE_POINTER", 8, Form::kAddress},
    {CU_POINTER_ATTRIBUTE_HOST_POINTER, "HOST_POINTER", 8, Form::kAddress},
    {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "SYNC_MEMOPS", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_BUFFER_ID, "BUFFER_ID", 8, Form::kAnyNumber},
    {CU_POINTER_ATTRIBUTE_IS_MANAGED, "IS_MANAGED", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "DEVICE_ORDINAL", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "IS_LEGACY_CUDA_IPC_CAPABLE", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "RANGE_START_ADDR", 8, Form::kAddress},
    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "RANGE_SIZE", 8, Form::kWord},
    {CU_POINTER_ATTRIBUTE_MAPPED, "MAPPED", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "ALLOWED_HANDLE_TYPES", 8, Form::kWord},
    {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "IS_GPU_DIRECT_RDMA_CAPABLE", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "ACCESS_FLAGS", 4, Form::kNumber},
    {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "MEMPOOL_HANDLE", 8, Form::kAnyNumber},
    {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "MAPPING_SIZE", 8, Form::kWord},
    {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, "MAPPING_BASE_ADDR", 8, Form::kNearby},
    {CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, "MEMORY_BLOCK_ID", 8, Form::kAnyNumber},
    {CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, "IS_HW_DECOMPRESS_CAPABLE", 4, Form::kNumber},
    {unknown(0), "number 0", 8, Form::kCodeOnly},
    {unknown(99), "number 99", 8, Form::kCodeOnly},
};

constexpr unsigned char kUntouched = 0xEE;

std::string relative(uint64_t value, CUdeviceptr block) {
  if (value == 0) return "null";
  if (block == 0) return "an address";
  return value >= block ? "block+" + std::to_string(value - block) : "block-" + std::to_string(block - value);
}

std::string told(const Attribute& attribute, const unsigned char* data, CUdeviceptr block) {
  bool touched = false;
  for (size_t i = 0; i < attribute.bytes; ++i) touched = touched || data[i] != kUntouched;
  if (!touched) return "untouched";
  for (size_t i = attribute.bytes; i < 64; ++i) {
    if (data[i] != kUntouched) return "wrote more than " + std::to_string(attribute.bytes) + " bytes";
  }
  uint64_t word = 0;
  std::memcpy(&word, data, attribute.bytes);
  switch (attribute.form) {
    case Form::kNumber:
      return std::to_string(static_cast<int>(word));
    case Form::kWord:
      return std::to_string(word);
    case Form::kAddress:
      return relative(word, block);
    // Small blocks share a mapping, and where in it they lie is nobody's business.
    case Form::kNearby:
      return word == 0 ? "null" : word <= block ? "not after the block" : "after the block";
    case Form::kAnyNumber:
      return word == 0 ? "0" : "a number";
    case Form::kCodeOnly:
      return "";
    case Form::kContext:
      break;
  }
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  return word == 0 ? "null" : word == reinterpret_cast<uint64_t>(current) ? "current" : "another";
}

std::set<unsigned long long> buffer_ids;

unsigned long long number_of(CUdeviceptr address, CUpointer_attribute which) {
  unsigned long long number = 0;
  cuPointerGetAttribute(&number, which, address);
  return number;
}

}  // namespace

void ask_range(const char* where, CUdeviceptr address, CUdeviceptr block) {
  const std::string at = std::string(" ") + where;
  CUdeviceptr base = 1;
  size_t size = 1;
  CUresult code = cuMemGetAddressRange(&base, &size, address);
  say("cuMemGetAddressRange" + at, code,
      base == 1 && size == 1 ? "untouched" : relative(base, block) + ", " + std::to_string(size));
  base = size = 1;
  code = cuMemGetAddressRange(nullptr, &size, address);
  say("cuMemGetAddressRange size alone" + at, code, std::to_string(size));
  code = cuMemGetAddressRange(&base, nullptr, address);
  say("cuMemGetAddressRange base alone" + at, code, base == 1 ? "untouched" : relative(base, block));
  say("cuMemGetAddressRange no output" + at, cuMemGetAddressRange(nullptr, nullptr, address));
}

void ask_attributes(const char* where, CUdeviceptr address, CUdeviceptr block) {
  const std::string at = std::string(" ") + where;
  std::vector<CUpointer_attribute> list;
  unsigned char listed[std::size(kAttributes)][64];
  void* outputs[std::size(kAttributes)];
  std::memset(listed, kUntouched, sizeof listed);
  for (const Attribute& attribute : kAttributes) {
    unsigned char data[64];
    std::memset(data, kUntouched, sizeof data);
    const CUresult code = cuPointerGetAttribute(data, attribute.which, address);
    say(attribute.name + at, code, told(attribute, data, block));
    if (attribute.form == Form::kCodeOnly) continue;
    outputs[list.size()] = listed[list.size()];
    list.push_back(attribute.which);
  }
  const CUresult code =
      cuPointerGetAttributes(static_cast<unsigned>(list.size()), list.data(), outputs, address);
  say("cuPointerGetAttributes" + at, code);
  for (size_t i = 0; i < list.size(); ++i) {
    say("of the list " + std::string(kAttributes[i].name) + at, code, told(kAttributes[i], listed[i], block));
  }
}

void ask_all(CUdeviceptr block, size_t bytes) {
  ask_range("at the start", block, block);
  ask_attributes("at the start", block, block);
  if (bytes < 3) return;
  ask_range("inside", block + bytes / 2, block);
  ask_range("at the last byte", block + bytes - 1, block);
  ask_attributes("at the last byte", block + bytes - 1, block);
}

void ask_identity(CUdeviceptr block, size_t bytes) {
  const auto id = number_of(block, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  say("BUFFER_ID of a new life", CUDA_SUCCESS, buffer_ids.insert(id).second ? "new" : "seen before");
  const bool same = id == number_of(block + bytes - 1, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  say("BUFFER_ID at both ends", CUDA_SUCCESS, same ? "same" : "different");
  const bool block_same = number_of(block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) ==
                          number_of(block + bytes - 1, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
  say("MEMORY_BLOCK_ID at both ends", CUDA_SUCCESS, block_same ? "same" : "different");
  // The driver puts small ones into one block of its own, or not, as they come.
  constexpr size_t kOwnBlock = 2 << 20;
  if (bytes < kOwnBlock) return;
  CUdeviceptr other = 0;
  MUST(cuMemAlloc(&other, bytes));
  const bool shared = number_of(block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) ==
                      number_of(other, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
  say("MEMORY_BLOCK_ID of two allocations", CUDA_SUCCESS, shared ? "same" : "different");
  MUST(cuMemFree(other));
}

namespace {

// The calls for mappings of the program's own.
void ask_setting(const std::string& which, CUdeviceptr block) {
  CUmemAccessDesc rights = {};
  rights.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  rights.location.id = device();
  rights.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  say("cuMemSetAccess " + which, cuMemSetAccess(block, 2 * kMiB, &rights, 1));
  CUdeviceptr reached = 0;
  unsigned flags = 77;
  say("cuMemHostGetDevicePointer " + which,
      cuMemHostGetDevicePointer(&reached, reinterpret_cast<void*>(block), 0));
  say("cuMemHostGetFlags " + which, cuMemHostGetFlags(&flags, reinterpret_cast<void*>(block)),
      std::to_string(flags));
}

void ask_rights(const std::string& which, CUdeviceptr block) {
  CUmemLocation here = {};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = device();
  unsigned long long flags = 77;
  const CUresult code = cuMemGetAccess(&flags, &here, block);
  say("cuMemGetAccess " + which, code, std::to_string(flags));
  ask_setting(which, block);
}

}  // namespace

void about_pointers() {
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (const size_t bytes : kSizes) {
      set_place("size " + std::to_string(bytes) + ", round " + std::to_string(round) + ": ");
      CUdeviceptr block = 0;
      say("cuMemAlloc", cuMemAlloc(&block, bytes));
      ask_all(block, bytes);
      ask_identity(block, bytes);
      // What pads a block belongs to nobody. (One past an unpadded block may be another allocation of the
      // driver's own.)
      if (bytes % 512 != 0) {
        ask_range("one past the end", block + bytes, block);
        ask_attributes("one past the end", block + bytes, block);
      }
      say("cuMemFree inside", bytes > 1 ? cuMemFree(block + bytes / 2) : CUDA_ERROR_INVALID_VALUE);
      say("cuMemFree one past the end",
          bytes % 512 != 0 ? cuMemFree(block + bytes) : CUDA_ERROR_INVALID_VALUE);
      say("cuMemFree", cuMemFree(block));
      ask_range("after the free", block, block);
      ask_attributes("after the free", block, block);
      say("cuMemFree again", cuMemFree(block));
    }
  }
  for (const size_t bytes : kFewSizes) {
    set_place("rights, size " + std::to_string(bytes) + ": ");
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, bytes));
    ask_rights("of a block", block);
    MUST(cuMemFree(block));
    ask_setting("of a block that was freed", block);
  }
  set_place("null: ");
  ask_range("there", 0, 0);
  ask_attributes("there", 0, 0);
  set_place("wild: ");
  ask_range("there", 0x7f0000000200, 0);
  ask_attributes("there", 0x7f0000000200, 0);
  set_place("the stack: ");
  int on_stack = 0;
  ask_range("there", reinterpret_cast<CUdeviceptr>(&on_stack), 0);
  ask_attributes("there", reinterpret_cast<CUdeviceptr>(&on_stack), 0);
  set_place("pinned: ");
  void* pinned = nullptr;
  MUST(cuMemAllocHost(&pinned, 5000));
  ask_all(reinterpret_cast<CUdeviceptr>(pinned), 5000);
  say("cuMemFree", cuMemFree(reinterpret_cast<CUdeviceptr>(pinned)));
  say("cuMemFreeHost", cuMemFreeHost(pinned));
  set_place("");
}

}  // namespace questions
