"""Imports that the fork server does once for all runs."""

from __future__ import annotations

import warnings

import torch
import torch.distributed
import transformers
from transformers import (  # noqa: F401
    BertForMaskedLM,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    MixtralForCausalLM,
    T5ForConditionalGeneration,
    ViTForImageClassification,
)

import msprobe.pytorch  # noqa: F401

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="TF32 acceleration")
transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
