// Victim: threads that allocate, fill on their own stream, and hand each block to the next thread, which
// checks and frees it with the check still queued. Order between the streams is by event, as it should be.
// Usage: threads [count] [rounds]
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

struct Parcel {
  CUdeviceptr p;
  size_t bytes;
  unsigned value;
  CUevent filled;
};

class Mailbox {
 public:
  void put(const Parcel& parcel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    parcels_.push_back(parcel);
    arrived_.notify_one();
  }

  Parcel take() {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [this] { return !parcels_.empty(); });
    const Parcel parcel = parcels_.front();
    parcels_.pop_front();
    return parcel;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Parcel> parcels_;
};

void work(victim::Device& device, unsigned self, unsigned rounds, Mailbox& mine, Mailbox& next) {
  const victim::Api& api = device.api();
  device.enter_thread();
  CUstream stream = nullptr;
  // Every second stream does not wait for the legacy stream: the harder case for a cache.
  VICTIM_CHECK(api.cuStreamCreate(&stream, self % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
  for (unsigned round = 0; round < rounds; ++round) {
    Parcel parcel{0, size_t{300} << ((self + round) % 14), self * 31 + round, nullptr};
    parcel.p = device.alloc(parcel.bytes);
    device.fill(parcel.p, parcel.bytes, parcel.value, stream);
    VICTIM_CHECK(api.cuEventCreate(&parcel.filled, CU_EVENT_DISABLE_TIMING));
    VICTIM_CHECK(api.cuEventRecord(parcel.filled, stream));
    next.put(parcel);

    const Parcel received = mine.take();
    VICTIM_CHECK(api.cuStreamWaitEvent(stream, received.filled, 0));
    device.check(received.p, received.bytes, received.value, stream);
    device.free(received.p);
    VICTIM_CHECK(api.cuEventDestroy_v2(received.filled));
  }
  VICTIM_CHECK(api.cuStreamSynchronize(stream));
  VICTIM_CHECK(api.cuStreamDestroy_v2(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned count = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 4;
  const unsigned rounds = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 50;
  victim::Device device(victim::linked_api());
  // The verdict word was cleared on the legacy stream, for which non-blocking streams do not wait.
  VICTIM_CHECK(device.api().cuCtxSynchronize());

  std::deque<Mailbox> mailboxes(count);
  std::deque<std::thread> threads;
  for (unsigned i = 0; i < count; ++i)
    threads.emplace_back([&, i] { work(device, i, rounds, mailboxes[i], mailboxes[(i + 1) % count]); });
  for (std::thread& thread : threads) thread.join();
  return device.finish("threads");
}
