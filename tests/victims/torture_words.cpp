// Streams of the torture victim that wait for what the program submits later: a word that another stream or
// the host writes, a kernel or a host function that waits for the host. Between closing and opening the
// thread asks for memory and gives it work, and frees, synchronises and locks nothing. Other threads free and
// wait on the other side of a gate (torture_gates.hpp), unless they are to be rude: then the driver holds
// them until it is open.
#include <atomic>
#include <cstring>

#include "torture_worker.hpp"

namespace torture {
namespace {

CUstream new_stream(Random& random, bool may_block) {
  CUstream stream = nullptr;
  const bool blocks = may_block && one_in(random, 3);
  MUST(cuStreamCreate(&stream, blocks ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
  return stream;
}

// Each word is used once: a stream may still have to look at it when the next one is closed.
constexpr unsigned kWordsKept = 1024;

}  // namespace

void Worker::prepare_words() {
  if (words_.all != nullptr || !options.has_any(kWords | kAwaits)) return;
  const Pass held = unsafe();
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, kWordsKept * sizeof(unsigned),
                      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(memory, 0, kWordsKept * sizeof(unsigned));
  words_.all = static_cast<unsigned*>(memory);
  MUST(cuMemHostGetDevicePointer(&words_.address, memory, 0));
  words_.waiting = new_stream(random_, true);
  words_.releasing = new_stream(random_, false);
}

void Worker::drop_words() {
  if (words_.all == nullptr) return;
  const Pass held = unsafe();
  const Pass nothing_closed = waits();
  MUST(cuStreamDestroy(words_.waiting));
  MUST(cuStreamDestroy(words_.releasing));
  MUST(cuMemFreeHost(words_.all));
  words_.all = nullptr;
}

// Makes the stream wait; true: the host must answer, else the releasing stream does.
bool Worker::close_word(CUstream stream) {
  const CUdeviceptr word = words_.address + words_.turn * sizeof(unsigned);
  if (options.has(kWords) && (!options.has(kAwaits) || one_in(random_, 2))) {
    MUST(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    return one_in(random_, 3);
  }
  words_.by_function = one_in(random_, 2);
  if (!words_.by_function) {
    world_.kernels.await(word, 1, lease_of(stream));
    return true;
  }
  const CUhostFn wait = [](void* answer) { sem_wait(static_cast<sem_t*>(answer)); };
  // One for each: a function of an earlier turn, answered but not over, must not lose its answer to this one.
  sem_init(&words_.answers.emplace_back(), 0, 0);
  MUST(cuLaunchHostFunc(stream, wait, &words_.answers.back()));
  return true;
}

void Worker::open_word(bool by_host) {
  const unsigned turn = words_.turn++;
  if (!by_host) {
    MUST(cuStreamWriteValue32(words_.releasing, words_.address + turn * sizeof(unsigned), 1,
                              CU_STREAM_WRITE_VALUE_DEFAULT));
    return;
  }
  // The host answers when it has seen the other stream's work.
  MUST(cuStreamSynchronize(words_.releasing));
  if (words_.by_function) {
    sem_post(&words_.answers.back());
    words_.by_function = false;
  } else {
    __atomic_store_n(words_.all + turn, 1u, __ATOMIC_SEQ_CST);
  }
}

// New memory with its first work, on one of the two streams or on both.
void Worker::use_while_closed(std::vector<Block>& made) {
  Block block;
  block.bytes = random_size();
  const CUresult result = cuMemAlloc(&block.p, block.bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return;
  must(result, "allocation while a stream waits");
  ++world_.tally.allocations;
  // Work behind the closed word is as good as any; most is to come before it opens.
  const Lease lease = lease_of(one_in(random_, 4) ? words_.waiting : words_.releasing);
  block.value = fresh_value();
  world_.kernels.fill(block.p, block.bytes, block.value, lease);
  world_.kernels.check(block.p, block.bytes, block.value, lease);
  note("used", block, lease);
  made.push_back(block);
}

// The driver refuses at once what the device cannot have beside what is in use.
void Worker::ask_too_much() {
  std::size_t room = 0, total = 0;
  MUST(cuMemGetInfo(&room, &total));
  CUdeviceptr p = 0;
  const CUresult result = cuMemAlloc(&p, total);
  must(result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result, "a refusal while a stream waits");
}

void Worker::streams_wait() {
  prepare_words();
  if (words_.turn == kWordsKept) return;
  std::vector<Block> made;
  const auto free_made = [&] {
    const Pass nothing_closed = waits();
    for (const Block& block : made) {
      note("frees", block, {});
      MUST(cuMemFree(block.p));
    }
    world_.tally.frees += made.size();
    made.clear();
  };
  const Pass held = unsafe();
  for (std::uint64_t i = below(random_, 4); i > 0; --i) use_while_closed(made);
  free_made();
  {
    const Pass closed(world_.gates.words, Side::kCapture);
    const bool by_host = close_word(words_.waiting);
    for (std::uint64_t i = 1 + below(random_, 4); i > 0; --i) use_while_closed(made);
    if (one_in(random_, 8)) {
      std::size_t room = 0;
      MUST(cuMemGetInfo(&room, nullptr));
    }
    if (one_in(random_, 8)) ask_too_much();
    if (options.has(kDestroy) && one_in(random_, 6)) {
      MUST(cuStreamDestroy(words_.waiting));
      words_.waiting = new_stream(random_, true);
    }
    if (one_in(random_, 3)) use_while_closed(made);
    open_word(by_host);
  }
  free_made();
}

}  // namespace torture
