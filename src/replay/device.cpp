// See device.hpp.
#include "replay/device.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/clock.hpp"

namespace cupool::replay {

using driver::kInvalidValue;
using driver::kNotReady;
using driver::kOutOfMemory;
using driver::kSuccess;
using driver::Status;

// ---- Addresses.

driver::Address Addresses::take(uint64_t bytes) {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < bytes) continue;
    const driver::Address at = gap->first;
    const uint64_t rest = gap->second - bytes;
    gaps_.erase(gap);
    if (rest != 0) gaps_[at + bytes] = rest;
    return at;
  }
  return 0;
}

bool Addresses::take_at(driver::Address at, uint64_t bytes) {
  auto gap = gaps_.upper_bound(at);
  if (gap == gaps_.begin()) return false;
  --gap;
  const driver::Address end = gap->first + gap->second;
  if (at + bytes > end) return false;
  gap->second = at - gap->first;
  if (gap->second == 0) gaps_.erase(gap);
  if (at + bytes != end) gaps_[at + bytes] = end - (at + bytes);
  return true;
}

void Addresses::give(driver::Address at, uint64_t bytes) {
  auto next = gaps_.lower_bound(at);
  if (next != gaps_.end() && at + bytes == next->first) {
    bytes += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += bytes;
      return;
    }
  }
  gaps_[at] = bytes;
}

Device::Device(const Program& program, uint64_t capacity, Lag lag)
    : program_(program),
      capacity_(capacity),
      lag_(lag),
      devices_(static_cast<size_t>(program.devices())),
      known_(program.places.size()) {
  for (const Segment& one : program.recorded.segments)
    recorded_[{one.device, one.bytes}].push_back(one.address);
}

// ---- Contexts, streams and events.

Status Device::device(int* number) {
  *number = device_here();
  return kSuccess;
}

Status Device::memory(size_t* free, size_t* total) {
  *free = capacity_ - devices_[static_cast<size_t>(device_here())].reserved;
  *total = capacity_;
  return kSuccess;
}

Status Device::create_stream(driver::Context, driver::Stream* out) {
  *out = reinterpret_cast<driver::Stream>(++streams_);
  return kSuccess;
}

Status Device::create_event(driver::Context, driver::Event* out) {
  events_.emplace_back();
  *out = reinterpret_cast<driver::Event>(events_.size());
  return kSuccess;
}

Status Device::record(driver::Context context, driver::Event event) {
  const size_t number = reinterpret_cast<uintptr_t>(event) - 1;
  Recording& recording = events_[number];
  if (recording.is_done) not_done_.push_back(number);
  const size_t place = (reinterpret_cast<uintptr_t>(context) >> 8) - 1;
  Known& known = known_[place];
  if (known.step != step_) known.recorded = 0;
  known.step = step_;
  recording = {place, Place::Done::event(step_, ++known.recorded), launches_, false};
  questions_ = 0;
  return kSuccess;
}

// (No seal of an epoch: it has no number of its own.)
Status Device::record_on(driver::Stream, driver::Event event) {
  const Status status = record(context(place_), event);
  --known_[place_].recorded;
  return status;
}

bool Device::is_done(const Recording& event) const {
  if (event.is_done || lag_.launches == 0) return true;
  if (lag_.launches != Lag::kUntilWaited) return launches_ - event.launches > lag_.launches;
  if (!program_.knows_done) return false;
  const size_t next = known_[event.place].next;
  return next != 0 && event.number <= program_.places[event.place].done[next - 1].upto;
}

// What was seen in an earlier step is known. In the same step, a poll sees it after as many questions as in
// the record: so the polls before that find nothing, as they did then. With other settings a step may ask
// less often; then it is known from the next step on.
void Device::learn(size_t place) {
  const std::vector<Place::Done>& done = program_.places[place].done;
  Known& known = known_[place];
  for (; known.next < done.size() && done[known.next].seen < step_; ++known.next) {
    if (done[known.next].by == Place::Done::By::kPoll) known.asked = 0;
  }
  for (; known.next < done.size() && done[known.next].seen == step_; ++known.next) {
    const Place::Done& one = done[known.next];
    if (one.by == Place::Done::By::kPoll && (is_look_ || known.asked < one.asked)) break;
    if (one.by == Place::Done::By::kWait && known.waited != step_) break;
    if (one.by != Place::Done::By::kWait) known.asked = 0;
  }
  if (!is_look_) ++known.asked;
}

bool Device::is_in_vain(size_t place) {
  constexpr uint64_t kLongerThanAnyWaits = 1'000'000'000;
  const std::vector<Place::InVain>& waits = program_.places[place].in_vain;
  Known& known = known_[place];
  size_t& next = known.next_in_vain;
  while (next < waits.size() && waits[next].seen < step_) ++next;
  if (next == waits.size() || waits[next].seen != step_) return false;
  if (known.asked >= waits[next].asked) {
    move_clock(kLongerThanAnyWaits);
    ++next;
  }
  return true;
}

// Who waits asks again and again, while nothing is submitted: then the work ends, if the record does not say
// when.
Status Device::query(driver::Event event) {
  const uint64_t often = program_.knows_done ? 1000 : 20;
  Recording& asked = events_[reinterpret_cast<uintptr_t>(event) - 1];
  bool ends_here = false;
  if (program_.knows_done) {
    learn(asked.place);
    const std::vector<Place::Done>& done = program_.places[asked.place].done;
    const size_t next = known_[asked.place].next;
    ends_here = (next < done.size() && done[next].seen == step_) || is_in_vain(asked.place);
    if (asked_in_ != step_) questions_ = 0;
  }
  asked_in_ = step_;
  if (++questions_ >= often && !ends_here) program_.knows_done ? finish_up_to(asked) : finish(asked.place);
  return is_done(asked) ? kSuccess : kNotReady;
}

void Device::finish_up_to(const Recording& last) {
  const uint64_t number = last.number;
  const size_t place = last.place;
  questions_ = 0;
  std::erase_if(not_done_, [&](size_t which) {
    Recording& event = events_[which];
    if (event.place == place && event.number <= number) event.is_done = true;
    return event.is_done;
  });
}

Status Device::synchronize(driver::Context context) {
  finish((reinterpret_cast<uintptr_t>(context) >> 8) - 1);
  return kSuccess;
}

void Device::finish(size_t place) {
  std::erase_if(not_done_, [&](size_t number) {
    Recording& event = events_[number];
    if (event.place == place) event.is_done = true;
    return event.is_done;
  });
}

// ---- Memory.

bool Device::book(int device, uint64_t bytes) {
  One& one = devices_[static_cast<size_t>(device)];
  if (bytes > capacity_ - one.reserved) {
    ++refusals_;
    return false;
  }
  one.reserved += bytes;
  one.peak = std::max(one.peak, one.reserved);
  reserved_all_ += bytes;
  peak_all_ = std::max(peak_all_, reserved_all_);
  return true;
}

void Device::unbook(int device, uint64_t bytes) {
  devices_[static_cast<size_t>(device)].reserved -= bytes;
  reserved_all_ -= bytes;
}

Status Device::allocate(size_t bytes, driver::Address* out) {
  const int here = device_here();
  if (bytes == 0) return kInvalidValue;
  if (bytes > capacity_) {
    ++refusals_;
    return kOutOfMemory;
  }
  if (bytes <= kShared) {
    if (!take_shared(here, round_up(uint64_t{bytes}, uint64_t{512}), out)) return kOutOfMemory;
  } else {
    const uint64_t taken = round_up(uint64_t{bytes}, kStep);
    if (!book(here, taken)) return kOutOfMemory;
    *out = place_for(here, bytes, taken);
    taken_[*out] = {taken, here, 0};
  }
  ++calls_;
  return kSuccess;
}

driver::Address Device::place_for(int device, uint64_t asked, uint64_t taken) {
  const auto recorded = recorded_.find({device, asked});
  if (recorded != recorded_.end() && !recorded->second.empty()) {
    const driver::Address at = recorded->second.front();
    recorded->second.pop_front();
    if (at % kStep == 0 && addresses_.take_at(at, taken)) return at;
  }
  return addresses_.take(taken);
}

bool Device::take_shared(int device, uint64_t bytes, driver::Address* out) {
  const auto cut = [&](driver::Address at, Slab& slab) {
    for (auto gap = slab.gaps.begin(); gap != slab.gaps.end(); ++gap) {
      if (gap->second < bytes) continue;
      *out = gap->first;
      const uint64_t rest = gap->second - bytes;
      slab.gaps.erase(gap);
      if (rest != 0) slab.gaps[*out + bytes] = rest;
      taken_[*out] = {bytes, device, at};
      return true;
    }
    return false;
  };
  for (auto& [at, slab] : slabs_) {
    if (slab.device == device && cut(at, slab)) return true;
  }
  if (!book(device, kStep)) return false;
  const driver::Address at = addresses_.take(kStep);
  Slab& slab = slabs_[at];
  slab.device = device;
  slab.gaps[at] = kStep;
  return cut(at, slab);
}

void Device::give_shared(driver::Address start, const Taken& taken) {
  Slab& slab = slabs_[taken.slab];
  uint64_t bytes = taken.bytes;
  auto next = slab.gaps.lower_bound(start);
  if (next != slab.gaps.end() && start + bytes == next->first) {
    bytes += next->second;
    next = slab.gaps.erase(next);
  }
  if (next != slab.gaps.begin() && std::prev(next)->first + std::prev(next)->second == start) {
    std::prev(next)->second += bytes;
    bytes = std::prev(next)->second;
  } else {
    slab.gaps[start] = bytes;
  }
  if (bytes != kStep) return;
  unbook(slab.device, kStep);
  addresses_.give(taken.slab, kStep);
  slabs_.erase(taken.slab);
}

// The driver waits for all work of the context.
Status Device::release_in(driver::Context context, driver::Address start) {
  known_[(reinterpret_cast<uintptr_t>(context) >> 8) - 1].waited = step_;
  return release(start);
}

Status Device::release(driver::Address start) {
  const auto found = taken_.find(start);
  if (found == taken_.end()) return kInvalidValue;
  const Taken taken = found->second;
  taken_.erase(found);
  if (taken.slab != 0) {
    give_shared(start, taken);
  } else {
    unbook(taken.device, taken.bytes);
    addresses_.give(start, taken.bytes);
  }
  ++calls_;
  return kSuccess;
}

bool Device::might_give(int device, uint64_t bytes) {
  return bytes <= capacity_ - devices_[static_cast<size_t>(device)].reserved;
}

// ---- Mapped memory.

Status Device::reserve(uint64_t bytes, driver::Address* out) {
  // A pool asks for several times its device, and then for less: each context is to get some.
  if (bytes > kReservable / (program_.places.size() + 1)) return kOutOfMemory;
  *out = reservations_.take(bytes);
  return *out == 0 ? kOutOfMemory : kSuccess;
}

Status Device::unreserve(driver::Address start, uint64_t bytes) {
  reservations_.give(start, bytes);
  return kSuccess;
}

Status Device::create(int device, driver::Backing backing, uint64_t bytes, driver::Chunk* out) {
  const bool is_host = backing == driver::Backing::kHost;
  if (!is_host && !book(device, bytes)) return kOutOfMemory;
  chunks_[++last_chunk_] = {bytes, device, is_host};
  *out = driver::Chunk{last_chunk_};
  return kSuccess;
}

// The memory goes back once nobody has it.
void Device::give_if_unused(uint64_t number) {
  const auto found = chunks_.find(number);
  if (found == chunks_.end() || !found->second.is_released || found->second.uses != 0) return;
  if (!found->second.is_host) unbook(found->second.device, found->second.bytes);
  chunks_.erase(found);
}

Status Device::release(driver::Chunk chunk) {
  const auto number = static_cast<uint64_t>(chunk);
  const auto found = chunks_.find(number);
  if (found == chunks_.end()) return kInvalidValue;
  if (found->second.is_released) {
    --found->second.uses;
  } else {
    found->second.is_released = true;
    if (!found->second.is_host) ++calls_;
  }
  give_if_unused(number);
  return kSuccess;
}

Status Device::map(driver::Address at, uint64_t bytes, driver::Chunk chunk) {
  const auto found = chunks_.find(static_cast<uint64_t>(chunk));
  if (found == chunks_.end() || found->second.bytes != bytes) return kInvalidValue;
  ++found->second.uses;
  mapped_[at] = {bytes, found->first};
  ++calls_;
  return kSuccess;
}

Status Device::unmap(driver::Address start, uint64_t bytes) {
  for (driver::Address at = start; at < start + bytes;) {
    const auto found = mapped_.find(at);
    if (found == mapped_.end()) return kInvalidValue;
    const auto [size, number] = found->second;
    mapped_.erase(found);
    --chunks_[number].uses;
    give_if_unused(number);
    at += size;
  }
  return kSuccess;
}

Status Device::retain(driver::Address address, driver::Chunk* out) {
  auto found = mapped_.upper_bound(address);
  if (found == mapped_.begin()) return kInvalidValue;
  --found;
  if (address - found->first >= found->second.first) return kInvalidValue;
  *out = driver::Chunk{found->second.second};
  ++chunks_[found->second.second].uses;
  return kSuccess;
}

}  // namespace cupool::replay
