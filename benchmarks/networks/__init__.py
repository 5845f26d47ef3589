"""The networks of the benchmarks, one file each: plain ``nn.Module`` code that ``torch.jit.script`` accepts."""
