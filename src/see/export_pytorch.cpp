// A trace as PyTorch's memory snapshot: a pickle with `segments` and `device_traces`, as
// torch.cuda.memory._snapshot() has them. PyTorch's viewer takes the events away from the last state, from
// the latest to the first. Host memory is no device's and is left out.
#include "see/device_events.hpp"
#include "see/exports.hpp"
#include "see/pickle_writer.hpp"

namespace cupool::see {
namespace {

class Snapshot {
 public:
  Snapshot(std::FILE* file, const Model& model, const Holders& holders)
      : out_(file), model_(model), holders_(holders), kept_frames_(holders.size(), kNone) {}

  void write(uint64_t last) {
    std::vector<DeviceEvents> devices;
    for (uint64_t i = 0; i < model_.devices; ++i) {
      devices.emplace_back(model_, i);
      devices.back().make();
    }
    out_.empty_dict();
    out_.mark();
    out_.key("segments");
    PickledList segments(out_);
    for (uint64_t i = 0; i < model_.devices; ++i) write_segments(segments, devices[i], i);
    segments.end();
    out_.key("device_traces");
    PickledList traces(out_);
    for (const DeviceEvents& device : devices) {
      traces.begin_item();
      write_trace(device, last);
    }
    traces.end();
    out_.key("allocator_settings");
    out_.empty_dict();
    out_.key("external_annotations");
    out_.empty_list();
    out_.set_all();
    out_.end();
  }

 private:
  void frames(uint32_t holder) {
    if (kept_frames_[holder] != kNone) return out_.get(kept_frames_[holder]);
    PickledList list(out_);
    const std::vector<uint32_t>& all = holders_.frames(holder);
    for (auto at = all.rbegin(); at != all.rend(); ++at) {
      const Frame& frame = holders_.table()[*at];
      list.begin_item();
      out_.empty_dict();
      out_.mark();
      out_.pair("name", frame.function);
      out_.pair("filename", frame.file.empty() ? frame.library : frame.file);
      out_.pair("line", frame.line);
      out_.set_all();
    }
    list.end();
    kept_frames_[holder] = out_.keep();
  }
  void no_frames() { out_.empty_list(); }

  uint64_t micro(uint64_t time) const {
    // As PyTorch has it: of the wall's clock.
    const tools::TraceAbout& about = model_.about();
    return (about.wall + time - about.monotonic) / 1000;
  }

  void write_trace(const DeviceEvents& device, uint64_t last) {
    PickledList list(out_);
    const size_t skipped = last == 0 || device.entries.size() <= last ? 0 : device.entries.size() - last;
    for (size_t i = skipped; i < device.entries.size(); ++i) {
      const DeviceEvents::Entry& one = device.entries[i];
      list.begin_item();
      out_.empty_dict();
      out_.mark();
      out_.pair("action", DeviceEvents::kNames[static_cast<size_t>(one.action)]);
      out_.pair(one.action == DeviceEvents::Action::kOutOfMemory ? "device_free" : "addr", one.address);
      out_.pair("size", one.size);
      out_.pair("time_us", micro(one.time));
      const bool is_life = one.life != kNone;
      out_.pair("stream", is_life ? model_.streams[model_.lives[one.life].stream] : 0);
      out_.key("frames");
      if (is_life &&
          (one.action == DeviceEvents::Action::kAlloc || one.action == DeviceEvents::Action::kSegmentAlloc)) {
        frames(holders_.of(model_.lives[one.life]));
      } else if (is_life) {
        const Life& life = model_.lives[one.life];
        if (life.free_stack == 0) {
          no_frames();
        } else {
          frames(holders_.of(life.free_stack, life.free_call));
        }
      } else {
        no_frames();
      }
      // (The viewer colours by it, and fails if there is none of the name that it has for what has none.)
      out_.pair("category", is_life ? model_.kind_name(model_.lives[one.life].kind) : std::string("unknown"));
      if (one.phase != kNone) out_.pair("user_metadata", model_.phase_names[one.phase]);
      out_.set_all();
    }
    list.begin_item();
    out_.empty_dict();
    out_.mark();
    out_.pair("action", "snapshot");
    for (const char* const name : {"addr", "size", "stream"}) out_.pair(name, uint64_t{0});
    out_.pair("time_us", micro(model_.last));
    out_.pair("category", "unknown");
    out_.set_all();
    list.end();
  }

  void write_segments(PickledList& list, const DeviceEvents& device, uint64_t number) {
    auto at = device.pieces.begin();
    while (at != device.pieces.end()) {
      const uint64_t begin = at->first;
      uint64_t end = begin + at->second.bytes;
      const bool is_chunk = at->second.is_chunk;
      // Chunks that lie side by side are one segment, as the viewer puts them together.
      for (++at; at != device.pieces.end() && is_chunk && at->second.is_chunk && at->first == end; ++at)
        end += at->second.bytes;
      list.begin_item();
      write_segment(device, number, begin, end, is_chunk);
    }
  }

  void write_segment(const DeviceEvents& device, uint64_t number, uint64_t begin, uint64_t end,
                     bool is_chunk) {
    uint64_t given = 0;
    uint64_t asked = 0;
    std::vector<uint32_t> lives;
    uint64_t until = begin;
    for (auto block = device.blocks.lower_bound(begin); block != device.blocks.end() && block->first < end;
         ++block) {
      const Life& life = model_.lives[block->second];
      if (block->first < until || block->first + DeviceEvents::room_of(life) > end) continue;
      until = block->first + DeviceEvents::room_of(life);
      given += DeviceEvents::room_of(life);
      asked += life.asked;
      lives.push_back(block->second);
    }
    out_.empty_dict();
    out_.mark();
    out_.pair("device", number);
    out_.pair("address", begin);
    out_.pair("total_size", end - begin);
    out_.pair("allocated_size", given);
    out_.pair("active_size", given);
    out_.pair("requested_size", asked);
    out_.pair("stream", uint64_t{0});
    out_.pair("segment_type", "large");
    out_.key("segment_pool_id");
    out_.two_zeros();
    out_.key("is_expandable");
    out_.truth(is_chunk);
    out_.key("frames");
    no_frames();
    out_.key("blocks");
    PickledList blocks(out_);
    uint64_t at = begin;
    const auto hole = [&](uint64_t upto) {
      if (upto == at) return;
      write_block(blocks, at, upto - at, 0, "inactive", kNone);
      at = upto;
    };
    for (const uint32_t one : lives) {
      const Life& life = model_.lives[one];
      hole(DeviceEvents::address_of(model_, life));
      write_block(blocks, at, DeviceEvents::room_of(life), life.asked, "active_allocated", holders_.of(life));
      at += DeviceEvents::room_of(life);
    }
    hole(end);
    blocks.end();
    out_.set_all();
  }

  void write_block(PickledList& list, uint64_t address, uint64_t size, uint64_t asked, const char* state,
                   uint32_t holder) {
    list.begin_item();
    out_.empty_dict();
    out_.mark();
    out_.pair("address", address);
    out_.pair("size", size);
    out_.pair("requested_size", asked);
    out_.pair("state", state);
    out_.key("frames");
    if (holder == kNone) {
      no_frames();
    } else {
      frames(holder);
    }
    out_.set_all();
  }

  Pickle out_;
  const Model& model_;
  const Holders& holders_;
  std::vector<uint32_t> kept_frames_;
};

}  // namespace

void write_pytorch(std::FILE* file, const Model& model, const Holders& holders, uint64_t last) {
  Snapshot(file, model, holders).write(last);
}

}  // namespace cupool::see
