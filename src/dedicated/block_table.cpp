// See block_table.hpp.
#include "dedicated/block_table.hpp"

#include <iterator>

namespace cupool::dedicated {

// ---- Contexts.

std::vector<driver::Context> BlockTable::contexts(const Scope& scope) const {
  std::vector<driver::Context> all;
  for (const auto& [context, owner] : holdings_) {
    if (scope.covers(*owner)) all.push_back(context);
  }
  return all;
}

uint64_t BlockTable::idle_bytes(const Scope& scope) const {
  uint64_t bytes = 0;
  for (const auto& [context, owner] : holdings_) {
    if (scope.covers(*owner)) bytes += owner->idle;
  }
  return bytes;
}

uint64_t BlockTable::taken_bytes(const Scope& scope) const {
  uint64_t bytes = 0;
  for (const auto& [context, owner] : holdings_) {
    if (scope.covers(*owner)) bytes += owner->taken();
  }
  return bytes;
}

uint64_t BlockTable::largest_idle(const Scope& scope) const {
  uint64_t largest = 0;
  for (const auto& [context, owner] : holdings_) {
    if (scope.covers(*owner) && !owner->by_size.empty())
      largest = std::max(largest, owner->by_size.rbegin()->first.first);
  }
  return largest;
}

uint64_t BlockTable::most_idle(const Scope& scope, uint64_t wanted, bool in_steps) const {
  const bool by_steps = wanted > kMiB && in_steps;
  uint64_t bytes = by_steps && scope.context == nullptr ? steps_.mixed() : 0;
  for (const auto& [context, owner] : holdings_) {
    if (scope.covers(*owner))
      bytes += by_steps ? owner->idle_steps : owner->idle + kDriverStep * owner->by_age.size();
  }
  return bytes;
}

// ---- Blocks.

// The block that contains an address, or else the first behind it.
BlockTable::Blocks::iterator BlockTable::find_in(Address start) {
  const auto next = blocks_.upper_bound(start);
  if (next == blocks_.begin()) return next;
  const auto before = std::prev(next);
  return start - before->first < before->second.bytes ? before : next;
}

BlockTable::Entry* BlockTable::containing(Address address) { return first_in(address, 1); }

BlockTable::Entry* BlockTable::first_in(Address start, uint64_t bytes) {
  const auto found = find_in(start);
  return found != blocks_.end() && found->first <= last_of(start, bytes) ? &*found : nullptr;
}

Block* BlockTable::starting_at(Address start) {
  const auto found = blocks_.find(start);
  return found == blocks_.end() ? nullptr : &found->second;
}

BlockTable::Entry* BlockTable::live_at(Address address) {
  Entry* const found = containing(address);
  return found != nullptr && address - found->first < found->second.asked ? found : nullptr;
}

std::vector<Address> BlockTable::starts_of(const Holdings& owner) const {
  std::vector<Address> starts;
  for (const auto& [start, block] : blocks_) {
    if (block.owner == &owner) starts.push_back(start);
  }
  return starts;
}

Block BlockTable::remove(Address start) {
  const auto found = blocks_.find(start);
  const Block block = found->second;
  remove_idle(start, block);
  steps_.note(start, block.bytes, &block.owner->idle_steps, {.blocks = -1});
  blocks_.erase(found);
  return block;
}

// ---- Idle blocks.

void BlockTable::add_idle(Address start, Block& block) {
  Holdings& owner = *block.owner;
  block.missed_at = owner.admission.missed();
  if (block.mark.taints == 0) owner.by_size.emplace(Holdings::Size{block.bytes, block.age}, start);
  owner.by_age.emplace(block.age, start);
  owner.idle += block.bytes;
  steps_.note(start, block.bytes, &owner.idle_steps, {.idle = 1});
  if (!block.comes_again) owner.newcomers += block.steps();
}

// (A live block, and one whose free is pending, are in no index.)
void BlockTable::remove_idle(Address start, const Block& block) {
  Holdings& owner = *block.owner;
  const auto found = owner.by_age.find(block.age);
  if (found == owner.by_age.end() || found->second != start) return;
  owner.by_age.erase(found);
  owner.by_size.erase({block.bytes, block.age});
  owner.idle -= block.bytes;
  steps_.note(start, block.bytes, &owner.idle_steps, {.idle = -1});
  if (!block.comes_again) owner.newcomers -= block.steps();
}

void BlockTable::hand_out(Entry& entry, uint64_t bytes) {
  Block& block = entry.second;
  remove_idle(entry.first, block);
  block.owner->admission.note_live(block.owner->taken());
  block.asked = bytes;
  block.comes_again = true;
  block.mark = {};
}

}  // namespace cupool::dedicated
