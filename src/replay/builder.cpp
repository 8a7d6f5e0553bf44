// See builder.hpp.
#include "replay/builder.hpp"

namespace cupool::replay {

namespace {
constexpr size_t kMostThreads = 256;
}

uint32_t Builder::add_block(uint32_t stack) {
  if (stack != 0 || !program_.stacks.empty()) {
    program_.stacks.resize(program_.blocks, 0);
    program_.stacks.push_back(stack);
  }
  return program_.blocks++;
}

bool Builder::allocate(uint64_t name, uint64_t bytes, Step step, uint32_t stack) {
  if (bytes == 0 || bytes > kMostAsked) return false;
  const auto [entry, is_new] = held_.try_emplace(name, Held{program_.blocks, step.place});
  if (!is_new) return false;
  step.what = Do::kAllocate;
  step.bytes = bytes;
  step.block = add_block(stack);
  program_.steps.push_back(step);
  return true;
}

void Builder::note_served(uint8_t how) {
  program_.served.resize(program_.blocks, kNotKnown);
  program_.served.back() = how;
}

bool Builder::free(uint64_t name, Step step) {
  const auto found = held_.find(name);
  if (found == held_.end()) return false;
  step.what = Do::kFree;
  step.block = found->second.block;
  step.place = found->second.place;
  held_.erase(found);
  program_.steps.push_back(step);
  return true;
}

void Builder::held_before(uint64_t name, uint64_t bytes, Step step, uint32_t stack) {
  if (bytes == 0 || bytes > kMostAsked || !held_.try_emplace(name, Held{program_.blocks, step.place}).second)
    return;
  step.what = Do::kAllocate;
  step.bytes = bytes;
  step.block = add_block(stack);
  before_.push_back(step);
}

uint16_t Builder::thread(uint64_t name) {
  const auto [entry, is_new] = threads_.try_emplace(name, uint16_t{0});
  if (!is_new) return entry->second;
  if (!left_.empty()) {
    entry->second = left_.back();
    left_.pop_back();
  } else {
    entry->second = static_cast<uint16_t>(sharing_.size() < kMostThreads ? sharing_.size()
                                                                         : threads_.size() % kMostThreads);
    if (entry->second == sharing_.size()) sharing_.push_back(0);
  }
  ++sharing_[entry->second];
  return entry->second;
}

void Builder::end_thread(uint64_t name, Step step) {
  const auto found = threads_.find(name);
  if (found == threads_.end()) return;
  step.what = Do::kThreadEnds;
  step.thread = found->second;
  if (--sharing_[found->second] == 0) {
    left_.push_back(found->second);
    program_.steps.push_back(step);
  }
  threads_.erase(found);
}

Program Builder::finish() {
  program_.threads = static_cast<uint32_t>(sharing_.empty() ? 1 : sharing_.size());
  program_.first_held = before_.size();
  if (!before_.empty()) {
    // Numbers of steps move along.
    for (Place& place : program_.places) {
      for (Place::Done& done : place.done) {
        done.upto += Place::Done::event(before_.size(), 0);
        done.seen += before_.size();
      }
      for (Place::InVain& wait : place.in_vain) wait.seen += before_.size();
    }
    if (!program_.steps.empty()) {
      for (Step& step : before_) step.time = program_.steps.front().time;
    }
    program_.steps.insert(program_.steps.begin(), before_.begin(), before_.end());
  }
  return std::move(program_);
}

}  // namespace cupool::replay
