"""Reads the blocks of a trace as docs/trace-format.md has them, without the command's reader."""

import struct
from pathlib import Path

HEAD = struct.Struct("<IIIHHQQQII")
STACKS, MODULES = 5, 6
PLACE, STACK, TEXT = 2, 3, 1
MODULE, GONE = 1, 2
TEXT_TYPE, CHOICE_TYPE = 7, 8
SHARED_TYPES = {3: 0, 4: 1, 5: 2}


class Numbers:
    """Varints and texts, one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self):
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def bytes(self):
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self):
        return self.bytes().decode(errors="replace")


class Trace:
    """The events of a file, in its order, and its stacks."""

    def __init__(self, path):
        self.texts, self.places, self.stacks, self.modules = {}, {}, {}, {}
        self.events = []
        self.unknown = set()  # stacks that an event named before they were told
        data, at = Path(path).read_bytes(), 0
        while len(data) - at >= HEAD.size:
            head = HEAD.unpack_from(data, at)
            content = data[at + HEAD.size : at + HEAD.size + head[2]]
            at += HEAD.size + head[2]
            {1: self.about, 2: self.some_events, 5: self.some_stacks, 6: self.some_modules}.get(head[3], lambda *_: 0)(head, Numbers(content))

    def about(self, _, numbers):
        for _ in range(4):
            numbers.number()
        for _ in range(4):
            numbers.text()
        self.choices = []
        for _ in range(numbers.number()):
            numbers.text()
            self.choices.append([numbers.text() for _ in range(numbers.number())])
        self.table = []
        for _ in range(numbers.number()):
            name = numbers.text()
            self.table.append((name, [(numbers.text(), numbers.number(), numbers.number()) for _ in range(numbers.number())]))
        self.calls = [numbers.text() for _ in range(numbers.number())]

    def some_events(self, head, numbers):
        time, shared, last = head[6], [0, 0, 0], {}
        for _ in range(head[9]):
            name, fields = self.table[numbers.number()]
            time += numbers.signed()
            mask, values = numbers.number(), last.setdefault(name, {field: 0 for field, _, _ in fields})
            now = {"event": name, "time": time, "thread": head[8]}
            for i, (field, kind, _) in enumerate(fields):
                told = mask >> i & 1
                if kind == TEXT_TYPE:
                    now[field] = numbers.text() if told else ""
                elif kind in SHARED_TYPES:
                    shared[SHARED_TYPES[kind]] += numbers.signed() if told else 0
                    now[field] = shared[SHARED_TYPES[kind]] & (1 << 64) - 1
                else:
                    values[field] = numbers.number() if told else values[field]
                    now[field] = values[field]
            if now.get("stack") and now["stack"] not in self.stacks:
                self.unknown.add(now["stack"])
            self.events.append(now)

    @staticmethod
    def records(head, numbers):
        for _ in range(head[9]):
            what, size = numbers.number(), numbers.number()
            yield what, Numbers(numbers.data[numbers.at : numbers.at + size])
            numbers.at += size

    def some_stacks(self, head, numbers):
        for what, fields in self.records(head, numbers):
            number = fields.number()
            if what == TEXT:
                self.texts[number] = fields.text()
            elif what == PLACE:
                self.places[number] = (self.texts[fields.number()], self.texts[fields.number()], fields.number())
            elif what == STACK:
                map_number, frames, address = fields.number(), [], 0
                for _ in range(fields.number()):
                    frame = fields.number()
                    if frame & 1:
                        frames.append(self.places[frame >> 1])
                        continue
                    half = frame >> 1
                    address += half >> 1 ^ -(half & 1)
                    frames.append(address)
                self.stacks[number] = (map_number, frames)

    def some_modules(self, head, numbers):
        for what, fields in self.records(head, numbers):
            number, map_number = fields.number(), fields.number()
            if what == MODULE:
                begin, size, bias = (fields.number() for _ in range(3))
                self.modules[number] = {"map": map_number, "gone": 1 << 64, "begin": begin, "end": begin + size, "bias": bias, "build_id": fields.bytes().hex(), "path": fields.text()}
            elif what == GONE:
                self.modules[number]["gone"] = map_number

    def frames(self, number):
        """Innermost first: (function, file, line) of Python, or (path, address in it, None)."""
        map_number, frames = self.stacks[number]
        return [frame if isinstance(frame, tuple) else self.native(frame - 1, map_number) for frame in frames]

    def native(self, address, map_number):
        for module in self.modules.values():
            if module["begin"] <= address < module["end"] and module["map"] <= map_number < module["gone"]:
                return module["path"], address - module["bias"], None
        return "", address, None

    def python(self, number):
        """The places of Python in a stack, innermost first."""
        return [frame for frame in self.stacks[number][1] if isinstance(frame, tuple)]
