"""The tiny model's tokenizer: byte-level BPE of about 430 ids, trained on our own texts.

Few merges on purpose: nearly every CJK character and emoji takes several tokens.
`tokenizers` is imported inside the functions, since the control plane does without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from elasticd.demo import texts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCAB_SIZE = 432
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
CONTROL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
"""Never shown to a client."""
MARKUP_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""One id each, as parsers of reasoning and tool calls expect, but ordinary text."""

# Words that steer the model; repeated in the training corpus so that each becomes one token.
_KEYWORDS = " think tool\nThink\nTool\nthink\ntool tools Use Please\nuser\nassistant\nsystem\n"
_KEYWORD_WEIGHT = 60

CHAT_TEMPLATE = """\
{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content -%}
{%- for part in content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'tool' %}Result: {% endif %}{{ text(message.content) }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{{ '\\n' if message.content or not loop.first }}<tool_call>
{"name": {{ function.name | tojson }}, "arguments": {{ function.arguments
   if function.arguments is string else function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


def corpus() -> list[str]:
    """Everything the tokenizer learns its merges from."""
    plain = [part for text in texts.PLAIN for part in (text.prompt, text.topic, text.body)]
    special = [
        part for text in (*texts.THINKING, *texts.TOOLS) for part in (text.prompt, text.answer)
    ]
    return plain + special + list(texts.OPENERS) + [_KEYWORDS] * _KEYWORD_WEIGHT


def train_tokenizer() -> Tokenizer:
    """The same tokenizer every time: the trainer has no randomness."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(MARKUP_TOKENS),
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A",
        special_tokens=[(END_OF_TEXT, tokenizer.token_to_id(END_OF_TEXT))],
    )
    tokenizer.add_tokens([AddedToken(token, special=False) for token in MARKUP_TOKENS])
    return tokenizer


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of `text` itself, as a chat prompt is encoded."""
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def bare_ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a prompt without a chat around it: a token in front says that it is one."""
    return list(tokenizer.encode(text).ids)


def text_of(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of `ids`, markup and control tokens included."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))


def id_of(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token that there is."""
    number = tokenizer.token_to_id(token)
    assert number is not None, token
    return int(number)


def tokenizer_config() -> dict[str, Any]:
    """`tokenizer_config.json`: how Hugging Face's loader is to read `tokenizer.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
        "bos_token": END_OF_TEXT,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "chat_template": CHAT_TEMPLATE,
    }


def chat_prompt(user: str, system: str | None = None) -> str:
    """What `CHAT_TEMPLATE` makes of one user message."""
    head = "" if system is None else f"{TURN_START}system\n{system}{TURN_END}\n"
    return f"{head}{TURN_START}user\n{user}{TURN_END}\n{TURN_START}assistant\n"
