"""Speech models of torchaudio."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from .registry import Inputs, model


def frames(batch: int, length: int, channels: int) -> Inputs:
    return torch.randn(batch, length, channels), length - torch.arange(batch) * 4


def speech(name: str, inputs: Callable[[], Inputs], *arguments: Any, **options: Any) -> None:
    make = options.pop("make", name)

    def made() -> nn.Module:
        result: nn.Module = getattr(import_module("torchaudio.models"), make)(*arguments, **options)
        return result

    model(f"torchaudio_{name.lower()}", inputs, "torchaudio")(made)


speech("Conformer", lambda: frames(4, 40, 32), 32, 4, 64, 3, 7, dropout=0.1)
speech(
    "Emformer",
    lambda: frames(4, 44, 32),
    *(32, 4, 64, 3, 8),
    dropout=0.1,
    left_context_length=8,
    right_context_length=4,
)
speech("ConvTasNet", lambda: (torch.randn(2, 1, 800),), enc_num_feats=32, msk_num_feats=16, msk_num_hidden_feats=32)
speech("Wav2Letter", lambda: (torch.randn(2, 1, 3200),), 10)
speech(
    "wav2vec2",
    lambda: (torch.randn(2, 3200), torch.tensor([3200, 2800])),
    make="wav2vec2_model",
    extractor_mode="group_norm",
    extractor_conv_layer_config=[(32, 10, 5), (32, 3, 2), (32, 3, 2)],
    extractor_conv_bias=False,
    encoder_embed_dim=48,
    encoder_projection_dropout=0.1,
    encoder_pos_conv_kernel=8,
    encoder_pos_conv_groups=4,
    encoder_num_layers=3,
    encoder_num_heads=4,
    encoder_attention_dropout=0.1,
    encoder_ff_interm_features=96,
    encoder_ff_interm_dropout=0.1,
    encoder_dropout=0.1,
    encoder_layer_norm_first=False,
    encoder_layer_drop=0.1,
    aux_num_out=10,
)


def utterances() -> Inputs:
    return (
        torch.randn(2, 36, 20),
        torch.tensor([32, 28], dtype=torch.int32),
        torch.randint(0, 10, (2, 6), dtype=torch.int32),
        torch.tensor([6, 5], dtype=torch.int32),
        None,
    )


speech(
    "rnnt",
    utterances,
    make="emformer_rnnt_model",
    input_dim=20,
    encoding_dim=48,
    num_symbols=10,
    segment_length=16,
    right_context_length=4,
    time_reduction_input_dim=16,
    time_reduction_stride=4,
    transformer_num_heads=4,
    transformer_ffn_dim=96,
    transformer_num_layers=2,
    transformer_dropout=0.1,
    transformer_activation="gelu",
    transformer_left_context_length=8,
    transformer_max_memory_size=0,
    transformer_weight_init_scale_strategy="depthwise",
    transformer_tanh_on_mem=True,
    symbol_embedding_dim=24,
    num_lstm_layers=2,
    lstm_layer_norm=True,
    lstm_layer_norm_epsilon=1e-3,
    lstm_dropout=0.1,
)
speech(
    "Tacotron2",
    lambda: (
        torch.randint(0, 20, (2, 12)),
        torch.tensor([12, 9]),
        torch.randn(2, 20, 10),
        torch.tensor([10, 8]),
    ),
    n_mels=20,
    n_symbol=20,
    symbol_embedding_dim=32,
    encoder_embedding_dim=32,
    decoder_rnn_dim=32,
    attention_rnn_dim=32,
    attention_hidden_dim=16,
    prenet_dim=16,
    postnet_embedding_dim=32,
)
