"""Reads what `cupool report` writes for other viewers, by the published forms: protocol buffers of Perfetto and pprof, and
PyTorch's snapshot as its viewer goes through it."""

import gzip


def fields(data):
    """(number, value) of each field of a message; an embedded one is bytes."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            found.append((number, varint()))
        elif kind == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError("a field ends behind its message")
            found.append((number, data[at:at + size]))
            at += size
        else:
            raise ValueError(f"a field of kind {kind}")
    return found


def all_of(message, number):
    return [value for one, value in message if one == number]


def only(message, number, default=0):
    values = all_of(message, number)
    return values[0] if values else default


def packed(data):
    """The numbers of a packed field."""
    out, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out.append(value)
            value = shift = 0
    return out


def read_pprof(path):
    """[(frames from the innermost, {type: value})] of a profile."""
    profile = fields(gzip.decompress(path.read_bytes()))
    texts = [value.decode() for value in all_of(profile, 6)]
    assert texts[0] == ""
    types = [texts[only(fields(one), 1)] for one in all_of(profile, 1)]
    functions = {only(one, 1): texts[only(one, 2)] for one in map(fields, all_of(profile, 5))}
    mappings = {only(one, 1) for one in map(fields, all_of(profile, 3))}
    places = {}
    for one in map(fields, all_of(profile, 4)):
        assert only(one, 2) in mappings
        places[only(one, 1)] = functions[only(fields(only(one, 4)), 1)]
    samples = []
    for one in map(fields, all_of(profile, 2)):
        values = packed(only(one, 2))
        assert len(values) == len(types)
        samples.append(([places[number] for number in packed(only(one, 1))], dict(zip(types, values))))
    return samples


def read_perfetto(path):
    """What a viewer needs: tracks by number, counters, slices, and the heap profile as [(frames, bytes)]."""
    packets = [fields(one) for number, one in fields(path.read_bytes()) if number == 1]
    tracks, counters, slices, open_slices, heap = {}, {}, [], {}, []
    tables = {5: {}, 6: {}, 7: {}}
    assert only(packets[0], 13) == 1, "the first packet begins the sequence"
    for packet in packets:
        for one in map(fields, all_of(packet, 60)):
            tracks[only(one, 1)] = one
        for interned in map(fields, all_of(packet, 12)):
            for table, rows in tables.items():
                for row in map(fields, all_of(interned, table)):
                    rows[only(row, 1)] = row
        for profile in map(fields, all_of(packet, 37)):
            for dump in map(fields, all_of(profile, 5)):
                for sample in map(fields, all_of(dump, 2)):
                    stack = tables[7][only(sample, 1)]
                    frames = [only(tables[5][only(tables[6][frame], 2)], 2).decode() for frame in all_of(stack, 2)]
                    heap.append((frames, only(sample, 2)))
    # (A viewer sorts by time, and leaves those of the same time as they came.)
    for packet in sorted((one for one in packets if all_of(one, 11)), key=lambda one: only(one, 8)):
        event = fields(only(packet, 11))
        track, kind = only(event, 11), only(event, 9)
        assert track in tracks
        if kind == 4:
            counters.setdefault(only(tracks[track], 2).decode(), []).append((only(packet, 8), only(event, 30)))
        elif kind == 1:
            open_slices.setdefault(track, []).append((only(packet, 8), only(event, 23).decode()))
        elif kind == 2:
            begin, name = open_slices[track].pop()
            slices.append((track, name, begin, only(packet, 8)))
    assert not any(open_slices.values()), "a slice does not end"
    return tracks, counters, slices, heap


def walk_snapshot(snapshot, device):
    """As PyTorch's viewer: from the last state backwards through the events, at each of which every block must lie in a
    segment. Returns the most bytes in blocks, and the most in segments."""
    segments = {one["address"]: one["total_size"] for one in snapshot["segments"] if one["device"] == device}
    blocks = {}
    for segment in snapshot["segments"]:
        if segment["device"] != device:
            continue
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at, "blocks of a segment follow one another"
            if block["state"] == "active_allocated":
                blocks[at] = block["requested_size"]
            at += block["size"]
        assert at == segment["address"] + segment["total_size"], "blocks fill their segment"

    def check():
        starts = sorted(segments)
        for address in blocks:
            low, high = 0, len(starts)
            while low < high:
                middle = (low + high) // 2
                if starts[middle] <= address:
                    low = middle + 1
                else:
                    high = middle
            assert low and address < starts[low - 1] + segments[starts[low - 1]], "a block lies in no segment"

    def add(address, size, merges):
        if merges:
            for other in list(segments):
                if other + segments[other] == address:
                    address, size = other, size + segments.pop(other)
                elif address + size == other:
                    size += segments.pop(other)
        segments[address] = size

    def take(address, size):
        home = next(one for one in segments if one <= address and address + size <= one + segments[one])
        end = home + segments.pop(home)
        if home < address:
            segments[home] = address - home
        if address + size < end:
            segments[address + size] = end - address - size

    check()
    most, most_reserved = sum(blocks.values()), sum(segments.values())
    for event in reversed(snapshot["device_traces"][device]):
        action = event["action"]
        if action == "free_completed":
            assert event["addr"] not in blocks
            blocks[event["addr"]] = event["size"]
        elif action == "free_requested":
            assert event["addr"] in blocks
        elif action == "alloc":
            assert blocks.pop(event["addr"]) == event["size"]
        elif action in ("segment_free", "segment_unmap"):
            add(event["addr"], event["size"], action == "segment_unmap")
        elif action == "segment_alloc":
            assert segments.pop(event["addr"]) == event["size"]
        elif action == "segment_map":
            take(event["addr"], event["size"])
        else:
            assert action in ("oom", "snapshot")
        if len(blocks) < 200 or action.startswith("segment"):
            check()
        most = max(most, sum(blocks.values()))
        most_reserved = max(most_reserved, sum(segments.values()))
    return most, most_reserved
