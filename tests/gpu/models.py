"""Four small trainings in plain PyTorch, each a different pattern of allocations: a transformer at five lengths,
convolutions at three picture sizes, a llama-like model at ragged lengths in bfloat16, and attention over graphs.

A task gives a model, the batches of a round (tensors on the host) and the loss. Everything is drawn from fixed seeds,
and only operations with a deterministic form are used, so that two runs can be compared bit by bit.
"""

import math

import torch
from torch import nn
from torch.nn import functional


def causal_attention(query, key, value):
    """Written out: the fused kernels have no deterministic backward pass in every precision."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    length = query.shape[-2]
    mask = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    return torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ value


def token_batch(generator, vocabulary, count, length):
    return [torch.randint(vocabulary, (count, length + 1), generator=generator)]


def next_token_loss(model, tokens):
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), tokens[:, 1:].reshape(-1))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        count, length, width = x.shape
        parts = self.mix(self.before(x)).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = causal_attention(query, key, value).transpose(1, 2).reshape(count, length, width)
        x = x + functional.dropout(self.out(mixed), 0.1, self.training)
        return x + functional.dropout(self.down(functional.gelu(self.up(self.between(x)))), 0.1, self.training)


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, longest):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*[TransformerBlock(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


class TransformerTask:
    def __init__(self, small):
        self.vocabulary, self.count = (100, 2) if small else (8192, 16)
        self.lengths = (8, 12, 16, 20, 24) if small else (96, 160, 224, 288, 352)
        self.shape = (32, 2, 2) if small else (512, 8, 6)

    def model(self):
        return Transformer(self.vocabulary, *self.shape, max(self.lengths))

    def batches(self, generator):
        return [token_batch(generator, self.vocabulary, self.count, length) for length in self.lengths]

    loss = staticmethod(next_token_loss)


class RootMeanSquareNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotate(x):
    """Rotary positions over the last dimension."""
    half = x.shape[-1] // 2
    rates = 10000 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * rates
    first, second = x.float().split(half, dim=-1)
    sine, cosine = angles.sin(), angles.cos()
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1).type_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, shared):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.before, self.between = RootMeanSquareNorm(width), RootMeanSquareNorm(width)
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, shared * self.size, bias=False)
        self.value = nn.Linear(width, shared * self.size, bias=False)
        hidden = width * 8 // 3
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        count, length, width = x.shape
        y = self.before(x)
        query = self.query(y).view(count, length, self.heads, self.size).transpose(1, 2)
        key = self.key(y).view(count, length, self.shared, self.size).transpose(1, 2)
        value = self.value(y).view(count, length, self.shared, self.size).transpose(1, 2)
        times = self.heads // self.shared
        key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
        mixed = causal_attention(rotate(query), rotate(key), value)
        x = x + self.out(mixed.transpose(1, 2).reshape(count, length, width))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary, width, heads, shared, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[LlamaBlock(width, heads, shared) for _ in range(layers)])
        self.norm, self.head = RootMeanSquareNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


class LlamaTask:
    """No two batches need have the same length, as with text that is not padded to a common one."""

    def __init__(self, small):
        self.vocabulary, self.count = (100, 2) if small else (8192, 8)
        self.shortest, self.longest = (5, 20) if small else (64, 640)
        self.shape = (32, 4, 2, 2) if small else (512, 8, 2, 8)

    def model(self):
        return Llama(self.vocabulary, *self.shape)

    def batches(self, generator):
        lengths = torch.randint(self.shortest, self.longest, (8,), generator=generator).tolist()
        return [token_batch(generator, self.vocabulary, self.count, length) for length in lengths]

    def loss(self, model, tokens):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            return next_token_loss(model, tokens)


class ConvolutionBlock(nn.Module):
    def __init__(self, narrow, wide, stride):
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(wide), nn.BatchNorm2d(wide)
        self.past = nn.Conv2d(narrow, wide, 1, stride, bias=False)

    def forward(self, x):
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.past(x))


class ConvolutionTask:
    def __init__(self, small):
        self.count, self.sizes, self.width = (2, (16, 24, 32), 4) if small else (32, (96, 128, 160), 32)

    def model(self):
        width = self.width
        steps = [(3, width, 1), (width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1),
                 (2 * width, 4 * width, 2), (4 * width, 4 * width, 1), (4 * width, 8 * width, 2)]
        return nn.Sequential(*[ConvolutionBlock(*step) for step in steps], nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(8 * width, 100))

    def batches(self, generator):
        return [[torch.randn(self.count, 3, size, size, generator=generator),
                 torch.randint(100, (self.count,), generator=generator)] for size in self.sizes]

    @staticmethod
    def loss(model, pictures, labels):
        return functional.cross_entropy(model(pictures), labels)


class GraphAttention(nn.Module):
    def __init__(self, narrow, wide, heads):
        super().__init__()
        self.heads, self.wide = heads, wide
        self.value = nn.Linear(narrow, heads * wide, bias=False)
        self.of_source = nn.Parameter(torch.randn(heads, wide) / wide**0.5)
        self.of_target = nn.Parameter(torch.randn(heads, wide) / wide**0.5)

    def forward(self, x, source, target):
        h = self.value(x).view(-1, self.heads, self.wide)
        nodes = h.shape[0]
        by_source, by_target = (h * self.of_source).sum(-1), (h * self.of_target).sum(-1)
        score = functional.leaky_relu(by_source.index_select(0, source) + by_target.index_select(0, target), 0.2)
        with torch.no_grad():
            top = torch.full((nodes, self.heads), -1e9, dtype=score.dtype, device=x.device)
            top = top.scatter_reduce(0, target[:, None].expand_as(score), score, "amax")
        weight = torch.exp(score - top.index_select(0, target))
        total = torch.zeros(nodes, self.heads, dtype=weight.dtype, device=x.device).index_add(0, target, weight)
        share = weight / total.index_select(0, target)
        message = h.index_select(0, source) * share.unsqueeze(-1)
        return torch.zeros_like(h).index_add(0, target, message).flatten(1)


class GraphNetwork(nn.Module):
    def __init__(self, features, wide, heads, classes):
        super().__init__()
        self.first = GraphAttention(features, wide, heads)
        self.second = GraphAttention(heads * wide, wide, heads)
        self.third = GraphAttention(heads * wide, classes, 1)

    def forward(self, x, source, target):
        x = functional.elu(self.first(x, source, target))
        x = functional.dropout(functional.elu(self.second(x, source, target)), 0.3, self.training)
        return self.third(x, source, target)


class GraphTask:
    def __init__(self, small):
        self.sizes = (20, 30, 25) if small else (8000, 16000, 12000)
        self.shape = (8, 4, 2, 5) if small else (64, 32, 4, 16)

    def model(self):
        return GraphNetwork(*self.shape)

    def batches(self, generator):
        graphs = []
        for nodes in self.sizes:
            own = torch.arange(nodes)
            source, target = torch.randint(nodes, (2, 8 * nodes), generator=generator)
            graphs.append([torch.randn(nodes, self.shape[0], generator=generator), torch.cat((source, own)),
                           torch.cat((target, own)), torch.randint(self.shape[3], (nodes,), generator=generator)])
        return graphs

    @staticmethod
    def loss(model, features, source, target, labels):
        return functional.cross_entropy(model(features, source, target), labels)


TASKS = {"transformer": TransformerTask, "convolution": ConvolutionTask, "llama": LlamaTask, "graph": GraphTask}
